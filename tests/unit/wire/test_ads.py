# SPDX-License-Identifier: Apache-2.0
"""Delta ADS, spoken by a client that does what the test says: what is sent when, and what counts as taken."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import stat
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from handfast.rules.envoy import resources
from handfast.wire import ads, envoy_messages
from tests.unit.wire import greeting

KIND = resources.Kind
SECONDS = 10


class Client:
    """An Envoy's side of one stream."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def subscribe(self, kind: resources.Kind, *names: str, initial: tuple[str, ...] = ()) -> None:
        request = envoy_messages.Request(type_url=kind.type_url, resource_names_subscribe=names)
        for name in initial:
            request.initial_resource_versions[name] = "1"
        await self._call.write(request)

    async def unsubscribe(self, kind: resources.Kind, *names: str) -> None:
        await self._call.write(envoy_messages.Request(type_url=kind.type_url, resource_names_unsubscribe=names))

    async def read(self) -> Any:
        return await asyncio.wait_for(self._call.read(), SECONDS)

    async def answer(self, response: Any, error: str = "") -> None:
        request = envoy_messages.Request(type_url=response.type_url, response_nonce=response.nonce)
        if error:
            request.error_detail.message = error
        await self._call.write(request)

    async def taken(self) -> tuple[str, list[str], list[str]]:
        """The next response, acknowledged: its kind, what it has, what it takes back."""
        response = await self.read()
        await self.answer(response)
        kind = next(kind for kind in KIND if kind.type_url == response.type_url)
        return kind.name, [row.name for row in response.resources], list(response.removed_resources)


@contextlib.asynccontextmanager
async def serving(demands: list[str] | None = None) -> AsyncIterator[tuple[ads.Ads, pathlib.Path]]:
    with tempfile.TemporaryDirectory(prefix="hf-") as directory:
        path = pathlib.Path(directory) / "agent.sock"
        on_demand = None if demands is None else demands.append
        async with ads.Ads(greeting.CLOCK, on_demand).on(path) as sent:
            yield sent, path


@contextlib.asynccontextmanager
async def connected(path: pathlib.Path) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        method = channel.stream_stream(
            f"/{ads.SERVICE}/{ads.METHOD}",
            request_serializer=envoy_messages.Request.SerializeToString,
            response_deserializer=envoy_messages.Response.FromString,
        )
        call = method()
        yield Client(call)
        call.cancel()


def put(sent: ads.Ads, kind: resources.Kind, name: str, **fields: Any) -> None:
    sent.put(kind, name, {"cluster_name" if kind is KIND.ENDPOINTS else "name": name, **fields})


async def acknowledged(sent: ads.Ads, *keys: ads.Key) -> None:
    await asyncio.wait_for(sent.acknowledged(keys), SECONDS)


async def test_the_socket_is_for_this_user_alone_and_gone_at_the_end():
    async with serving() as (_, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_a_socket_that_was_left_behind_is_replaced():
    with tempfile.TemporaryDirectory(prefix="hf-") as directory:
        path = pathlib.Path(directory) / "agent.sock"
        left = await asyncio.start_unix_server(lambda *_: None, path)
        left.close()
        async with ads.Ads(greeting.CLOCK).on(path), connected(path) as client:
            await client.subscribe(KIND.LISTENER)


async def test_an_envoy_that_comes_back_with_very_many_names_is_told_as_before():
    names = [f"http/{number}-{'x' * 250}.shop.svc" for number in range(20_000)]
    async with serving() as (sent, path), connected(path) as client:
        put(sent, KIND.CLUSTER, "http/known")
        await client.subscribe(KIND.CLUSTER, *names, "http/known")
        assert await client.taken() == ("CLUSTER", ["http/known"], [])


async def test_what_is_subscribed_to_is_sent_once_and_counts_when_it_is_taken():
    async with serving() as (sent, path), connected(path) as client:
        put(sent, KIND.SECRET, "identity")
        put(sent, KIND.SECRET, "other")
        await client.subscribe(KIND.SECRET, "identity")
        response = await client.read()
        assert [row.name for row in response.resources] == ["identity"]
        waiting = asyncio.ensure_future(acknowledged(sent, (KIND.SECRET, "identity")))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.answer(response)
        await waiting
        put(sent, KIND.SECRET, "identity")
        assert await client.taken() == ("SECRET", ["identity"], [])
        await acknowledged(sent, (KIND.SECRET, "identity"))


async def test_a_rejection_is_said_in_envoys_words_and_a_better_version_is_taken():
    async with serving() as (sent, path), connected(path) as client:
        put(sent, KIND.LISTENER, "inbound")
        await client.subscribe(KIND.LISTENER)
        await client.answer(await client.read(), error="no such   filter")
        with pytest.raises(ads.Rejected, match=r"inbound \(listener\): no such filter") as rejected:
            await acknowledged(sent, (KIND.LISTENER, "inbound"))
        assert rejected.value.reason == "EnvoyRejected"
        put(sent, KIND.LISTENER, "inbound")
        await client.taken()
        await acknowledged(sent, (KIND.LISTENER, "inbound"))


async def test_what_is_rejected_is_counted_and_sent_again_alone():
    async with serving() as (sent, path), connected(path) as client:
        for name in ("good", "bad"):
            put(sent, KIND.LISTENER, name)
        await client.subscribe(KIND.LISTENER)
        await client.answer(await client.read(), error="address in use")
        await asyncio.wait_for(sent.rejection(), SECONDS)
        assert set(sent.rejected()) == {(KIND.LISTENER, "good"), (KIND.LISTENER, "bad")}
        for key in sent.rejected():
            sent.again(key)
        sent.again((KIND.LISTENER, "nobody's"))
        assert await client.taken() == ("LISTENER", ["good"], [])
        response = await client.read()
        assert [row.name for row in response.resources] == ["bad"]
        await client.answer(response, error="address in use")
        await asyncio.wait_for(sent.rejection(), SECONDS)
        words = "Envoy does not take bad (listener): address in use"
        assert sent.rejected() == {(KIND.LISTENER, "bad"): words}
        assert sent.holds([(KIND.LISTENER, "good")])
        assert sent.rejections == {KIND.LISTENER: 2}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('bad: private_key { inline_bytes: "KEY" }', "bad: private_key {"),
        ("bad -----BEGIN KEY", "bad"),
        (
            'goo.gle/x inline_bytes: "KEY" Proto constraint validation failed (Secret.Name)',
            "Proto constraint validation failed",
        ),
    ],
)
async def test_a_rejection_never_quotes_a_secret(error, expected):
    async with serving() as (sent, path), connected(path) as client:
        put(sent, KIND.SECRET, "identity")
        await client.subscribe(KIND.SECRET, "identity")
        await client.answer(await client.read(), error=error)
        with pytest.raises(ads.Rejected, match="identity") as rejected:
            await acknowledged(sent, (KIND.SECRET, "identity"))
        assert expected in str(rejected.value)
        assert "KEY" not in str(rejected.value)


