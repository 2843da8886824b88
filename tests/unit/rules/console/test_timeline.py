# SPDX-License-Identifier: Apache-2.0
"""Lifetimes on one axis: where they lie, what the axis says, and the words for who sees no picture."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules.console import timeline
from tests.unit.rules.console import ledgers

NOW, HOUR = ledgers.NOW, ledgers.HOUR
DAY = 24 * HOUR


def test_now_is_in_the_middle_and_one_span_is_half_of_the_axis():
    axis = timeline.Axis(NOW, "1d")
    assert (axis.x(NOW), axis.x(NOW - DAY), axis.x(NOW + DAY)) == (500, 0, 1000)


def test_what_lies_far_beyond_the_ends_is_cut():
    axis = timeline.Axis(NOW, "1h")
    assert axis.x(NOW.replace(year=9999)) == 21000
    assert axis.x(NOW.replace(year=1)) == -20000


@pytest.mark.parametrize("name", timeline.SPANS)
def test_an_axis_has_a_few_round_marks_in_order(name):
    marks = timeline.Axis(NOW, name).marks()
    assert 2 <= len(marks) <= 5
    assert [mark.x for mark in marks] == sorted(mark.x for mark in marks)
    assert all(0 <= mark.x <= 1000 and mark.words for mark in marks)


def test_marks_are_hours_days_or_months_by_their_distance():
    assert "12:00" in {mark.words for mark in timeline.Axis(NOW, "1d").marks()}
    assert "18 Nov" in {mark.words for mark in timeline.Axis(NOW, "1d").marks()}
    assert "25 Nov" in {mark.words for mark in timeline.Axis(NOW, "7d").marks()}
    assert any(mark.words.endswith("2026") for mark in timeline.Axis(NOW, "1y").marks())


def test_the_shortest_span_is_chosen_in_which_all_fit():
    assert timeline.fitting([HOUR, 20 * HOUR]) == "1d"
    assert timeline.fitting([]) == "30d"
    assert timeline.fitting([400 * 365 * DAY]) == "5y"
    assert timeline.chosen("7d", [HOUR], NOW).name == "7d"
    assert timeline.chosen("1 fortnight", [HOUR], NOW).name == "1h"


def test_spans_lead_to_the_next_closer_and_wider_one():
    assert (timeline.closer("1d"), timeline.wider("1d")) == ("6h", "7d")
    assert (timeline.closer("1h"), timeline.wider("5y")) == ("", "")


@pytest.mark.parametrize(
    ("age", "words", "late", "over"),
    [
        (1, "issued 1 h ago, renewed between in 15 h and in 20 h, ends in 23 h (2026-11-19T11:00:00Z)", False, False),
        (18, "issued 18 h ago, renewal is due, until in 3 h 36 min, ends in 6 h (2026-11-18T18:00:00Z)", False, False),
        (23, "issued 23 h ago, renewal was due until 1 h 24 min ago, ends in 1 h (2026-11-18T13:00:00Z)", True, False),
        (
            30,
            "issued 30 h ago, renewal was due until 8 h 24 min ago, ended 6 h ago (2026-11-18T06:00:00Z)",
            False,
            True,
        ),
    ],
)
def test_a_bar_says_in_words_what_it_shows(age, words, late, over):
    issued = NOW - age * HOUR
    window = (issued + 0.7 * DAY, issued + 0.9 * DAY)
    bar = timeline.bar(timeline.Axis(NOW, "1d"), issued, window, issued + DAY)
    assert (bar.words, bar.late, bar.over) == (words, late, over)
    assert bar.issued < bar.opens < bar.closes < bar.ends == round(500 + (24 - age) / 24 * 500, 1)


def test_an_instant_is_cut_and_no_error():
    assert timeline.Axis(NOW, "1h").x(datetime.datetime.max.replace(tzinfo=datetime.UTC)) == 21000
