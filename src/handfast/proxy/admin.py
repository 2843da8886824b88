# SPDX-License-Identifier: Apache-2.0
"""What a proxy says of itself, over HTTP on its admin port. It changes nothing, and shows no key and no token.

| path | answer |
|---|---|
| `/ready` | 200 when the certificate is held, it is known who may call, and Envoy has acknowledged both and every listener with its routes. Else 503, with the cause |
| `/live` | 503 when the certificate is over, else 200 |
| `/metrics` | the end of the certificate, renewals by result, refusals by reason, what Envoy rejected (`figures`), and Envoy's own |
| `/identity` | name, state, serial, end, next renewal and last error, as JSON; the same of the certificate for SPIFFE, where there is one |

1. Whoever reaches the port may ask. Metrics of many destinations take a while, here and in Envoy: they are made by one at a time, and told again for ten times as long as
   that took. So they cost a tenth of the time, however many ask.

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_admin.py |
|---|---|---|---|---|
| a machine of the same network | the admin port | keep the agent from revocations, renewals and probes by asking for metrics | 1 | test_however_many_ask_for_metrics_they_cost_a_tenth_of_the_time |
"""

from __future__ import annotations

import asyncio
import datetime
import json
from typing import Any, Final

import prometheus_client

from handfast import errors
from handfast.proxy import agent as agent_module
from handfast.proxy import credentials, envoy, figures
from handfast.runtime import clock as clocks
from handfast.serving import admin as probing
from handfast.serving import answers, service
from handfast.wire import ads

_METRICS: Final = {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
# For how many times as long as it took to make them metrics are told again.
_TIMES: Final = 10


class Admin:
    """Answers for one proxy; `name` is empty and `own` None for a plain one. `svid` is the certificate for programs that know SPIFFE."""

    def __init__(
        self,
        name: str,
        own: credentials.Credentials | None,
        agent: agent_module.Agent,
        sent: ads.Ads,
        child: envoy.Envoy,
        clock: clocks.Clock,
        svid: credentials.Credentials | None = None,
    ) -> None:
        self._name = name
        self._own = own
        self._svid = svid
        self._agent = agent
        self._envoy = child
        self._figures = figures.Figures(own, sent, child)
        self._clock = clock
        self._making = asyncio.Lock()
        self._made, self._until = b"", 0.0
        self.service = service.Service(self._answer, tls=None, clock=clock, limits=probing.LIMITS)

    async def _answer(self, http: service.Request) -> answers.Answer:
        if http.method not in {"GET", "HEAD"}:
            return answers.text(405, f"method {http.method} is not allowed here\n")
        match http.path:
            case "/ready":
                return _told("ready", self._agent.why_not_ready())
            case "/live":
                return _told("live", self._agent.why_not_live())
            case "/metrics":
                return answers.Answer(await self._metrics(), headers=_METRICS)
            case "/identity":
                return answers.Answer(json.dumps(self._identity()).encode() + b"\n")
        return answers.text(404, "not found; there are /ready, /live, /metrics and /identity\n")

    async def _metrics(self) -> bytes:
        # 1. one at a time, and told again
        async with self._making:
            began = self._clock.monotonic()
            if not self._made or began >= self._until:
                self._made = await self._make()
                ended = self._clock.monotonic()
                self._until = ended + _TIMES * (ended - began)
            return self._made

    async def _make(self) -> bytes:
        try:
            _, more = await self._envoy.ask("/stats/prometheus")
        except errors.Unavailable:
            # Ours are told while Envoy is started anew, too.
            more = b""
        return self._figures.written(more.decode("utf-8", "replace")) + more

    def _identity(self) -> dict[str, Any]:
        if self._own is None:
            return {"name": None, "state": "Plain"}
        more = {} if self._svid is None else {"spiffe": _standing(self._svid)}
        return {"name": self._name, **_standing(self._own), **more}


def _standing(own: credentials.Credentials) -> dict[str, Any]:
    standing, last = own.standing(), own.last_error
    error = None
    if last is not None:
        hint = {"hint": last.hint} if last.hint else {}
        error = {"at": _instant(last.at), "reason": last.reason, "message": last.message, **hint}
    return {
        "state": standing.state.value,
        "serial": None if standing.pair is None else standing.pair.leaf.serial,
        "until": _instant(standing.until),
        "nextRenewal": _instant(own.next_renewal),
        "lastError": error,
    }


def _told(word: str, why_not: str | None) -> answers.Answer:
    return answers.text(200, f"{word}\n") if why_not is None else answers.text(503, f"not {word}: {why_not}\n")


def _instant(at: datetime.datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"
