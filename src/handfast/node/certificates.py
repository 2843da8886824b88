# SPDX-License-Identifier: Apache-2.0
"""The certificate manager: which pair a node uses now, and renewing it before it ends, for ever, in the background.

Whoever opens or accepts a connection asks `current` at each use and keeps nothing. How one is renewed is in `renewal`,
where pairs lie in `certificate_store`; what the manager counts is shown by `certificate_metrics`.

A renewal is due, in order:

1. when somebody asked for it (`renew_now`), also before a crash: its key is still there; or the pair is only the one
   from a kubeconfig;
2. when there is no pair, it has expired, or it lacks a name that is wanted now;
3. when 70 to 90 % of its lifetime have passed, by the wall clock or by the time that really went by since it was taken:
   a wall clock that jumps back must not let it run out.

An attempt that fails is made again after 2, 4, 8, 16 and then every 32 seconds, with the same key and the same request.
Where the request was denied or deleted, attempts grow further apart, to ten minutes: whoever says no should not find a
hundred requests an hour.
"""

from __future__ import annotations

import asyncio
import datetime
import random as randomness
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from handfast import errors
from handfast.api import status
from handfast.client import api
from handfast.client import certificates as requests
from handfast.client import transport as transports
from handfast.node import certificate_store, renewal
from handfast.pki import pairs, rotation
from handfast.rules import certificate_wishes
from handfast.runtime import backoff, tasks
from handfast.runtime import clock as clocks

RETRY = backoff.Schedule(initial=2.0, cap=32.0, jitter=0.1)
RETRY_REFUSED = backoff.Schedule(initial=2.0, cap=600.0, jitter=0.1)
# How long one attempt waits for its certificate; the next one goes on with the same request.
ATTEMPT_SECONDS = 900.0
# How often the wall clock is looked at: it may jump, and only looking tells.
LOOK_SECONDS = 60.0
# A signer whose own certificate is about to end hands out ones that are due at once.
_REST_SECONDS = 30.0
# What an attempt needs to be worth it.
_SHORTEST_SECONDS = 1.0

_log = structlog.get_logger("handfast.node")


@dataclass(frozen=True, slots=True)
class Failure:
    """The last attempt that went wrong."""

    at: datetime.datetime
    reason: str
    message: str
    hint: str | None = None


