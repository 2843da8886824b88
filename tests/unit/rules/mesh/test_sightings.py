# SPDX-License-Identifier: Apache-2.0
"""What an agent remembers of edges, and when it is told again."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.mesh import reports, sightings
from handfast.rules.mesh.sightings import Sighting, Table
from handfast.wire import agent_messages

NOW = 1_800_000_000


def sighting(peer: str = "a.b", **more: Any) -> Sighting:
    return Sighting(**{"direction": "inbound", "port": 80, "count": 1, "peer": peer, **more})


def seen(*rows: Sighting, table: Table | None = None, at: int = NOW) -> Table:
    table = table or Table()
    for row in rows:
        table.see(row, at)
    return table


def test_sightings_of_one_kind_are_one_edge():
    table = seen(sighting(count=2))
    table.see(sighting(count=3, refused="not-allowed-by-policy", would_be_refused="identity-required"), NOW + 5)
    assert table.edges(NOW + 5) == (
        reports.Edge("inbound", "a.b", 80, True, 5, "", "", "not-allowed-by-policy", "identity-required", NOW, NOW + 5),
    )


@pytest.mark.parametrize(
    "other",
    [
        sighting("c.d"),
        sighting(port=81),
        sighting(direction="outbound"),
        sighting("", unsecured="plaintext"),
        sighting(destination="web.shop:80"),
    ],
)
def test_sightings_of_another_kind_are_another_edge(other):
    edges = seen(sighting(), other).edges(NOW)
    assert len(edges) == 2
    # What was seen last comes first.
    assert (edges[0].port, edges[0].secured) == (other.port, not other.unsecured)


def test_the_one_that_was_not_seen_for_longest_makes_room():
    table = seen(*(sighting(f"a{number}.b") for number in range(reports.MOST_EDGES)))
    seen(sighting("a0.b"), sighting("new.b"), table=table)
    peers = {edge.peer for edge in table.edges(NOW)}
    assert len(peers) == reports.MOST_EDGES
    assert peers >= {"a0.b", "new.b"}
    assert "a1.b" not in peers


@pytest.mark.parametrize("bad", [sighting("a" * 254), sighting("ä"), sighting(port=0), sighting(refused="No")])
def test_what_would_be_refused_is_not_remembered(bad):
    assert [edge.peer for edge in seen(bad, sighting()).edges(NOW)] == ["a.b"]


def test_what_is_new_is_told_at_once_and_counts_once_in_a_while():
    table = seen(sighting())
    first = table.edges(NOW)
    seen(sighting(), table=table, at=NOW + 30)
    assert table.edges(NOW + 30) is first
    # Judged otherwise.
    seen(sighting(refused="identity-revoked"), table=table, at=NOW + 31)
    second = table.edges(NOW + 31)
    assert (second[0].count, second[0].refused) == (3, "identity-revoked")
    seen(sighting("c.d"), table=table, at=NOW + 32)
    third = table.edges(NOW + 32)
    assert len(third) == 2
    seen(sighting("c.d"), table=table, at=NOW + 33)
    assert table.edges(NOW + 32 + sightings.SECONDS - 1) is third
    assert table.edges(NOW + 32 + sightings.SECONDS)[0].count == 2


def test_a_clock_that_is_set_back_changes_no_order():
    table = seen(sighting(), at=NOW)
    seen(sighting(refused="x"), table=table, at=NOW - 100)
    (edge,) = table.edges(NOW - 100)
    assert (edge.first, edge.last) == (NOW, NOW)
    reports.require_edge(edge)


def test_the_largest_edges_of_all_fit_into_a_report():
    longest = {"destination": "d" * 253, "unsecured": "u" * 40, "refused": "r" * 40, "would_be_refused": "w" * 40}
    rows = [sighting(f"{number:03}" + "p" * 250, **longest) for number in range(reports.MOST_EDGES)]
    edges = seen(*rows).edges(NOW)
    assert 60 < len(edges) < reports.MOST_EDGES
    assert edges[0].peer.startswith(f"{reports.MOST_EDGES - 1}")
    report = agent_messages.Report(edges=[agent_messages.edge_document(edge) for edge in edges])
    assert reports.MAX_REPORT / 2 < report.ByteSize() < reports.MAX_REPORT - (4 << 10)
