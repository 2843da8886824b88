# SPDX-License-Identifier: Apache-2.0
"""TLS as a gRPC server of the mesh speaks it: which pair is shown, and how client certificates are judged.

1. TLS 1.3 and nothing older. Of ALPN `h2` is chosen where it is offered; proxies of the mesh offer none, and are served too.
2. The pair of the moment counts from the next handshake on. While there is none, handshakes fail.
3. A client's certificate is asked for and never required. One that is shown must lead to a trust anchor of the moment; its
   times are not looked at in the handshake.
4. What is then believed is judged by `pki.chains`, times included: a certificate that has expired counts as none, so that a
   workload past its expiry can still ask for the next one.
5. No session tickets: a resumed session carries no chain.

It accepts no connections (`terminator` does), and renews nothing.

| who | holding | tries | stopped by | shown in tests/unit/wire/test_terminator.py |
|---|---|---|---|---|
| a stranger | a certificate of another CA | be somebody | 3 | test_a_certificate_of_another_ca_is_refused |
| who was somebody | an expired certificate | still be it | 4 | test_an_expired_certificate_counts_as_none |
| a server | a serving certificate without the client's purpose | be a client | 4 | test_a_certificate_for_servers_alone_is_nobodys |
| who listens in | an old TLS version | have it spoken | 1 | test_older_versions_of_tls_are_refused |
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from handfast import errors
from handfast.pki import bundles, chains, pairs
from handfast.runtime import tls

# X509_V_FLAG_NO_CHECK_TIME: `ssl` does not name it.
_NO_CHECK_TIME: Final = 0x200000
_SAY_SECONDS: Final = 1.0
_log = structlog.get_logger("handfast.wire")

CurrentPair = Callable[[], pairs.Pair | None]
CurrentAnchors = Callable[[], bundles.TrustBundle]


class ServerTLS:
    """A context that takes the pair and the trust anchors of the moment."""

    def __init__(self, pair: CurrentPair, anchors: CurrentAnchors) -> None:
        self._pair = pair
        self._anchors = anchors
        self._said: datetime.datetime | None = None
        self._served: tuple[pairs.Pair, bundles.TrustBundle, ssl.SSLContext] | None = None
        self.context = _bare()
        # Whether to ask is decided before the callback runs.
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.sni_callback = self._choose

    def judge(self, chain: Sequence[bytes], now: datetime.datetime) -> chains.Verified | None:
        """What the certificate of a finished handshake proves; None where it proves nothing."""
        if not chain:
            return None
        try:
            # 4. an expired one counts as none
            return chains.verify(chain, self._anchors(), chains.Client(), now)
        except errors.Refused as refused:
            # 4. told once a second: who shows one may do so without end
            if self._said is None or not 0 <= (now - self._said).total_seconds() < _SAY_SECONDS:
                self._said = now
                _log.info("a client certificate counts as none", reason=refused.reason)
            return None

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        # 2. the pair of the moment
        pair, anchors = self._pair(), self._anchors()
        if pair is None:
            return int(ssl.ALERT_DESCRIPTION_INTERNAL_ERROR)
        if self._served is None or self._served[0] is not pair or self._served[1] != anchors:
            self._served = (pair, anchors, _context_of(pair, anchors))
        connection.context = self._served[2]
        return None


def _context_of(pair: pairs.Pair, anchors: bundles.TrustBundle) -> ssl.SSLContext:
    context = _bare()
    tls.load_pair(context, pair.certificate_pem, pair.key_pem)
    if anchors.ders:
        # 3. asked for, never required
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=b"".join(anchors.ders))
    return context


def _bare() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # 1. nothing older than TLS 1.3, and h2 or nothing
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    # 5. no tickets
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    # 3. an anchor may be an intermediate CA, and times are compared later
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
    return context
