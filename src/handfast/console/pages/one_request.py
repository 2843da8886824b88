# SPDX-License-Identifier: Apache-2.0
"""One certificate request: what it asks for, every check, the smallest change; and to approve or deny it, as the operator.

1. It is read from the API when somebody looks, and so is what the checks depend on: as `handfast csr explain` does.
2. The checks of a request that has not changed are asked for again after `_FRESH`, however many look.
3. It is decided by its UID: another one of the same name is not the one that was looked at.
4. What is not done is said with the next step, on the page of the request.

| who | holding | tries | stopped by | shown in tests/unit/console/pages/test_one_request.py |
|---|---|---|---|---|
| a holder of a token | a request, deleted and made anew while somebody reads | have the new one approved | 3 | test_another_request_of_the_same_name_is_not_decided |
| … | markup or changes of direction in names, subjects, signers | run a script, or look like another | every text is escaped and marked | test_what_strangers_write_is_escaped_and_marked |
| an operator without the right | the form | approve | the API server, and 4 | test_who_may_not_is_told_which_right_would_let_them |
"""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib import parse as urls

from handfast import errors
from handfast.api import resources, signing_requests, status
from handfast.api.printing import ages
from handfast.client import request_decisions, request_reviews
from handfast.console import known as known_module
from handfast.console import needs, page
from handfast.console.pages import one_token
from handfast.rules import request_explanation
from handfast.rules.console import outcomes, questions, requests, trails

LIST: Final = "/requests"
APPROVE: Final = "/requests/approve"
DENY: Final = "/requests/deny"
_FRESH: Final = datetime.timedelta(seconds=10)
_KEPT: Final = 64
_SAID: Final = {
    signing_requests.APPROVED: ("ConsoleApprove", "This CSR was approved in the console of Handfast."),
    signing_requests.DENIED: ("ConsoleDeny", "This CSR was denied in the console of Handfast."),
}


def path_of(name: str) -> str:
    """The page of a request."""
    return f"{LIST}/{urls.quote(name, safe='')}"


@dataclass(slots=True)
class _Explained:
    """Why a request stands where it stands, or why that is not known."""

    version: str
    at: datetime.datetime
    explanation: request_explanation.Explanation | None
    # When each was last so, its reason and its message.
    events: list[tuple[datetime.datetime | None, str, str]]
    notes: list[str]


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """One request, as it is now."""
    try:
        request = await _find(known, question.of)
    except status.StatusError as error:
        if error.reason != "Forbidden":
            raise
        return {"name": question.of, "row": None, "forbidden": error.message}
    if request is None:
        return {"name": question.of, "row": None, "forbidden": ""}
    explained = await _explained(known, request)
    row = requests.row(request)
    return {
        "name": question.of,
        "row": row,
        "forbidden": "",
        "word": row.word,
        "quoted": shlex.quote(row.name),
        "asked": requests.asked(request),
        "explained": explained,
        "verdict": None if explained.explanation is None else requests.verdict(explained.explanation),
        "certificate": requests.issued(request),
        "rule_name": trails.name_of,
        "entry": next(iter(known.fleet.ledger.with_word(row.name, 1)), None),
        "token": one_token.known_row(known, row.token) if row.token else None,
        "may_decide": row.state == requests.PENDING,
    }


async def _find(known: known_module.Known, name: str) -> signing_requests.Request | None:
    """None: there is no such request (any more)."""
    # What no name of a request can be would be another path of the API.
    if name in {"", ".", ".."} or set(name) & set("/%"):
        return None
    try:
        return await known.ask(lambda: known.client.view(resources.SIGNING_REQUESTS, name, signing_requests.DECODER))
    except status.StatusError as error:
        if error.reason != "NotFound":
            raise
        return None


