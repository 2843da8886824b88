# SPDX-License-Identifier: Apache-2.0
"""Who talks to whom: what the agents of both ends reported, put together."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast.rules.mesh import edges, names, observed
from handfast.rules.mesh.edges import Reported, Side, Workload
from tests.unit.rules.mesh.issued_cases import NOW
from tests.unit.rules.mesh.test_observed import FULL
from tests.unit.rules.mesh.test_observed import WEB as OBSERVED

MESH = names.Mesh("cluster.local")
WEB, DB, OLD = (MESH.name(names.Account(namespace="shop", name=name)) for name in ("web", "db", "old"))
AT = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def inbound(peer: str, **more: Any) -> Reported:
    return Reported(**{"direction": "inbound", "port": 80, "secured": bool(peer), "count": 1, "peer": peer, **more})


def outbound(peer: str, **more: Any) -> Reported:
    return dataclasses.replace(inbound(peer, **more), direction="outbound")


def only(*workloads: Workload) -> edges.Edge:
    (edge,) = edges.joined(workloads)
    return edge


def test_what_an_agent_reported_is_read_as_it_is_kept():
    document = {"status": observed.status(OBSERVED, NOW)}
    workload = edges.read(document)
    assert workload is not None
    assert workload.identity == OBSERVED.identity
    first, second, full = workload.edges
    assert first == Reported(direction="inbound", peer="a.b", port=8080, secured=True, count=7)
    assert (second.peer, second.secured) == ("", False)
    assert (full.destination, full.unsecured, full.refused) == (FULL.destination, FULL.unsecured, FULL.refused)
    assert full.would_be_refused == FULL.would_be_refused
    assert full.first == datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC)


def test_nonsense_is_left_out():
    assert edges.read({}) is None
    assert edges.read({"status": {"identity": WEB, "edges": [7, {"firstSeen": "then"}]}}) == Workload(
        WEB, (Reported(direction="", port=0, secured=False, count=0),)
    )


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00", "never"])
def test_an_instant_that_cannot_be_reckoned_with_is_left_out(at):
    row = {
        "direction": "inbound",
        "peer": WEB,
        "port": 80,
        "secured": True,
        "count": 1,
        "firstSeen": at,
        "lastSeen": at,
    }
    workload = edges.read({"status": {"identity": DB, "edges": [row]}})
    assert workload is not None
    edge = only(workload)
    assert (edge.client, edge.since, edge.last) == (WEB, None, None)


def test_what_both_ends_say_is_one_edge():
    edge = only(
        Workload(WEB, (outbound(DB, count=7, destination="db.shop:5432", first=AT, last=AT),)),
        Workload(DB, (inbound(WEB, count=5, first=AT + HOUR, last=AT + 2 * HOUR),)),
    )
    assert (edge.client, edge.server, edge.port, edge.secured, edge.count) == (WEB, DB, 80, True, 7)
    assert (edge.since, edge.last, edge.destination) == (AT, AT + 2 * HOUR, "db.shop:5432")
    assert (edge.client_side, edge.server_side) == (Side.REPORTED, Side.REPORTED)
    assert edges.sentence(edge) == "7 times since 2026-11-17T12:00:00Z, secured, allowed"


def test_the_pods_of_one_account_are_put_together_and_what_was_judged_last_counts():
    edge = only(
        Workload(DB, (inbound(WEB, count=5, last=AT, refused="identity-revoked"),)),
        Workload(DB, (inbound(WEB, count=2, last=AT + HOUR, would_be_refused="not-allowed-by-policy"),)),
        Workload(DB, (inbound(WEB),)),
    )
    assert (edge.count, edge.refused, edge.would_be_refused) == (8, "", "not-allowed-by-policy")
    assert edges.judgement(edge) == "would be refused: not-allowed-by-policy"
    assert edges.judgement(dataclasses.replace(edge, refused="x")) == "refused: x"


def test_the_side_of_a_stock_proxy_is_unknown_and_of_an_agent_that_has_not_seen_it_not():
    assert only(Workload(DB, (inbound(OLD),))).client_side is Side.UNKNOWN
    edge = only(Workload(DB, (inbound(WEB),)), Workload(WEB, ()))
    assert edge.client_side is Side.NOT_SEEN
    edge = only(Workload(WEB, (outbound(OLD),)))
    assert edge.server_side is Side.UNKNOWN
    assert edges.judgement(edge) == "nobody says how it was judged"


def test_who_has_no_identity_is_nobody_for_each_reason():
    rows = [inbound("", unsecured=why) for why in ("plaintext", "not-http", "plaintext")]
    found = edges.joined([Workload(DB, tuple(rows))])
    assert [(edge.client, edge.unsecured, edge.count) for edge in found] == [("", "not-http", 1), ("", "plaintext", 2)]
    assert {edge.client_side for edge in found} == {Side.NOBODY}
    assert edges.security(found[1]) == "not secured: plaintext"
    assert edges.security(dataclasses.replace(found[1], unsecured="")) == "not secured: nobody says why"


def test_a_destination_without_an_identity_is_told_by_what_was_called():
    rows = [outbound("", destination=name, unsecured="no-peer-identity") for name in ("a.example:80", "b.example:80")]
    found = edges.joined([Workload(WEB, tuple(rows))])
    assert [(edge.server, edge.destination) for edge in found] == [("", "a.example:80"), ("", "b.example:80")]
    assert edges.namespaces(found[0], MESH) == {"shop"}


@pytest.mark.parametrize(("identity", "title"), [(WEB, "shop/web"), ("a.other.example", "a.other.example"), ("", "")])
def test_an_end_is_written_as_people_write_it(identity, title):
    assert edges.title(identity, MESH) == title
