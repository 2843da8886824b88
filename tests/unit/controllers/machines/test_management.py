# SPDX-License-Identifier: Apache-2.0
"""The cluster that Machines are on: a client of its own, or none."""

from __future__ import annotations

import pathlib

import pytest

from handfast import errors
from handfast.client import machine_inventory as inventory
from handfast.controllers.machines import management
from tests.unit.client import scripted
from tests.world.clock import MovableClock

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
users: [{{name: u, user: {{token: t}}}}]
"""


async def test_without_a_kubeconfig_machines_are_where_the_nodes_are():
    fleet = management.Management("", inventory.DEFAULT, MovableClock())
    async with fleet.followed():
        assert fleet.options is inventory.DEFAULT


async def test_with_one_they_are_read_and_written_there(tmp_path: pathlib.Path):
    async with scripted.serving(scripted.listing("10", scripted.thing("m1", 1))) as server:
        path = tmp_path / "management.conf"
        path.write_text(KUBECONFIG.format(server=server.url))
        fleet = management.Management(str(path), inventory.Options(namespace="fleet"), MovableClock())
        async with fleet.followed():
            client = fleet.options.client
            assert client is not None
            assert (fleet.options.namespace, fleet.options.groups) == ("fleet", inventory.DEFAULT.groups)
            assert await client.transport.request("GET", "/x")
        assert server.requests[0].headers["authorization"] == "Bearer t"


def test_a_kubeconfig_that_cannot_be_read_names_the_flag(tmp_path: pathlib.Path):
    with pytest.raises(errors.Refused) as refused:
        management.Management(str(tmp_path / "none"), inventory.DEFAULT, MovableClock())
    assert "--management-cluster-kubeconfig" in (refused.value.hint or "")
