# SPDX-License-Identifier: Apache-2.0
"""Watches over real TLS: beginnings, resumption, selectors, bookmarks, expiry, ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pathlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import aiohttp
import msgspec
import pytest

from handfast.apiserver.state import collection
from handfast.apiserver.verbs import watch
from tests.world import clock as clocks
from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"


class Stream:
    """The events of one watch, one by one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(5):
            line = await self.response.content.readline()
        if not line:
            raise EOFError
        event: dict[str, Any] = msgspec.json.decode(line)
        return event

    async def brief(self) -> tuple[str, str]:
        event = await self.next()
        return event["type"], event["object"]["metadata"].get("name", "")


@contextlib.asynccontextmanager
async def watching(world: worlds.World, query: str = "", path: str = PATH, **headers: str) -> AsyncIterator[Stream]:
    async with world.session().get(f"{path}?watch=1{query}", headers=headers) as response:
        assert response.status == 200, await response.read()
        yield Stream(response)


async def change(world: worlds.World, name: str, **fields: Any) -> Any:
    patch = msgspec.json.encode(fields)
    headers = {"Content-Type": "application/merge-patch+json"}
    answer = await world.request("PATCH", f"{PATH}/{name}", patch, headers=headers)
    assert answer.status == 200, answer.body
    return answer.json()


async def test_without_a_version_it_begins_with_the_current_state(world: worlds.World) -> None:
    await world.create_config_map("a")
    async with watching(world) as stream:
        assert await stream.brief() == ("ADDED", "a")
        await world.create_config_map("b")
        assert await stream.brief() == ("ADDED", "b")
        await change(world, "a", data={"x": "1"})
        assert await stream.brief() == ("MODIFIED", "a")
        await world.request("DELETE", f"{PATH}/b")
        assert await stream.brief() == ("DELETED", "b")


async def test_from_a_version_it_gives_what_came_after(world: worlds.World) -> None:
    first = await world.create_config_map("a")
    await world.create_config_map("b")
    await change(world, "a", data={"x": "1"})
    async with watching(world, f"&resourceVersion={first['metadata']['resourceVersion']}") as stream:
        assert await stream.brief() == ("ADDED", "b")
        assert await stream.brief() == ("MODIFIED", "a")
        await world.create_config_map("c")
        assert await stream.brief() == ("ADDED", "c")


async def test_a_deleted_event_carries_the_last_state_under_the_new_version(world: worlds.World) -> None:
    made = await world.create_config_map("a", k="v")
    async with watching(world, f"&resourceVersion={made['metadata']['resourceVersion']}") as stream:
        await world.request("DELETE", f"{PATH}/a")
        event = await stream.next()
    assert event["type"] == "DELETED"
    assert event["object"]["data"] == {"k": "v"}
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_selector_transitions_become_added_and_deleted(world: worlds.World) -> None:
    await world.create_config_map("a")
    async with watching(world, "&labelSelector=on%3Dyes") as stream:
        await change(world, "a", metadata={"labels": {"on": "yes"}})
        assert await stream.brief() == ("ADDED", "a")
        await change(world, "a", data={"x": "1"})
        assert await stream.brief() == ("MODIFIED", "a")
        after = await change(world, "a", metadata={"labels": {"on": None}})
        event = await stream.next()
    assert event["type"] == "DELETED"
    # The state that matched last, under the version at which it stopped matching.
    assert event["object"]["metadata"]["labels"] == {"on": "yes"}
    assert event["object"]["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_field_selector_follows_one_name(world: worlds.World) -> None:
    async with watching(world, "&fieldSelector=metadata.name%3Db") as stream:
        await world.create_config_map("a")
        await world.create_config_map("b")
        assert await stream.brief() == ("ADDED", "b")


async def test_other_namespaces_are_not_seen(world: worlds.World) -> None:
    async with watching(world) as stream:
        await world.create_config_map("a", namespace="kube-public")
        await world.create_config_map("b")
        assert await stream.brief() == ("ADDED", "b")


async def test_initial_events_end_with_the_marked_bookmark(world: worlds.World) -> None:
    await world.create_config_map("a")
    await world.create_config_map("b")
    query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with watching(world, query) as stream:
        assert await stream.brief() == ("ADDED", "a")
        assert await stream.brief() == ("ADDED", "b")
        event = await stream.next()
        assert event["type"] == "BOOKMARK"
        assert event["object"]["kind"] == "ConfigMap"
        assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await world.create_config_map("c")
        assert await stream.brief() == ("ADDED", "c")


async def test_bookmarks_come_with_time(world: worlds.World) -> None:
    async with watching(world, "&allowWatchBookmarks=true") as stream:
        other = await world.create_config_map("a", namespace="kube-public")
        await world.movable().advance(watch.BOOKMARK_SECONDS + 1)
        event = await stream.next()
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) >= int(other["metadata"]["resourceVersion"])


