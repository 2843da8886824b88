# SPDX-License-Identifier: Apache-2.0
"""What expires in the next 30 days, and what happened since yesterday."""

from __future__ import annotations

import datetime

from handfast.rules.console import expiring, ledger_index
from handfast.rules.nodes import join_failures
from tests.unit.rules.nodes.test_overview import HOUR, NOW

DAY = datetime.timedelta(days=1)


def lifetime(*, age: float, lasts: float) -> tuple[int, int]:
    """Of a certificate that was issued so many hours ago, and lasts so many."""
    issued = int((NOW - age * HOUR).timestamp())
    return issued, issued + int(lasts * 3600)


def test_a_certificate_counts_on_the_day_on_which_it_ends():
    days = expiring.days([lifetime(age=1, lasts=49), lifetime(age=0, lasts=24), lifetime(age=0, lasts=24)], NOW)
    assert [(day.renewed, day.late) for day in days[:4]] == [(0, 0), (2, 0), (1, 0), (0, 0)]
    assert (days[0].date, len(days)) == (NOW.date(), expiring.DAYS)


def test_what_is_over_or_far_is_not_counted():
    over, far, last = lifetime(age=30, lasts=24), lifetime(age=0, lasts=24 * 31), lifetime(age=0, lasts=24 * 29)
    days = expiring.days([over, far, last], NOW)
    assert sum(day.count for day in days) == 1
    assert days[29].renewed == 1


def test_what_should_have_been_renewed_is_nobodys():
    days = expiring.days([lifetime(age=23, lasts=24), lifetime(age=0, lasts=1)], NOW)
    assert (days[0].renewed, days[0].late) == (1, 1)
    assert "1 of them is late, and nobody renews it" in expiring.in_words(days)


def test_a_bar_is_as_high_as_its_part_of_the_most():
    days = [expiring.Day(NOW.date(), 100, 0), expiring.Day(NOW.date(), 49, 1), expiring.Day(NOW.date())]
    high, low, none = expiring.bars(days)
    assert (high.renewed, high.late, high.renewed_top) == (100, 0, 10)
    # One of a hundred would be a pixel: it is seen all the same.
    assert (low.late, low.late_top, low.renewed_top) == (3, 107, 58)
    assert (none.renewed, none.late) == (0, 0)
    assert high.x + high.width < low.x
    assert expiring.bars([]) == []


def test_the_picture_is_told_in_words():
    days = expiring.days([lifetime(age=0, lasts=24), lifetime(age=0, lasts=24), lifetime(age=0, lasts=50)], NOW)
    assert expiring.in_words(days) == (
        "3 certificates of nodes end in the next 30 days, most of them (2) on 19 November; none is late."
    )
    assert expiring.in_words([]) == "No certificate of a node ends in the next 30 days."
    late = [expiring.Day(NOW.date(), 0, 2)]
    assert expiring.in_words(late).endswith("2 of them are late, and nobody renews them.")


def test_what_happened_since_yesterday_is_counted():
    joins = [
        join_failures.Failed(last=NOW - HOUR, reason="TokenExpired", count=7),
        join_failures.Failed(last=NOW - 2 * DAY, reason="TokenExpired", count=100),
    ]
    issued = ledger_index.Issued(count=3, joins=2)
    since = expiring.since_yesterday(issued, joins, [NOW - HOUR, NOW - 2 * DAY, None], NOW)
    assert since == expiring.Since(issued=3, joined=2, refused=7, revoked=1)
