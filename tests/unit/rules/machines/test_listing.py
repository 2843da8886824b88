# SPDX-License-Identifier: Apache-2.0
"""Machines as a list shows them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.rules.machines import inventory, listing

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def machine(**more: Any) -> inventory.Machine:
    first = {
        "group": inventory.OPENSHIFT,
        "namespace": "fleet",
        "name": "w1",
        "created": NOW - datetime.timedelta(hours=3),
        "addresses": (inventory.Address("InternalDNS", "w1.example"), inventory.Address("InternalIP", "10.0.0.1")),
    }
    return inventory.Machine(**{**first, **more})


@pytest.mark.parametrize(
    ("facts", "nodes", "state"),
    [
        ({}, set(), "waiting"),
        ({"addresses": ()}, set(), "no name"),
        ({"approved_key": "ab"}, set(), "approved"),
        ({"phase": "Failed"}, set(), "failed"),
        ({"node": "n1", "approved_key": "ab"}, {"n1"}, "joined"),
        ({"node": "n1"}, None, "joined"),
        ({"node": "n1"}, {"n2"}, "node gone"),
        ({"node": "n1", "deleting": True}, {"n1"}, "deleting"),
    ],
)
def test_the_state_says_how_far_a_machine_is(facts, nodes, state):
    assert listing.state(machine(**facts), nodes) == state


def test_a_row_has_as_many_cells_as_columns():
    one = machine(
        role="worker",
        node="n1",
        phase="Running",
        annotations={inventory.MAC: "52:54:00:00:00:01", inventory.SERIAL: "S1"},
    )
    assert listing.row(one, NOW, {"n1"}) == ("w1", "worker", "joined", "n1", "w1.example 10.0.0.1", "3h")
    wide = listing.row(one, NOW, {"n1"}, wide=True)
    assert wide[len(listing.COLUMNS) :] == ("Running", "fleet", "52:54:00:00:00:01", "S1", "-")
    assert len(wide) == len(listing.WIDE_COLUMNS)
    assert set(listing.MINOR) <= set(listing.WIDE_COLUMNS)


def test_a_document_has_every_fact():
    marks = {inventory.MAC: "52:54:00:00:00:01", inventory.SERIAL: "S1"}
    one = machine(role="worker", node="n1", phase="Running", provider_id="p1", annotations=marks)
    assert listing.document(one, {"n1"}) == {
        "name": "w1",
        "namespace": "fleet",
        "group": "machine.openshift.io",
        "role": "worker",
        "state": "joined",
        "phase": "Running",
        "dns": ["w1.example"],
        "ip": ["10.0.0.1"],
        "node": "n1",
        "providerID": "p1",
        "mac": ["52:54:00:00:00:01"],
        "serial": "S1",
        "created": "2026-01-01T21:00:00Z",
    }
    bare = listing.document(machine())
    assert (bare["state"], bare["mac"], bare["serial"]) == ("waiting", [], "")
