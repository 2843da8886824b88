# SPDX-License-Identifier: Apache-2.0
"""The mesh of `up` is ready when all of it does its work, or when that was waited for long enough."""

import asyncio
import contextlib
import pathlib

import pytest

from handfast.assembly import parts, ports
from handfast.datadir import layout
from handfast.runtime import addresses
from tests.world.clock import MovableClock

ANY = addresses.Address("127.0.0.1", 0)
NAMES = ("identity", "destination", "injector")


class Service:
    """Answers on a port of its own what it is told to."""

    def __init__(self):
        self.codes = {"/livez": 200, "/readyz": 200}

    async def answer(self, reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        writer.write(f"HTTP/1.1 {self.codes[path]} x\r\nContent-Length: 0\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()


class World:
    """Three services and what is told of them."""

    def __init__(self):
        self.services = {name: Service() for name in NAMES}
        self.clock = MovableClock()
        self.events = []
        self.whole = None

    def tell(self, level, _text, **fields):
        self.events.append((level, fields))


@pytest.fixture
async def world(tmp_path: pathlib.Path):
    world = World()
    shared = parts.Shared(place=layout.Layout.at(tmp_path), level=(), descriptors=())
    rows = []
    async with contextlib.AsyncExitStack() as stack:
        for name, service in world.services.items():
            sock = addresses.listen(ANY, "--x")
            port = ports.Port(f"{name}_admin_listen", f"--{name}-admin-listen", sock, addresses.bound(sock, ANY))
            await stack.enter_async_context(await asyncio.start_server(service.answer, sock=sock))
            rows.append(parts.Part(role=shared.role(name, (), (), port), urls={}, admin=port.at))
        world.whole = parts.Whole(rows, world.tell, world.clock)
        yield world


async def test_it_is_ready_when_every_service_is(world):
    world.services["identity"].codes["/readyz"] = 503
    assert not await world.whole()
    world.services["identity"].codes["/readyz"] = 200
    assert await world.whole()
    assert world.events == []


async def test_after_half_a_minute_it_goes_on_and_names_who_is_not_ready(world):
    for name in ("destination", "injector"):
        world.services[name].codes["/readyz"] = 503
    assert not await world.whole()
    await world.clock.advance(29)
    assert not await world.whole()
    assert world.events == []
    await world.clock.advance(2)
    assert await world.whole()
    assert world.events == [("warning", {"services": "destination, injector"})]


async def test_a_service_that_does_not_live_is_not_given_up(world):
    """That is for the supervisor, which has a patience of its own."""
    world.services["injector"].codes["/livez"] = 503
    for _ in range(3):
        assert not await world.whole()
        await world.clock.advance(60)
    assert world.events == []
