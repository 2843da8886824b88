# SPDX-License-Identifier: Apache-2.0
"""How near the end of a certificate is, in steps, so that each step can be told once. It tells nobody.

1. Soon: less than a third of its life is left, and less than 60 days.
2. Urgent: less than a tenth of its life, and less than 7 days.
3. Over: it is not in force any more.
4. Beside the steps, a check fails once less than a tenth of its life and less than 30 days are left: people replace it, and need time to.
5. What a program renews is renewed before 90 % of its life have passed (`pki.renewal`). After that it is late.
"""

from __future__ import annotations

import datetime
import enum
from typing import Final

import msgspec

from handfast.pki import certificates, renewal

SOON: Final = datetime.timedelta(days=60)
WEEK: Final = datetime.timedelta(days=7)
MARGIN: Final = datetime.timedelta(days=30)


class Stage(enum.IntEnum):
    """How near the end is."""

    FAR = 0
    SOON = 1
    URGENT = 2
    OVER = 3


class Ending(msgspec.Struct, frozen=True):
    """A certificate that ends, and how near that is; `title` is for people."""

    title: str
    ends: datetime.datetime
    stage: Stage
    # Whether less is left than it takes to replace it (4).
    fails: bool = False

    @property
    def sentence(self) -> str:
        """What an operator is told."""
        at = f"{self.ends:%Y-%m-%dT%H:%M:%SZ}"
        if self.stage is Stage.OVER:
            return f"{self.title} is not valid anymore. Expired on {at}"
        return f"{self.title} will expire on {at}"


def stage(certificate: certificates.Certificate, now: datetime.datetime) -> Stage:
    """How near the end of a certificate is."""
    left, life = certificate.not_after - now, certificate.not_after - certificate.not_before
    # 3. over
    if left <= datetime.timedelta():
        return Stage.OVER
    # 2. urgent
    if left < min(WEEK, life / 10):
        return Stage.URGENT
    # 1. soon
    return Stage.SOON if left < min(SOON, life / 3) else Stage.FAR


def near(title: str, certificate: certificates.Certificate, now: datetime.datetime) -> Ending | None:
    """The end of a certificate, where it is near."""
    at = stage(certificate, now)
    return None if at is Stage.FAR else Ending(title, certificate.not_after, at, fails=fails(certificate, now))


def fails(certificate: certificates.Certificate, now: datetime.datetime) -> bool:
    """Whether less of a CA is left than it takes to replace it (4)."""
    life = certificate.not_after - certificate.not_before
    return certificate.not_after - now < min(MARGIN, life / 10)


def is_late(certificate: certificates.Certificate, now: datetime.datetime) -> bool:
    """Whether a program should have renewed it by now (5)."""
    return now >= renewal.deadline(certificate.not_before, certificate.not_after, renewal.LATEST)
