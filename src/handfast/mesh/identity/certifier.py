# SPDX-License-Identifier: Apache-2.0
"""Certify, from the message to the answer: the checks in their order, the signature, the ledger, and only then the answer.

`rules.mesh.certify` says what must hold, and which code and text a refusal has. It follows nothing itself: the issuer of the moment is
`trust`'s, Revocations are `client.revoked`'s.

1. Whatever can be judged by the message alone is judged before the API server is asked.
2. Whether somebody is revoked must be known: where Revocations may not be read, or were not listed so far, nothing is signed. It is asked again when
   the certificate is in the ledger: a Revocation that came in between counts.
3. The issuer that was judged is the one that signs.
4. The certificate is in the ledger before it is handed out. One that nobody received may be there; one that is not there nobody has.
5. One token is good for so many certificates at once, and for a few in a minute then: the ledger keeps each of them for days.
6. One line in the log for each certificate, and none has the token. Of refusals of one kind, one a second: who is refused tries again. Events
   are gathered (`telling`).

| who | holding | tries | stopped by | shown in tests/unit/mesh/identity/test_certifier.py |
|---|---|---|---|---|
| a workload | its token | a certificate that nobody wrote down | 4 | test_nothing_is_handed_out_that_is_not_in_the_ledger |
| who took over a workload | its token | a certificate while Revocations cannot be read | 2 | test_nothing_is_signed_while_revocations_cannot_be_read |
| … | its token | a certificate while the service starts, and knows no Revocations | 2 | test_nothing_is_signed_before_revocations_were_listed |
| … | its token | a certificate that is being signed as the Revocation comes | 2 | test_a_revocation_that_comes_while_it_is_signed_counts |
| a vandal | thousands of calls of a megabyte | have them wait in memory | 1 | test_what_is_too_large_does_not_wait_for_its_turn |
| who took over a workload | its token | fill the ledger, and the server's store with it | 5 | test_one_token_does_not_fill_the_ledger |
| a reader of logs | the log | find a token in it | 6 | test_no_line_of_the_log_has_the_token |
"""

from __future__ import annotations

import datetime
from typing import Any, Final

import prometheus_client
import structlog

from handfast import errors
from handfast.client import ledger as ledger_module
from handfast.client import revoked as revoked_module
from handfast.mesh.identity import reviews as reviews_module
from handfast.mesh.identity import telling as telling_module
from handfast.mesh.identity import trust as trust_module
from handfast.mesh.identity import turns as turns_module
from handfast.pki import authority
from handfast.pki import names as pki_names
from handfast.rules.ledger import entries
from handfast.rules.mesh import certify
from handfast.runtime import clock as clocks
from handfast.serving import buckets
from handfast.wire import mesh_messages, peers, server

_AGAIN_MS: Final = 1000
_SAY_SECONDS: Final = 1.0
# 5. at once, and in a second then: a certificate of a minute is renewed every 42 seconds
AT_ONCE: Final = 1000
A_SECOND: Final = 0.2
ISSUED: Final = "Issued"
_log = structlog.get_logger("handfast.mesh.identity")

RESULTS = prometheus_client.Counter("handfast_mesh_certify", "Calls of Certify, by what became of them.", ["result"])
WAITING = prometheus_client.Gauge("handfast_mesh_certify_waiting", "Calls of Certify that wait for their turn.")


