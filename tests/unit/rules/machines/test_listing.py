# SPDX-License-Identifier: Apache-2.0
"""Machines as a list shows them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.rules.machines import declaration, inventory, listing

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
        annotations={declaration.MAC_ANNOTATION: "52:54:00:00:00:01", declaration.SERIAL_ANNOTATION: "S1"},
    )
    assert listing.row(one, NOW, {"n1"}) == ("w1", "worker", "joined", "n1", "w1.example 10.0.0.1", "3h")
    wide = listing.row(one, NOW, {"n1"}, wide=True)
    assert wide[len(listing.COLUMNS) :] == ("Running", "fleet", "52:54:00:00:00:01", "S1", "-")
    assert len(wide) == len(listing.WIDE_COLUMNS)
    assert set(listing.MINOR) <= set(listing.WIDE_COLUMNS)


def test_a_document_has_every_fact():
    shown = listing.document(machine(provider_id="p1"))
    assert (shown["dns"], shown["ip"], shown["state"]) == (["w1.example"], ["10.0.0.1"], "waiting")
    assert (shown["created"], shown["providerID"], shown["mac"]) == ("2026-01-01T21:00:00Z", "p1", [])
