# SPDX-License-Identifier: Apache-2.0
"""How bootstrap tokens are shown: the columns, documents and join commands of kubeadm, and what stands against a token.

It reads Secrets that somebody else fetched, and writes no file and no object. A listing shows the secret of every
token: that is what it is for. So nobody but its reader gets it.

1. A Secret that kubeadm would not list is not listed, with its words for it.
2. Text has kubeadm's columns and widths, so that whoever cuts them by word or by column goes on doing so. One thing is
   different: a token without an end does not shift the rest of its line.
3. JSON and YAML are kubeadm's `BootstrapToken`, one document for each token, without what is not set. What Kubernetes
   has no word for stands below `handfast`.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import endpoints, token_limits, tokens

API_VERSION: Final = "output.kubeadm.k8s.io/v1alpha3"
KIND: Final = "BootstrapToken"
COLUMNS: Final = ("TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS")
WIDE_COLUMNS: Final = (*COLUMNS, "USES", "NODES", "FROM", "LAST USE")

_FOREVER: Final = "<forever>"
_NEVER: Final = "<never>"
_NONE: Final = "<none>"
_INVALID: Final = "<invalid>"
_ANY: Final = "<any>"
# kubeadm pads these cells itself, and has every column ten wide at least, with three blanks behind the widest cell.
_PADDED: Final = {"TTL": 9, "USAGES": 22, "DESCRIPTION": 56}
_LEAST: Final = 10
_GAP: Final = 3
# What needs no quotes in YAML: it starts with a letter, so that no token is taken for a number.
_PLAIN: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9 .,:/'()*_-]*[A-Za-z0-9.,)*_-])?")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
# Largest unit first: its letter, its seconds.
_UNITS: Final = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One token as it is shown. Only `token` holds the secret, and it does not print."""

    token: tokens.Token
    expires: datetime.datetime | None = None
    usages: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    description: str = ""
    limits: token_limits.Limits = field(default_factory=token_limits.Limits)
    # The newest uses, and how many there were altogether.
    uses: tuple[token_limits.Use, ...] = ()
    used: int = 0
    # Why limits and uses cannot be read, where that is so: such a token is refused everywhere, but it is there.
    unreadable: str = ""


def view(document: objects.Document) -> View:
    """What a Secret says of its token, or Refused in kubeadm's words (1)."""
    secret = tokens.read(document)
    tokens.require_consistent(secret)
    try:
        expires = tokens.parse_expiration(secret.expiration)
    except errors.Refused as refused:
        raise errors.Refused(
            f"can't parse expiration time of bootstrap token {json.dumps(secret.name)}: {refused.message}",
            reason=refused.reason,
        ) from None
    groups = secret.extra_groups if secret.extra_groups is not None else secret.old_groups
    shown = View(
        token=secret.token,
        expires=expires,
        usages=secret.usages,
        groups=tuple(groups.split(",")) if groups else (),
        description=secret.description,
    )
    try:
        limits, listed, used = token_limits.read(document), token_limits.uses(document), token_limits.count(document)
    except errors.Refused as refused:
        return dataclasses.replace(shown, unreadable=refused.message)
    return dataclasses.replace(shown, limits=limits, uses=tuple(listed), used=used)


