# SPDX-License-Identifier: Apache-2.0
"""The control plane's own certificates are renewed while it runs, and whoever uses them takes them up.

Proves that `up` renews what is about to run out without restarting anything, that open connections stay, that a changed
pair is served to new ones, also where it is not the directory's own, that half a pair changes nothing, and that the
controllers log in with a changed kubeconfig.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
from typing import Any, Self
from urllib import parse as urls

import pytest

from handfast.assembly import apiserver
from handfast.bootstrap import kubeconfig
from handfast.datadir import layout, preparation
from handfast.pki import authority, certificates, issuers, keys, names, pem, profiles
from handfast.runtime import addresses, following, tls
from handfast.runtime import clock as clocks
from tests.scenarios import controlled as c
from tests.scenarios import test_controllers_role as roles
from tests.scenarios import up_world
from tests.world import world as worlds
from tests.world.clock import MovableClock

SECONDS = 8.0


def signer(place: layout.Layout) -> authority.Authority:
    return issuers.choose(place.ca_certificate.read_bytes(), keys.private_from_pem(place.ca_key.read_bytes()))


def nearly_due(place: layout.Layout, now: datetime.datetime, seconds: float) -> None:
    """Put certificates there that are to be renewed in so many seconds: they were issued for fifteen minutes."""
    ca = signer(place)
    issued_at = now - datetime.timedelta(minutes=5) + datetime.timedelta(seconds=seconds)
    ttl = datetime.timedelta(minutes=10)
    key = keys.private_from_pem(place.apiserver_key.read_bytes())
    found = certificates.read(pem.one(place.apiserver_certificate.read_bytes(), pem.CERTIFICATE))
    subject = names.Subject(common_name="kube-apiserver")
    serving = ca.issue(key.public, subject, found.sans, profiles.APISERVER_SERVING, issued_at, ttl)
    place.apiserver_certificate.write_bytes(serving.pem)
    for path in (place.admin_kubeconfig, place.controllers_kubeconfig):
        config = kubeconfig.parse(path.read_text())
        assert config.user is not None
        held = certificates.read(pem.certificates_from_pem(config.user.client_certificate_data or b"")[0])
        fresh = keys.generate()
        issued = ca.issue(fresh.public, held.subject, names.Sans(), profiles.CLIENT, issued_at, ttl)
        text = kubeconfig.build(
            cluster="handfast",
            server=config.cluster.server,
            ca=config.cluster.certificate_authority_data or b"",
            user=held.subject.common_name,
            client_certificate=issued.pem,
            client_key=fresh.to_pem(),
        )
        path.write_text(text)


def served(server: str, ca: bytes) -> bytes:
    """The certificate that a new connection is shown."""
    url = urls.urlsplit(server)
    context = tls.client_context(ca)
    with (
        socket.create_connection((url.hostname or "", url.port or 0), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=url.hostname) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_up_renews_what_runs_out(tmp_path: pathlib.Path) -> None:
    place = layout.Layout.at(tmp_path / "d")
    listen = addresses.Address("127.0.0.1", free_port())
    now = clocks.SystemClock().now()
    preparation.prepare(place, server=listen, now=now)
    nearly_due(place, now, SECONDS)
    files = (place.apiserver_certificate, place.admin_kubeconfig, place.controllers_kubeconfig)
    before = {path: path.read_bytes() for path in files}
    with up_world.Up(place.root, "--listen", listen) as up:
        up.ready()
        pids = up.pids()
        url = urls.urlsplit(up.facts["apiserver"])
        old = http.client.HTTPSConnection(url.hostname or "", url.port, context=up.context(), timeout=10)
        with contextlib.closing(old):
            old.request("GET", "/api")
            assert old.getresponse().read()
            socket_of_old = old.sock
            assert {path: path.read_bytes() for path in files} == before, "not due yet"
            up_world.until(lambda: all(path.read_bytes() != before[path] for path in files), 30, "the renewal")
            new = pem.one(place.apiserver_certificate.read_bytes(), pem.CERTIFICATE)
            ca = place.ca_certificate.read_bytes()
            up_world.until(lambda: served(up.facts["apiserver"], ca) == new, 20, "the API server to take it up")
            up_world.until(lambda: "changed kubeconfig" in up.log.read_text(), 20, "the controllers to take it up")
            # The connection that was open is the same, and still good.
            old.request("GET", "/api")
            assert (old.getresponse().status, old.sock) == (200, socket_of_old)
        assert up.call("GET", "/api/v1/namespaces")[0] == 200
        # The controllers work on.
        up.call("POST", "/api/v1/namespaces", {"metadata": {"name": "later"}})
        path = "/api/v1/namespaces/later/configmaps/kube-root-ca.crt"
        up_world.until(lambda: up.call("GET", path)[0] == 200, 20, "the controllers")
        assert up.pids() == pids, "nothing was restarted"
        told = [json.loads(line)["event"] for line in up.log.read_text().splitlines()]
        assert f"renewed {place.apiserver_certificate}" in told
        assert up.stop()[0] == 0


class Alone:
    """`serve apiserver` without a supervisor."""

    def __init__(self, place: layout.Layout, *arguments: object) -> None:
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.log = place.root.parent / "alone.log"
        words = [*up_world.COMMAND, "serve", "apiserver", "--dir", place.root, "--listen", f"127.0.0.1:{self.port}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*map(str, words), *map(str, arguments)], stderr=log, env=up_world.environment()
            )

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return "API server started" in self.log.read_text()
        return False

    def __enter__(self) -> Self:
        up_world.until(self.answers, 30, self.log.read_text())
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.mark.slow
def test_an_api_server_alone_renews_its_own(tmp_path: pathlib.Path) -> None:
    place = layout.Layout.at(tmp_path / "d")
    now = clocks.SystemClock().now()
    preparation.prepare(place, server=addresses.Address("127.0.0.1", 6443), now=now)
    nearly_due(place, now, SECONDS)
    before = place.apiserver_certificate.read_bytes()
    with Alone(place) as server:
        up_world.until(lambda: place.apiserver_certificate.read_bytes() != before, 30, "the renewal")
        new = pem.one(place.apiserver_certificate.read_bytes(), pem.CERTIFICATE)
        ca = place.ca_certificate.read_bytes()
        up_world.until(lambda: served(server.url, ca) == new, 20, "taking it up")


@pytest.mark.slow
def test_a_pair_of_somebody_elses_is_served_and_followed(tmp_path: pathlib.Path) -> None:
    place = layout.Layout.at(tmp_path / "d")
    now = clocks.SystemClock().now()
    theirs = authority.self_signed_ca(names.Subject(common_name="theirs"), keys.generate(), now)
    certificate, key_file = tmp_path / "tls.crt", tmp_path / "tls.key"

    def issue(kind: keys.Kind) -> tuple[bytes, bytes]:
        key = keys.generate(kind)
        sans = names.make_sans(dns=["api.example.com"], ip=["127.0.0.1"])
        subject = names.Subject(common_name="api")
        return theirs.issue(key.public, subject, sans, profiles.APISERVER_SERVING, now).pem, key.to_pem()

    first, first_key = issue(keys.Kind.P256)
    certificate.write_bytes(first)
    key_file.write_bytes(first_key)
    flags = ("--tls-cert-file", certificate, "--tls-private-key-file", key_file)
    with Alone(place, *flags) as server:
        assert served(server.url, theirs.pem) == pem.one(first, pem.CERTIFICATE)
        second, second_key = issue(keys.Kind.RSA)
        # The certificate alone does not fit the key: nothing changes, and it is told.
        certificate.write_bytes(second)
        up_world.until(lambda: "cannot be used yet" in server.log.read_text(), 20, "the refusal")
        assert served(server.url, theirs.pem) == pem.one(first, pem.CERTIFICATE)
        key_file.write_bytes(second_key)
        wanted = pem.one(second, pem.CERTIFICATE)
        up_world.until(lambda: served(server.url, theirs.pem) == wanted, 20, "taking it up")


def new_pair(world: worlds.World, *, key: keys.PrivateKey | None = None) -> tuple[bytes, bytes]:
    key = key or keys.generate()
    sans = names.make_sans(dns=["localhost"], ip=["127.0.0.1"])
    subject = names.Subject(common_name="kube-apiserver")
    ca = signer(world.place)
    return ca.issue(key.public, subject, sans, profiles.APISERVER_SERVING, world.clock.now()).pem, key.to_pem()


async def shown(world: worlds.World) -> str:
    """The SHA-256 of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", world.server.address[1], ssl=world.anonymous_context())
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
    return hashlib.sha256(found).hexdigest()


