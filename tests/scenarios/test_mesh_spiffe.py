# SPDX-License-Identifier: Apache-2.0
"""SPIFFE-aware programs beside a proxy: the public client of PyPI, with the real start-up and the real identity service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib import request as urls

import pytest
import spiffe as public
import spiffe.errors as public_errors
from cryptography.hazmat.primitives import serialization

from handfast.pki import bundles, certificates, chains, pem
from handfast.proxy import credentials, spiffe, start_up
from handfast.proxy import trust as trust_module
from handfast.rules.mesh import proxy_environment
from handfast.wire import certifying
from tests.scenarios import envoy_world, mesh_world, up_world
from tests.scenarios.test_mesh_credentials import NAME, AgentsClock, prepared

pytestmark = [pytest.mark.slow, pytest.mark.measured, pytest.mark.timeout(240)]

ID = "spiffe://cluster.local/ns/shop/sa/web"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh"), "--set", "identity.spiffe=true") as plane:
        yield plane


@pytest.fixture(scope="module")
def service(plane: mesh_world.Plane) -> Iterator[mesh_world.Service]:
    with mesh_world.Service(plane) as service:
        yield service.ready()


@pytest.fixture
def short() -> Iterator[pathlib.Path]:
    """A socket's path is short."""
    with tempfile.TemporaryDirectory(prefix="hf-") as directory:
        yield pathlib.Path(directory)


class Workload:
    """The socket of one Pod, as its proxy serves it."""

    def __init__(self, variables: dict[str, str], target: str, path: pathlib.Path) -> None:
        files = proxy_environment.read_files(variables)
        assert files is not None
        self.clock, self.path = AgentsClock(), path
        material = start_up.load(files)
        self.trust = trust_module.of_start(material.anchors, files.anchors_file)
        own = credentials.Credentials(material, certifying.Service(target, None), self.trust, clock=self.clock)
        self._served = spiffe.Spiffe(own, self.trust, self.clock)
        self.svid = self._served.svid

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[public.WorkloadApiClient]:
        async with self._served.on(self.path):
            client = await asyncio.to_thread(public.WorkloadApiClient, f"unix://{self.path}")
            try:
                yield client
            finally:
                await asyncio.to_thread(client.close)


async def until(reached: Callable[[], object], what: Callable[[], object]) -> None:
    try:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(reached):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(what()) from None


def svid_of(source: public.X509Source) -> Any:
    return source.get_x509_context().default_svid


def ders(svid: Any) -> list[bytes]:
    return [each.public_bytes(serialization.Encoding.DER) for each in svid.cert_chain]


def verified(svid: Any, plane: mesh_world.Plane, clock: AgentsClock) -> certificates.Certificate:
    """The leaf, by the mesh's own anchors."""
    anchors = bundles.TrustBundle.of(pem.certificates_from_pem(plane.anchors()))
    chains.verify(ders(svid), anchors, chains.Server(NAME), clock.now())
    return certificates.read(ders(svid)[0])


async def workload(plane: mesh_world.Plane, service: mesh_world.Service, short: pathlib.Path, pod: str) -> Workload:
    home = short / pod
    home.mkdir()
    variables = await asyncio.to_thread(prepared, plane, home, pod)
    return Workload(variables, service.target, home / "spiffe")


async def test_a_public_client_gets_follows_and_verifies_svids(plane, service, short):
    web = await workload(plane, service, short, "web-1")
    async with web.serving() as client:
        source = await asyncio.to_thread(public.X509Source, client, None, 60)
        first = svid_of(source)
        assert str(first.spiffe_id) == ID
        leaf = verified(first, plane, web.clock)
        assert leaf.sans.texts() == [f"DNS:{NAME}", f"URI:{ID}"]
        told: list[str] = []
        source.subscribe_for_updates(lambda: told.append(str(svid_of(source).leaf.serial_number)))
        # Most of its day is over: the next one comes over the same stream, for another key.
        web.clock.jump(22)
        await until(lambda: told, lambda: web.svid.last_error)
        second = verified(svid_of(source), plane, web.clock)
        assert second.serial != leaf.serial
        assert second.public_key != leaf.public_key
        # The anchors are those of the mesh.
        sets = await asyncio.to_thread(client.fetch_x509_bundles)
        bundle = sets.get_bundle_for_trust_domain(first.spiffe_id.trust_domain)
        assert bundle is not None
        assert {each.public_bytes(serialization.Encoding.PEM) for each in bundle.x509_authorities} == {plane.anchors()}
        # By its clock, whatever the identity service signs is over: nothing is handed out any more. Then the clock is right again.
        web.clock.jump(3)
        await until(lambda: web.svid.standing().state is credentials.State.EXPIRED, web.svid.standing)
        with pytest.raises(public_errors.PySpiffeError, match="over since"):
            await asyncio.to_thread(client.fetch_x509_svid)
        seen = len(told)
        web.clock.wall = 0.0
        await until(lambda: len(told) > seen, lambda: web.svid.last_error)
        verified(svid_of(source), plane, web.clock)
        await asyncio.to_thread(source.close)