class CertificateManager:
    """One identity of a node: its client certificate or its serving certificate."""

    def __init__(
        self,
        store: certificate_store.CertificateStore,
        wanted: Callable[[], certificate_wishes.Wanted | None],
        ask: Callable[[], api.Client],
        *,
        clock: clocks.Clock,
        chance: Callable[[], float] = randomness.random,
        rotate: bool = True,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.rotate = rotate
        # Who is told that a request waits.
        self.waits: requests.Waits = requests.patiently
        self.last_error: Failure | None = None
        self._last: errors.HandfastError | None = None
        self.renew_errors = 0
        self.server_healthy = True
        self.next_renewal: datetime.datetime | None = None
        self._store = store
        self._wanted = wanted
        self._ask = ask
        self._clock = clock
        self._look_seconds = look_seconds
        self._pair: pairs.Pair | None = None
        self._given: pairs.Pair | None = None
        # The deadline in the time that really goes by, and the earliest instant of the next renewal.
        self._due_at = 0.0
        self._rest_until = 0.0
        self._forced = ""
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[pairs.Pair], Awaitable[None]]] = []
        self._retry = backoff.Backoff(RETRY, chance)
        self._retry_refused = backoff.Backoff(RETRY_REFUSED, chance)

    def load(self, kubeconfig_pair: Callable[[], pairs.Pair | None] = lambda: None) -> pairs.Pair | None:
        """Take the stored pair or the kubeconfig's; None if there is neither.

        The kubeconfig is read after the store, because it may lead to the link that the store has just mended.

        With rotation the stored one comes first, and the kubeconfig's is replaced as soon as can be. Without, what the
        kubeconfig says counts, whatever its name, as long as it lasts. A stored pair with another node's name came with
        a copied disk, and is left alone.
        """
        self._store.remove_leftovers()
        stored = self._store.load()
        if stored is not None and (why := self._lacking(stored)) is not None:
            _log.warning("the stored certificate is not this node's", prefix=self._store.prefix, why=why)
            stored = None
        self._given = given = kubeconfig_pair()
        ordered = (stored, given) if self.rotate else (given, stored)
        present = [pair for pair in ordered if pair is not None]
        now = self._clock.now()
        found = next((pair for pair in present if certificate_store.unexpired(pair, now)), next(iter(present), None))
        if found is not None:
            if found is given and self.rotate:
                self._forced = "the certificate is the kubeconfig's"
                self._keep(found)
            elif self.rotate and self._store.has_pending_key():
                # Somebody may have approved it meanwhile, and nobody else would ever fetch the certificate.
                self._forced = "a request was under way when the last process ended"
            self._adopt(found)
        return found

    def _keep(self, pair: pairs.Pair) -> None:
        """Store the kubeconfig's pair; a node that cannot still has it in the kubeconfig, and starts."""
        try:
            self._store.save(pair)
        except (errors.Refused, errors.Unavailable) as error:
            self._failed(error)

    def current(self) -> pairs.Pair | None:
        """The pair to use now. It is handed out past its end, too: whether it has ended is for the peer's clock."""
        return self._pair

    def usable(self) -> bool:
        """Whether there is a pair that says what is wanted and has not ended by this machine's clock."""
        return self._pair is not None and self._unfit(self._pair) is None

    def renew_now(self) -> None:
        """Renew at once, with a fresh key."""
        if not self.rotate:
            raise errors.Refused(
                "certificates are not rotated by this agent",
                reason="RotationOff",
                hint="start it with --rotate-certificates (rotateCertificates: true)",
            )
        self._forced = "asked for"
        self._rest_until = 0.0
        self._wake.set()

    def subscribe(self, listener: Callable[[pairs.Pair], Awaitable[None]]) -> None:
        """Have `listener` awaited with each new pair, after it is current."""
        self._listeners.append(listener)

    async def hold(self, seconds: float, *, patient: bool = True) -> pairs.Pair:
        """A usable pair, asked for if there is none, also with rotation off; Unavailable after so many seconds.

        Not `patient`: a refusal that waiting does not mend ends it, once every credential that there is was refused.
        Refused at once, too, where a request waits for what `waits` does not want to wait for.
        """
        end = self._clock.monotonic() + seconds
        refusals: list[errors.Refused] = []
        # An attempt is given what is left and no more, so that it can say itself what it waited for. One that has hardly any
        # time could say nothing that is not known.
        while not self.usable() and (left := end - self._clock.monotonic()) > (
            _SHORTEST_SECONDS if self.last_error else 0.0
        ):
            if wait := await self._attempt("there is no certificate that can be used", min(left, ATTEMPT_SECONDS)):
                if not patient and self._refused(refusals):
                    raise refusals[0]
                await self._rest(min(wait, max(end - self._clock.monotonic(), 0.0)))
        if self._pair is None or not self.usable():
            last = self.last_error
            why = f"; the last error: {last.message}" if last else ""
            raise errors.Unavailable(
                f"no certificate was obtained within {seconds:g} seconds{why}",
                reason="BootstrapTimeout",
                hint=(last.hint if last else None) or "start again: the same key and the same request are used",
            )
        return self._pair

    def _refused(self, refusals: list[errors.Refused]) -> bool:
        """Whether the last attempts were all refused for good: with a pair that has expired there are two ways to ask."""
        found = None if self._last is None else requests.final(self._last)
        if found is None:
            refusals.clear()
            return False
        refusals.append(found)
        return len(refusals) >= (1 if self._pair is None else 2)

    async def run(self) -> None:
        """Renew for ever; with rotation off there is nothing to do."""
        while self.rotate:
            why = self.due()
            if why is None:
                await self._rest(self._left())
            elif wait := await self._attempt(why):
                await self._rest(wait)

    def due(self) -> str | None:
        """Why a renewal is due now; None while it is not, or while nothing is wanted."""
        if self._wanted() is None or self._clock.monotonic() < self._rest_until:
            return None
        # 1.
        if self._forced:
            return self._forced
        # 2.
        if self._pair is None:
            return "there is no certificate"
        if (unfit := self._unfit(self._pair)) is not None:
            return unfit
        # 3.
        if self.next_renewal is not None and self._clock.now() >= self.next_renewal:
            return "the time of renewal has come"
        if self._clock.monotonic() >= self._due_at:
            return "the time of renewal has come, and the wall clock was set back"
        return None

    def _unfit(self, pair: pairs.Pair) -> str | None:
        """2, for a pair that there is."""
        ends = pair.leaf.not_after
        if self._clock.now() >= ends:
            return f"the certificate expired at {ends:%Y-%m-%dT%H:%M:%SZ}"
        return None if pair is self._given and not self.rotate else self._lacking(pair)

    def _lacking(self, pair: pairs.Pair) -> str | None:
        wanted = self._wanted()
        return None if wanted is None else rotation.lacking(pair.leaf, wanted.subject, wanted.sans)

    def _left(self) -> float:
        """How long until the next look."""
        left = [self._look_seconds]
        if self._pair is not None and self.next_renewal is not None:
            left += [(self.next_renewal - self._clock.now()).total_seconds(), self._due_at - self._clock.monotonic()]
        # What is due and waits for its rest would otherwise be looked at again and again.
        return max(min(left), self._rest_until - self._clock.monotonic(), 0.001)

    async def _rest(self, seconds: float) -> None:
        await tasks.wait_for_event(self._wake, self._clock, seconds)
        self._wake.clear()

    async def _attempt(self, why: str, seconds: float = ATTEMPT_SECONDS) -> float:
        """One attempt; how long to wait before the next one, nothing after a success."""
        wanted = self._wanted()
        if wanted is None:
            return self._look_seconds
        _log.info("a certificate is asked for", prefix=self._store.prefix, why=why)
        try:
            pair = await self._renewed(wanted, seconds)
        except requests.NotWaitedFor:
            raise
        except (errors.Refused, errors.Unavailable) as error:
            self._failed(error)
            wait = next(self._retry_refused if error.reason in requests.REQUEST_IS_OVER else self._retry)
            return max(wait, float(error.retry_after)) if isinstance(error, status.StatusError) else wait
        self._forced = ""
        self.last_error = None
        self.server_healthy = True
        self._retry.reset()
        self._retry_refused.reset()
        self._rest_until = self._clock.monotonic() + _REST_SECONDS
        self._adopt(pair)
        for listener in self._listeners:
            await listener(pair)
        return 0.0

    async def _renewed(self, wanted: certificate_wishes.Wanted, seconds: float) -> pairs.Pair:
        return await renewal.renew(
            self._store, self._ask(), wanted, clock=self._clock, seconds=seconds, waits=self.waits
        )

    def _failed(self, error: errors.HandfastError) -> None:
        self.renew_errors += 1
        self.server_healthy = healthy_after(error)
        self._last = error
        self.last_error = Failure(self._clock.now(), error.reason, error.message, error.hint)
        _log.warning("no certificate was obtained", prefix=self._store.prefix, reason=error.reason, error=error.message)

    def _adopt(self, pair: pairs.Pair) -> None:
        leaf, now = pair.leaf, self._clock.now()
        self._pair = pair
        # Of its own name and number, so that a restart changes nothing; and a node's two certificates do not come together.
        holder = f"{self._store.prefix} {leaf.subject.common_name}"
        own, chance = rotation.phase(holder), rotation.phase(f"{holder} {leaf.serial}")
        point = rotation.renewal_point(leaf.not_before, leaf.not_after, own, chance)
        self.next_renewal = rotation.deadline(leaf.not_before, leaf.not_after, point)
        self._due_at = self._clock.monotonic() + (self.next_renewal - now).total_seconds()
        if now < leaf.not_before:
            _log.warning("the certificate begins later: is this machine's clock behind?", begins=str(leaf.not_before))
        if now >= leaf.not_after:
            _log.warning(
                "the certificate has expired",
                prefix=self._store.prefix,
                serial=leaf.serial,
                expired=str(leaf.not_after),
            )
            return
        _log.info(
            "certificate in use",
            prefix=self._store.prefix,
            serial=leaf.serial,
            expires=str(leaf.not_after),
            renewal=str(self.next_renewal) if self.rotate else "off",
        )


def healthy_after(error: errors.HandfastError) -> bool:
    """Whether an API server that answered so is up: it knows us not, or refuses us in its own words."""
    if isinstance(error, status.StatusError):
        return error.code == 401 or (
            error.reason in {"NotFound", "Forbidden"} and not isinstance(error, transports.UnexpectedAnswer)
        )
    # What is said of a request or of its certificate was said by a server.
    return isinstance(error, requests.StillPending) or error.reason in {
        *requests.REQUEST_IS_OVER,
        "CertificateNotYetValid",
    }
