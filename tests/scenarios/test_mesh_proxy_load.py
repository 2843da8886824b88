# SPDX-License-Identifier: Apache-2.0
"""Two workloads under steady load while both renew twenty times, and the issuer is swapped: no request fails, and nothing is readable between their proxies.

Real agents, real Envoys, and the real identity and destination services. The agents' time goes by faster than the machine's: what is due is renewed at once. Between
the proxies stands a relay, which keeps every octet.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.scenarios import envoy_world, mesh_issuers, mesh_outbound_world, proxy_world
from tests.scenarios.mesh_outbound_world import VOTE, WEB, caller, served
from tests.scenarios.test_mesh_credentials import AgentsClock
from tests.unit.wire import greeting

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROTATIONS = 20
# A connection lasts a tenth of it.
LIFETIME = 80
SECRET = "a-secret-on-the-wire"
_PAUSE = 0.02
_RECORDS = frozenset({20, 21, 22, 23})
thread = asyncio.to_thread


@dataclass
class Passed:
    """A connection between the proxies: what each side has sent, and when it was there."""

    began: float
    ended: float = 0.0
    # Half a megabyte: a failure does without.
    sent: bytearray = field(default_factory=bytearray, repr=False)
    answered: bytearray = field(default_factory=bytearray, repr=False)


class Relay:
    """Passes connections on, and keeps what was said."""

    def __init__(self, host: str, port: int) -> None:
        self._far = host, port
        self.ip, self.port = mesh_outbound_world.address(), envoy_world.free_port()
        self.passed: list[Passed] = []

    @contextlib.asynccontextmanager
    async def on(self) -> AsyncIterator[Relay]:
        server = await asyncio.start_server(self._pass, self.ip, self.port)
        try:
            yield self
        finally:
            server.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = Passed(time.monotonic())
        self.passed.append(kept)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._far)
            await asyncio.gather(_copy(reader, far_writer, kept.sent), _copy(far_reader, writer, kept.answered))
        finally:
            kept.ended = time.monotonic()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    try:
        # What comes after the other side has gone is for nobody: uvloop calls writing it a mistake of the program's (RuntimeError).
        while (data := await reader.read(65536)) and not writer.is_closing():
            kept += data
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def records(octets: bytes) -> list[int]:
    """The kinds of the TLS records, from the first octet to the last."""
    kinds, at = [], 0
    while at < len(octets):
        kinds.append(octets[at])
        at += 5 + int.from_bytes(octets[at + 3 : at + 5], "big")
    return kinds


@dataclass
class Load:
    """What became of the requests, and the names that each side had."""

    port: int
    answers: collections.Counter[Any] = field(default_factory=collections.Counter)
    names: set[tuple[str, str]] = field(default_factory=set)

    async def http1(self, host: str) -> None:
        """One connection of HTTP/1.1, kept; requests one after the other."""
        async with envoy_world.http1(self.port) as connection:
            while True:
                status, headers, seen = await connection.get(host, authorization=SECRET)
                self.answers["HTTP/1.1", status] += 1
                self.names.add((headers.get("l5d-server-id", ""), seen["headers"].get("l5d-client-id", "")))
                await asyncio.sleep(_PAUSE)

    async def http2(self, host: str) -> None:
        """One connection of HTTP/2, kept; calls one after the other."""
        async with self.calling(host) as call:
            while True:
                self.answers["HTTP/2", await call()] += 1
                await asyncio.sleep(_PAUSE)

    @contextlib.asynccontextmanager
    async def calling(self, host: str) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        """What says how a call ends."""
        options = [
            ("grpc.default_authority", host),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options) as channel:
            method = channel.unary_unary(f"/{greeting.SERVICE}/Greet")

            async def call() -> str:
                try:
                    await method(b"", timeout=envoy_world.SECONDS, metadata=(("authorization", SECRET),))
                except grpc.aio.AioRpcError as error:
                    return f"{error.code().name}: {error.details()}"
                return "OK"

            yield call


@contextlib.asynccontextmanager
async def steadily(load: Load, http1: str, http2: str) -> AsyncIterator[None]:
    """Until the block ends; what fails in it, fails the test."""
    calls = [*(load.http1(http1) for _ in range(4)), *(load.http2(http2) for _ in range(2))]
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Side:
    """An agent, its clock, and the certificates that Envoy had of it."""

    doors: proxy_world.Doors
    clock: AgentsClock
    serials: list[str] = field(default_factory=list)

    async def renew(self) -> None:
        """As much time goes by for the agent as is left until its renewal; then it has the next one, and so has Envoy."""
        before = await self.doors.identity()
        left = datetime.datetime.fromisoformat(before["nextRenewal"]) - self.clock.now()
        self.clock.passed += max(left.total_seconds(), 0.0) + 0.1

        async def is_renewed() -> bool:
            return bool((await self.doors.identity())["serial"] != before["serial"])

        await proxy_world.until_async(is_renewed)
        await self.doors.until("/ready", 200)
        self.serials.append((await self.doors.identity())["serial"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> mesh_issuers.Root:
    return mesh_issuers.Root(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, root: mesh_issuers.Root) -> Iterator[mesh_outbound_world.World]:
    words = (*root.issuer("first").words, "--set", f"identity.lifetime={LIFETIME}s")
    with mesh_outbound_world.world(tmp_path_factory.mktemp("load"), *words) as world:
        yield world


def host(name: str) -> str:
    return f"{name}.shop.svc.cluster.local"


async def test_no_request_fails_and_nothing_is_readable_while_both_sides_renew_and_the_issuer_is_swapped(world, root):
    async with (
        greeting.serving() as greeter,
        served(world, 0, greeter.port) as web,
        caller(world) as vote,
        Relay(web.ip, web.port).on() as requests,
        Relay(web.ip, web.others[0]).on() as calls,
    ):
        relays = {"load": requests, "calls": calls}
        for name, relay in relays.items():
            await thread(world.service, name, relay.port)
            await thread(world.shop.pod, f"{name}-1", name, relay.ip)
        sides = Side(vote.doors, vote.clock), Side(web.doors, web.clock)
        load, second = Load(vote.port), root.issuer("second")
        await vote.until(host("load"), 200, WEB)
        async with load.calling(host("calls")) as call:
            await proxy_world.until_async(lambda: _is_ok(call))
        async with steadily(load, host("load"), host("calls")):
            for number in range(ROTATIONS):
                if number == ROTATIONS // 2:
                    await thread(world.plane.install, *second.words)
                    await proxy_world.until(lambda: _signs(world, second.der), lambda: "the other issuer")
                await asyncio.gather(*(side.renew() for side in sides))
            # Whatever was open when the last one came is remade.
            open_now = [kept for relay in relays.values() for kept in relay.passed if not kept.ended]
            await proxy_world.until(lambda: all(kept.ended for kept in open_now), lambda: open_now)
            counted = sum(load.answers.values())
            await proxy_world.until(lambda: sum(load.answers.values()) > counted, lambda: load.answers)
        assert set(load.answers) == {("HTTP/1.1", 200), ("HTTP/2", "OK")}, load.answers
        assert load.names == {(WEB, VOTE)}
        for side in sides:
            assert len(set(side.serials)) == ROTATIONS
        for relay in relays.values():
            _is_tls_and_none_is_too_long(relay)


async def _is_ok(call: Callable[[], Awaitable[str]]) -> bool:
    return await call() == "OK"


def _signs(world: mesh_outbound_world.World, issuer: bytes) -> bool:
    return world.certified("other").chain[1] == issuer


def _is_tls_and_none_is_too_long(relay: Relay) -> None:
    assert len(relay.passed) > 1
    for kept in relay.passed:
        # Each connection ended before the certificates that made it did, with much to spare.
        assert (kept.ended or time.monotonic()) - kept.began < LIFETIME / 2
        for octets in (bytes(kept.sent), bytes(kept.answered)):
            assert set(records(octets)) <= _RECORDS
            assert not any(word in octets for word in (SECRET.encode(), b"HTTP/1", b"PRI *", VOTE.encode()))
        assert kept.sent[:1] == b"\x16"