async def test_a_forgotten_version_gets_an_error_event(world: worlds.World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "HISTORY_EVENTS", 3)
    made = await world.create_config_map("a")
    for number in range(6):
        await change(world, "a", data={"n": str(number)})
    async with watching(world, f"&resourceVersion={made['metadata']['resourceVersion']}") as stream:
        event = await stream.next()
        with pytest.raises(EOFError):
            await stream.next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_version_before_the_start_of_this_server_goes_on(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        first = await world.create_config_map("a")
        await change(world, "a", data={"x": "1"})
        await world.request("DELETE", f"{PATH}/a")
    version = first["metadata"]["resourceVersion"]
    async with worlds.world(tmp_path / "d") as world, watching(world, f"&resourceVersion={version}") as stream:
        assert await stream.brief() == ("MODIFIED", "a")
        gone = await stream.next()
        assert (gone["type"], gone["object"]["data"]) == ("DELETED", {"x": "1"})
        await world.create_config_map("b")
        assert await stream.brief() == ("ADDED", "b")


async def test_a_version_that_was_compacted_is_expired_after_a_restart(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        first = await world.create_config_map("a")
        last = await change(world, "a", data={"x": "1"})
        await world.server.storage.compact(int(last["metadata"]["resourceVersion"]))
    version = first["metadata"]["resourceVersion"]
    async with worlds.world(tmp_path / "d") as world, watching(world, f"&resourceVersion={version}") as stream:
        assert (await stream.next())["object"]["code"] == 410


async def test_a_state_from_the_future_is_refused_after_a_wait(world: worlds.World) -> None:
    query = "watch=1&resourceVersion=99999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    asking = asyncio.ensure_future(world.get(f"{PATH}?{query}"))
    await world.pass_time_until(asking)
    answer = await asking
    assert answer.status == 504
    assert answer.json()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_it_ends_cleanly_after_its_timeout_with_a_last_bookmark(world: worlds.World) -> None:
    async with watching(world, "&timeoutSeconds=1&allowWatchBookmarks=true") as stream:
        assert (await stream.next())["type"] == "BOOKMARK"
        with pytest.raises(EOFError):
            await stream.next()


async def test_the_connection_serves_again_after_a_watch(world: worlds.World) -> None:
    made: list[object] = []

    async def count(*_: object) -> None:
        made.append(_)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    connector = aiohttp.TCPConnector(ssl=world.admin_context(), limit=1)
    async with aiohttp.ClientSession(world.base, connector=connector, trace_configs=[trace]) as session:
        async with session.get(f"{PATH}?watch=1&timeoutSeconds=1") as response:
            assert await response.read() == b""
        async with session.get("/version") as response:
            assert response.status == 200
    assert len(made) == 1


async def test_tables_in_a_watch_carry_columns_once(world: worlds.World) -> None:
    await world.create_config_map("a")
    await world.create_config_map("b")
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    async with watching(world, Accept=accept) as stream:
        first, second = await stream.next(), await stream.next()
    assert [column["name"] for column in first["object"]["columnDefinitions"]][:2] == ["Name", "Data"]
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_metadata_only(world: worlds.World) -> None:
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    async with watching(world, Accept=accept) as stream:
        await world.create_config_map("a", k="v")
        event = await stream.next()
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in event["object"]


async def test_many_writes_arrive_once_each_and_in_order(world: worlds.World) -> None:
    async with watching(world) as one, watching(world, "&labelSelector=!nothing") as other:
        await asyncio.gather(*(world.create_config_map(f"n{number}") for number in range(200)))
        for stream in (one, other):
            events = [await stream.next() for _ in range(200)]
            versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
            assert versions == sorted(set(versions))
            assert {event["object"]["metadata"]["name"] for event in events} == {f"n{n}" for n in range(200)}


async def test_resuming_from_any_version_misses_nothing(world: worlds.World) -> None:
    versions = [(await world.create_config_map(f"n{number}"))["metadata"]["resourceVersion"] for number in range(10)]
    for index, version in enumerate(versions[:-1]):
        async with watching(world, f"&resourceVersion={version}") as stream:
            found = [(await stream.brief())[1] for _ in range(9 - index)]
        assert found == [f"n{number}" for number in range(index + 1, 10)]


class Meanwhile(clocks.MovableClock):
    """Something happens, once, where the server lets others run."""

    happens: Callable[[], Coroutine[Any, Any, Any]] | None = None

    async def sleep(self, seconds: float) -> None:
        if seconds == 0 and self.happens is not None:
            happens, self.happens = self.happens, None
            await happens()
        await super().sleep(seconds)


async def test_resuming_hundreds_of_changes_behind_misses_nothing(tmp_path: pathlib.Path) -> None:
    """So far behind, the server catches up in steps, and what is written between two of them is not lost either."""
    clock = Meanwhile()
    async with worlds.world(tmp_path / "d", clock=clock) as world:
        first = await world.create_config_map("first")
        names = [f"n{number}" for number in range(600)]
        await asyncio.gather(*map(world.create_config_map, names), world.create_config_map("x", "kube-public"))
        await change(world, "first", data={"x": "1"})
        clock.happens = functools.partial(world.create_config_map, "meanwhile")
        async with watching(world, f"&resourceVersion={first['metadata']['resourceVersion']}") as stream:
            events = [await stream.next() for _ in range(602)]
            await world.create_config_map("live")
            assert await stream.brief() == ("ADDED", "live")
    found = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert sorted(found[:600]) == sorted(("ADDED", name) for name in names)
    assert found[600:] == [("MODIFIED", "first"), ("ADDED", "meanwhile")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("ended_by", ["its timeout", "the client"])
async def test_nothing_is_kept_of_a_watch_that_has_ended(world: worlds.World, ended_by: str) -> None:
    hub, pods = world.server.hub, "/api/v1/pods"
    idle = {name: len(value) for name, value in vars(hub).items() if isinstance(value, set | dict | list)}
    query = "&allowWatchBookmarks=true" + ("&timeoutSeconds=1" if ended_by == "its timeout" else "")
    # Somebody whose watches end with their token: that is noted, too.
    token = {"Impersonate-User": "system:bootstrap:abcdef", "Impersonate-Group": "system:masters"}
    async with watching(world, query, pods, **token) as stream:
        # The answer begins before the watch is known to everybody.
        while not hub._bookmarked:
            await asyncio.sleep(0)
        assert hub._bound
        if ended_by == "its timeout":
            assert (await stream.next())["type"] == "BOOKMARK"
            with pytest.raises(EOFError):
                await stream.next()
        else:
            stream.response.close()
    async with asyncio.timeout(5):
        while len(hub):
            await asyncio.sleep(0)
    assert {name: len(value) for name, value in vars(hub).items() if name in idle} == idle
    listeners = world.server.hub._replica.collection("core/pods/")._listeners
    assert not any(isinstance(owner, watch.Watcher) for owner in listeners._everyone)


async def test_stopping_the_server_ends_watches_cleanly(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        session = aiohttp.ClientSession(world.base, connector=aiohttp.TCPConnector(ssl=world.admin_context()))
        response = await session.get(f"{PATH}?watch=1")
        stopping = asyncio.ensure_future(world.server.listener.stop(1.0))
        world.server.hub.close()
        async with asyncio.timeout(5):
            assert await response.read() == b""
        await stopping
        await session.close()