class Certifier:
    """Answers Certify."""

    def __init__(
        self,
        *,
        trust: trust_module.Followed,
        reviews: reviews_module.Reviews,
        revocations: revoked_module.Revoked,
        ledger: ledger_module.Ledger,
        telling: telling_module.Telling,
        clock: clocks.Clock,
        turns: turns_module.Turns | None = None,
    ) -> None:
        self._trust = trust
        self._reviews = reviews
        self._revocations = revocations
        self._ledger = ledger
        self._telling = telling
        self._clock = clock
        self._turns = turns_module.Turns() if turns is None else turns
        self._rates = buckets.Buckets(A_SECOND, AT_ONCE)
        # When a refusal was told last, by its reason.
        self._said: dict[str, float] = {}
        waiting = self._turns
        WAITING.set_function(lambda: len(waiting))

    def methods(self) -> tuple[server.Unary, ...]:
        """What the gRPC server offers."""
        request, response = mesh_messages.CertifyRequest, mesh_messages.CertifyResponse
        return (server.Unary("Certify", request, response, self.answer),)

    async def answer(self, message: Any, peer: peers.Peer) -> Any:
        """The answer to a call, or a refusal with its code and text."""
        call = certify.Call(message.identity, message.token, message.certificate_signing_request)
        # Somebody who has the identity already wants the next certificate of it.
        renews = call.identity if peer.identity(self._clock.now()) == call.identity else ""
        try:
            # 1. nobody waits with what is too large: all that wait are in memory
            self._require_whole(call)
            async with self._turns.turn(renews):
                answer = await self._certify(call)
        except certify.Refusal as refused:
            raise self._refused(call, refused.code, refused) from None
        except turns_module.Full as full:
            raise self._refused(call, certify.RESOURCE_EXHAUSTED, full) from None
        except (errors.Refused, errors.Unavailable) as error:
            # 4. the ledger, or who is revoked, is not to be had: nobody's fault, and worth another try
            raise self._refused(call, certify.UNAVAILABLE, error) from None
        RESULTS.labels(ISSUED).inc()
        return answer

    def _require_whole(self, call: certify.Call) -> None:
        current = self._trust.current
        certify.require_ready(None if current is None else current.issuer)
        certify.require_parts(call)

    async def _certify(self, call: certify.Call) -> Any:
        # 1. what needs nobody else
        current = self._trust.current
        certify.require_ready(None if current is None else current.issuer)
        assert current is not None  # noqa: S101 - for the type checker: `require_ready` refuses
        request = certify.read(call)
        self._require_in_force(current)
        certify.require_name(request, call.identity)
        review = await self._reviews.review(call, current.mesh, accept_api=current.settings.accept_api_audience)
        certify.require_own(current.mesh, review, call.identity)
        certify.require_key(request)
        now = self._clock.now()
        # 2. who is revoked is known
        self._revocations.require_listed()
        certify.require_not_revoked(review, request, self._revocations.index, now)
        # 5. one token does not fill the ledger
        self._require_rate(review)
        # 3. signed by the issuer that was judged
        sans = certify.sans(current.settings, current.mesh, review.account)
        issued = _sign(current, request.public_key, sans, now)
        # 4. in the ledger before it is handed out
        await self._ledger.append(certify.entry(review, sans, issued, current.issuer, now))
        # 2. who was revoked meanwhile gets nothing, and what is in the ledger is on the deny list
        certify.require_not_revoked(review, request, self._revocations.index, self._clock.now())
        # 6. one line, without the token
        _log.info(
            "issued certificate",
            identity=call.identity,
            until=f"{issued.not_after:%Y-%m-%dT%H:%M:%SZ}",
            sha256=issued.fingerprint,
            serial=issued.serial,
            pod=review.pod,
        )
        self._telling.issued(review, call.identity, issued)
        return mesh_messages.CertifyResponse(
            leaf_certificate=issued.der,
            intermediate_certificates=current.issuer.chain,
            valid_until={"seconds": int(issued.not_after.timestamp())},
        )

    def _require_in_force(self, trust: trust_module.Trust) -> None:
        try:
            certify.require_in_force(trust.issuer, self._clock.now())
        except certify.Refusal as refused:
            self._telling.failed(refused.message)
            raise

    def _require_rate(self, review: certify.Reviewed) -> None:
        _, credential = entries.authenticated_by(review.username, review.groups, review.extra)
        if self._rates.wait((review.account, review.pod_uid, credential), self._clock.monotonic()):
            raise certify.Refusal(
                certify.RESOURCE_EXHAUSTED, "too many certificates for this token; try again later", "TooManyOfOneToken"
            )

    def _refused(self, call: certify.Call, code: str, error: errors.HandfastError) -> server.Refusal:
        RESULTS.labels(error.reason).inc()
        now = self._clock.monotonic()
        # 6. of one kind one a second
        if now - self._said.get(error.reason, -_SAY_SECONDS) >= _SAY_SECONDS:
            self._said[error.reason] = now
            # A name that no identity can have may be anything.
            shown = call.identity[:253]
            _log.info("certificate refused", identity=shown, code=code, reason=error.reason, why=error.message[:512])
        return server.Refusal(code, error.message, _AGAIN_MS if code == certify.RESOURCE_EXHAUSTED else None)


def _sign(trust: trust_module.Trust, public_key: Any, sans: pki_names.Sans, now: datetime.datetime) -> authority.Issued:
    profile = certify.profile(trust.settings, trust.issuer, now)
    return trust.issuer.authority.issue(public_key, pki_names.Subject(), sans, profile, now)
