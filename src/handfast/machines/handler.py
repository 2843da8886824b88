# SPDX-License-Identifier: Apache-2.0
"""The whole way of a request for a configuration: who is let in, then an answer as OpenShift's machine-config-server gives it.

1. GET and HEAD only: any other method is 405, whatever the path. For a configuration it is in the audit, like any other answer.
2. `/healthz` is 200 with nothing in it. Every path but `/config/<pool>` is 404.
3. A header `Authorization` is a bearer's. `mac` and `serial` are there once at most, and can be read. Else it is 400.
4. While something that decides is not known, it is 503 with a Retry-After: Ignition tries again.
5. Who asks is judged (`rules.machine_config.requester`): 401, 403 or 503. Nobody learns more before that, not even whether the pool is there.
6. The Accept header names a version that is served: else 400.
7. The pool's rendering with its credential (`offers`): 500 for a pool that is not there, 503 while it has no rendering or no credential.
   A rendering that was changed after it was rendered, or that this version of Ignition has no words for, is 500.
8. An error has no body. Its reason is in the header `Handfast-Reason`, in the audit line and in the metric.
9. Nobody on the way may keep an answer.
10. After a 401 the connection ends: whoever guesses pays for a handshake each time, and falls under the rate limits of connections.

| who | holding | tries | stopped by | shown in tests/unit/machines/test_handler.py |
|---|---|---|---|---|
| a stranger | nothing | learn which pools there are | 5 | test_without_a_proof_nobody_learns_whether_a_pool_is_there |
| … | one connection | guess secrets as fast as it can send | 10 | test_after_a_401_the_connection_ends |
| who may change MachineConfigs | a rendering | have other contents served under its name | 7 | test_a_rendering_that_was_changed_is_not_served |
| a proxy on the way | an answer | keep it, and hand it to others | 9 | test_nobody_on_the_way_may_keep_a_configuration |

Connections, rates and sizes are `serving`'s. A client's certificate that has passed TLS is judged again for each request: its CA may have
been retired since, and the certificate may have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from handfast import errors
from handfast.machines import answered, offers
from handfast.machines import audit as audit_module
from handfast.machines import callers as callers_module
from handfast.rules.machine_config import accepted, names, rendering, requester, served
from handfast.runtime import clock as clocks
from handfast.serving import answers, service

NOT_READY: Final = "NotReady"
METHOD_NOT_ALLOWED: Final = "MethodNotAllowed"
_PREFIX: Final = "/config/"
_RETRY_SECONDS: Final = "5"
# 9. a credential is in it
_HEADERS: Final[Mapping[str, str]] = {"Content-Type": "application/json", "Cache-Control": "no-store"}
_EMPTY: Final[Mapping[str, str]] = {"Cache-Control": "no-store"}


class Handler:
    """Answers for one server."""

    def __init__(
        self,
        source: offers.Source,
        callers: callers_module.Callers,
        kept: answered.Kept,
        audit: audit_module.Audit,
        clock: clocks.Clock,
    ) -> None:
        self._source = source
        self._callers = callers
        self._kept = kept
        self._audit = audit
        self._clock = clock

    async def answer(self, http: service.Request) -> answers.Answer:
        """One request."""
        pool = _pool(http.path)
        # 1. these two methods
        if http.method not in {"GET", "HEAD"}:
            return self._refuse_method(http, pool) if pool else _empty(405)
        # 2. the paths
        if pool:
            return self._configuration(http, pool)
        return _empty(200 if http.path == "/healthz" else 404)

    def _refuse_method(self, http: service.Request, pool: str) -> answers.Answer:
        bare = requester.Request(pool=pool, address=service.peer_of(http).address)
        sentence = "a configuration is asked for with GET or HEAD"
        return self._refuse(http, bare, requester.Refusal(405, METHOD_NOT_ALLOWED, sentence))

    def _configuration(self, http: service.Request, pool: str) -> answers.Answer:
        now = self._clock.now()
        try:
            request = self._callers.read(http, pool, now)
        except errors.Refused as refused:
            # 3. what cannot be read
            bare = requester.Request(pool=pool, address=service.peer_of(http).address)
            return self._refuse(http, bare, requester.Refusal(400, refused.reason, refused.message))
        # 4. not before everything is known
        if (missing := self._source.not_ready()) is not None:
            return self._refuse(http, request, requester.Refusal(503, NOT_READY, missing))
        # 5. who asks
        verdict = requester.judge(request, self._source.known(), now)
        if isinstance(verdict, requester.Refusal):
            return self._refuse(http, request, verdict)
        service.proved(http, verdict.who)
        return self._serve(http, request, verdict)

    def _serve(self, http: service.Request, request: requester.Request, allowed: requester.Allowed) -> answers.Answer:
        # 6. a version that is served
        try:
            version = accepted.version(http.headers.get("Accept"))
        except errors.Refused as refused:
            return self._refuse(http, request, requester.Refusal(400, refused.reason, refused.message), allowed)
        # 7. what there is
        offer = self._source.offer(request.pool, allowed.node)
        if isinstance(offer, requester.Refusal):
            return self._refuse(http, request, offer, allowed)
        try:
            body = self._kept.get((offer.key, version), allowed.hostname, _builder(offer, version))
        except errors.Refused as refused:
            return self._refuse(http, request, requester.Refusal(500, refused.reason, refused.message), allowed)
        self._note(http, request, 200, allowed=allowed, rendering=offer.rendering, version=version)
        return answers.Answer(body, headers=_HEADERS)

    def _refuse(
        self,
        http: service.Request,
        request: requester.Request,
        refusal: requester.Refusal,
        allowed: requester.Allowed | None = None,
    ) -> answers.Answer:
        self._note(http, request, refusal.status, allowed=allowed, reason=refusal.reason, sentence=refusal.sentence)
        # 8. no body, and the reason beside it
        answer = _empty(refusal.status)
        answer.add(names.REASON_HEADER, refusal.reason)
        if refusal.status == 401:
            answer.add("WWW-Authenticate", 'Bearer realm="machine-config"')
            # 10. under the rate limits of connections
            answer.force_close()
        if refusal.status == 503:
            answer.add("Retry-After", _RETRY_SECONDS)
        return answer

    def _note(self, http: service.Request, request: requester.Request, status: int, **more: Any) -> None:
        self._audit.note(
            audit_module.Event(
                method=http.method,
                pool=request.pool,
                source=request.address,
                status=status,
                mac=request.mac,
                serial=request.serial,
                **more,
            )
        )


def _pool(path: str) -> str:
    """The pool whose configuration a path is; empty: it is no configuration's."""
    pool = path.removeprefix(_PREFIX)
    return pool if path.startswith(_PREFIX) and "/" not in pool else ""


def _empty(code: int) -> answers.Answer:
    return answers.Answer(b"", status=code, headers=_EMPTY)


def _builder(offer: offers.Offer, version: str) -> Callable[[str], bytes]:
    def build(hostname: str) -> bytes:
        document = offer.document()
        # 7. as it was rendered, and of this name
        rendering.read(document)
        return served.answer(document, offer.kubeconfig, offer.kubelet_ca, version, hostname)

    return build