def digest(certificate: bytes) -> str:
    return hashlib.sha256(pem.one(certificate, pem.CERTIFICATE)).hexdigest()


class TestOnAMovableClock:
    async def test_a_changed_pair_is_for_new_connections(self, world: worlds.World) -> None:
        place = world.place
        first = digest(place.apiserver_certificate.read_bytes())
        assert (await world.get("/api")).status == 200
        certificate, key = new_pair(world)
        place.apiserver_key.write_bytes(key)
        await world.movable().advance(following.SECONDS)
        assert await shown(world) == first, "half a pair"
        place.apiserver_certificate.write_bytes(certificate)
        assert await shown(world) == first, "nobody has looked"
        await world.movable().advance(following.SECONDS)
        assert await shown(world) == digest(certificate)
        # The connection from before, and clients of every CA ever trusted.
        assert (await world.get("/api")).status == 200
        assert (await world.get("/api", context=world.context_for("jane"))).status == 200

    async def test_what_is_no_pair_changes_nothing(self, world: worlds.World) -> None:
        place = world.place
        first = digest(place.apiserver_certificate.read_bytes())
        for content in (b"", b"hello", place.ca_certificate.read_bytes()):
            place.apiserver_certificate.write_bytes(content)
            await world.movable().advance(following.SECONDS)
            assert await shown(world) == first
        place.apiserver_certificate.unlink()
        await world.movable().advance(following.SECONDS * 2)
        assert await shown(world) == first

    async def test_a_bad_ca_file_changes_nothing(self, world: worlds.World) -> None:
        jane = world.context_for("jane")
        world.place.ca_certificate.write_bytes(b"")
        await world.movable().advance(following.SECONDS * 2)
        assert (await world.get("/api")).status == 200
        # A new connection, whose certificate the CA from before has signed.
        assert (await world.get("/api", context=jane)).status == 200

    async def test_a_ca_that_is_added_to_the_file_passes_the_handshake_and_no_more(self, world: worlds.World) -> None:
        key = keys.generate()
        theirs = authority.self_signed_ca(names.Subject(common_name="next"), key, world.clock.now())
        leaf_key = keys.generate()
        subject = names.Subject(common_name="eve", organizations=("system:masters",))
        leaf = theirs.issue(leaf_key.public, subject, names.Sans(), profiles.CLIENT, world.clock.now())
        eve = tls.client_context(world.place.ca_certificate.read_bytes(), leaf.pem, leaf_key.to_pem())
        with world.place.ca_certificate.open("ab") as file:
            file.write(theirs.pem)
        await world.movable().advance(following.SECONDS)
        assert (await world.get("/api", context=eve)).status == 401

    async def test_keys_of_tokens_that_do_not_fit_change_nothing(self, world: worlds.World) -> None:
        place = world.place
        before = (await world.get("/openid/v1/jwks")).json()
        place.service_account_key.write_bytes(keys.generate().to_pem())
        await world.movable().advance(following.SECONDS * 2)
        assert (await world.get("/openid/v1/jwks")).json() == before


