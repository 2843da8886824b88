# SPDX-License-Identifier: Apache-2.0
"""One bootstrap token: its limits, its uses, who was refused with it; and to revoke it, as the operator.

1. It is read without its secret half: the view has no field for it.
2. To revoke it, its id is typed. What is not done is said with the next step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import resources, status
from handfast.bootstrap import tokens as grammar
from handfast.client import tokens as over_api
from handfast.console import known as known_module
from handfast.console import needs, page
from handfast.console.pages import tokens as tokens_page
from handfast.rules.console import outcomes, questions, tokens

LIST: Final = "/tokens"
REVOKE: Final = "/tokens/revoke"
_ID: Final = re.compile(r"[a-z0-9]{6}")
# 1. no secret half
_DECODER: Final = msgspec.json.Decoder(needs.Token)
_RIGHTS: Final = (outcomes.Right("delete", "secrets", namespace=grammar.NAMESPACE),)


def path_of(token_id: str) -> str:
    """The page of a token."""
    return f"{LIST}/{token_id}"


def known_row(known: known_module.Known, token_id: str) -> tokens.Row | None:
    """What is known of a token without asking; None: there is no such token (any more)."""
    return next((row for row in tokens_page.rows_of(known) if row.id == token_id), None)


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """One token, as it is now."""
    failures = [each for each in tokens_page.failures_of(known) if each.token == question.of]
    row, forbidden = None, ""
    try:
        row = await _find(known, question.of) if _ID.fullmatch(question.of) else None
    except status.StatusError as error:
        if error.reason != "Forbidden":
            raise
        forbidden = error.message
    return {"id": question.of, "row": row, "failures": failures, "forbidden": forbidden}


async def _find(known: known_module.Known, token_id: str) -> tokens.Row | None:
    try:
        name = grammar.secret_name(token_id)
        found = await known.ask(
            lambda: known.client.view(resources.SECRETS, name, _DECODER, namespace=grammar.NAMESPACE)
        )
    except status.StatusError as error:
        if error.reason != "NotFound":
            raise
        return None
    refused = tokens.refusals_by_token(tokens_page.failures_of(known))
    return tokens.read(found.document()).at(known.now()).refused(refused.get(token_id))


async def revoke(known: known_module.Known, form: Mapping[str, str]) -> page.Outcome:
    """Have nobody log in with it any more."""
    token_id = form.get("id", "")
    here = path_of(token_id) if _ID.fullmatch(token_id) else LIST
    # 2. typed
    if here == LIST or form.get("word", "").strip() != token_id:
        wrong = {"word": f"type {token_id}, exactly as it stands there; nothing was done"}
        return _not_done(here, "Not done: see what is marked below.", wrong=wrong)
    try:
        there = await over_api.delete(known.client, token_id)
    except (errors.Refused, errors.Unavailable) as error:
        failed = outcomes.failure(error, f"revoke the token {token_id}", _RIGHTS, known.cluster.user)
        return _not_done(here, failed.sentence, commands=failed.commands)
    said = (
        "nobody logs in with it any more; machines that joined with it keep their certificates"
        if there
        else "it was gone already"
    )
    return page.Outcome(sentence=f"The token {token_id} is revoked: {said}.", then=LIST)


def _not_done(
    here: str, sentence: str, *, wrong: Mapping[str, str] | None = None, commands: tuple[str, ...] = ()
) -> page.Outcome:
    once = {"wrong": wrong or {}, "commands": commands}
    return page.Outcome(sentence=sentence, then=here, done=False, once=once)


PAGE: Final = page.Page(
    path="/tokens/*",
    title="A token",
    template="one_token.html",
    needs=tokens_page.NEEDS,
    show=show,
    live=("token_head", "token"),
    actions=(page.Action(path=REVOKE, act=revoke, back=LIST),),
)
