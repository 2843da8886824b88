# SPDX-License-Identifier: Apache-2.0
"""The engine of an import, as `init` uses it. What the commands show of it is tested with them."""

from __future__ import annotations

import pytest

from handfast.client import machine_import
from handfast.rules.machines import declaration, inventory_file
from tests.unit.cli.fleet_api import FleetApi

FILE = b"name,dns,ip\nw1,w1,10.0.0.1\nw2,w2,10.0.0.2\n"


async def test_what_was_done_with_each_machine_is_told():
    server = FleetApi()
    first = inventory_file.read(FILE)
    assert await machine_import.add(server, first, "racks/rack-4.csv") == [
        ("created", "Machine openshift-machine-api/w1"),
        ("created", "Machine openshift-machine-api/w2"),
    ]
    assert server.machine("w1")["metadata"]["labels"][declaration.SET_LABEL] == "rack-4"
    again = inventory_file.read(FILE.replace(b"10.0.0.2", b"10.0.0.3"))
    assert [verb for verb, _ in await machine_import.add(server, again, "rack-4.csv")] == ["kept", "updated"]


async def test_nothing_is_asked_for_what_is_wrong_in_itself():
    server = FleetApi()
    with pytest.raises(machine_import.BadInventory) as refused:
        await machine_import.add(server, inventory_file.read(b"name,dns\nw1,localhost\n"), "f.csv")
    assert refused.value.message.startswith("f.csv has 1 problem, and nothing was written: line 2: dns: ")
    assert server.calls == []
