# SPDX-License-Identifier: Apache-2.0
"""When a certificate is renewed before its time: while the root of the mesh is replaced. It asks for none: `credentials` does.

1. The control plane says who is to have signed. A certificate of another is renewed within a part of its life, by chance, so that not all ask at once.
2. One that the anchors of the moment do not believe any more is renewed at once.
3. Either is tried again after a time that grows, while another goes on signing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from handfast.pki import bundles, certificates, chains, pairs
from handfast.proxy import trust as trust_module
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

# 1. a twentieth of its life, and ten minutes at most
_SPREAD: Final = 20
_MOST_SPREAD: Final = 600.0
# 3. a time that grows
_AGAIN: Final = backoff.Schedule(initial=5.0, cap=600.0)


class EarlyRenewal:
    """Of the certificate of one workload. `at` is when it is due next, in the time that really goes by."""

    def __init__(self, name: str, trust: trust_module.Trust, clock: clocks.Clock, chance: Callable[[], float]) -> None:
        self.at = math.inf
        # Who is to have signed; empty: whoever does.
        self.preferred = ""
        self._name = name
        self._trust = trust
        self._clock = clock
        self._chance = chance
        self._delays = backoff.Backoff(_AGAIN, chance)
        # By which anchors the pair was judged last, and whether they believe it.
        self._judged: tuple[pairs.Pair, bundles.TrustBundle, bool] | None = None

    def prefer(self, signer: str) -> bool:
        """Have the certificate signed by this issuer; whether that is another than before."""
        if signer == self.preferred:
            return False
        self.preferred, self.at = signer, math.inf
        self._delays.reset()
        return True

    def is_due(self, pair: pairs.Pair) -> bool:
        """Whether this certificate is to be renewed now. Who is told so does it: it is due again only later."""
        now, believed = self._clock.monotonic(), self._is_believed(pair)
        if believed and (not self.preferred or _is_signed_by(pair, self.preferred)):
            self.at = math.inf
            return False
        if believed and self.at == math.inf:
            # 1. by chance, within a part of its life
            spread = (pair.leaf.not_after - pair.leaf.not_before).total_seconds() / _SPREAD
            self.at = now + min(spread, _MOST_SPREAD) * self._chance()
            return False
        # 2. at once, where it is not believed
        if self.at != math.inf and now < self.at:
            return False
        # 3. again, later
        self.at = now + next(self._delays)
        return True

    def _is_believed(self, pair: pairs.Pair) -> bool:
        """Whether the anchors of the moment lead to it; what is over is not asked about."""
        anchors = self._trust.current
        if self._judged is None or self._judged[:2] != (pair, anchors):
            try:
                chains.verify(pair.chain, anchors, chains.Server(self._name), self._clock.now())
            except chains.ChainRefused as refused:
                believed = refused.reason in {"Expired", "NotYetValid"}
            else:
                believed = True
            self._judged = (pair, anchors, believed)
        return self._judged[2]


def _is_signed_by(pair: pairs.Pair, signer: str) -> bool:
    return any(certificates.fingerprint(der).startswith(signer) for der in pair.chain[1:])
