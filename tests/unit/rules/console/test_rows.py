# SPDX-License-Identifier: Apache-2.0
"""Rows: filtered, sorted and cut on the server."""

from __future__ import annotations

from handfast.rules.console import questions, rows

NAMES = [f"Node-{number:03}" for number in range(250)]


def asked(**words: str) -> rows.Range[str]:
    question = questions.read("/nodes", words)
    return rows.select(NAMES, question, text=str, columns={"name": lambda name: name, "last": lambda name: name[-1]})


def test_the_first_rows_are_as_the_page_gives_them():
    found = asked()
    assert (found.start, found.end, found.total, found.everything) == (0, 100, 250, 250)
    assert list(found.items) == NAMES[:100]


def test_every_word_of_a_filter_counts_whatever_its_case():
    found = asked(filter="node 24")
    assert list(found.items) == ["Node-024", "Node-124", "Node-224", *(f"Node-24{digit}" for digit in range(10))]
    assert (found.total, found.everything) == (13, 250)
    assert asked(filter="nothing").items == []


def test_rows_are_sorted_by_a_column_and_equal_ones_stay_in_order():
    assert asked(sort="-name").items[0] == "Node-249"
    assert asked(sort="last").items[:3] == ["Node-000", "Node-010", "Node-020"]
    # What is no column changes nothing.
    assert asked(sort="secret").items[0] == "Node-000"


def test_a_range_beyond_the_end_is_the_last():
    assert (asked(**{"from": "200"}).start, asked(**{"from": "200"}).end) == (200, 250)
    beyond = asked(**{"from": "100000"})
    assert (beyond.start, beyond.end) == (200, 250)
    assert asked(filter="nothing", **{"from": "500"}).start == 0


def test_of_a_hundred_thousand_rows_a_range_is_handed_out_and_never_more():
    many = [f"node-{number:06}" for number in range(100_000)]
    for words in ({}, {"from": "99999"}, {"from": "999999999", "count": "999999999"}, {"sort": "-name"}):
        question = questions.read("/requests", words)
        found = rows.select(many, question, text=str, columns={"name": str})
        assert (found.total, found.everything) == (100_000, 100_000)
        assert 0 < len(found.items) <= questions.MOST
    last = rows.select(many, questions.read("/requests", {"from": "99900"}), text=str, columns={})
    assert (last.items[-1], last.end) == ("node-099999", 100_000)
    few = rows.select(many, questions.read("/requests", {"filter": "node-0999"}), text=str, columns={})
    assert (len(few.items), few.total) == (100, 100)
