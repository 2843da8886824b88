# SPDX-License-Identifier: Apache-2.0
"""A workload's credentials with the real start-up and the real identity service: certified, renewed, expired, recovered."""

from __future__ import annotations

import asyncio
import base64
import datetime
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from handfast.pki import bundles, chains, pem
from handfast.proxy import credentials, start_up, trust
from handfast.proxy.credentials import State
from handfast.rules.mesh import proxy_clients, proxy_environment
from handfast.runtime import clock as clocks
from handfast.wire import certifying
from tests.scenarios import mesh_world, up_world
from tests.scenarios.mesh_world import identity_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

NAME = identity_of("shop", "web")
SERVER = identity_of("linkerd", "linkerd-identity")
P = "LINKERD2_PROXY_"


class AgentsClock(clocks.SystemClock):
    """The machine's clock, with a jump for the wall and for the time that went by: whoever sleeps on it notices."""

    def __init__(self) -> None:
        self.wall = self.passed = 0.0

    def now(self) -> datetime.datetime:
        return super().now() + datetime.timedelta(seconds=self.wall)

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    async def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.05))

    def jump(self, hours: float) -> None:
        self.wall += hours * 3600
        self.passed += hours * 3600


async def until(reached: Callable[[], bool], what: Callable[[], object]) -> None:
    try:
        async with asyncio.timeout(60):
            while not reached():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(what()) from None


async def noted(own: credentials.Credentials, states: list[State]) -> None:
    """Every state, until cancelled."""
    async for standing in own.follow():
        states += [standing.state]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        yield plane


def prepared(plane: mesh_world.Plane, directory: pathlib.Path, pod: str) -> dict[str, str]:
    """The variables of a container after `mesh proxy init`."""
    (directory / "token").write_bytes(plane.workload("shop", "web", pod))
    (directory / "store").mkdir()
    variables = {
        f"{P}LOCAL_IDENTITY_NAME": NAME,
        f"{P}IDENTITY_TRUST_ANCHORS_BLOB": base64.b64encode(plane.anchors()).decode(),
        f"{P}IDENTITY_TOKEN_FILE": str(directory),
        f"{P}IDENTITY_STORE_DIR": str(directory / "store"),
    }
    done = subprocess.run(
        [*up_world.COMMAND, "mesh", "proxy", "init", "--", "env"],
        env={**up_world.environment(), **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    made = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(P) and "_FILE=" in line)
    return variables | made


def kept(files: proxy_environment.ProxyFiles, door: certifying.Service, clock: AgentsClock) -> credentials.Credentials:
    material = start_up.load(files)
    return credentials.Credentials(material, door, trust.of_start(material.anchors, files.anchors_file), clock=clock)


async def test_a_workload_is_certified_renewed_expires_and_recovers(plane, tmp_path):
    variables = await asyncio.to_thread(prepared, plane, tmp_path, "web-1")
    files = proxy_environment.read_files(variables)
    assert files is not None
    with mesh_world.Service(plane, "tls", "0.0.0.0:0") as service:
        await asyncio.to_thread(service.ready)
        await until(lambda: bool(service.lines("the service has a certificate of its own")), service.log.read_text)
        port = service.target.rpartition(":")[2]
        clock, states = AgentsClock(), list[State]()
        door = certifying.Service(f"127.0.0.1:{port}", SERVER)
        own = kept(files, door, clock)
        running = [asyncio.create_task(own.run()), asyncio.create_task(noted(own, states))]
        await until(lambda: own.standing().state is State.CERTIFIED, lambda: own.last_error)
        first = own.standing().pair
        assert first is not None
        anchors = bundles.TrustBundle.of(pem.certificates_from_pem(plane.anchors()))
        chains.verify(first.chain, anchors, chains.Server(NAME), clock.now())
        # Most of its day is over: the next one, for the same key.
        clock.jump(22)
        await until(lambda: own.renewals > 1, lambda: own.last_error)
        second = own.standing().pair
        assert second is not None
        assert second.leaf.serial != first.leaf.serial
        assert second.leaf.public_key == first.leaf.public_key
    # The service is gone, and the day is over.
    clock.jump(3)
    await until(lambda: states[-1] is State.EXPIRED, lambda: states)
    assert own.standing().pair is None
    await until(lambda: own.last_error is not None, lambda: states)
    # It is back, and so is the clock: nothing has to be started anew.
    clock.wall = 0.0
    with mesh_world.Service(plane, "again", f"0.0.0.0:{port}") as service:
        await asyncio.to_thread(service.ready)
        await until(lambda: states[-1] is State.CERTIFIED, lambda: own.last_error)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert [states[0], *(state for state in states if state is State.EXPIRED)] == [State.NOT_CERTIFIED, State.EXPIRED]


async def test_a_token_of_another_account_gets_nothing_and_the_reason_is_seen(plane, tmp_path):
    variables = await asyncio.to_thread(prepared, plane, tmp_path, "web-2")
    (tmp_path / "token").write_bytes(await asyncio.to_thread(plane.workload, "shop", "other", "other-1"))
    with mesh_world.Service(plane, "plain") as service:
        await asyncio.to_thread(service.ready)
        variables[f"{P}IDENTITY_ADDR"] = service.target
        client = proxy_clients.read(variables).identity
        assert client.name is None
        files = proxy_environment.read_files(variables)
        assert files is not None
        door = certifying.Service(client.address, client.name)
        own = kept(files, door, AgentsClock())
        running = asyncio.create_task(own.run())
        await until(lambda: own.last_error is not None, own.standing)
        assert own.standing().state is State.NOT_CERTIFIED
        # The right token is read with the next attempt.
        (tmp_path / "token").write_bytes(await asyncio.to_thread(plane.workload, "shop", "web", "web-3"))
        await until(lambda: own.standing().state is State.CERTIFIED, lambda: own.last_error)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