def context_of(svid: Any, bundle: Any, home: pathlib.Path, purpose: ssl.Purpose) -> ssl.SSLContext:
    """As a program makes one of what the API gave it."""
    svid.save(str(home / "chain.pem"), str(home / "key.pem"), serialization.Encoding.PEM)
    context = ssl.create_default_context(purpose)
    authorities = [each.public_bytes(serialization.Encoding.PEM).decode() for each in bundle.x509_authorities]
    context.load_verify_locations(cadata="".join(authorities))
    context.load_cert_chain(home / "chain.pem", home / "key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_two_programs_talk_by_their_svids(plane, service, short):
    one, other = await workload(plane, service, short, "web-2"), await workload(plane, service, short, "web-3")
    async with one.serving() as serving, other.serving() as calling:
        contexts = []
        for client, world, purpose in (
            (serving, one, ssl.Purpose.CLIENT_AUTH),
            (calling, other, ssl.Purpose.SERVER_AUTH),
        ):
            context = await asyncio.to_thread(client.fetch_x509_context)
            bundle = context.x509_bundle_set.get_bundle_for_trust_domain(context.default_svid.spiffe_id.trust_domain)
            contexts.append(context_of(context.default_svid, bundle, world.path.parent, purpose))
        seen: list[Any] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(writer.get_extra_info("peercert"))
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=contexts[0])
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=contexts[1], server_hostname=NAME)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        for peer in (seen[0], writer.get_extra_info("peercert")):
            assert peer["subjectAltName"] == (("DNS", NAME), ("URI", ID))
        writer.close()
        server.close()
        # One identity, two keys.
        assert (one.path.parent / "key.pem").read_bytes() != (other.path.parent / "key.pem").read_bytes()


async def test_the_jwt_part_and_a_mesh_without_ids_are_told(plane, service, short):
    await asyncio.to_thread(plane.install, "--set", "identity.spiffe=false")
    web = await workload(plane, service, short, "web-4")
    async with web.serving() as client:
        await until(lambda: web.svid.failures > 0, web.svid.standing)
        with pytest.raises(public_errors.PySpiffeError, match=r"handfast mesh install --set identity.spiffe=true"):
            await asyncio.to_thread(client.fetch_x509_svid)
        with pytest.raises(public_errors.PySpiffeError, match=r"UNIMPLEMENTED|not found|not implemented"):
            await asyncio.to_thread(client.fetch_jwt_svid, {"audience"})
        # As it says; nothing is started anew.
        await asyncio.to_thread(plane.install, "--set", "identity.spiffe=true")
        source = await asyncio.to_thread(public.X509Source, client, None, 90)
        assert str(svid_of(source).spiffe_id) == ID
        await asyncio.to_thread(source.close)


async def test_the_command_serves_it_beside_the_proxy_and_says_where_it_cannot(plane, service, short):
    home = short / "pod"
    home.mkdir()
    variables = await asyncio.to_thread(prepared, plane, home, "web-5")
    environment = {**up_world.environment(), **variables, "LINKERD2_PROXY_IDENTITY_ADDR": service.target}
    environment["TMPDIR"] = str(short)
    socket = home / "spiffe"
    with (home / "log").open("wb") as log:
        command = words(socket)
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        await until(socket.is_socket, (home / "log").read_text)
        source = await asyncio.to_thread(public.X509Source, None, f"unix://{socket}", 60)
        assert str(svid_of(source).spiffe_id) == ID
        # The admin port tells of it beside the certificate of the proxy, which is another.
        place = command[command.index("--admin-listen") + 1]
        seen = json.loads(await asyncio.to_thread(lambda: urls.urlopen(f"http://{place}/identity", timeout=10).read()))
        assert seen["spiffe"]["serial"] == certificates.serial_text(svid_of(source).leaf.serial_number)
        assert seen["spiffe"]["serial"] != seen["serial"]
        await asyncio.to_thread(source.close)
        done = await asyncio.to_thread(refused, words(socket), environment)
        assert f"--spiffe-socket: {socket} is there already" in done
        assert "reason: SocketTaken" in done
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
    assert not socket.exists()
    plain = {name: value for name, value in environment.items() if "IDENTITY" not in name}
    assert "there is no identity to hand out" in await asyncio.to_thread(refused, words(socket), plain)
    group = [*words(socket), "--spiffe-socket-group", "none-such"]
    assert "there is no group 'none-such'" in await asyncio.to_thread(refused, group, environment)


def words(socket: pathlib.Path) -> list[str]:
    """A proxy with ports of its own."""
    free = [str(envoy_world.free_port()) for _ in range(3)]
    listening = ["--inbound", free[0], "--outbound", f"127.0.0.1:{free[1]}", "--admin-listen", f"127.0.0.1:{free[2]}"]
    start = [*up_world.COMMAND, "mesh", "proxy", "run", "--pod-ip", "127.0.0.1"]
    return [*start, *listening, "--spiffe-socket", str(socket)]


def refused(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    return done.stderr
