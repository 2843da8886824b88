# SPDX-License-Identifier: Apache-2.0
"""Keeps one pair of certificate and key fresh: which pair to use now, and its successor in time, for ever.

It needs a way to obtain a certificate, a store for the pair, what the certificate is to say, and a clock. How a certificate
is obtained, where pairs lie and whose they are, it does not know. What happens to one key is in `issuance`, and the times
are in `timetable`.

Whoever opens or accepts a connection asks `current` at each use and keeps nothing, or is told of each new pair
(`subscribe`). Metrics and reports read the public fields.

Nothing is due while nothing is wanted, or right after a renewal (`timetable`). Else a renewal is due:

1. when it was asked for (`renew_now`), when a request was under way as the last process ended, or when the pair came from
   elsewhere (`take_over`);
2. when there is no pair, it has expired, or it lacks a name that is wanted now;
3. when its deadline has come: at 70 to 90 % of its lifetime, unless its holder has another.

An attempt that fails is made again with the same key, after a time that grows (`timetable`).
"""

from __future__ import annotations

import asyncio
import datetime
import random as randomness
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from handfast import errors
from handfast.client import issuance, refusals, timetable
from handfast.pki import certificates, keys, names, pairs, renewal
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

# How long one attempt waits for its certificate; the next one goes on with the same request.
ATTEMPT_SECONDS = 900.0
# What an attempt needs to be worth it.
_SHORTEST_SECONDS = 1.0

# No certificate came in the time that somebody was willing to wait.
TIMEOUT: Final = "BootstrapTimeout"
_log = structlog.get_logger("handfast.client")


class Names(Protocol):
    """What a certificate is to say: one that lacks some of it is renewed at once."""

    @property
    def subject(self) -> names.Subject: ...

    @property
    def sans(self) -> names.Sans: ...


W = TypeVar("W", bound=Names)
# The certificate for a key, in PEM with its chain, within so many seconds. The judge says what its errors mean.
Obtain = Callable[[keys.PrivateKey, W, float], Awaitable[bytes]]


class Failure(msgspec.Struct, frozen=True):
    """The last attempt that went wrong."""

    at: datetime.datetime
    reason: str
    message: str
    hint: str | None = None


