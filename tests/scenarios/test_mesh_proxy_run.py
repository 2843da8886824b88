# SPDX-License-Identifier: Apache-2.0
"""`mesh proxy run` beside an application, with the real start-up, the real identity service and a real Envoy.

The table is {not certified, certified, expired, recovered} × {own SNI, other SNI, no SNI, HTTP, TCP, h2c, gRPC, WebSocket}: `proxy_world.Beside` has its cells.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from handfast import errors
from handfast.assembly import proxy
from handfast.rules.envoy import ports
from tests.scenarios import envoy_world, mesh_world, proxy_world
from tests.scenarios.proxy_world import NAME, Doors
from tests.scenarios.test_mesh_credentials import AgentsClock

pytestmark = [pytest.mark.slow, pytest.mark.measured, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        yield plane


async def prepared(plane: mesh_world.Plane, directory: pathlib.Path, identity: str) -> dict[str, str]:
    variables = await asyncio.to_thread(proxy_world.variables_of, plane, directory, identity)
    return await asyncio.to_thread(proxy_world.prepared, variables)


async def serves(beside: proxy_world.Beside, plane: mesh_world.Plane) -> None:
    await beside.serves_its_own_name(proxy_world.context_of(plane), plane.anchors())
    await beside.passes_what_is_not_for_it()


async def refuses(beside: proxy_world.Beside) -> None:
    await beside.refuses_its_own_name()
    await beside.passes_what_is_not_for_it()


async def test_before_it_is_certified_its_own_name_is_refused_then_served(plane, tmp_path):
    target, doors = f"127.0.0.1:{envoy_world.free_port()}", Doors()
    variables = await asyncio.to_thread(proxy_world.variables_of, plane, tmp_path, target)
    async with proxy_world.beside() as beside:
        temporary = pathlib.Path(tempfile.mkdtemp(prefix="hf-"))
        process = proxy_world.started(variables, beside.leads, doors, tmp_path / "log", temporary)
        try:
            await beside.listens((tmp_path / "log").read_text)
            await refuses(beside)
            assert (await asyncio.to_thread(doors.get, "/live"))[0] == 200
            assert (await asyncio.to_thread(doors.get, "/ready"))[0] == 503
            assert (await doors.identity())["state"] == "NotCertified"
            with mesh_world.Service(plane, "late", target) as service:
                await asyncio.to_thread(service.ready)
                await doors.until("/ready", 200)
            await serves(beside, plane)
            seen = await doors.identity()
            assert (seen["name"], seen["state"], seen["lastError"]) == (NAME, "Certified", None)
            assert seen["nextRenewal"] < seen["until"]
            _, figures = await asyncio.to_thread(doors.get, "/metrics")
            assert 'control_identity_cert_refreshes_total{result="ok"} 1.0' in figures
            assert 'handfast_proxy_refused_total{reason="no-certificate"} 6.0' in figures
            assert "envoy_server_uptime" in figures
            await is_killed(process, beside.port, plane)
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
            shutil.rmtree(temporary, ignore_errors=True)
    text = (tmp_path / "log").read_text()
    assert (tmp_path / "token").read_text() not in text
    assert "PRIVATE KEY" not in text


async def is_killed(process: subprocess.Popen[bytes], port: int, plane: mesh_world.Plane) -> None:
    """Whoever ends the agent ends Envoy: no octet is served after, on no connection."""
    async with (
        envoy_world.http1(port, proxy_world.context_of(plane), NAME) as secured,
        envoy_world.http1(port) as plaintext,
    ):
        for connection in (secured, plaintext):
            assert (await connection.get())[0] == 200
        process.send_signal(signal.SIGKILL)
        await proxy_world.until(lambda: not proxy_world.listens(port), lambda: "it listens")
        for connection in (secured, plaintext):
            with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                await connection.get()


async def test_at_the_end_of_its_certificate_it_refuses_and_recovers(plane, tmp_path):
    """With the identity service down past the end; on the clock of the agent, so that nobody waits for a day."""
    clock = AgentsClock()
    with mesh_world.Service(plane, "plain") as service:
        await asyncio.to_thread(service.ready)
        target = service.target
        variables = await prepared(plane, tmp_path, target)
        async with proxy_world.proxied(variables, clock) as (beside, doors):
            await doors.until("/ready", 200)
            first = await doors.identity()
            async with envoy_world.http1(beside.port, proxy_world.context_of(plane), NAME) as kept:
                await kept.get()
                # The next one, without a restart and without another listener: open connections stay.
                listeners = await updates(doors)
                clock.jump(22)
                await proxy_world.until(
                    lambda: serial(doors) not in {None, first["serial"]}, lambda: doors.get("/identity")
                )
                await doors.until("/ready", 200)
                assert (await kept.get())[0] == 200
                assert await updates(doors) == listeners
                await serves(beside, plane)
                await asyncio.to_thread(service.__exit__)
                clock.jump(25)
                await doors.until("/live", 503)
                await doors.until("/ready", 503)
                await proxy_world.until_async(lambda: is_refused(beside.port, plane))
                await refuses(beside)
                # Nor does a connection outlive the certificate that made it: its routes follow the listener.
                await proxy_world.until_async(lambda: is_over(kept))
                await proxy_world.until_async(lambda: has_failed(doors))
            # Both are right again, the clock and the service: nothing has to be started anew.
            clock.wall = 0.0
            with mesh_world.Service(plane, "plain", target) as again:
                await asyncio.to_thread(again.ready)
                await proxy_world.recovers(doors, clock)
                await doors.until("/live", 200)
                await serves(beside, plane)


async def updates(doors: Doors) -> list[str]:
    """How often Envoy was sent a listener, which drains connections."""
    _, figures = await asyncio.to_thread(doors.get, "/metrics")
    return [line for line in figures.splitlines() if line.startswith("envoy_listener_manager_lds_update_success")]


async def is_over(connection: envoy_world.Http1) -> bool:
    status, headers, _ = await connection.get()
    return (status, "own-certificate-expired" in headers.get("l5d-proxy-error", "")) == (403, True)


def serial(doors: Doors) -> str | None:
    code, text = doors.get("/identity")
    return json.loads(text)["serial"] if code == 200 else None


async def is_refused(port: int, plane: mesh_world.Plane) -> bool:
    return not await envoy_world.is_served(port, proxy_world.context_of(plane), NAME)


async def test_a_connection_ends_within_a_tenth_of_the_lifetime_that_the_identity_service_gives(plane, tmp_path):
    await asyncio.to_thread(plane.install, "--set", "identity.lifetime=1m")
    try:
        with mesh_world.Service(plane, "short") as service:
            await asyncio.to_thread(service.ready)
            variables = await prepared(plane, tmp_path, service.target)
            async with proxy_world.proxied(variables, AgentsClock()) as (beside, doors):
                await doors.until("/ready", 200)
                async with envoy_world.http1(beside.port, proxy_world.context_of(plane), NAME) as kept:
                    began = time.monotonic()
                    await proxy_world.until_async(lambda: is_told_to_close(kept))
                    # A tenth of a minute is six seconds; a busy machine is slower, and never faster.
                    assert time.monotonic() - began > 5
    finally:
        await asyncio.to_thread(plane.install, "--set", "identity.lifetime=24h")


async def is_told_to_close(connection: envoy_world.Http1) -> bool:
    status, headers, _ = await connection.get()
    assert status == 200
    return headers.get("connection") == "close"


async def test_a_clock_that_is_a_day_off_shows_no_certificate_until_it_is_right(plane, tmp_path):
    """Ahead and behind: what the identity service signs is over, or not in force before tomorrow."""
    with mesh_world.Service(plane, "other") as service:
        await asyncio.to_thread(service.ready)
        variables = await prepared(plane, tmp_path, service.target)
        for hours in (25.0, -25.0):
            clock = AgentsClock()
            clock.wall = hours * 3600
            async with proxy_world.proxied(variables, clock) as (beside, doors):
                await proxy_world.until_async(functools.partial(has_failed, doors))
                assert (await doors.identity())["state"] == "NotCertified"
                await beside.refuses_its_own_name()
                clock.wall = 0.0
                await proxy_world.recovers(doors, clock)
                assert await envoy_world.is_served(beside.port, proxy_world.context_of(plane), NAME)


async def has_failed(doors: Doors) -> bool:
    code, text = await asyncio.to_thread(doors.get, "/identity")
    return code == 200 and json.loads(text)["lastError"] is not None


async def test_without_its_account_a_workload_is_served_until_its_certificate_ends(plane, tmp_path):
    clock = AgentsClock()
    with mesh_world.Service(plane, "gone") as service:
        await asyncio.to_thread(service.ready)
        variables = await prepared(plane, tmp_path, service.target)
        async with proxy_world.proxied(variables, clock) as (beside, doors):
            await doors.until("/ready", 200)
            first = (await doors.identity())["serial"]
            code, _ = await asyncio.to_thread(plane.call, "DELETE", "/api/v1/namespaces/ns1/serviceaccounts/web")
            assert code == 200
            clock.jump(22)
            await proxy_world.until_async(lambda: has_failed(doors))
            assert (await doors.identity())["serial"] == first
            assert await envoy_world.is_served(beside.port, proxy_world.context_of(plane), NAME)
            clock.jump(3)
            await doors.until("/live", 503)
            await proxy_world.until_async(lambda: is_refused(beside.port, plane))
            await beside.refuses_its_own_name()


async def test_an_envoy_that_dies_is_told_everything_again_and_what_it_rejects_is_sent_again(plane, tmp_path):
    """Its port is taken by somebody else meanwhile."""
    with mesh_world.Service(plane, "still") as service:
        await asyncio.to_thread(service.ready)
        variables = await prepared(plane, tmp_path, service.target)
        async with proxy_world.proxied(variables, AgentsClock()) as (beside, doors):
            await doors.until("/ready", 200)
            (pid,) = proxy_world.envoys()
            os.kill(pid, signal.SIGKILL)
            with socket.socket() as taken:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                await proxy_world.until(lambda: binds(taken, beside.port), lambda: "it is taken")
                taken.listen()
                words = f"Envoy does not take inbound-{beside.port} (listener)"
                await proxy_world.until(lambda: words in doors.get("/ready")[1], lambda: doors.get("/ready"))
                # The other port is served all the same.
                await proxy_world.until(lambda: proxy_world.listens(beside.grpc), lambda: doors.get("/ready"))
            await doors.until("/ready", 200)
            await serves(beside, plane)
            _, figures = await asyncio.to_thread(doors.get, "/metrics")
            assert 'handfast_proxy_envoy_rejected_total{kind="listener"}' in figures
            assert "handfast_proxy_envoy_ends_total 1.0" in figures


def binds(sock: socket.socket, port: int) -> bool:
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


async def test_without_an_identity_everything_is_forwarded():
    doors = Doors()
    async with (
        proxy_world.beside() as beside,
        proxy_world.running(proxy_world.options_of(doors, beside.leads), AgentsClock()),
    ):
        await doors.until("/ready", 200)
        await beside.passes_what_is_not_for_it()
        hello = envoy_world.client_hello(NAME)
        assert await envoy_world.exchange(beside.port, hello, enough=len(hello)) == hello
        assert await doors.identity() == {"name": None, "state": "Plain"}
        assert (await asyncio.to_thread(doors.get, "/live"))[0] == 200
        assert (await asyncio.to_thread(doors.get, "/other"))[0] == 404


async def test_on_an_opaque_port_the_server_speaks_first():
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")
        await writer.drain()
        writer.close()

    doors, number = Doors(), envoy_world.free_port()
    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    opaque = ports.Port(number=number, application=server.sockets[0].getsockname()[1], opaque=True)
    options = proxy_world.options_of(doors, {}, ports=(opaque,))
    async with server, proxy_world.running(options, AgentsClock()):
        await doors.until("/ready", 200)
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        async with asyncio.timeout(envoy_world.SECONDS):
            assert await reader.read() == b"220 mail\r\n"
        writer.close()


async def test_a_port_that_is_taken_is_told():
    doors = Doors()
    async with envoy_world.application() as application:
        with pytest.raises(errors.Refused, match=f"127.0.0.1:{application.port}: another process has this port"):
            await proxy.run(proxy_world.options_of(doors, {application.port: 1}), AgentsClock())
