# SPDX-License-Identifier: Apache-2.0
"""All checks: each is there every time, under its own name, and one that is not well names a part of the page that exists."""

import pathlib

import pytest

from handfast.rules import check
from handfast.rules.diagnoses import facts, judged, node_serving, one_node
from tests.unit.rules.diagnoses import known

ROOT = pathlib.Path(__file__).parents[4]
NAMES = [*judged.WAY, *judged.INSIDE]
NOWHERE = facts.Facts(
    now=known.NOW,
    reach=facts.Reach(server=known.SERVER, addresses=check.Unread("no such name", "NameNotFound", "mend DNS")),
)


def test_a_control_plane_in_order_passes_every_check():
    rows = judged.everything(known.good())
    assert [(row.name, row.verdict.value) for row in rows] == [(name, "ok") for name in (*NAMES, "mesh")]
    assert {row.page for row in rows} == {""}


def test_a_report_is_whole_also_where_nothing_is_reached():
    rows = judged.everything(NOWHERE)
    assert [row.name for row in rows] == [*NAMES, "mesh"]
    assert [row.name for row in rows if row.verdict is check.Verdict.FAILED] == ["dns"]
    # Without a client certificate, and with no CA, there is nothing that could end.
    assert [row.name for row in rows if row.verdict is check.Verdict.OK] == ["credential", "cas"]


def test_a_node_is_judged_after_the_way_in():
    assert [row.name for row in judged.of_node("w1", known.good())] == [*judged.WAY, *one_node.NAMES, node_serving.NAME]


def test_the_checks_of_the_mesh_are_told_as_its_own():
    bad = check.Check("issuer", check.Verdict.FAILED, "over", "IssuerExpired", "make another")
    row = judged.everything(known.good(mesh=[bad]))[-1]
    assert (row.name, row.reason, row.page) == ("mesh-issuer", "IssuerExpired", judged.MESH_PAGE)


@pytest.mark.parametrize("name", [*NAMES, "mesh", *one_node.NAMES])
def test_the_page_has_a_part_for_each_check(name):
    assert f"\n### {name}\n" in (ROOT / judged.PAGE).read_text()
    page, _, part = judged.MESH_PAGE.partition("#")
    assert f"\n## {part.capitalize()}\n" in (ROOT / page).read_text()
