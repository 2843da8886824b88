# SPDX-License-Identifier: Apache-2.0
"""The machine-config server as one role: when it is ready, what it takes up while it runs, and that it stops.

Who is served what is in `test_machine_config_server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from handfast.assembly import machine_config
from handfast.client import machine_installation
from handfast.datadir import machine_credentials, preparation
from handfast.rules import networks
from handfast.runtime import addresses, tls
from handfast.telemetry import rotating
from tests.scenarios import controlled as c
from tests.world import world as worlds

pytestmark = [pytest.mark.slow, pytest.mark.measured]
HERE = addresses.Address("127.0.0.1", 0)


class Role:
    """One running server, and its health."""

    def __init__(self, world: worlds.World, directory: pathlib.Path) -> None:
        self.world = world
        preparation.prepare(
            world.place,
            server=addresses.Address("127.0.0.1", 6443),
            machine_config=addresses.Address("127.0.0.1", 22623),
            now=world.clock.now(),
            again=True,
        )
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.admin = probe.getsockname()[1]
        self.kubeconfig = directory / "kubeconfig"
        text = world.place.machine_config_kubeconfig.read_text().replace("https://127.0.0.1:6443", world.base)
        self.kubeconfig.write_text(text)
        self.kubeconfig.chmod(0o600)
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.doors = machine_config.Doors(
            certificate=world.place.machine_config_certificate,
            key=world.place.machine_config_key,
            client_ca=world.place.ca_certificate,
            networks=networks.Networks.parse("127.0.0.0/8"),
            admin_listen=addresses.Address("127.0.0.1", self.admin),
        )
        self.lines = machine_config.AuditFile(path=str(directory / "audit.log"), rotation=rotating.Rotation())

    @contextlib.asynccontextmanager
    async def running(self, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        task = asyncio.create_task(work)
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, 5)
            self.sock.close()

    def serve(self) -> Coroutine[Any, Any, None]:
        return machine_config.run(str(self.kubeconfig), self.doors, self.sock, self.lines, self.world.clock)

    async def ask(self, path: str) -> tuple[int, str]:
        """The status, and the reason of a refusal."""
        context = tls.client_context(self.world.place.ca_certificate.read_bytes())
        url = f"https://127.0.0.1:{self.sock.getsockname()[1]}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
            return answer.status, answer.headers.get("Handfast-Reason", "")

    async def health(self, path: str = "/readyz") -> tuple[int, str]:
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"http://127.0.0.1:{self.admin}{path}") as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientError:
                return 0, ""


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "world") as made:
        yield made


async def until(question: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(20):
        while not await question():
            await asyncio.sleep(0.02)


async def test_it_is_ready_once_it_may_read_what_decides(world: worlds.World, tmp_path: pathlib.Path):
    role = Role(world, tmp_path)
    async with role.running(role.serve()):
        # Nobody has granted its user anything.
        await until(lambda: _says(role, "a right is missing"))
        assert (await role.ask("/config/worker"))[1] == "NotReady"
        async with c.connected(world) as client:
            wanted = machine_installation.Wanted(credential=None)
            await machine_installation.ensure(client, wanted, world.clock)
        role_again = Role(world, tmp_path)
        async with role_again.running(role_again.serve()):
            await until(lambda: _ready(role_again))
            assert await role_again.ask("/config/worker") == (503, "NoBootstrapToken")
            assert await role_again.ask("/config/nobodys") == (500, "UnknownPool")
            assert await role_again.ask("/healthz") == (200, "")
            text = (await role_again.health("/metrics"))[1]
            assert 'handfast_machine_config_answers_total{code="500",proof="network",reason="UnknownPool"}' in text
            assert 'handfast_service_connections{service="machine-config"}' in text


async def _says(role: Role, words: str) -> bool:
    return words in (await role.health())[1]


async def _ready(role: Role) -> bool:
    return await role.health() == (200, "ok")


async def test_before_the_cluster_no_api_is_asked(world: worlds.World, tmp_path: pathlib.Path):
    role = Role(world, tmp_path)
    boot = tmp_path / "boot"
    machine_credentials.create(boot, "https://api-int.example:6443", None, world.clock.now())
    work = machine_config.run_before_the_cluster(boot, role.doors, role.sock, None, world.clock)
    async with role.running(work):
        await until(lambda: _ready(role))
        assert await role.ask("/config/master") == (200, "")
        assert await role.ask("/config/worker") == (500, "NotBeforeTheCluster")
