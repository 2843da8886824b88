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
        ([(-3000, 20), (-100, 3000)], ("warning", "CAEndsSoon")),
        ([(-3000, 59), (-100, 3000)], ("ok", "")),
    ],
)
def test_where_nobody_knows_who_signs_the_ca_that_ends_last_counts_and_none_may_be_near_its_end(anchors, verdict):
    row = ending.cas("cas", "the server", [anchor(*each) for each in anchors], known.NOW)
    assert (row.verdict.value, row.reason) == verdict


@pytest.mark.parametrize(
    ("signing", "verdict"),
    [
        ([0], ("failed", "CAEndsSoon")),
        ([1], ("ok", "")),
        # The first that ends of those that sign.
        ([0, 1], ("failed", "CAEndsSoon")),
    ],
)
def test_the_ca_that_signs_counts_whatever_stands_beside_it(signing, verdict):
    anchors = [anchor(-3650, 0.01), anchor(-100, 3000)]
    keys = frozenset(anchors[number].public_key.fingerprint for number in signing)
    row = ending.cas("cas", "the server", anchors, known.NOW, keys)
    assert (row.verdict.value, row.reason) == verdict


def test_a_ca_that_was_issued_again_for_its_key_counts_by_its_last_end():
    old = making.ca("one", not_before=known.NOW - 3000 * known.DAY, not_after=known.NOW + known.DAY)
    new = making.ca("one", key=old.key, not_before=known.NOW - known.DAY, not_after=known.NOW + 3000 * known.DAY)
    anchors = [certificates.read(each.der) for each in (old, new)]
    row = ending.cas("cas", "the server", anchors, known.NOW, frozenset([anchors[0].public_key.fingerprint]))
    assert row.verdict.value == "ok"
