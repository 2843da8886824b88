# SPDX-License-Identifier: Apache-2.0
"""A pool's MachineConfigs become one, with its credential by digest, on a real server."""

from __future__ import annotations

import base64
import json
import pathlib

import pytest

from handfast.controllers.machines import kubeconfig_data, machine_config_render
from handfast.rules.machine_config import credential, names, pools
from handfast.rules.machines import bootstrapper
from tests.scenarios import controlled, fleet_story
from tests.scenarios import pool_story as p

pytestmark = pytest.mark.slow


async def test_a_pool_is_rendered_with_its_credential_by_digest(tmp_path: pathlib.Path) -> None:
    """OpenShift's TestCreatesGeneratedMachineConfig."""
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        await story.config("99-worker", p.file("/dummy/1"))

        async def both() -> bool:
            source = (await story.pool())["spec"].get("configuration", {}).get("source", [])
            return [each["name"] for each in source] == ["00-worker", "99-worker"]

        await story.eventually(both, "rendered from both")
        pool = await story.pool()
        rendering = await story.rendering(pool["spec"]["configuration"]["name"])
        assert [each["path"] for each in rendering["spec"]["config"]["storage"]["files"]] == [
            "/dummy/00-worker",
            "/dummy/1",
        ]
        meta = rendering["metadata"]
        assert meta["name"].startswith("rendered-worker-")
        assert [(each["kind"], each["uid"]) for each in meta["ownerReferences"]] == [
            ("MachineConfigPool", pool["metadata"]["uid"])
        ]
        assert meta["annotations"][names.CREDENTIAL].startswith("service-account sha256:")
        assert meta["annotations"][names.CONFIGURATION].startswith("sha256:")
        shown = json.dumps([*(await story.client.list(p.CONFIGS)), await story.pool(), await story.events()])
        assert p.TOKEN not in shown
        assert base64.b64encode(p.TOKEN.encode()).decode() not in shown
        await story.says("RenderDegraded", "False")
        await story.says("Updated", "True", meta["name"])


