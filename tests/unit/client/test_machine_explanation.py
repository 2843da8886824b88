# SPDX-License-Identifier: Apache-2.0
"""What is looked up of a machine whose request does not stand first. The rest is tested with the commands."""

from __future__ import annotations

import base64

import pytest

from handfast.client import machine_explanation
from handfast.pki import keys, names, requests
from handfast.rules.machines import bootstrapper, rivals
from tests.unit.cli.fleet_api import FleetApi
from tests.unit.client.test_machine_reviews import BY
from tests.unit.controllers.csr_world import NODE, PLURAL, World

SUBJECT = names.Subject(common_name=NODE, organizations=("system:nodes",))


@pytest.mark.parametrize(("kinds", "expected"), [((), rivals.ANOTHER_ASKS), (("Denied",), "")])
async def test_an_older_request_is_named_while_it_waits(kinds, expected):
    server, world = FleetApi(), World()
    meta = {"creationTimestamp": "2030-01-01T00:00:00Z"}
    status = {"addresses": [{"type": "InternalDNS", "address": "n1"}]}
    server.put("machines", "m1", "openshift-machine-api", metadata=meta, spec={}, status=status)
    server.put("secrets", bootstrapper.TOKEN_SECRET, bootstrapper.NAMESPACE, metadata=meta)
    older = base64.b64encode(requests.build(SUBJECT, names.Sans(), keys.generate())).decode()
    world.add("older", *kinds, request=older, **BY)
    world.add("newest", metadata={"creationTimestamp": "2030-01-01T00:00:01Z"}, **BY)
    for name in ("older", "newest"):
        server.objects[PLURAL, "", name] = world.stored(name)
    facts, unread = await machine_explanation.look(server, "m1")
    assert unread == []
    assert facts.verdict is not None
    assert ("" if facts.verdict.failed is None else facts.verdict.failed.reason) == expected


async def test_a_request_that_fails_alone_waits_for_nobody():
    server, world = FleetApi(), World()
    status = {"addresses": [{"type": "InternalDNS", "address": "n1"}], "nodeRef": {"name": "other"}}
    server.put("machines", "m1", "openshift-machine-api", spec={}, status=status)
    world.add("newest", **BY)
    server.objects[PLURAL, "", "newest"] = world.stored("newest")
    facts, _ = await machine_explanation.look(server, "m1")
    assert facts.verdict is not None
    assert facts.verdict.failed is not None
    assert facts.verdict.failed.reason == "MachineLinked"
