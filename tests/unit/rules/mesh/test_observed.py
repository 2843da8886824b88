# SPDX-License-Identifier: Apache-2.0
"""The MeshWorkload of a Pod: what it says, whose it is, and when it is written."""

from __future__ import annotations

import dataclasses

import pytest

from handfast.api.custom import structural, structural_values
from handfast.rules.mesh import issued, observed
from handfast.rules.mesh.observed import Observed, Written
from handfast.rules.mesh.reports import Edge
from tests.unit.rules.mesh.issued_cases import HOUR, NOW, entry, sha

CERTIFICATE = issued.read(entry())
FULL = Edge(
    "outbound", "a.b", 80, False, 2, "web.shop:80", "tunnel", "identity-required", "not-allowed-by-policy", 60, 120
)
WEB = Observed(
    identity=CERTIFICATE.names[0],
    certificate=CERTIFICATE,
    acknowledged=4,
    current=5,
    edges=(Edge("inbound", "a.b", 8080, True, 7), Edge("outbound", "", 443, False, 1), FULL),
    anchors=(sha("root"),),
)


def test_the_object_is_that_of_its_pod_and_fits_its_schema():
    document = {**observed.document(CERTIFICATE.holder), "status": observed.status(WEB, NOW)}
    assert document["metadata"] == {
        "name": "web-1",
        "namespace": "shop",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "u-1"}],
    }
    schema = observed.KIND.schema or {}
    assert structural.prune(schema, document) == []
    assert structural_values.check(schema, document) == []
    status = document["status"]
    assert status["certificate"] == {"serial": "01", "notAfter": "2026-11-17T13:00:00Z", "sha256": sha("web 1")}
    assert (status["acknowledged"], status["current"], status["lastReport"]) == (4, 5, "2026-11-17T12:00:00Z")
    assert status["edges"][1] == {"direction": "outbound", "port": 443, "secured": False, "count": 1}
    assert status["edges"][2] == {
        "direction": "outbound",
        "peer": "a.b",
        "port": 80,
        "secured": False,
        "count": 2,
        "destination": "web.shop:80",
        "unsecured": "tunnel",
        "refused": "identity-required",
        "wouldBeRefused": "not-allowed-by-policy",
        "firstSeen": "1970-01-01T00:01:00Z",
        "lastSeen": "1970-01-01T00:02:00Z",
    }
    assert status["anchors"] == [sha("root")]


def test_the_object_of_an_earlier_pod_is_not_this_ones():
    there = observed.document(CERTIFICATE.holder)
    assert observed.is_of(there, CERTIFICATE.holder)
    assert not observed.is_of(there, dataclasses.replace(CERTIFICATE.holder, uid="u-2"))
    assert not observed.is_of({"metadata": {"name": "web-1"}}, CERTIFICATE.holder)


@pytest.mark.parametrize(
    ("change", "at", "wait"),
    [
        (None, 0.0, 0.0),
        ({"certificate": issued.read(entry(number=2, lives=HOUR / 2))}, 1.0, 0.0),
        # Back and forth between two is no reason to write.
        ({"certificate": issued.read(entry(number=2, lives=2 * HOUR))}, 1.0, 9.0),
        ({"anchors": ()}, 1.0, 1.0),
        ({"anchors": ()}, 2.0, 0.0),
        ({"acknowledged": 3}, 1.0, 9.0),
        ({"acknowledged": 3}, 11.0, 0.0),
        ({}, 11.0, 289.0),
        ({}, 301.0, 0.0),
    ],
)
def test_a_certificate_is_written_at_once_and_the_rest_by_and_by(change, at, wait):
    written = None if change is None else Written(dataclasses.replace(WEB, **change), 0.0)
    assert observed.due(WEB, written, at) == wait


def test_anchors_that_come_and_go_are_written_now_and_then():
    # Who opens a stream has none, and after its first acknowledgement it has them: as often as it likes.
    there, gone, writes, written = WEB, dataclasses.replace(WEB, anchors=("b" * 64,)), 0, None
    for tenth in range(600):
        seen = there if tenth % 2 else gone
        if observed.due(seen, written, tenth / 10) == 0.0:
            written, writes = Written(seen, tenth / 10), writes + 1
    assert writes <= 31
