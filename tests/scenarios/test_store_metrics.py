# SPDX-License-Identifier: Apache-2.0
"""The metrics of an API server say of its store what `handfast store status` says, on both engines, and on every server of one store."""

from __future__ import annotations

import asyncio
import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

import click.testing
from prometheus_client import parser

from handfast.api import objects
from handfast.apiserver.state import compaction, store_figures
from handfast.cli import main
from handfast.store.etcd import engine
from handfast.wire import etcd_access
from tests.world import etcds
from tests.world import world as worlds
from tests.world.clock import MovableClock

SECRETS = "/api/v1/namespaces/default/secrets"


async def store(*words: object) -> str:
    """What `handfast store` prints."""
    run = click.testing.CliRunner().invoke
    result = await asyncio.to_thread(run, main.command, ["store", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.stdout


async def metrics(world: worlds.World) -> dict[str, Any]:
    """The numbers of the store by their names, those with a label by its value."""
    numbers: dict[str, Any] = {}
    for family in parser.text_string_to_metric_families((await world.get("/metrics")).body.decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("handfast_store_")
            if not sample.labels:
                numbers[name] = sample.value
            elif name != sample.name:
                numbers.setdefault(name, {}).update(dict.fromkeys(sample.labels.values(), sample.value))
    return numbers


async def until(world: worlds.World, holds: Callable[[dict[str, Any]], bool], seconds: float = 0.0) -> dict[str, Any]:
    """The metrics once they are so; the clock is moved by so much each time."""
    assert isinstance(world.clock, MovableClock)
    async with asyncio.timeout(60):
        while not holds(numbers := await metrics(world)):
            await world.clock.advance(seconds)
            await asyncio.sleep(0.02)
    return numbers


def require_same(numbers: dict[str, Any], status: dict[str, Any]) -> None:
    """The metrics say what the status says, where the one is not later than the other."""
    assert numbers["info"] == {status["engine"]: 1, status["identity"]: 1}
    assert numbers["size_bytes"] > 0
    assert numbers["floor_revision"] == status["floor"]
    assert numbers["revision"] <= status["revision"]
    assert numbers["epoch_offset"] == status["resourceVersion"] - status["revision"]
    assert numbers["form"] == status["storedForm"]
    assert numbers["sealed_values"] == status["sealKeys"]
    assert numbers["lag_revisions"] == 0
    assert numbers["writes_uncertain_total"] == status["uncertainWrites"]
    taken = objects.parse_timestamp(status["lastBackup"]["takenAt"]).timestamp()
    assert abs(numbers["backup_timestamp_seconds"] - taken) < 5
    assert set(numbers.get("member_leads", {})) == {each["address"] for each in status["members"]}


async def test_they_say_of_a_file_what_its_status_says(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "d"
    async with worlds.world(root) as world:
        await world.request("POST", SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
        first = await metrics(world)
        assert (first["compacted_timestamp_seconds"], first["backup_timestamp_seconds"]) == (0, 0)
        await until(world, lambda numbers: numbers["compacted_timestamp_seconds"] > 0, compaction.INTERVAL)
        assert (await metrics(world))["compacted_timestamp_seconds"] <= world.clock.now().timestamp()
        await store("backup", tmp_path / "b", "--dir", root)
        now = world.server.storage.replica.version
        numbers = await until(
            world,
            lambda numbers: numbers["revision"] >= now and numbers["backup_timestamp_seconds"] > 0,
            store_figures.INTERVAL,
        )
        require_same(numbers, json.loads(await store("status", "--dir", root, "-o", "json")))
        assert numbers["objects"] == world.server.replica.count()
        assert "member_up" not in numbers


async def test_every_server_of_an_etcd_says_the_same_and_knows_of_a_backup_from_elsewhere(
    tmp_path: pathlib.Path,
) -> None:
    place = etcds.shared().place()
    first, second = [await engine.open_store(place, etcd_access.Access()) for _ in range(2)]
    root, elsewhere = tmp_path / "d", tmp_path / "elsewhere"
    async with (
        worlds.world(root, store=first, shared=True) as one,
        worlds.world(root, store=second, shared=True) as other,
    ):
        await one.request("POST", SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
        await store("backup", tmp_path / "b", "--dir", elsewhere, "--store", place)
        for world in (one, other):
            numbers = await until(
                world, lambda numbers: numbers["backup_timestamp_seconds"] > 0, store_figures.INTERVAL
            )
            status = json.loads(await store("status", "--dir", elsewhere, "--store", place, "-o", "json"))
            require_same(numbers, status)
            assert status["lastBackup"]["file"] == str(tmp_path / "b")
            assert numbers["member_up"] == numbers["member_leads"] == {status["members"][0]["address"]: 1}
        # It is a note of the store: no file of a directory tells of it.
        assert not list(tmp_path.glob("*/*backup*"))


async def test_what_the_store_did_not_say_is_not_a_number(tmp_path: pathlib.Path) -> None:
    place = etcds.shared().place()
    opened = await engine.open_store(place, etcd_access.Access())
    async with worlds.world(tmp_path / "d", store=opened, shared=True) as world:
        await until(world, lambda numbers: numbers["lag_revisions"] == 0)
        known = world.server.look.figures
        await opened.close()
        # The server ends with its store; what it says until then is looked at here.
        task = asyncio.ensure_future(world.server.look.run(world.clock))
        async with asyncio.timeout(60):
            while not math.isnan(world.server.look.figures.lag):
                await asyncio.sleep(0.01)
        task.cancel()
        assert world.server.look.figures.floor == known.floor