async def _explained(known: known_module.Known, request: signing_requests.Request) -> _Explained:
    kept: dict[str, _Explained] = known.once("explanations", (), dict, seconds=math.inf, at_most=math.inf)
    here = kept.get(request.metadata.uid)
    now = known.now()
    # 2. not again for everybody who looks
    if here is not None and here.version == request.metadata.resource_version and abs(now - here.at) < _FRESH:
        return here
    notes: list[str] = []
    review = request_reviews.Review(known.client, known.now(), notes.append)
    explanation = None
    try:
        explanation = await known.ask(lambda: review.explain(request))
    except (errors.Refused, errors.Unavailable) as error:
        notes.append(f"the checks could not be made: {error.message}")
    events: list[request_reviews.Said] = []
    try:
        events = await known.ask(lambda: review.events(request.metadata.uid))
    except errors.Unavailable as error:
        notes.append(f"its Events could not be read: {error.message}")
    made = _Explained(
        request.metadata.resource_version,
        now,
        explanation,
        [(ages.instant(at), reason, said) for at, reason, said in events],
        list(dict.fromkeys(notes)),
    )
    kept.pop(request.metadata.uid, None)
    kept[request.metadata.uid] = made
    while len(kept) > _KEPT:
        del kept[next(iter(kept))]
    return made


async def approve(known: known_module.Known, form: Mapping[str, str]) -> page.Outcome:
    """Let it in."""
    return await _decide(known, form, signing_requests.APPROVED)


async def deny(known: known_module.Known, form: Mapping[str, str]) -> page.Outcome:
    """Keep it out."""
    return await _decide(known, form, signing_requests.DENIED)


async def _decide(known: known_module.Known, form: Mapping[str, str], verdict: str) -> page.Outcome:
    name, uid = form.get("name", ""), form.get("uid", "")
    doing = f"{'approve' if verdict == signing_requests.APPROVED else 'deny'} the request {name}"
    here = path_of(name)
    begun = False
    try:
        request = await _find(known, name)
        if request is None or not uid:
            raise status.not_found(resources.SIGNING_REQUESTS.plural, signing_requests.GROUP, name)
        typed = requests.typed(form, requests.row(request).word, deny=verdict == signing_requests.DENIED)
        if typed.wrong:
            once = {"verdict": verdict, "wrong": typed.wrong, "why": form.get("why", ""), "commands": ()}
            return page.Outcome(sentence="Not done: see what is marked below.", then=here, done=False, once=once)
        reason, said = _SAID[verdict]
        # 3. the one that was looked at
        deciding = request_decisions.Deciding(verdict, reason, typed.why or said, known.now)
        begun = True
        changed = await deciding.decide(known.client, name, uid)
    except (errors.Refused, errors.Unavailable) as error:
        # 4. the next step
        failed = outcomes.failure(error, doing, _rights(known, name), known.cluster.user, begun=begun)
        once = {"verdict": verdict, "wrong": {}, "why": form.get("why", ""), "commands": failed.commands}
        return page.Outcome(sentence=failed.sentence, then=here, done=False, once=once)
    word = verdict.lower()
    sentence = (
        f"The request {name} is {word}." if changed else f"The request {name} was {word} already; nothing was changed."
    )
    return page.Outcome(sentence=sentence, then=here)


def _rights(known: known_module.Known, name: str) -> tuple[outcomes.Right, ...]:
    """What deciding it takes: to write the approval, and to approve for the signer."""
    request = known.of(needs.REQUESTS).get("", name)
    signer = "" if request is None else request.spec.signer_name
    return (
        outcomes.Right("update", "certificatesigningrequests.certificates.k8s.io/approval"),
        outcomes.Right("approve", "signers.certificates.k8s.io", signer),
    )


PAGE: Final = page.Page(
    path="/requests/*",
    title="A request",
    template="one_request.html",
    needs=(needs.REQUESTS, needs.TOKENS, needs.LEDGER),
    show=show,
    live=("standing", "behind"),
    actions=(
        page.Action(path=APPROVE, act=approve, back=LIST),
        page.Action(path=DENY, act=deny, back=LIST),
    ),
)
