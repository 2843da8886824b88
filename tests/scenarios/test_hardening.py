# SPDX-License-Identifier: Apache-2.0
"""What a review with an attacker's eyes found, kept found."""

from __future__ import annotations

import asyncio
import datetime
import pathlib

import aiohttp
import msgspec
import pytest

from handfast.apiserver import limits
from handfast.apiserver.state import envelope, items
from handfast.pki import bundles, seal
from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"


async def ends(response: aiohttp.ClientResponse) -> bytes:
    async with asyncio.timeout(5):
        return await response.read()


async def test_a_watch_ends_with_the_credential_that_opened_it(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        context = world.context_for("bob", "system:masters", ttl=datetime.timedelta(minutes=10))
        async with world.session(context).get(f"{PATH}?watch=1") as early:
            # A watch opened half a second before the end of its certificate lasts that long.
            await world.movable().advance(600 - 0.5)
            async with world.session(context).get(f"{PATH}?watch=1") as late:
                assert late.status == 200
                assert await ends(late) == b""
            assert not early.content.at_eof()


async def test_watches_end_when_a_ca_is_removed(world: worlds.World) -> None:
    async with world.session().get(f"{PATH}?watch=1") as response:
        world.server.guard.authenticator.trust(bundles.TrustBundle.of([]))
        assert await ends(response) == b""
    assert (await world.get(PATH)).status == 401


async def test_dry_run_is_not_lost_behind_an_empty_one(world: worlds.World) -> None:
    await world.create_config_map("a")
    assert (await world.request("DELETE", f"{PATH}/a?dryRun=&dryRun=All")).status == 200
    assert (await world.get(f"{PATH}/a")).status == 200


async def test_a_namespace_is_not_reached_through_another(world: worlds.World) -> None:
    assert (await world.get("/api/v1/namespaces/default/namespaces/kube-system")).status == 404
    assert (await world.get("/api/v1/namespaces/default/namespaces")).status == 404
    assert (await world.get("/api/v1/namespaces/kube-system")).status == 200


async def test_the_last_finalizer_and_the_object_go_in_one_write(world: worlds.World) -> None:
    await world.request("POST", PATH, {"metadata": {"name": "a", "finalizers": ["example.com/one"]}})
    await world.request("DELETE", f"{PATH}/a")
    before = world.server.replica.version
    patch = msgspec.json.encode({"metadata": {"finalizers": None}})
    headers = {"Content-Type": "application/merge-patch+json"}
    answer = await world.request("PATCH", f"{PATH}/a", patch, headers=headers)
    assert (answer.status, "finalizers" in answer.json()["metadata"]) == (200, False)
    await world.server.replica.fresh()
    assert world.server.replica.version == before + 1


async def test_an_unsealed_value_in_a_sealed_place_is_not_served() -> None:
    sealed = envelope.Envelopes(seal.Sealer.from_text(seal.generate_line("k1")), ("core/secrets/",))
    forged = envelope.Envelopes().wrap("core/secrets/a/b", "v1", b"{}")
    with pytest.raises(envelope.EnvelopeBroken, match="is not sealed"):
        sealed.open("core/secrets/a/b", forged)


async def test_a_watcher_in_trouble_is_dropped_alone(world: worlds.World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: items.Item) -> dict[str, str]:
        raise RuntimeError("broken")

    async with (
        world.session().get(f"{PATH}?watch=1&labelSelector=a") as selecting,
        world.session().get(f"{PATH}?watch=1") as other,
    ):
        monkeypatch.setattr(items.Item, "labels", broken)
        await world.create_config_map("a")
        with pytest.raises(aiohttp.ClientError):
            await ends(selecting)
        async with asyncio.timeout(5):
            assert b'"ADDED"' in await other.content.readline()
    assert (await world.get(f"{PATH}/a")).status == 200


async def test_encoded_events_do_not_stay_with_the_history(world: worlds.World) -> None:
    async with world.session().get(f"{PATH}?watch=1") as response:
        await world.create_config_map("a")
        await response.content.readline()
    history = world.server.replica.collection("core/configmaps/").history
    assert [change.frames for change in history if change.after and change.after.name == "a"] == [{}]


async def test_bad_certificates_are_rate_limited_like_no_certificate(tmp_path: pathlib.Path) -> None:
    strict = limits.Limits(anonymous_per_second=0.001, anonymous_burst=3)
    async with worlds.world(tmp_path / "d", limits=strict) as world:
        world.server.guard.authenticator.trust(bundles.TrustBundle.of([]))
        codes = [(await world.get(PATH)).status for _ in range(5)]
    assert codes == [401, 401, 401, 429, 429]


async def test_silent_connections_do_not_keep_others_out(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d", limits=limits.Limits(handshakes_in_flight=2)) as world:
        port = world.server.address[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        async with asyncio.timeout(2):
            assert (await world.get("/healthz")).status == 200
        for _, writer in silent:
            writer.close()


async def test_strangers_do_not_keep_idle_connections(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d", limits=limits.Limits(anonymous_idle_seconds=0.2)) as world:
        context = world.anonymous_context()
        assert (await world.get("/healthz", context=context)).status == 200
        assert (await world.get("/healthz")).status == 200
        assert world.server.listener.connections == 2
        async with asyncio.timeout(5):
            while world.server.listener.connections > 1:
                await asyncio.sleep(0.05)
        # The administrator's stays.
        assert world.server.listener.connections == 1


@pytest.mark.slow
@pytest.mark.on_etcd
async def test_a_client_that_does_not_read_its_list_is_given_up(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d", limits=limits.Limits(lifted=True, write_seconds=0.3)) as world:
        for number in range(40):
            await world.create_config_map(f"big{number}", k="x" * 500_000)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", world.server.address[1], ssl=world.admin_context(), limit=1 << 16
        )
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readline()
        async with asyncio.timeout(5):
            while any(connection._request_in_progress for connection in world.server.listener._server.connections):
                await asyncio.sleep(0.05)
        writer.transport.abort()


async def test_events_followed_under_both_names_at_once(world: worlds.World) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    core, new = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
    await world.request("POST", core, event)
    assert len((await world.get(f"{core}?fieldSelector=involvedObject.name%3Dp")).json()["items"]) == 1
    async with (
        world.session().get(f"{new}?watch=1&fieldSelector=regarding.name%3Dp") as one,
        world.session().get(f"{core}?watch=1&fieldSelector=involvedObject.name%3Dp") as other,
    ):
        patch = msgspec.json.encode({"reason": "Changed"})
        await world.request("PATCH", f"{core}/e", patch, headers={"Content-Type": "application/merge-patch+json"})
        for response in (one, other):
            async with asyncio.timeout(5):
                lines = [await response.content.readline() for _ in range(2)]
            assert b'"Changed"' in lines[1]
