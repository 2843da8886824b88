# SPDX-License-Identifier: Apache-2.0
"""A node's certificate keeper: one identity of a node, its client certificate or its serving certificate, kept fresh.

The loop is in `client.keeping`. Here is what a node adds to it: certificates are obtained by a CertificateSigningRequest, the
first pair may be the kubeconfig's, and rotation may be off. Where pairs lie is in `certificate_store`; what the keeper
counts is shown by `certificate_metrics`.

1. With rotation the stored pair comes first, and the kubeconfig's is replaced as soon as can be. A pair that has not expired
   comes before one that has.
2. Without rotation the kubeconfig's pair is used until it expires, whatever name it has. A new one is asked for only if no
   pair can be used (`ensure`).
"""

from __future__ import annotations

import random as randomness
from collections.abc import Callable

import structlog

from handfast import errors
from handfast.client import api, keeping, requests, timetable
from handfast.node import certificate_store, renewal
from handfast.pki import keys, pairs
from handfast.rules.certificates import wishes
from handfast.runtime import clock as clocks

_log = structlog.get_logger("handfast.node")


class CertificateKeeper(keeping.Keeper[wishes.Wanted]):
    """One identity of a node; `client_for_request` gives the client for each request."""

    def __init__(
        self,
        store: certificate_store.CertificateStore,
        wanted: Callable[[], wishes.Wanted | None],
        client_for_request: Callable[[], api.Client],
        *,
        clock: clocks.Clock,
        chance: Callable[[], float] = randomness.random,
        rotate: bool = True,
        look_seconds: float = timetable.LOOK_SECONDS,
    ) -> None:
        super().__init__(
            store.prefix,
            store,
            self._request,
            wanted,
            clock=clock,
            deadline=None if rotate else timetable.never,
            judge=renewal.judge,
            chance=chance,
            look_seconds=look_seconds,
        )
        self.rotate = rotate
        # What is done when a request waits.
        self.on_waiting: requests.OnWaiting = requests.keep_waiting
        self._client_for_request = client_for_request
        self._kubeconfig_pair: pairs.Pair | None = None

    async def _request(self, key: keys.PrivateKey, wanted: wishes.Wanted, seconds: float) -> bytes:
        name = wishes.name_of(key.public, wanted)
        _log.debug("the key is on disk, and its request is sent or waited for", request=name)
        return await requests.file_and_wait(
            self._client_for_request(), key, wanted, clock=self._clock, seconds=seconds, on_waiting=self.on_waiting
        )

    def load(self, kubeconfig_pair: Callable[[], pairs.Pair | None] = lambda: None) -> pairs.Pair | None:
        """Take the stored pair or the kubeconfig's (1, 2); None if there is neither.

        The kubeconfig is read after the store, because it may lead to the link that the store has just mended.
        """
        stored = self.stored()
        self._kubeconfig_pair = from_kubeconfig = kubeconfig_pair()
        ordered = (stored, from_kubeconfig) if self.rotate else (from_kubeconfig, stored)
        present = [pair for pair in ordered if pair is not None]
        now = self._clock.now()
        unexpired = (pair for pair in present if certificate_store.unexpired(pair, now))
        chosen = next(unexpired, next(iter(present), None))
        if chosen is not None and chosen is from_kubeconfig and self.rotate:
            self.take_over(chosen, "the certificate is the kubeconfig's")
        elif chosen is not None:
            self.use(chosen, resume=self.rotate)
        return chosen

    def lacking(self, pair: pairs.Pair) -> str | None:
        """Why a pair does not say what is wanted; without rotation the kubeconfig's is as good as it is (2)."""
        return None if pair is self._kubeconfig_pair and not self.rotate else super().lacking(pair)

    def renew_now(self) -> None:
        """Renew at once, with a fresh key."""
        if not self.rotate:
            raise errors.Refused(
                "certificates are not rotated by this agent",
                reason="RotationOff",
                hint="start it with --rotate-certificates (rotateCertificates: true)",
            )
        super().renew_now()

    async def run(self) -> None:
        """Renew for ever; with rotation off there is nothing to do."""
        if self.rotate:
            await super().run()