@pytest.mark.slow
async def test_controllers_log_in_with_a_changed_kubeconfig(tmp_path: pathlib.Path) -> None:
    audit = tmp_path / "audit.log"
    options = apiserver.AuditOptions(path=str(audit))
    async with worlds.world(tmp_path / "world", audit=options) as world, c.connected(world) as client:
        assert isinstance(world.clock, MovableClock)
        story = c.Story(client, world.clock)
        role = roles.Role(world, tmp_path, root_ca_pem=world.place.ca_certificate)
        await story.eventually(role.ready)
        path = tmp_path / "kubeconfig"
        config = kubeconfig.parse(path.read_text())
        key = keys.generate()
        subject = names.Subject(common_name="renewed", organizations=("system:masters",))
        issued = signer(world.place).issue(key.public, subject, names.Sans(), profiles.CLIENT, world.clock.now())
        text = kubeconfig.build(
            cluster="x",
            server=config.cluster.server,
            ca=config.cluster.certificate_authority_data or b"",
            user="renewed",
            client_certificate=issued.pem,
            client_key=key.to_pem(),
        )
        path.write_text(text)
        with_extra = (
            world.place.ca_certificate.read_bytes()
            + authority.self_signed_ca(names.Subject(common_name="next"), keys.generate(), world.clock.now()).pem
        )
        await world.movable().advance(following.SECONDS)
        world.place.ca_certificate.write_bytes(with_extra)

        async def published() -> Any:
            found = await story.find(c.CONFIG_MAPS, "kube-root-ca.crt")
            return found is not None and found["data"]["ca.crt"] == with_extra.decode()

        await story.eventually(published, "both CAs published")
        await role.stop()
    writes = [json.loads(line) for line in audit.read_text().splitlines() if "kube-root-ca.crt" in line]
    users = [write["user"]["username"] for write in writes if write["verb"] in {"create", "update"}]
    # Made with the credentials of the start, and changed with the new ones.
    assert (users[0], users[-1]) == ("kubernetes-admin", "renewed")
