# SPDX-License-Identifier: Apache-2.0
"""When a certificate is renewed, and when it is tried again: the times of `keeping`, on its clock.

It neither waits nor renews. The share of a lifetime after which a certificate is due is decided in `pki.renewal`.

1. A certificate is due when its deadline has come, by the wall clock or by the time that really went by since it was
   taken: a wall clock that jumps back must not let it run out.
2. An attempt that fails is made again after 2, 4, 8, 16 and then every 32 seconds. Where a request was ended, attempts grow
   further apart, to ten minutes: whoever says no should not find a hundred requests an hour.
3. Two renewals lie half a minute apart at least: an issuer whose own certificate is about to end hands out ones that are
   due at once.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable

from handfast.client import issuance
from handfast.pki import certificates, renewal
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

RETRY = backoff.Schedule(initial=2.0, cap=32.0, jitter=0.1)
RETRY_OVER = backoff.Schedule(initial=2.0, cap=600.0, jitter=0.1)
# How often the wall clock is looked at: it may jump, and only looking tells.
LOOK_SECONDS = 60.0
_REST_SECONDS = 30.0

# When a certificate is to be renewed; None: not before it has expired or lacks a name.
Deadline = Callable[[certificates.Certificate], datetime.datetime | None]


def never(_leaf: certificates.Certificate) -> None:
    """No deadline, for a certificate that somebody else replaces."""


def spread(name: str) -> Deadline:
    """Between 70 and 90 % of the lifetime, at instants of the holder's own (`pki.renewal`)."""

    def deadline(leaf: certificates.Certificate) -> datetime.datetime:
        # Of its own name and number, so that a restart changes nothing. Two certificates of one holder differ in `name`.
        holder = f"{name} {leaf.subject.common_name}"
        own, chance = renewal.place_in_cycle(holder), renewal.place_in_cycle(f"{holder} {leaf.serial}")
        point = renewal.renewal_point(leaf.not_before, leaf.not_after, own, chance)
        return renewal.deadline(leaf.not_before, leaf.not_after, point)

    return deadline


class Timetable:
    """The times of one pair and its successors."""

    def __init__(
        self, deadline: Deadline, clock: clocks.Clock, chance: Callable[[], float], look_seconds: float
    ) -> None:
        self.next_renewal: datetime.datetime | None = None
        self.look_seconds = look_seconds
        self._deadline = deadline
        self._clock = clock
        # The deadline in the time that really goes by, and the earliest instant of the next renewal.
        self._due_at = math.inf
        self._rest_until = 0.0
        self._retry = backoff.Backoff(RETRY, chance)
        self._retry_over = backoff.Backoff(RETRY_OVER, chance)

    def adopt(self, leaf: certificates.Certificate) -> None:
        """Count from this certificate on."""
        self.next_renewal = due = self._deadline(leaf)
        left = math.inf if due is None else (due - self._clock.now()).total_seconds()
        self._due_at = self._clock.monotonic() + left

    def due(self) -> str | None:
        """Why the certificate is due (1); None while it is not."""
        if self.next_renewal is not None and self._clock.now() >= self.next_renewal:
            return "the time of renewal has come"
        if self._clock.monotonic() >= self._due_at:
            return "the time of renewal has come, and the wall clock was set back"
        return None

    def resting(self) -> bool:
        """Whether the last renewal was a moment ago (3)."""
        return self._clock.monotonic() < self._rest_until

    def hurry(self) -> None:
        """Let the next renewal come at once."""
        self._rest_until = 0.0

    def succeeded(self) -> None:
        """Begin anew with the delays (2), after a rest (3)."""
        self._retry.reset()
        self._retry_over.reset()
        self._rest_until = self._clock.monotonic() + _REST_SECONDS

    def delay(self, outlook: issuance.Outlook) -> float:
        """How long to wait after an attempt that failed (2)."""
        return max(next(self._retry_over if outlook.request_is_over else self._retry), outlook.retry_after)

    def left(self) -> float:
        """How long until the next look."""
        left = [self.look_seconds, self._due_at - self._clock.monotonic()]
        if self.next_renewal is not None:
            left.append((self.next_renewal - self._clock.now()).total_seconds())
        # What is due and waits for its rest would otherwise be looked at again and again.
        return max(min(left), self._rest_until - self._clock.monotonic(), 0.001)
