# SPDX-License-Identifier: Apache-2.0
"""CAs: near the end is a failure, one that was forgotten is a warning."""

import pytest

from handfast.pki import certificates
from handfast.rules.diagnoses import ending
from tests.unit.pki import making
from tests.unit.rules.diagnoses import known


def anchor(begins: float, ends: float) -> certificates.Certificate:
    return certificates.read(
        making.ca(not_before=known.NOW + begins * known.DAY, not_after=known.NOW + ends * known.DAY).der
    )


@pytest.mark.parametrize(
    ("anchors", "verdict"),
    [
        ([(-100, 3000)], ("ok", "")),
        ([(-3000, 59)], ("warning", "CAEndsSoon")),
        ([(-3000, 29)], ("failed", "CAEndsSoon")),
        # A short one is not near its end from its first day on.
        ([(-1, 10)], ("ok", "")),
        ([(-9.5, 0.5)], ("failed", "CAEndsSoon")),
        ([(-3000, -1)], ("failed", "CAExpired")),
        ([(1, 3000)], ("failed", "CAExpired")),
        ([(-3000, -1), (-100, 3000)], ("warning", "CAExpired")),
        ([(-3000, 20), (-100, 3000)], ("ok", "")),
    ],
)
def test_the_ca_that_ends_last_counts(anchors, verdict):
    row = ending.cas("cas", "the server", [anchor(*each) for each in anchors], known.NOW)
    assert (row.verdict.value, row.reason) == verdict
