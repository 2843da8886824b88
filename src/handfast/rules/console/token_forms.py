# SPDX-License-Identifier: Apache-2.0
"""A form for a new bootstrap token: what it asks for, or what is wrong with it, at which field. It makes no token.

1. Every field is judged by the rules of `handfast token create`. Each error stands at its field, and all of them are told at once.
2. Of a form that has an error nothing is made.
3. A list may be written with commas, with spaces, or on lines.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import first_objects, token_lifetimes, token_limits, tokens
from handfast.rules.console import moments

T = TypeVar("T")

DESCRIPTION: Final = "description"
TTL: Final = "ttl"
MAX_USES: Final = "max-uses"
NODES: Final = "nodes"
CIDRS: Final = "cidrs"
GROUPS: Final = "groups"
# What stands in the form before somebody has typed anything: one machine, for a day.
EMPTY: Final[Mapping[str, str]] = {
    DESCRIPTION: "",
    TTL: token_lifetimes.DEFAULT,
    MAX_USES: "1",
    NODES: "",
    CIDRS: "",
    GROUPS: first_objects.NODE_GROUP,
    tokens.SIGNING: "yes",
    tokens.AUTHENTICATION: "yes",
}
_LONGEST: Final = 4096
_TOO_LONG: Final = f"at most {_LONGEST} characters are read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A token that is to be made."""

    ttl: datetime.timedelta | None
    usages: tuple[str, ...]
    groups: tuple[str, ...]
    description: str
    limits: token_limits.Limits

    def document(self, token: tokens.Token, now: datetime.datetime) -> objects.Document:
        """Its Secret."""
        document = tokens.secret_document(
            token,
            expiration=None if self.ttl is None else now + self.ttl,
            usages=self.usages,
            groups=self.groups,
            description=self.description,
        )
        if annotations := token_limits.as_annotations(self.limits):
            document["metadata"]["annotations"] = annotations
        return document

    def warning(self, now: datetime.datetime) -> str:
        """What somebody with the token can do, and until when."""
        if tokens.AUTHENTICATION not in self.usages:
            return "Whoever has it can verify the cluster with it, and nothing more: nobody logs in with it."
        limited = self.limits != token_limits.Limits()
        which = "as nodes, within its limits" if limited else "as nodes of any name, from anywhere"
        end = "without end: it never expires" if self.ttl is None else f"until {moments.exact(now + self.ttl)}"
        return f"Whoever has it can join machines {which}, {end}. A node can read the Secrets of the Pods bound to it."


class Refusal(errors.Refused):
    """A form with errors; `fields` has them by field (1)."""

    reason = "BadTokenForm"

    def __init__(self, fields: Mapping[str, str]) -> None:
        many = len(fields) != 1
        count = f"{len(fields)} fields are not as they should be" if many else "1 field is not as it should be"
        super().__init__(f"{count}; no token was made", hint="correct what is marked, and send it again")
        self.fields = fields


class _Fields:
    """What was typed, and what is wrong with it so far."""

    def __init__(self, form: Mapping[str, str]) -> None:
        self.texts = {name: form.get(name, "").strip() for name in EMPTY}
        self.wrong = {name: _TOO_LONG for name, text in self.texts.items() if len(text) > _LONGEST}

    def read(self, name: str, judge: Callable[[str], T]) -> T | None:
        """What a field says; None: nothing, or nothing that can be read."""
        text = self.texts[name]
        if not text or name in self.wrong:
            return None
        try:
            return judge(text)
        except errors.Refused as refused:
            message = refused.message.removeprefix(f"{name}: ")
            self.wrong[name] = f"{message}; {refused.hint}" if refused.hint else message
            return None


def read(form: Mapping[str, str]) -> Wish:
    """The token that a form asks for, else a `Refusal`."""
    fields = _Fields(form)
    usages = tuple(usage for usage in tokens.USAGES if fields.texts[usage])
    logs_in = tokens.AUTHENTICATION in usages
    # 1. each field by itself
    groups = fields.read(GROUPS, _groups) or (first_objects.NODE_GROUP,)
    wanted = Wish(
        ttl=fields.read(TTL, lambda text: token_lifetimes.parse(text, TTL)),
        usages=usages,
        groups=groups if logs_in else (),
        description=fields.read(DESCRIPTION, _description) or "",
        limits=token_limits.Limits(
            max_uses=fields.read(MAX_USES, lambda text: token_limits.parse_max_uses(text, MAX_USES)),
            nodes=fields.read(NODES, lambda text: token_limits.parse_nodes(_commas(text), NODES)) or (),
            cidrs=fields.read(CIDRS, lambda text: token_limits.parse_cidrs(_commas(text), CIDRS)) or (),
        ),
    )
    # … and what only several of them tell
    if not fields.texts[TTL]:
        fields.wrong[TTL] = "say how long it lives, as in 24h; 0 is for ever"
    if not usages:
        fields.wrong[tokens.AUTHENTICATION] = "choose at least one: nobody could use such a token"
    elif not logs_in and fields.texts[GROUPS] not in {"", EMPTY[GROUPS]}:
        fields.wrong[GROUPS] = "leave it as it was: a token that nobody logs in with has no groups"
    # 2. nothing is made of it
    if fields.wrong:
        raise Refusal(fields.wrong)
    return wanted


def _commas(text: str) -> str:
    # 3. commas, spaces or lines
    return ",".join(text.replace(",", " ").split())


def _groups(text: str) -> tuple[str, ...]:
    groups = tuple(dict.fromkeys(filter(None, _commas(text).split(","))))
    for group in groups:
        tokens.validate_group(group)
    return groups


def _description(text: str) -> str:
    tokens.validate_description(text)
    if not text.isprintable():
        raise errors.Refused("one line of characters that can be printed is allowed, and nothing else")
    return text
