# SPDX-License-Identifier: Apache-2.0
"""The Nodes page: which rows a question gets, in which order, on which axis."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules.console import node_record, node_table, nodes, questions
from handfast.rules.nodes import overview
from tests.unit.rules.console import ledgers, test_node_table

NOW = ledgers.NOW


@pytest.fixture
def page() -> nodes.Nodes:
    table = node_table.Table()
    for name, age in (("edge-1", 1), ("edge-2", 3), ("core-1", 23), ("core-2", 2)):
        table.put_node(name, {"kubernetes.io/hostname": name, "zone": "North" if name[-1] == "1" else "south"})
        table.put_lease(name, test_node_table.renewed(age), 40)
        if name != "core-2":
            test_node_table.issue(table, ledgers.entry(name, age=age, token_id=name), segment=age)
    return nodes.Nodes(table)


def asked(page: nodes.Nodes, text: str = "", **more: str) -> list[str]:
    return [row.name for row in ask(page, text, **more).range.items]


def ask(page: nodes.Nodes, text: str = "", **more: str) -> nodes.Page:
    return page.page(questions.read("/nodes", {"filter": text, **more}), NOW)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["core-1", "core-2", "edge-2", "edge-1"]),
        ("EDGE", ["edge-2", "edge-1"]),
        ("zone=north", ["core-1", "edge-1"]),
        ("zone=north edge", ["edge-1"]),
        ("zone=nor", []),
        (ledgers.digest("edge-1 1")[:12], ["edge-1"]),
        ("0x" + ledgers.digest("edge-1 1")[:32], ["edge-1"]),
        (ledgers.digest("key of edge-2")[:13], ["edge-2"]),
        ("sha256:" + ledgers.digest("key of edge-2"), ["edge-2"]),
        (ledgers.digest("key of edge-2")[:12] + "0" * 9, []),
        ("nobody", []),
    ],
)
def test_a_filter_is_a_name_a_label_a_serial_number_or_a_key(page, text, names):
    assert asked(page, text) == names


def test_a_state_is_chosen_beside_the_filter(page):
    assert asked(page, state="late") == ["core-1"]
    assert asked(page, "edge", state="good") == ["edge-2", "edge-1"]
    assert asked(page, state="unrecorded") == ["core-2"]
    assert asked(page, state="off") == asked(page, state="silent") == []
    assert len(asked(page, state="whatever")) == 4


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("name", ["core-1", "core-2", "edge-1", "edge-2"]),
        ("-name", ["edge-2", "edge-1", "core-2", "core-1"]),
        ("ends", ["core-1", "edge-2", "edge-1", "core-2"]),
        ("issued", ["core-2", "core-1", "edge-2", "edge-1"]),
        ("seen", ["core-1", "edge-2", "core-2", "edge-1"]),
        ("came", ["core-2", "core-1", "edge-1", "edge-2"]),
        ("shoe size", ["core-1", "core-2", "edge-2", "edge-1"]),
    ],
)
def test_rows_are_sorted_by_a_column_or_by_urgency(page, sort, names):
    assert asked(page, sort=sort) == names
    # The order that was made is good until the table changes.
    assert asked(page, sort=sort) == names


def test_rows_come_in_ranges(page):
    shown = ask(page, **{"from": "2", "count": "2", "sort": "name"}).range
    assert ([row.name for row in shown.items], shown.start, shown.total) == (["edge-1", "edge-2"], 2, 4)
    assert ask(page, **{"from": "90", "count": "2"}).range.start == 2
    assert ask(page, "edge").range.everything == 4


def test_a_row_has_its_bar_its_labels_and_its_place_in_the_ledger(page):
    late, unrecorded, *_ = ask(page).range.items
    assert late.bar is not None
    assert (late.bar.late, late.place) == (True, "segment-0000000023/1")
    assert late.late_by is not None
    assert "zone=North" in late.labels
    assert (unrecorded.bar, unrecorded.late_by, unrecorded.place) == (None, None, "")


def test_all_bars_are_on_one_axis_which_fits_or_was_chosen(page):
    assert ask(page).axis.name == "1d"
    assert ask(page, span="7d").axis.name == "7d"
    assert ask(page, "nobody").axis.name == "30d"


@pytest.mark.slow
def test_of_a_hundred_thousand_nodes_a_range_is_judged_and_handed_out_and_never_more(monkeypatch):
    table = node_table.Table()
    seen = test_node_table.renewed(1)
    for number in range(100_000):
        table.put_node(f"node-{number:06}", {"zone": f"zone-{number % 10}"})
        table.put_lease(f"node-{number:06}", seen, 40)
    page = nodes.Nodes(table)
    assert ask(page).range.total == 100_000
    judged: list[str] = []
    row = node_table.Table.row

    def counted(self: node_table.Table, record: node_record.Record, now: datetime.datetime) -> overview.Row:
        judged.append(record.name)
        return row(self, record, now)

    monkeypatch.setattr(node_table.Table, "row", counted)
    for words in ({}, {"from": "99999"}, {"from": "999999999", "count": "999999999"}, {"sort": "-name"}, {"text": "5"}):
        judged.clear()
        found = ask(page, **words).range
        assert found.everything == 100_000
        # What a page costs is a matter of what it shows.
        assert 0 < len(found.items) == len(judged) <= questions.MOST
    assert asked(page, sort="-name")[0] == asked(page, **{"from": "99900"})[-1] == "node-099999"
    assert ask(page, "zone=zone-3").range.total == 10_000
