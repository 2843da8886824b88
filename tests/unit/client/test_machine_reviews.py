# SPDX-License-Identifier: Apache-2.0
"""What is asked of the API to explain a machine's request."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from handfast import errors
from handfast.api import signer_names, signing_requests, status
from handfast.client import machine_requests, machine_reviews
from handfast.pki import keys, names, requests
from handfast.rules.machines import approval, bootstrapper, proofs, readmission, rivals, serving, settings, standing
from tests.unit.controllers.csr_world import NODE, SERVING, START, World
from tests.unit.controllers.fake_api import failing

GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]
BY: dict[str, Any] = {"username": bootstrapper.USER, "groups": GROUPS}


def configured(text: str) -> World:
    world = World()
    world.client.put("configmaps", settings.NAME, settings.NAMESPACE, data={settings.KEY: text})
    return world


def credential(world: World) -> None:
    meta = {"creationTimestamp": "2030-01-01T00:00:00Z"}
    world.client.put("secrets", bootstrapper.TOKEN_SECRET, bootstrapper.NAMESPACE, metadata=meta)


def machine(world: World, name: str, dns: str) -> None:
    status = {"addresses": [{"type": "InternalDNS", "address": dns}]}
    credential(world)
    world.client.put("machines", name, "fleet", metadata={"creationTimestamp": "2030-01-01T00:00:00Z"}, status=status)


async def verdict(world: World, chosen: settings.Settings = settings.DEFAULT, **more: Any) -> Any:
    item = world.add(**{"username": bootstrapper.USER, "groups": GROUPS, **more})
    return await machine_reviews.verdict(world.client, item, world.requests.facts(item), chosen, START)


async def test_a_machine_approver_runs_where_its_settings_are():
    assert await machine_reviews.settings(World().client) is None
    known = await machine_reviews.settings(configured("nodeClientCert: {disabled: true}").client)
    assert known is not None
    assert (known.settings.disabled, known.trouble) == (True, "")
    known = await machine_reviews.settings(configured("joinWithin: soon").client)
    assert known is not None
    assert (known.settings, known.trouble) == (settings.DEFAULT, 'joinWithin: "soon" is not allowed')


async def test_a_request_of_a_bootstrap_identity_is_judged_as_the_machine_approver_does():
    world = World()
    assert (await verdict(world)).failed.reason == "NoMachine"
    machine(world, "m1", "n1")
    assert (await verdict(world)).failed is None
    world.client.put("nodes", "n1")
    assert (await verdict(world)).failed.reason == "NodeExists"
    assert (await verdict(world, common_name="system:node:/odd")).failed.reason == "NotRecognised"
    assert await verdict(world, username="system:bootstrap:abcdef") is None


async def test_an_older_request_with_another_key_is_explained():
    world = World()
    machine(world, "m1", "n1")
    item = world.add("younger", metadata={"creationTimestamp": "2030-01-01T00:00:01Z"}, **BY)
    older = requests.build(
        names.Subject(common_name=NODE, organizations=("system:nodes",)), names.Sans(), keys.generate()
    )
    world.add("older", request=base64.b64encode(older).decode(), **BY)
    judged = await machine_reviews.verdict(world.client, item, world.requests.facts(item), settings.DEFAULT, START)
    assert judged is not None
    assert judged.failed is not None
    assert judged.failed.reason == rivals.ANOTHER_ASKS
    assert 'the request "older"' in judged.failed.check.compared
    assert "`handfast csr deny older`" in judged.change


async def test_a_credential_that_is_gone_or_may_not_be_looked_up_is_explained():
    world = World()
    machine(world, "m1", "n1")
    world.client.before = failing(status.StatusError("Forbidden", "secrets is forbidden"), plural="secrets")
    assert (await verdict(world)).failed.reason == standing.FORBIDDEN
    world.client.before = failing(status.StatusError("InternalError", "later"), plural="secrets")
    with pytest.raises(status.StatusError, match="later"):
        await verdict(world)
    world.client.before = lambda *_: None
    del world.client.objects["secrets", bootstrapper.NAMESPACE, bootstrapper.TOKEN_SECRET]
    judged = await verdict(world)
    assert judged.failed.reason == standing.REVOKED
    assert "have the kubelet ask again" in judged.change


def test_a_request_without_a_creation_time_is_no_answer():
    with pytest.raises(errors.Unavailable, match="does not say when it was created"):
        machine_requests.created(signing_requests.Request(signing_requests.Meta(name="x")))


async def test_proofs_and_readmission_are_explained_where_they_are_asked_for():
    world = World()
    status = {"addresses": [{"type": "InternalDNS", "address": "n1"}], "nodeRef": {"name": "n1"}}
    world.client.put("machines", "m1", "fleet", status=status)
    world.client.put("nodes", "n1")
    credential(world)
    back = settings.Settings(readmission=True, source_address=True)
    assert (await verdict(world)).failed.reason == approval.NODE_EXISTS
    assert (await verdict(world, back)).failed.reason == proofs.NO_ADDRESS
    assert readmission.is_readmission(await verdict(world, back))


async def serving_reason(world: World, *sans: str, **more: Any) -> str:
    asked_for = {"username": NODE, "groups": ["system:nodes", "system:authenticated"], "usages": list(SERVING)}
    signer = signer_names.KUBELET_SERVING
    judged = await verdict(world, sans=names.Sans.parse(sans), signerName=signer, **{**asked_for, **more})
    return "" if judged.failed is None else str(judged.failed.reason)


async def test_a_serving_request_is_judged_by_the_linked_machine_and_its_egress_addresses():
    world = World()
    world.client.groups.add("k8s.ovn.org")
    status = {"addresses": [{"type": "InternalDNS", "address": "n1"}], "nodeRef": {"name": "n1"}}
    world.client.put("machines", "m1", "fleet", status=status)
    assert await serving_reason(world, "DNS:n1") == ""
    assert await serving_reason(world, "DNS:n1", "IP:99.0.1.1") == serving.NOT_ITS_ADDRESS
    world.client.put("egressips", "e", status={"items": [{"node": "n1", "egressIP": "99.0.1.1"}]})
    assert await serving_reason(world, "DNS:n1", "IP:99.0.1.1") == ""
    assert await serving_reason(world, "DNS:n1", usages=["client auth"]) == approval.MALFORMED


async def test_no_kubelet_is_asked_for_an_explanation():
    world = World()
    world.client.groups = set()
    assert await serving_reason(world, "DNS:n1") == serving.NOT_SERVED
