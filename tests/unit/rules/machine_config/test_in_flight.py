# SPDX-License-Identifier: Apache-2.0
"""Which machines are on their way in."""

from __future__ import annotations

import pytest

from handfast.rules.machine_config import credential, in_flight
from handfast.rules.machines import inventory


def machine(name, **fields):
    row = inventory.Address(inventory.INTERNAL_DNS, f"{name}.Example")
    return inventory.Machine(
        group=inventory.OPENSHIFT, namespace="n", name=name, uid=f"uid-{name}", addresses=(row,), **fields
    )


def test_who_has_a_node_is_in_flight_no_more():
    machines = [
        machine("approved", approved_key="k"),
        machine("linked", approved_key="k", node="linked"),
        machine("registered", approved_key="k"),
        machine("asks"),
        machine("pointed"),
        machine("quiet"),
    ]
    rows = in_flight.among(machines, {"registered.example"}, {"asks.example": "csr-1"}, {"uid-pointed", "uid-linked"})
    assert [(row.machine, row.sentence.partition(",")[0]) for row in rows] == [
        ("Machine n/approved", "its key was approved"),
        ("Machine n/asks", "its request csr-1 waits"),
        ("Machine n/pointed", "it has a pointer configuration"),
    ]


@pytest.mark.parametrize(
    ("role", "trusted", "kind"),
    [("master", True, "master"), ("master", False, "worker"), ("worker", True, "worker"), ("", False, "worker")],
)
def test_masters_have_their_own_while_it_counts(role, trusted, kind):
    seen = credential.Seen(trusted=trusted)
    for each in ("master", "worker"):
        assert in_flight.of_kind(machine("m", role=role), each, seen) is (each == kind)