def short_duration(duration: datetime.timedelta) -> str:
    """A duration in its largest unit, as kubeadm prints what is left; a second past the end is still none."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return _INVALID
    for letter, size in _UNITS:
        if seconds >= size:
            return f"{seconds // size}{letter}"
    return f"{max(seconds, 0)}s"


def table(views: Sequence[View], now: datetime.datetime, *, wide: bool = False) -> str:
    """The listing for people (2); nothing for no token, not even a head."""
    if not views:
        return ""
    lines_of_cells = [WIDE_COLUMNS if wide else COLUMNS, *rows(views, now, wide=wide)]
    padded = [
        [cell.ljust(_PADDED.get(name, 0)) for name, cell in zip(WIDE_COLUMNS, row, strict=False)]
        for row in lines_of_cells
    ]
    widths = [max(_LEAST, *(len(cell) + _GAP for cell in column)) for column in zip(*padded, strict=True)]
    lines = (
        "".join(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)) + row[-1] for row in padded
    )
    return "\n".join(line.rstrip() for line in lines)


def rows(views: Sequence[View], now: datetime.datetime, *, wide: bool = False) -> list[tuple[str, ...]]:
    """The cells of the listing, without their heads."""
    return [(*_cells(each, now), *(_wide_cells(each) if wide else ())) for each in views]


def _cells(each: View, now: datetime.datetime) -> tuple[str, ...]:
    return (
        each.token.text,
        _FOREVER if each.expires is None else short_duration(each.expires - now),
        _NEVER if each.expires is None else objects.timestamp(each.expires),
        ",".join(each.usages) or _NONE,
        _short(each.description) or _NONE,
        ",".join(each.groups) or _NONE,
    )


def _wide_cells(each: View) -> tuple[str, ...]:
    if each.unreadable:
        return (_INVALID,) * (len(WIDE_COLUMNS) - len(COLUMNS))
    last = each.uses[-1] if each.uses else None
    return (
        f"{each.used}" if each.limits.max_uses is None else f"{each.used}/{each.limits.max_uses}",
        ",".join(each.limits.nodes) or _ANY,
        ",".join(map(str, each.limits.cidrs)) or _ANY,
        _NONE if last is None else f"{objects.timestamp(last.time)} {_one_line(last.node) or _NONE} from {last.source}",
    )


def _short(description: str) -> str:
    """Other programs may have written a longer one than is allowed here."""
    text = _one_line(description)
    return text if len(text) <= tokens.MAX_DESCRIPTION else f"{text[: tokens.MAX_DESCRIPTION - 1]}…"


def _one_line(text: str) -> str:
    """Free text must not break out of its cell, or bring escapes to a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def document(each: View) -> dict[str, Any]:
    """A `BootstrapToken` (3)."""
    fields = {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "token": each.token.text,
        "description": each.description,
        "expires": None if each.expires is None else objects.timestamp(each.expires),
        "usages": list(each.usages),
        "groups": list(each.groups),
        "handfast": _own(each),
    }
    return {key: value for key, value in fields.items() if value}


def _own(each: View) -> dict[str, Any]:
    fields = {
        "maxUses": each.limits.max_uses,
        "nodes": list(each.limits.nodes),
        "cidrs": [str(network) for network in each.limits.cidrs],
        "used": each.used,
        "uses": [use_document(use) for use in each.uses],
        "unreadable": each.unreadable,
    }
    return {key: value for key, value in fields.items() if value}


def use_document(use: token_limits.Use) -> dict[str, str]:
    """A use as it is shown: when, for which node, by which key, from where."""
    return {"time": objects.timestamp(use.time), "node": use.node, "key": use.key, "source": use.source}


def documents(rows: Iterable[Mapping[str, Any]], form: str) -> str:
    """Documents one after the other, as kubeadm writes `json` and `yaml`."""
    if form == "json":
        return "\n".join(json.dumps(each, indent=4, ensure_ascii=False) for each in rows)
    return "\n---\n".join("\n".join(_yaml(each)) for each in rows)


def _yaml(value: Mapping[str, Any] | Sequence[Any], indent: str = "") -> Iterator[str]:
    """The lines of a mapping or a list in kubeadm's form: keys in order, lists not indented below their key."""
    if not isinstance(value, Mapping):
        for item in value:
            # A mapping begins beside its dash.
            first, *rest = _yaml(item, f"{indent}  ") if isinstance(item, Mapping) else [f"{indent}  {_scalar(item)}"]
            yield f"{indent}- {first[len(indent) + 2 :]}"
            yield from rest
        return
    for key in sorted(value):
        each = value[key]
        if isinstance(each, str | int):
            yield f"{indent}{key}: {_scalar(each)}"
        else:
            yield f"{indent}{key}:"
            yield from _yaml(each, f"{indent}  " if isinstance(each, Mapping) else indent)


def _scalar(value: str | int) -> str:
    """As it is, where no reader could take it for something else; else quoted as JSON does, which is YAML, too."""
    if isinstance(value, int):
        return str(value)
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS and ": " not in value and not value.endswith(":")
    if plain:
        return value
    # JSON leaves characters as they are that YAML does not allow.
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)


def join_command(servers: Sequence[str], token: tokens.Token, pins: Sequence[str]) -> str:
    """What to type on a machine that is to join: every server, the token, a pin for each certificate of the CA."""
    found = [endpoints.of_server(server) for server in servers]
    where = [each.url if each.path else str(each) for each in found]
    hashes = [word for pin in pins for word in ("--discovery-token-ca-cert-hash", pin)]
    # Quoted: the line is pasted into shells of administrators, and servers come from a document.
    return shlex.join(["handfast", "join", *where, "--token", token.text, *hashes])
