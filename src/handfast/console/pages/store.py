# SPDX-License-Identifier: Apache-2.0
"""The page of the store: what API servers tell of it to whoever asks over the API. What is said is in `rules.console.store` and `store_facts`.

1. Readiness and figures are asked for when somebody looks, once in a few seconds for all who do.
2. What may not be read is told with the right that would allow it, and takes nothing else with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import status
from handfast.client import transport
from handfast.console import known as known_module
from handfast.console import needs, page
from handfast.rules.console import exposition, questions, store, store_facts

_SECONDS: Final = 5.0
_NEEDS: Final = (needs.SERVER_LEASES,)
_FORBIDDEN: Final = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path of the server answered, or why it did not; `forbidden` is whether a right is missing."""

    text: str = ""
    problem: str = ""
    forbidden: bool = False


class Asking:
    """The last answers of /readyz and /metrics."""

    def __init__(self, known: known_module.Known) -> None:
        self._known = known
        self._turn = asyncio.Lock()
        self._at = float("-inf")
        self._answers = (Answer(), Answer())

    async def answers(self) -> tuple[Answer, Answer]:
        """Those of a moment ago (1)."""
        async with self._turn:
            if self._known.monotonic() - self._at >= _SECONDS:
                self._answers = await self._ask("/readyz", {"verbose": ""}), await self._ask("/metrics", {})
                self._at = self._known.monotonic()
            return self._answers

    async def _ask(self, path: str, params: dict[str, str]) -> Answer:
        try:
            link = self._known.client.transport
            body = await self._known.ask(lambda: link.request("GET", path, params=params))
        except transport.UnexpectedAnswer as error:
            # Not ready is an answer, too.
            is_report = "[-]" in error.message
            return Answer(text=error.message if is_report else "", problem="" if is_report else error.message)
        except status.StatusError as error:
            # 2. which right
            return Answer(problem=error.message, forbidden=error.code in _FORBIDDEN)
        except (errors.Refused, errors.Unavailable) as error:
            return Answer(problem=error.message)
        return Answer(text=body.decode("utf-8", "replace"))


async def show(known: known_module.Known, question: questions.Question) -> dict[str, Any]:
    """What is known of the store."""
    del question
    ready, metrics = await known.kept("store", lambda: Asking(known)).answers()
    samples = exposition.read(metrics.text, store.METRICS)
    parts, read, members = store.readiness(ready.text), store.values(samples), store_facts.members(samples)
    servers = store.servers(each.document() for each in known.of(needs.SERVER_LEASES))
    return {
        "ready": ready,
        "metrics": metrics,
        "parts": parts,
        "facts": store_facts.facts(samples, servers),
        "is_own": store_facts.is_own(samples),
        "members": members,
        "figures": store.figures(read),
        "servers": servers,
        "needing": store.needing(parts, read, servers, members, known.now()),
        "only_by_command": store.ONLY_BY_COMMAND,
        "grant": store.grant(known.cluster.user),
    }


PAGE: Final = page.Page(
    path="/store",
    name="Store",
    title="Store",
    template="store.html",
    needs=_NEEDS,
    show=show,
    live=("store_summary", "store_facts", "store_servers", "store_figures"),
)
