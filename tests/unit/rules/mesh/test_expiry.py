# SPDX-License-Identifier: Apache-2.0
"""How near an end is: a year, and a life too short for days."""

from __future__ import annotations

import datetime

import pytest

from handfast.pki import certificates
from handfast.rules.mesh import expiry
from tests.unit.pki import making

NOW, DAY = making.NOW, making.DAY
HOUR = datetime.timedelta(hours=1)


def certificate(life: datetime.timedelta) -> certificates.Certificate:
    return certificates.read(making.ca("root", not_before=NOW, not_after=NOW + life).der)


@pytest.mark.parametrize(
    ("life", "left", "stage"),
    [
        (365 * DAY, 61 * DAY, expiry.Stage.FAR),
        (365 * DAY, 59 * DAY, expiry.Stage.SOON),
        (365 * DAY, 8 * DAY, expiry.Stage.SOON),
        (365 * DAY, 6 * DAY, expiry.Stage.URGENT),
        (365 * DAY, HOUR, expiry.Stage.URGENT),
        (365 * DAY, 0 * DAY, expiry.Stage.OVER),
        (365 * DAY, -DAY, expiry.Stage.OVER),
        # Short-lived: by the share of its life.
        (3 * DAY, 1.1 * DAY, expiry.Stage.FAR),
        (3 * DAY, 0.9 * DAY, expiry.Stage.SOON),
        (3 * DAY, 0.2 * DAY, expiry.Stage.URGENT),
    ],
)
def test_the_end_comes_nearer_in_steps(life, left, stage):
    each = certificate(life)
    now = each.not_after - left
    assert expiry.stage(each, now) is stage
    ending = expiry.near("the issuer", each, now)
    assert (ending is None) == (stage is expiry.Stage.FAR)
    if ending is not None:
        at = f"{each.not_after:%Y-%m-%dT%H:%M:%SZ}"
        over = stage is expiry.Stage.OVER
        assert (
            ending.sentence
            == f"the issuer {f'is not valid anymore. Expired on {at}' if over else f'will expire on {at}'}"
        )