async def test_a_pool_without_machine_configs_gets_the_credential(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, p.running(story):
        rendering = await story.rendering(await story.target())
        assert rendering["metadata"]["annotations"][names.CREDENTIAL].startswith("service-account ")


async def test_a_rendering_that_was_changed_is_set_back(tmp_path: pathlib.Path) -> None:
    """OpenShift's TestUpdatesGeneratedMachineConfig."""
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        target = await story.target()
        await story.client.patch(p.CONFIGS, target, {"spec": {"osImageURL": "why-did-you-change-it"}})

        async def back() -> bool:
            return not (await story.rendering(target))["spec"].get("osImageURL")

        await story.eventually(back, "set back")
        assert (await story.pool())["spec"]["configuration"]["name"] == target

        async def said() -> bool:
            return machine_config_render.RESTORED in dict(await story.events())

        await story.eventually(said, "an Event")
        # … and one that was deleted is made again.
        await story.client.delete(p.CONFIGS, target)

        async def there() -> bool:
            return await story.find(p.CONFIGS, target, "") is not None

        await story.eventually(there, "made again")


async def test_nothing_is_written_where_nothing_has_changed(tmp_path: pathlib.Path) -> None:
    """OpenShift's TestDoNothing; over a restart, and by two copies."""
    async with p.told(tmp_path) as story:
        await story.config("00-worker", p.file("/dummy/0"))
        async with p.running(story):
            target = await story.target()
            await story.says("Updated", "True", target)
            await story.quiet()
        before = (await story.pool(), await story.rendering(target))
        async with p.running(story), p.running(story):
            await story.quiet()
            assert (await story.pool(), await story.rendering(target)) == before


async def test_what_cannot_be_rendered_is_named_and_heals_when_it_is_mended(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        good = await story.target()
        await story.config("99-worker", {"path": "relative/path"})
        await story.says("RenderDegraded", "True", "99-worker", "relative/path")
        await story.says("Degraded", "True", "99-worker")
        assert (await story.pool())["spec"]["configuration"]["name"] == good

        async def said() -> bool:
            return any("99-worker" in message for _, message in await story.events())

        await story.eventually(said, "an Event")
        await story.config("99-worker", p.file("/absolute/path"))
        await story.target(good)
        await story.says("RenderDegraded", "False")
        await story.says("Degraded", "False")


async def test_a_slip_in_a_selector_empties_no_machine(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        good = await story.target()
        await story.change(machineConfigSelector={"matchLabels": {names.ROLE_LABEL: "wroker"}})
        await story.says("RenderDegraded", "True", pools.NO_CONFIGS, "wroker")
        assert (await story.pool())["spec"]["configuration"]["name"] == good


async def test_a_missing_credential_is_a_condition_and_a_new_one_a_new_rendering(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, story.configured("00-worker"), p.running(story):
        first = await story.target()
        await story.client.delete(controlled.SECRETS, bootstrapper.TOKEN_SECRET, namespace=bootstrapper.NAMESPACE)
        await story.says("RenderDegraded", "True", credential.NO_TOKEN, bootstrapper.TOKEN_SECRET)
        assert (await story.pool())["spec"]["configuration"]["name"] == first
        await story.token("second.worker.token")
        second = await story.target(first)
        before, after = [(await story.rendering(name))["metadata"]["annotations"] for name in (first, second)]
        assert before[names.CONFIGURATION] == after[names.CONFIGURATION]
        assert before[names.CREDENTIAL] != after[names.CREDENTIAL]


async def test_masters_have_the_certificate_while_its_config_map_is_there(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path, "master") as story:
        text = await story.masters_certificate()
        async with p.running(story):
            first = await story.target(name="master")
            annotations = (await story.rendering(first))["metadata"]["annotations"]
            digest = credential.Credential(names.CERTIFICATE, text).digest
            assert annotations[names.CREDENTIAL] == f"certificate {digest}"
            await story.client.delete(
                controlled.CONFIG_MAPS, bootstrapper.CONFIG_MAP, namespace=bootstrapper.CONFIG_NAMESPACE
            )
            second = await story.target(first, "master")
            annotations = (await story.rendering(second))["metadata"]["annotations"]
            assert annotations[names.CREDENTIAL].startswith("service-account ")


async def test_where_machines_reach_the_api_server_is_kept(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, p.running(story):

        async def kept() -> bool:
            there = await story.find(controlled.CONFIG_MAPS, names.KUBECONFIG_DATA, bootstrapper.NAMESPACE) or {}
            return bool(
                there.get("data") == {names.SERVER_KEY: p.SERVERS[0], names.CA_KEY: controlled.CA_PEM.decode()}
                and not there.get("binaryData")
            )

        await story.eventually(kept, "kept")
        binary = {names.CA_KEY: base64.b64encode(b"another CA").decode()}
        patch = {"data": {names.SERVER_KEY: "https://evil.example", names.CA_KEY: None}, "binaryData": binary}
        await story.client.patch(controlled.CONFIG_MAPS, names.KUBECONFIG_DATA, patch, namespace=bootstrapper.NAMESPACE)
        await story.eventually(kept, "set back")

        async def said() -> bool:
            events = await story.told_of(bootstrapper.NAMESPACE, names.KUBECONFIG_DATA)
            return kubeconfig_data.RESTORED in dict(events)

        await story.eventually(said, "an Event")
        await story.client.delete(controlled.CONFIG_MAPS, names.KUBECONFIG_DATA, namespace=bootstrapper.NAMESPACE)
        await story.eventually(kept, "made again")


async def test_renderings_that_nobody_names_are_deleted_after_a_while(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, p.running(story):
        first = await story.target()
        await story.nodes("w1", current=first)
        await story.are_sent(first, "w1")
        targets = [first]
        for number in range(3):
            await story.config("00-worker", p.file("/dummy", f"text-{number}"))
            targets.append(await story.target(targets[-1]))
        await story.quiet()
        assert await story.renderings() == set(targets)
        await story.clock.advance(601)

        # The node has the first one; the pool goes to the last.
        async def cleaned() -> bool:
            return await story.renderings() <= {first, targets[-1], *await story.desired("w1")}

        await story.eventually(cleaned, "old ones deleted")
        assert {first, targets[-1]} <= await story.renderings()


async def test_the_printed_rights_are_enough_and_no_more_is_asked_for(tmp_path: pathlib.Path) -> None:
    async with p.told(tmp_path) as story, fleet_story.running_as_printed(story, *p.ALL, servers=p.SERVERS):
        before = fleet_story.forbidden(story)
        await story.config("00-worker", p.file("/dummy/0"))
        target = await story.target()
        await story.nodes("w1", "w2")
        await story.rolled_out(await story.target() or target, "w1", "w2")
        await story.config("00-worker", {"path": "relative"})
        await story.says("RenderDegraded", "True")
        assert fleet_story.forbidden(story) == before
