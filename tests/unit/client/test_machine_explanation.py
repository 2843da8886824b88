# SPDX-License-Identifier: Apache-2.0
"""What is looked up to explain a machine: the machine-approver's own verdict, and the credentials that count now."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from handfast.api import status
from handfast.client import machine_explanation
from handfast.pki import authority, keys, names, requests
from handfast.rules.machines import (
    approval,
    bootstrapper,
    credential_end,
    explanation,
    proofs,
    rivals,
    settings,
    standing,
)
from tests.unit.controllers.csr_world import NODE, START, World

GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]
SUBJECT = names.Subject(common_name=NODE, organizations=("system:nodes",))
BUNDLE = authority.self_signed_ca(names.Subject(common_name="masters"), keys.generate(), START).pem.decode()


def fleet(text: str | None = "{}", *, node: bool = False, token: bool = False) -> World:
    """A Machine whose machine asks as n1; `text` are the machine-approver's settings."""
    world = World()
    state: dict[str, Any] = {"addresses": [{"type": "InternalDNS", "address": "n1"}]}
    if node:
        world.client.put("nodes", "n1")
        state["nodeRef"] = {"name": "n1"}
    metadata = {"creationTimestamp": "2030-01-01T00:00:00Z"}
    world.client.put("machines", "m1", "fleet", metadata=metadata, status=state)
    if token:
        world.client.put("secrets", bootstrapper.TOKEN_SECRET, bootstrapper.NAMESPACE, metadata=metadata)
    if text is not None:
        world.client.put("configmaps", settings.NAME, settings.NAMESPACE, data={settings.KEY: text})
    world.add(username=bootstrapper.USER, groups=GROUPS)
    return world


async def look(world: World) -> tuple[explanation.Facts, list[str]]:
    return await machine_explanation.look(world.client, "m1", "", START)


async def failed(world: World) -> str:
    verdict = (await look(world))[0].verdict
    assert verdict is not None
    return "" if verdict.failed is None else verdict.failed.reason


async def test_the_verdict_is_that_of_csr_explain_with_proofs_and_readmission():
    assert await failed(fleet(token=True)) == ""
    assert await failed(fleet()) == standing.REVOKED
    assert await failed(fleet(node=True, token=True)) == approval.NODE_EXISTS
    assert await failed(fleet("sourceAddress: true", token=True)) == proofs.NO_ADDRESS
    assert await failed(fleet("{sourceAddress: true, readmission: true}", node=True, token=True)) == proofs.NO_ADDRESS


@pytest.mark.parametrize(("kinds", "expected"), [((), rivals.ANOTHER_ASKS), (("Denied",), "")])
async def test_an_older_request_is_named_while_it_waits(kinds: tuple[str, ...], expected: str):
    world = fleet(token=True)
    other = base64.b64encode(requests.build(SUBJECT, names.Sans(), keys.generate())).decode()
    world.add("x", *kinds, request=other, username=bootstrapper.USER, groups=GROUPS)
    metadata = {"creationTimestamp": "2030-01-01T00:00:01Z"}
    world.add("newest", metadata=metadata, username=bootstrapper.USER, groups=GROUPS)
    assert await failed(world) == expected


async def test_where_no_machine_approver_runs_nobody_has_judged():
    facts, unread = await look(fleet(None))
    assert (facts.verdict, unread) == (None, [])
    (standing,) = [stage for stage in explanation.walk(facts) if stage.name == explanation.JUDGED]
    assert standing.sentence == "not judged yet"


async def test_settings_that_cannot_be_read_are_told():
    facts, unread = await look(fleet("joinWithin: soon"))
    assert facts.verdict is not None
    assert unread == ['joinWithin: "soon" is not allowed']


async def test_what_may_not_be_read_is_named_and_the_rest_is_told():
    world = fleet()

    def refuse(_verb: str, plural: str, _name: str) -> None:
        if plural in {"nodes", "secrets"}:
            raise status.StatusError("Forbidden", f"{plural} is forbidden")

    world.client.before = refuse
    facts, unread = await look(world)
    assert (len(facts.requests), facts.verdict) == (1, None)
    assert unread == ["nodes is forbidden", "secrets is forbidden", "secrets is forbidden", "nodes is forbidden"]


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        pytest.param(None, "kubelet-bootstrap-kubeconfig)", id="no end"),
        pytest.param("2030-01-01T00:00:01Z", "until 2030-01-01T00:00:01Z)", id="an end to come"),
        pytest.param("2030-01-01T00:00:00Z", "", id="it has ended"),
        pytest.param("soon", "", id="an end that cannot be read"),
    ],
)
async def test_a_credential_that_has_ended_does_not_count(end: str | None, sentence: str):
    world = fleet()
    data = {bootstrapper.BUNDLE_KEY: BUNDLE, **({} if end is None else {credential_end.KEY: end})}
    world.client.put("configmaps", bootstrapper.CONFIG_MAP, bootstrapper.CONFIG_NAMESPACE, data=data)
    told = (await look(world))[0].credentials
    assert len(told) == (1 if sentence else 0)
    assert all(each.endswith(sentence) for each in told)