class Keeper(Generic[W]):
    """One pair and its successors; `name` is what logs call it."""

    def __init__(
        self,
        name: str,
        store: issuance.Store,
        obtain: Obtain[W],
        wanted: Callable[[], W | None],
        *,
        clock: clocks.Clock,
        deadline: timetable.Deadline | None = None,
        judge: issuance.Judge = issuance.judge_plainly,
        chance: Callable[[], float] = randomness.random,
        look_seconds: float = timetable.LOOK_SECONDS,
    ) -> None:
        self._name = name
        self.last_error: Failure | None = None
        self.renew_errors = 0
        self.server_healthy = True
        self._store = store
        self._obtain = obtain
        self._wanted = wanted
        self._clock = clock
        self._judge = judge
        self._times = timetable.Timetable(deadline or timetable.spread(name), clock, chance, look_seconds)
        self._pair: pairs.Pair | None = None
        # What the last failure says of the next attempt.
        self._outlook = issuance.Outlook()
        self._forced = ""
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[pairs.Pair], Awaitable[None]]] = []

    # The first pair.

    def load(self) -> pairs.Pair | None:
        """Use the stored pair; None if there is none."""
        pair = self.stored()
        if pair is not None:
            self.use(pair)
        return pair

    def stored(self) -> pairs.Pair | None:
        """The stored pair. One with another's name came with a copied disk, and is left alone."""
        self._store.remove_leftovers()
        pair = self._store.load()
        if pair is not None and (why := self.lacking(pair)) is not None:
            _log.warning("the stored certificate is another's", name=self._name, why=why)
            return None
        return pair

    def use(self, pair: pairs.Pair, *, resume: bool = True) -> None:
        """Make a stored pair the current one; `resume` goes on with a request that was under way."""
        if resume and self._store.has_pending_key():
            # Somebody may have approved it meanwhile, and nobody else would ever fetch the certificate.
            self._forced = "a request was under way when the last process ended"
        self._adopt(pair)

    def take_over(self, pair: pairs.Pair, why: str) -> None:
        """Use and store a pair from elsewhere, and renew it at once; where it cannot be stored, it is used all the same."""
        try:
            self._store.save(pair)
        except (errors.Refused, errors.Unavailable) as error:
            self._failed(error, self._judge(error))
        self._forced = why
        self._adopt(pair)

    # The pair of this moment.

    def current(self) -> pairs.Pair | None:
        """The pair to use now. It is handed out past its end, too: whether it has ended is for the peer's clock."""
        return self._pair

    def usable(self) -> bool:
        """Whether there is a pair that says what is wanted and has not ended by this machine's clock."""
        return self._pair is not None and self._unfit(self._pair) is None

    def lacking(self, pair: pairs.Pair) -> str | None:
        """Why a pair does not say what is wanted now; None if it does, or if nothing is wanted."""
        wanted = self._wanted()
        return None if wanted is None else renewal.lacking(pair.leaf, wanted.subject, wanted.sans)

    def subscribe(self, listener: Callable[[pairs.Pair], Awaitable[None]]) -> None:
        """Have `listener` awaited with each new pair, after it is current."""
        self._listeners.append(listener)

    # Its successors.

    @property
    def next_renewal(self) -> datetime.datetime | None:
        """When the current pair is due; None without one, or where it has no deadline."""
        return self._times.next_renewal

    def renew_now(self) -> None:
        """Renew at once, with a fresh key."""
        self._forced = "asked for"
        self._times.hurry()
        self._wake.set()

    async def ensure(self, seconds: float, *, patient: bool = True) -> pairs.Pair:
        """A usable pair, asked for if there is none; Unavailable after so many seconds.

        Not `patient`: a refusal ends it, once it is believed (`refusals`). With an expired pair there are two ways to ask, by
        that pair and by another credential, and both must be refused. An error that ends the waiting is raised at once.
        """
        end = self._clock.monotonic() + seconds
        refused = refusals.Refusals(ways=1 if self._pair is None else 2)
        # Each attempt gets only the time that is left, so that its own error says what it waited for. With less than a second
        # left there is no further attempt.
        while not self.usable() and (left := end - self._clock.monotonic()) > (
            _SHORTEST_SECONDS if self.last_error else 0.0
        ):
            if wait := await self._attempt("there is no certificate that can be used", min(left, ATTEMPT_SECONDS)):
                now = self._clock.monotonic()
                if not patient:
                    refused.note(self._outlook, now)
                if (refusal := refused.believed(now)) is not None:
                    raise refusal
                await self._rest(min(wait, max(end - now, 0.0), refused.left(now)))
        if self._pair is None or not self.usable():
            raise refused.last() or self._out_of_time(seconds)
        return self._pair

    def _out_of_time(self, seconds: float) -> errors.Unavailable:
        last = self.last_error
        why = f"; the last error: {last.message}" if last else ""
        return errors.Unavailable(
            f"no certificate was obtained within {seconds:g} seconds{why}",
            reason=TIMEOUT,
            hint=(last.hint if last else None) or "start again: the same key and the same request are used",
        )

    async def run(self) -> None:
        """Renew for ever."""
        while True:
            why = self.due()
            if why is None:
                left = self._times.left()
                _log.debug("no certificate is due", name=self._name, renewal=str(self.next_renewal), looks_in=left)
                await self._rest(left)
            elif wait := await self._attempt(why):
                await self._rest(wait)

    def due(self) -> str | None:
        """Why a renewal is due now; None while it is not, while nothing is wanted, or right after a renewal."""
        if self._wanted() is None or self._times.resting():
            return None
        # 1. it was asked for
        if self._forced:
            return self._forced
        # 2. nothing to use
        if self._pair is None:
            return "there is no certificate"
        if (unfit := self._unfit(self._pair)) is not None:
            return unfit
        # 3. its deadline has come
        return self._times.due()

    def _unfit(self, pair: pairs.Pair) -> str | None:
        """Why a pair cannot be used (2)."""
        ends = pair.leaf.not_after
        if self._clock.now() >= ends:
            return f"the certificate expired at {ends:%Y-%m-%dT%H:%M:%SZ}"
        return self.lacking(pair)

    async def _rest(self, seconds: float) -> None:
        await tasks.wait_for_event(self._wake, self._clock, seconds)
        self._wake.clear()

    async def _attempt(self, why: str, seconds: float = ATTEMPT_SECONDS) -> float:
        """One attempt; how long to wait before the next one, nothing after a success."""
        wanted = self._wanted()
        if wanted is None:
            return self._times.look_seconds
        _log.info("a certificate is asked for", name=self._name, why=why)
        try:
            pair = await self._renewed(wanted, seconds)
        except (errors.Refused, errors.Unavailable) as error:
            outlook = self._judge(error)
            if outlook.ends:
                raise
            self._failed(error, outlook)
            wait = self._times.delay(outlook)
            _log.debug("the next attempt is made later", name=self._name, seconds=round(wait, 1))
            return wait
        _log.debug("the certificate is stored", name=self._name, serial=pair.leaf.serial)
        await self._succeeded(pair)
        return 0.0

    async def _renewed(self, wanted: W, seconds: float) -> pairs.Pair:
        return await issuance.next_pair(self._store, lambda key: self._obtain(key, wanted, seconds), self._judge)

    def _failed(self, error: errors.HandfastError, outlook: issuance.Outlook) -> None:
        self.renew_errors += 1
        self.server_healthy = outlook.server_healthy
        self._outlook = outlook
        self.last_error = Failure(self._clock.now(), error.reason, error.message, error.hint)
        _log.warning("no certificate was obtained", name=self._name, reason=error.reason, error=error.message)

    async def _succeeded(self, pair: pairs.Pair) -> None:
        self._forced = ""
        self.last_error = None
        self.server_healthy = True
        self._times.succeeded()
        self._adopt(pair)
        for listener in self._listeners:
            await listener(pair)

    def _adopt(self, pair: pairs.Pair) -> None:
        self._pair = pair
        self._times.adopt(pair.leaf)
        self._tell(pair.leaf, self._clock.now())

    def _tell(self, leaf: certificates.Certificate, now: datetime.datetime) -> None:
        if now < leaf.not_before:
            _log.warning("the certificate begins later: is this machine's clock behind?", begins=str(leaf.not_before))
        if now >= leaf.not_after:
            _log.warning(
                "the certificate has expired", name=self._name, serial=leaf.serial, expired=str(leaf.not_after)
            )
            return
        _log.info(
            "certificate in use",
            name=self._name,
            serial=leaf.serial,
            expires=str(leaf.not_after),
            renewal="off" if self.next_renewal is None else str(self.next_renewal),
        )