async def test_what_is_named_is_sent_before_who_names_it_and_some_of_it_again():
    """Endpoints after their cluster, secrets after a listener: Envoy waits for the first, and forgets the others."""
    async with serving() as (sent, path), connected(path) as client:
        for kind in KIND:
            await client.subscribe(kind, *([] if kind in {KIND.CLUSTER, KIND.LISTENER} else ["web"]))
        put(sent, KIND.ROUTES, "web")
        assert await client.taken() == ("ROUTES", ["web"], [])
        for kind in reversed(KIND):
            put(sent, kind, "web")
        order = [(await client.taken())[0] for _ in range(6)]
        assert order == ["SECRET", "CLUSTER", "ENDPOINTS", "LISTENER", "ROUTES", "SECRET"]
        put(sent, KIND.CLUSTER, "web")
        assert [(await client.taken())[0] for _ in range(2)] == ["CLUSTER", "ENDPOINTS"]


async def test_a_cluster_that_is_not_there_is_asked_for_once_and_answered_either_way():
    demands: list[str] = []
    async with serving(demands) as (sent, path), connected(path) as client:
        put(sent, KIND.CLUSTER, "application")
        await client.subscribe(KIND.CLUSTER)
        assert await client.taken() == ("CLUSTER", ["application"], [])
        await client.subscribe(KIND.CLUSTER, "web")
        await client.subscribe(KIND.CLUSTER, "web", "nowhere")
        await client.subscribe(KIND.CLUSTER, "application")
        assert await client.taken() == ("CLUSTER", ["application"], [])
        assert demands == ["web", "nowhere"]
        put(sent, KIND.CLUSTER, "web")
        assert await client.taken() == ("CLUSTER", ["web"], [])
        sent.absent(KIND.CLUSTER, "nowhere")
        assert await client.taken() == ("CLUSTER", [], ["nowhere"])
        await acknowledged(sent, (KIND.CLUSTER, "nowhere"))


async def test_what_is_unsubscribed_from_is_sent_no_more():
    async with serving() as (sent, path), connected(path) as client:
        put(sent, KIND.SECRET, "identity")
        await client.subscribe(KIND.SECRET, "identity", "anchors")
        await client.taken()
        await client.unsubscribe(KIND.SECRET, "identity")
        put(sent, KIND.ROUTES, "inbound")
        await client.subscribe(KIND.ROUTES, "inbound")
        assert (await client.taken())[0] == "ROUTES"
        put(sent, KIND.SECRET, "identity")
        put(sent, KIND.SECRET, "anchors")
        assert await client.taken() == ("SECRET", ["anchors"], [])


async def test_a_new_stream_is_sent_everything_and_what_is_there_no_more_is_taken_back():
    async with serving() as (sent, path):
        put(sent, KIND.LISTENER, "inbound")
        async with connected(path) as client:
            await client.subscribe(KIND.LISTENER)
            await client.taken()
            await acknowledged(sent, (KIND.LISTENER, "inbound"))
            assert sent.connected
        async with connected(path) as client:
            await client.subscribe(KIND.LISTENER, initial=("inbound", "gone"))
            assert await client.taken() == ("LISTENER", ["inbound"], ["gone"])
            await acknowledged(sent, (KIND.LISTENER, "inbound"))


async def test_what_nobody_has_is_passed_over():
    async with serving() as (sent, path), connected(path) as client:
        await client._call.write(envoy_messages.Request(type_url="type.googleapis.com/test.Unknown"))
        put(sent, KIND.LISTENER, "inbound")
        await client.subscribe(KIND.LISTENER)
        assert (await client.taken())[0] == "LISTENER"
