# SPDX-License-Identifier: Apache-2.0
"""A pool's rendering is written before the pool is pointed there; what fails is told once. What is rendered is tested with the rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from handfast.api import resources, status
from handfast.client import partial
from handfast.controllers.machines import machine_config_render
from handfast.rules.machine_config import credential, names
from handfast.rules.machines import bootstrapper
from tests.unit.controllers.fake_api import failing
from tests.unit.controllers.machines import pool_world

SERVER = "https://api.example:6443"
CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
DATA = ("configmaps", bootstrapper.NAMESPACE, names.KUBECONFIG_DATA)


class World(pool_world.World):
    """The controller."""

    def __init__(self, *, servers: tuple[str, ...] = (SERVER,), ca: bytes = CA) -> None:
        super().__init__()
        self.controller = machine_config_render.build(self.context, servers=servers, ca=ca)

    async def look(self, key: str = "worker") -> Any:
        return await self.controller._reconcile(key)

    async def begin(self, **spec: Any) -> World:
        """A pool, its credential, and a first look."""
        self.token()
        self.pool(target="", **spec)
        await self.look(machine_config_render.KEEP)
        await self.look()
        return self

    def config(self, name: str = "00-worker", role: str = "worker", **spec: Any) -> None:
        spec = {"config": {"ignition": {"version": "3.2.0"}}, **spec}
        self.client.put("machineconfigs", name, metadata={"labels": {f"role/{role}": ""}}, spec=spec)
        self.tell("machineconfigs", name)

    @property
    def target(self) -> str:
        pool = self.client.objects["machineconfigpools", "", "worker"]
        return str(pool["spec"].get("configuration", {}).get("name", ""))

    def queued(self) -> set[str]:
        """The keys that wait, which then wait no longer."""
        waiting = set(self.controller.queue._queued)
        self.controller.queue._queued.clear()
        return waiting


async def test_the_rendering_is_written_first_and_then_the_pool() -> None:
    world = await World().begin()
    assert [row[:2] for row in world.client.calls if row[1].startswith("machineconfig")] == [
        ("create", "machineconfigs"),
        ("patch", "machineconfigpools"),
        ("patch", "machineconfigpools"),
    ]
    assert world.condition("RenderDegraded")["status"] == "False"
    assert world.told_of() == ["Rendered"]


async def test_an_end_between_the_two_is_made_good() -> None:
    world = World()
    world.client.before = failing(status.conflict("machineconfigpools", "x", "worker"), verb="patch")
    with pytest.raises(status.StatusError):
        await world.begin()
    assert world.target == ""
    world.client.before = lambda *_: None
    await world.look()
    assert world.target.startswith("rendered-worker-")
    assert world.written("machineconfigs") == [world.target]


async def test_a_second_look_writes_nothing() -> None:
    world = await World().begin()
    before = list(world.client.calls)
    await world.look()
    await world.look(machine_config_render.KEEP)
    assert world.client.calls == before


async def test_a_rendering_of_an_older_release_is_taken_as_it_is() -> None:
    world = await World().begin()
    rendering = world.client.objects["machineconfigs", "", world.target]
    rendering["metadata"]["annotations"][names.RENDERED_BY] = "0.0.1"
    before = list(world.client.calls)
    await world.look()
    assert world.client.calls == before


async def test_a_pool_that_somebody_points_elsewhere_is_pointed_back() -> None:
    world = await World().begin()
    good = world.target
    pool = world.client.objects["machineconfigpools", "", "worker"]
    pool["spec"]["configuration"] = {"name": "rendered-master-0", "uid": "x"}
    await world.look()
    assert world.target == good


@pytest.mark.parametrize("annotation", [names.CONFIGURATION, names.CREDENTIAL])
async def test_a_rendering_whose_digest_was_changed_is_set_back(annotation: str) -> None:
    world = await World().begin()
    rendering = world.client.objects["machineconfigs", "", world.target]
    before = dict(rendering["metadata"]["annotations"])
    rendering["metadata"]["annotations"][annotation] = "sha256:00"
    await world.look()
    assert world.client.objects["machineconfigs", "", world.target]["metadata"]["annotations"] == before
    assert "RenderingRestored" in world.told_of()


async def test_what_cannot_be_rendered_is_told_once_and_the_last_rendering_stays() -> None:
    world = await World().begin()
    good = world.target
    world.config(kernelType="magic")
    await world.look()
    await world.look()
    row = world.condition("RenderDegraded")
    assert row["status"] == "True"
    assert "00-worker" in row["message"]
    assert "magic" in row["message"]
    assert world.target == good
    assert len(world.told_of()) == 2
    world.config(kernelType="realtime")
    await world.look()
    assert world.target != good
    assert world.condition("RenderDegraded")["status"] == "False"


async def test_what_the_server_never_takes_is_a_condition() -> None:
    world = await World().begin()
    world.config(osImageURL="x")
    too_large = status.StatusError("RequestEntityTooLarge", "the object is larger than 3 MiB")
    world.client.before = failing(too_large, verb="create", plural="machineconfigs")
    await world.look()
    assert world.condition("RenderDegraded")["reason"] == machine_config_render.TOO_LARGE
    # Anything else is tried again.
    world.client.before = failing(status.conflict("machineconfigs", "x", "y"), verb="create", plural="machineconfigs")
    with pytest.raises(status.StatusError):
        await world.look()


async def test_without_a_credential_nothing_is_rendered() -> None:
    world = World()
    world.pool(target="")
    await world.look()
    assert world.condition("RenderDegraded")["reason"] == credential.NO_TOKEN
    assert world.target == ""


async def test_a_pool_without_a_selector_lists_nothing() -> None:
    world = World()
    world.token()
    world.pool(target="", machineConfigSelector={})
    world.client.before = failing(status.conflict("x", "y", "z"), verb="list")
    await world.look()
    assert "it names no label" in world.condition("RenderDegraded")["message"]


async def test_a_pool_that_is_gone_or_goes_is_not_rendered() -> None:
    world = World()
    await world.look()
    world.pool(target="")
    pool = world.client.objects["machineconfigpools", "", "worker"]
    pool["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    await world.look()
    assert world.client.calls == []


async def test_renderings_that_nobody_names_go_after_ten_minutes() -> None:
    world = await World().begin()
    for name in ("had", "wanted", "settled", "left"):
        world.rendering(name)
    world.rendering("another-pools", owner="infra")
    world.node("w1", "had", "wanted")
    world.pool("infra", "x")
    world.client.objects["machineconfigpools", "", "infra"]["status"] = {"configuration": {"name": "settled"}}
    world.client.objects["machineconfigpools", "", "infra"]["metadata"]["resourceVersion"] = "900"
    world.tell("machineconfigpools", "infra")
    assert await world.look() == 600.0
    await world.clock.advance(599)
    assert await world.look() == 1.0
    # Named again, and let go again: ten minutes from then.
    world.node("w2", "left", "left")
    assert await world.look() is None
    world.node("w2", "had", "had")
    assert await world.look() == 600.0
    await world.clock.advance(600)
    assert await world.look() is None
    left = {name for plural, _, name in world.client.objects if plural == "machineconfigs"}
    assert left == {"had", "wanted", "settled", "another-pools", world.target}


async def test_what_has_a_pool_rendered_again() -> None:
    world = World()
    world.pool(target="")
    world.pool("infra", target="")
    assert world.queued() >= {"worker", "infra", machine_config_render.KEEP}
    # A status that only counts does not.
    pool = world.client.objects["machineconfigpools", "", "worker"]
    pool["metadata"]["resourceVersion"], pool["status"] = "900", {"machineCount": 3}
    world.tell("machineconfigpools", "worker")
    assert world.queued() == set()
    # A MachineConfig has the pools rendered that select it; a rendering, the one that it belongs to.
    world.config()
    assert world.queued() == {"worker"}
    owner = {"uid": "uid-infra", "kind": "MachineConfigPool", "name": "infra"}
    world.client.put("machineconfigs", "r", metadata={"ownerReferences": [owner]})
    world.tell("machineconfigs", "r")
    assert world.queued() == {"infra"}
    # An object of a credential has all of them rendered.
    source = machine_config_render._followed(resources.SECRETS, credential.SECRETS[0])
    document = {"metadata": {"name": credential.SECRETS[0][1], "namespace": credential.SECRETS[0][0]}}
    world.informers.get(source).put(msgspec.convert(document, partial.Partial))
    assert world.queued() == {"worker", "infra", machine_config_render.KEEP}
    # … and so has the end of a pool itself.
    world.pools.remove(next(iter(world.pools)))
    assert len(world.queued()) == 1


async def test_the_address_for_machines_is_kept_where_there_is_one() -> None:
    for world in (World(servers=()), World(ca=b"")):
        await world.look(machine_config_render.KEEP)
        assert world.client.calls == []
    world = World()
    await world.look(machine_config_render.KEEP)
    assert world.client.objects[DATA]["data"] == {names.SERVER_KEY: SERVER, names.CA_KEY: CA.decode()}


async def test_the_address_that_somebody_else_wrote_first_is_replaced_without_a_word() -> None:
    world = World()
    world.client.put("configmaps", names.KUBECONFIG_DATA, bootstrapper.NAMESPACE, data={"other": "1"})
    await world.look(machine_config_render.KEEP)
    assert world.client.objects[DATA]["data"] == {names.SERVER_KEY: SERVER, names.CA_KEY: CA.decode(), "other": "1"}
    assert world.told_of() == []


async def test_an_immutable_address_is_told_of_and_left() -> None:
    world = World()
    world.client.put("configmaps", names.KUBECONFIG_DATA, bootstrapper.NAMESPACE, data={}, immutable=True)
    await world.look(machine_config_render.KEEP)
    assert world.told_of() == ["ImmutableConfigMap"]
    assert world.client.objects[DATA]["data"] == {}


def _redirected(world: World, **more: Any) -> None:
    data = {names.SERVER_KEY: "https://evil.example:6443", names.CA_KEY: "another CA"}
    world.client.put("configmaps", names.KUBECONFIG_DATA, bootstrapper.NAMESPACE, data=data, **more)


async def test_machines_are_not_sent_to_a_server_that_somebody_else_named() -> None:
    world = await World().begin()
    before = world.target
    _redirected(world)
    # The pool is looked at before the ConfigMap is.
    await world.look()
    assert world.target == before
    assert world.client.objects[DATA]["data"] == {names.SERVER_KEY: SERVER, names.CA_KEY: CA.decode()}


async def test_an_immutable_address_of_somebody_else_is_not_rendered() -> None:
    world = await World().begin()
    before = world.target
    _redirected(world, immutable=True)
    await world.look()
    assert world.target == before
    assert "ForeignKubeconfigData" in world.told_of()


async def test_without_an_address_of_its_own_what_is_there_counts() -> None:
    world = World(servers=())
    _redirected(world, immutable=True)
    await world.begin()
    assert world.target != ""


async def test_a_namespace_that_is_not_there_is_waited_for() -> None:
    world = World()
    world.client.before = failing(status.not_found("namespaces", "", "x"), verb="create")
    await world.look(machine_config_render.KEEP)
    world.client.before = failing(status.conflict("configmaps", "", "x"), verb="create")
    with pytest.raises(status.StatusError):
        await world.look(machine_config_render.KEEP)
