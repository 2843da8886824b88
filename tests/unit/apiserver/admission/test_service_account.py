# SPDX-License-Identifier: Apache-2.0
"""The account is looked up, `default` is waited for, and the Pod is filled in. With what, is tested with the rule."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any

import pytest

from handfast.api import objects, status
from handfast.apiserver.admission import plugin, service_account
from tests.unit.apiserver import admission_world

PODS, ACCOUNTS = ("", "pods"), ("", "serviceaccounts")


@pytest.fixture
def world() -> admission_world.World:
    return admission_world.World()


def pod(annotations: Any = None, **spec: Any) -> objects.Document:
    metadata = {"name": "p", "namespace": "ns", "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}


def asks(document: objects.Document | None, subresource: str = "") -> plugin.Write:
    return admission_world.write_of(
        plugin.CREATE,
        PODS,
        namespace="ns",
        name="p",
        document=document,
        subresource=subresource,
        user=admission_world.JANE,
    )


def listens(world: admission_world.World) -> bool:
    """Whether anybody is told of ServiceAccounts in the namespace."""
    return bool(world.replica.collection("core/serviceaccounts/")._listeners._indexes)


async def test_the_default_account(world: admission_world.World) -> None:
    world.put(ACCOUNTS, "default", "ns", imagePullSecrets=[{"name": "pull"}])
    document = pod()
    assert service_account.admit(asks(document), world.context) is None
    spec = document["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    volume = spec["volumes"][0]["name"]
    assert re.fullmatch("kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}", volume)
    assert spec["containers"][0]["volumeMounts"][0]["name"] == volume


async def test_two_pods_get_volumes_of_two_names(world: admission_world.World) -> None:
    world.put(ACCOUNTS, "default", "ns")
    names = set()
    for _ in range(5):
        document = pod()
        service_account.admit(asks(document), world.context)
        names.add(document["spec"]["volumes"][0]["name"])
    assert len(names) > 1


async def test_a_second_look_adds_nothing(world: admission_world.World) -> None:
    """The rows run again when a webhook has changed the Pod."""
    world.put(ACCOUNTS, "default", "ns", imagePullSecrets=[{"name": "pull"}])
    document = pod()
    service_account.admit(asks(document), world.context)
    before = str(document)
    service_account.admit(asks(document), world.context)
    assert str(document) == before


async def test_a_named_account_that_is_not_there(world: admission_world.World) -> None:
    with pytest.raises(plugin.Refusal) as refused:
        service_account.admit(asks(pod(serviceAccountName="robot")), world.context)
    assert (refused.value.code, refused.value.why) == (403, "NoSuchAccount")
    assert refused.value.message == (
        'pods "p" is forbidden: error looking up service account ns/robot: serviceaccount "robot" not found'
    )


async def test_the_default_account_is_waited_for(world: admission_world.World) -> None:
    document = pod()
    waiting = service_account.admit(asks(document), world.context)
    assert waiting is not None
    async with asyncio.TaskGroup() as group:
        group.create_task(_awaited(waiting))
        await asyncio.sleep(0)
        assert listens(world)
        world.put(ACCOUNTS, "robot", "ns")
        world.put(ACCOUNTS, "default", "elsewhere")
        await asyncio.sleep(0)
        assert "volumes" not in document["spec"]
        world.put(ACCOUNTS, "default", "ns")
    assert "volumes" in document["spec"]
    assert not listens(world)


async def test_an_account_made_before_the_wait_begins_is_seen(world: admission_world.World) -> None:
    document = pod()
    waiting = service_account.admit(asks(document), world.context)
    assert waiting is not None
    world.put(ACCOUNTS, "default", "ns")
    await waiting
    assert "volumes" in document["spec"]


async def _awaited(waiting: Any) -> None:
    await waiting


async def test_the_wait_ends(world: admission_world.World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_account, "WAIT_SECONDS", 0)
    waiting = service_account.admit(asks(pod()), world.context)
    assert waiting is not None
    with pytest.raises(status.StatusError, match=r'account ns/default: serviceaccount "default" not found'):
        await waiting
    assert not listens(world)


async def test_a_caller_that_goes_away_stops_the_wait(world: admission_world.World) -> None:
    task = asyncio.create_task(_awaited(service_account.admit(asks(pod()), world.context)))
    await asyncio.sleep(0)
    assert listens(world)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert not listens(world)


async def test_mirror_pods_are_left_alone(world: admission_world.World) -> None:
    document = pod({"kubernetes.io/config.mirror": "x"})
    before = str(document)
    assert service_account.admit(asks(document), world.context) is None
    assert str(document) == before


async def test_mirror_pods_name_no_account(world: admission_world.World) -> None:
    document = pod({"kubernetes.io/config.mirror": "x"}, serviceAccountName="default")
    with pytest.raises(status.StatusError) as refused:
        service_account.admit(asks(document), world.context)
    assert refused.value.message == 'pods "p" is forbidden: a mirror pod may not reference service accounts'


async def test_what_the_account_forbids(world: admission_world.World) -> None:
    world.put(ACCOUNTS, "robot", "ns", metadata={"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}})
    document = pod(serviceAccountName="robot", volumes=[{"name": "v", "secret": {"secretName": "s"}}])
    with pytest.raises(status.StatusError, match="service account robot does not reference that secret"):
        service_account.admit(asks(document), world.context)


@pytest.mark.parametrize("subresource, document", [("binding", {"target": {}}), ("eviction", {}), ("", None)])
async def test_only_new_pods_are_looked_at(world: admission_world.World, subresource: str, document: Any) -> None:
    assert service_account.admit(asks(document, subresource), world.context) is None


async def test_the_row_is_for_new_pods(world: admission_world.World) -> None:
    chain = plugin.Chain((service_account.ROW,), world.context)
    for operation in (plugin.UPDATE, plugin.DELETE):
        await chain.run(admission_world.write_of(operation, PODS, document=pod(), name="p", namespace="ns"))
    await chain.run(admission_world.write_of(plugin.CREATE, ACCOUNTS, document=pod(), name="p", namespace="ns"))
    with pytest.raises(status.StatusError, match="not found"):
        await chain.run(asks(pod(serviceAccountName="robot")))
