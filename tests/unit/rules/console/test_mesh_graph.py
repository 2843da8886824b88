# SPDX-License-Identifier: Apache-2.0
"""Which boxes and lines the picture of a mesh has."""

from __future__ import annotations

import pytest

from handfast.rules.console import graph, mesh, mesh_graph
from handfast.rules.mesh import edges


def row(client: str, server: str, state: str = "secured", count: int = 1, destination: str = "") -> mesh.Edge:
    edge = edges.Edge(
        client=client and f"id {client}",
        server=server and f"id {server}",
        destination=destination,
        port=80,
        secured=True,
        unsecured="",
        count=count,
        refused="",
        would_be_refused="",
        since=None,
        last=None,
        client_side=edges.Side.REPORTED,
        server_side=edges.Side.REPORTED,
    )
    return mesh.Edge(
        client=client, server=server or destination, state=state, security="", judgement="", seen_by="", edge=edge
    )


def test_identities_are_boxes_and_what_lies_between_two_is_one_line():
    picture = mesh_graph.picture(
        [row("shop/web", "shop/db", count=4), row("shop/web", "shop/db", "not secured", count=3)], ["shop/idle"]
    )
    assert [(box.kind, box.name, box.state) for box in picture.boxes] == [
        ("identity", "shop/db", "not secured"),
        ("identity", "shop/idle", ""),
        ("identity", "shop/web", "not secured"),
    ]
    (line,) = picture.lines
    assert (line.client_name, line.server_name, line.state) == ("shop/web", "shop/db", "not secured")
    assert (line.edges, line.calls) == (2, 7)
    ids = {box.name: box.id for box in picture.boxes}
    assert (line.client, line.server) == (ids["shop/web"], ids["shop/db"])
    assert not picture.folded


def test_clients_without_an_identity_are_one_box_and_what_is_called_outside_one_for_each_name():
    picture = mesh_graph.picture(
        [
            row("", "shop/db", "refused"),
            row("", "shop/web"),
            row("shop/web", "", destination="example.com:443"),
            row("shop/web", "", destination=""),
        ],
        [],
    )
    assert {(box.kind, box.name) for box in picture.boxes} == {
        ("identity", "shop/db"),
        ("identity", "shop/web"),
        ("nobody", mesh_graph.NOBODY),
        ("outside", "example.com:443"),
        ("outside", mesh_graph.OUTSIDE),
    }


def crowd(spaces: int, each: int) -> list[mesh.Edge]:
    return [
        row(f"ns-{space:03}/a{number}", f"ns-{(space + 1) % spaces:03}/a{number}", count=space)
        for space in range(spaces)
        for number in range(each)
    ]


def test_up_to_two_hundred_identities_are_not_folded_and_more_are():
    few = [f"ns/a{number:03}" for number in range(graph.MOST_BOXES)]
    assert len(mesh_graph.picture([], few).boxes) == graph.MOST_BOXES
    picture = mesh_graph.picture([], [*few, "other/one"])
    assert picture.folded
    assert [(box.kind, box.name, box.count) for box in picture.boxes] == [
        ("namespace", "ns", graph.MOST_BOXES),
        ("namespace", "other", 1),
    ]


def test_a_namespace_that_is_unfolded_shows_its_identities_among_the_other_namespaces():
    rows = [
        *crowd(30, 10),
        row("", "ns-001/a1"),
        row("ns-001/a1", "", destination="example.com:443"),
        row("odd", "odd"),
    ]
    picture = mesh_graph.picture(rows, [], unfolded="ns-001")
    kinds = [box.kind for box in picture.boxes]
    assert (kinds.count("identity"), kinds.count("namespace")) == (11, 29)
    assert {box.name for box in picture.boxes if box.kind in {"nobody", "outside"}} == {
        mesh_graph.NOBODY,
        mesh_graph.OUTSIDE,
    }
    assert picture.folded


def test_of_too_many_namespaces_the_most_urgent_stay_and_the_others_are_one():
    rows = [*crowd(400, 1), row("ns-399/a0", "ns-398/a0", "refused")]
    picture = mesh_graph.picture(rows, [])
    assert len(picture.boxes) == graph.MOST_BOXES
    (others,) = [box for box in picture.boxes if box.kind == "others"]
    assert others.count == 400 - (graph.MOST_BOXES - 1)
    assert {"ns-398", "ns-399"} <= {box.name for box in picture.boxes}
    assert sum(line.edges for line in picture.lines) == len(rows)


def test_where_there_is_no_room_for_all_lines_the_most_urgent_are_drawn():
    names = [f"ns/a{number:02}" for number in range(60)]
    rows = [row(client, server) for client in names for server in names]
    rows.append(row("ns/a59", "ns/a59", "refused"))
    picture = mesh_graph.picture(rows, [])
    assert (len(picture.lines), picture.left_out) == (graph.MOST_LINES, 3600 - graph.MOST_LINES)
    assert picture.lines[0].state == "refused"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("shop/web", "shop/web"), ("a" * 22, "a" * 22), ("a" * 20 + "b" * 20, "a" * 10 + "…" + "b" * 11)],
)
def test_long_names_are_shortened_in_the_middle(name: str, shown: str):
    assert mesh_graph.shortened(name) == shown
    assert len(shown) <= 22


def test_a_mark_in_a_name_takes_no_more_room():
    (box,) = mesh_graph.picture([], ["shop/" + "\u202e" * 30]).boxes
    assert box.label.startswith("shop/⟨U+20")
    assert len(box.label) == 22


def test_a_picture_of_nobody_is_empty():
    picture = mesh_graph.picture([], [])
    assert (picture.boxes, picture.lines, picture.folded) == ((), (), False)
