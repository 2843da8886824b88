# SPDX-License-Identifier: Apache-2.0
"""One call of Certify, and whether its answer may be used. When to call, with which token and for which key, the caller knows.

1. The service is called in plaintext on loopback only. Elsewhere it proves its name by the anchors before it is told anything (`channel`).
2. The answer has a chain that leads to the anchors, in force now, for a server of the own name (`pki.chains`).
3. The one DNS name of the leaf is the own name, letter for letter: no wildcard, and none beside it.
4. The answer says how long it is valid, and that is not over. It ends at the earliest of what it says and what its chain says.
5. A no of the service, which does not pass by itself, is told apart from a service that cannot answer now.

That the leaf is for the key of the request is for whoever has the key (`pki.pairs`).

| who | holding | tries | stopped by | shown in tests/unit/wire/test_certifying.py |
|---|---|---|---|---|
| a stranger | the address of the identity service | be told the token | 1 | test_a_false_service_is_told_nothing |
| … | the address, on loopback | have a certificate of his own CA used | 2 | test_an_answer_that_cannot_be_used_is_refused |
| a confused service | its issuer | give another's certificate, or one for several names | 3 | test_an_answer_that_cannot_be_used_is_refused |
| … | … | give one that is over | 2, 4 | test_an_answer_that_cannot_be_used_is_refused |
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Final

from handfast import errors
from handfast.pki import bundles, chains, pairs
from handfast.rules.mesh import certify as certify_rules
from handfast.runtime import addresses
from handfast.runtime import clock as clocks
from handfast.wire import channel, mesh_messages

CERTIFY: Final = f"/{mesh_messages.IDENTITY_SERVICE}/Certify"


class NotCertified(errors.Refused):
    """The identity service says no; the words are its own."""

    reason = certify_rules.REFUSED


class BadAnswer(errors.Refused):
    """A certificate that is not used."""

    reason = "BadCertifyAnswer"


@dataclass(frozen=True, slots=True)
class Service:
    """The identity service: where it is, and the name that it proves; None on loopback, in plaintext."""

    address: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Request:
    """Who wants a certificate, by which token, and for which key: the request in DER."""

    identity: str
    token: bytes = field(repr=False)
    csr: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certified:
    """A chain in DER, leaf first, that is believed until then."""

    chain: tuple[bytes, ...] = field(repr=False)
    until: datetime.datetime


async def certify(
    service: Service,
    request: Request,
    anchors: bundles.TrustBundle,
    *,
    clock: clocks.Clock,
    pair: pairs.Pair | None,
    seconds: float,
) -> Certified:
    """A certificate that may be used; `pair` is shown to the service, unless it is None."""
    message = mesh_messages.CertifyRequest(
        identity=request.identity, token=request.token, certificate_signing_request=request.csr
    )
    # 1. in plaintext on loopback only, which the channel sees to
    async with channel.opened(
        addresses.parse(service.address),
        anchors=None if service.name is None else anchors,
        server_name=service.name or "",
        clock=clock,
        pair=pair,
    ) as opened:
        try:
            answer = await opened.unary(CERTIFY, message, mesh_messages.CertifyResponse, seconds)
        except channel.Failed as failed:
            # 5. a no is told apart
            if failed.code in certify_rules.REFUSING:
                raise NotCertified(f"the identity service refuses: {failed.message}") from None
            raise
    return judged(answer, request.identity, anchors, clock.now())


def judged(answer: Any, identity: str, anchors: bundles.TrustBundle, now: datetime.datetime) -> Certified:
    """What the answer gives, if it may be used (2 to 4)."""
    chain = (answer.leaf_certificate, *answer.intermediate_certificates)
    # 2. believed, and in force
    verified = chains.verify(chain, anchors, chains.Server(identity), now)
    # 3. letter for letter, and alone
    if [name.lower() for name in verified.sans.dns] != [identity.lower()]:
        raise BadAnswer(f"the certificate is not for {identity} alone")
    # 4. for a time that is not over
    seconds = answer.valid_until.seconds
    if seconds <= now.timestamp():
        raise BadAnswer("the answer says no end, or one that is past")
    until = verified.valid_until
    return Certified(
        chain, until if seconds >= until.timestamp() else datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    )
