# SPDX-License-Identifier: Apache-2.0
"""The Events of Certify, gathered: who got certificates, on the ServiceAccount, and an issuer that may not sign any more.

Events are for people who look at an account. What must not be lost is in the ledger: here the bounds come first.

1. A call waits for no Event, and none fails for one.
2. An account has one Event, which says the last certificate and counts all of them: not one write for each certificate.
3. So many accounts in so many seconds; the others wait for their turn. Of those that wait there are so many at most; what is left out then is
   counted.
4. An issuer that may not sign is told once a minute, however many are refused.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import prometheus_client

from handfast.client import events
from handfast.pki import authority
from handfast.rules.mesh import certify, names
from handfast.runtime import clock as clocks

ISSUED: Final = "IssuedLeafCertificate"
FAILED: Final = "IssuerValidationFailed"
# 3. so many accounts in so many seconds, and so many that wait
AT_ONCE: Final = 10
EVERY_SECONDS: Final = 5.0
MOST_WAITING: Final = 4096
# 4. once a minute
_FAILED_SECONDS: Final = 60.0

LEFT_OUT = prometheus_client.Counter(
    "handfast_mesh_events_left_out", "Certificates that no Event tells of, because too many accounts waited for theirs."
)


class _Gathered(msgspec.Struct):
    message: str = ""
    times: int = 0


class Telling:
    """What is to be said, and by and by is."""

    def __init__(self, recorder: events.Recorder, about: events.Regarding, clock: clocks.Clock) -> None:
        self._recorder = recorder
        self._about = about
        self._clock = clock
        self._waiting: dict[tuple[names.Account, str], _Gathered] = {}
        self._failure = ""
        self._failed_at = -_FAILED_SECONDS
        self._something = asyncio.Event()

    def issued(self, review: certify.Reviewed, identity: str, issued: authority.Issued) -> None:
        """A certificate was handed out. It is noted, and nobody waits (1)."""
        key = (review.account, identity)
        if key not in self._waiting and len(self._waiting) >= MOST_WAITING:
            # 3. so many wait, and no more
            LEFT_OUT.inc()
            return
        gathered = self._waiting.setdefault(key, _Gathered())
        gathered.times += 1
        what = "issued certificate" if gathered.times == 1 else f"issued {gathered.times} certificates"
        until = f"{issued.not_after:%Y-%m-%dT%H:%M:%SZ}"
        # The words of Linkerd, where it is one.
        last = "" if gathered.times == 1 else ", the last"
        gathered.message = f"{what} for {identity}{last} until {until}: {issued.fingerprint}"
        self._something.set()

    def failed(self, message: str) -> None:
        """A certificate was refused, because the issuer may not sign."""
        self._failure = message
        self._something.set()

    async def run(self) -> None:
        """Write what has gathered, until cancelled."""
        while True:
            await self._something.wait()
            await self._tell_failure()
            for key in tuple(self._waiting)[:AT_ONCE]:
                await self._tell(key, self._waiting.pop(key))
            if not self._waiting:
                self._something.clear()
            await self._clock.sleep(EVERY_SECONDS)

    async def _tell(self, key: tuple[names.Account, str], gathered: _Gathered) -> None:
        account, identity = key
        about = events.Regarding(
            api_version="v1",
            kind="ServiceAccount",
            name=account.name,
            namespace=account.namespace,
            uid=account.uid,
        )
        # 2. one Event for each account
        await self._recorder.record(about, ISSUED, gathered.message, topic=identity, times=gathered.times)

    async def _tell_failure(self) -> None:
        now = self._clock.monotonic()
        # 4. once a minute
        if self._failure and now - self._failed_at >= _FAILED_SECONDS:
            message, self._failure, self._failed_at = self._failure, "", now
            await self._recorder.record(self._about, FAILED, message, severity=events.WARNING)
