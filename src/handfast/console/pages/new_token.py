# SPDX-License-Identifier: Apache-2.0
"""A new bootstrap token: the form, and the one time that its join command is shown.

1. What is wrong with the form stands at its fields, with what was typed. Nothing is made.
2. Everything that could be missing is read before the token is made: else there would be one that nobody is shown.
3. The token goes to the API server, and into the answer to the form itself. It is in no address, no log, no stream and no other page; nothing here
   keeps it, and no cache does. Of the answer to a POST a browser keeps nothing for "back", either: Chromium keeps pages that it went to,
   with `no-store` as well.
4. A form has a number, and is taken once: to load the answer again, or to click twice, makes no second token.

| who | holding | tries | stopped by | shown in tests/unit/console/pages/test_new_token.py |
|---|---|---|---|---|
| whoever comes to the browser later | its history, or "back" | see the token | 3 | test_the_join_command_is_shown_once_and_never_again |
| … | … | have another made by loading it again | 4 | test_a_form_that_was_sent_makes_no_second_token |
| a reader of the console's log | the log | find the token | 3 | test_no_page_no_stream_and_no_log_has_the_secret |
"""

from __future__ import annotations

import math
import re
import secrets
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from handfast import errors
from handfast.bootstrap import token_limits, token_views
from handfast.bootstrap import tokens as grammar
from handfast.client import tokens as over_api
from handfast.console import known as known_module
from handfast.console import page, scanning
from handfast.console.pages import one_token
from handfast.rules.console import outcomes, questions, token_forms
from handfast.runtime import addresses

FORM: Final = "/tokens/new"
_MANY: Final = 1024
_NUMBER: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_RIGHTS: Final = (outcomes.Right("create", "secrets", namespace=grammar.NAMESPACE),)


@dataclass(frozen=True, slots=True)
class Handover:
    """What is shown once: the join command, a code with it to scan, and what the token is worth. It does not print."""

    id: str
    command: str = field(repr=False)
    code: scanning.Code = field(repr=False)
    warnings: tuple[str, ...]


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """The form as nobody has filled it in."""
    del known, question
    return {
        "number": secrets.token_urlsafe(16),
        "empty_form": token_forms.EMPTY,
        "max_uses": token_limits.MAX_USES,
        "longest": grammar.MAX_DESCRIPTION,
    }


async def create(known: known_module.Known, form: Mapping[str, str]) -> page.Outcome:
    """Make it."""
    # 4. a form is taken once
    taken: dict[str, str] = known.once("token-forms", (), dict, seconds=math.inf, at_most=math.inf)
    number = form.get("number", "")
    if number in taken or not _NUMBER.fullmatch(number):
        return _sent_before(taken.get(number, ""))
    # 1. at the fields
    try:
        wish = token_forms.read(form)
    except token_forms.Refusal as refusal:
        return _back(form, f"Not done: {refusal.message}.", wrong=refusal.fields)
    token = grammar.generate(secrets.token_bytes)
    now = known.now()
    taken[number] = token.id
    while len(taken) > _MANY:
        del taken[next(iter(taken))]
    begun = False
    try:
        # 2. what may be missing
        cluster = await over_api.known_cluster(known.client, known.used)
        pins = over_api.ca_pins(cluster.ca)
        enforced = wish.limits == token_limits.Limits() or await over_api.enforces_limits(known.client)
        command = token_views.join_command(cluster.servers, token, pins)
        begun = True
        await over_api.create(known.client, wish.document(token, now))
    except (errors.Refused, errors.Unavailable) as error:
        failed = outcomes.failure(error, "create a token", _RIGHTS, known.cluster.user, begun=begun)
        after = f" Should there be a token {token.id} now, revoke it: nobody has it." if failed.unknown else ""
        return _back(form, failed.sentence + after, commands=failed.commands)
    warnings = (
        wish.warning(now),
        *(() if enforced else (f"{token_limits.warning()}.",)),
        *_only_here(cluster.servers),
    )
    # 3. in the answer to the form
    handover = Handover(token.id, command, scanning.code(command), warnings)
    return page.Outcome(sentence=f"The token {token.id} is made.", then=FORM, once={"handover": handover}, here=True)


def _sent_before(token_id: str) -> page.Outcome:
    if not token_id:
        return page.Outcome(sentence="Not done: open the form, and send it from there.", then=FORM, done=False)
    sentence = f"This form was sent before, and the token {token_id} was made then. Its join command is shown nowhere again: if nobody has it, revoke the token and create another."
    return page.Outcome(sentence=sentence, then=one_token.path_of(token_id), done=False)


def _back(
    form: Mapping[str, str], sentence: str, *, wrong: Mapping[str, str] | None = None, commands: tuple[str, ...] = ()
) -> page.Outcome:
    typed = {name: form.get(name, "") for name in token_forms.EMPTY}
    return page.Outcome(
        sentence=sentence,
        then=FORM,
        done=False,
        once={"typed": typed, "wrong": wrong or {}, "commands": commands, "handover": None},
    )


def _only_here(servers: tuple[str, ...]) -> tuple[str, ...]:
    """That no other machine can join by these servers, where that is so."""
    hosts = [urllib.parse.urlsplit(server).hostname or "" for server in servers]
    if not hosts or not all(map(addresses.is_loopback, hosts)):
        return ()
    return (
        f"No other machine reaches {hosts[0]}: to let others join, the control plane listens on 0.0.0.0 and is told by --advertise where they reach it.",
    )


PAGE: Final = page.Page(
    path=FORM,
    title="A new token",
    template="new_token.html",
    show=show,
    actions=(page.Action(path=FORM, act=create, back=FORM),),
)
