# SPDX-License-Identifier: Apache-2.0
"""How long a connection lasts at most."""

import datetime

import pytest

from handfast.rules.envoy import durations


def seconds(number):
    return datetime.timedelta(seconds=number)


@pytest.mark.parametrize(("lifetime", "expected"), [(86400, 8640), (60, 6), (10, 1), (3, 1), (-5, 1)])
def test_it_is_a_tenth_of_the_lifetime_and_a_second_at_least(lifetime, expected):
    assert durations.longest(seconds(lifetime), 0) == expected


@pytest.mark.parametrize(
    ("lifetime", "expected"), [(86400, 8640), (86399, 8639), (90000, 8640), (172790, 8640), (172800, 17280)]
)
def test_what_holds_is_kept_while_it_will_do(lifetime, expected):
    assert durations.longest(seconds(lifetime), 8640) == expected
