# SPDX-License-Identifier: Apache-2.0
"""A machine that knows an address and a token, or has a document, against the real API server over real TLS.

cluster-info, its signatures and who may read it are put there by hand, so that each can be wrong on its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import io
import os
import pathlib
import socket
import ssl
import sys

import pytest

from handfast.bootstrap import cluster_info, discovery, endpoints, kubeconfig, tokens
from handfast.cli import main, output
from handfast.client import anonymous, cluster_cache
from handfast.client import discovery as searching
from handfast.pki import pins
from tests.scenarios import granting
from tests.world import tls_cluster
from tests.world import world as worlds
from tests.world.tls_cluster import OTHER, TOKEN, Authority, Reply, refusal

PUBLIC = f"{granting.RBAC}/namespaces/kube-public"
CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps"
SECRETS = "/api/v1/namespaces/kube-system/secrets"


class Joinable:
    """A world that publishes itself, and the command line of a machine that wants to join it."""

    def __init__(self, world: worlds.World, directory: pathlib.Path) -> None:
        self.world = world
        self.kubeconfig = directory / "bootstrap.conf"
        self.info = cluster_info.ClusterInfo((world.base,), world.place.ca_certificate.read_bytes(), "uid-1")
        assert self.info.ca is not None
        self.pin = pins.of_certificate(ssl.PEM_cert_to_DER_cert(self.info.ca.decode()))
        self.address = world.base.removeprefix("https://")

    async def publish(self, info: cluster_info.ClusterInfo, *by: tokens.Token) -> None:
        document = tls_cluster.signed(cluster_info.build(info), *by)
        answer = await self.world.request("PUT", f"{CLUSTER_INFO}/cluster-info", document)
        if answer.status == 404:
            answer = await self.world.request("POST", CLUSTER_INFO, document)
        assert answer.status in {200, 201}, answer.body

    async def open_to_all(self) -> None:
        role = {"metadata": {"name": "reader"}, "rules": [granting.rule("get", "configmaps", "cluster-info")]}
        binding = granting.binding("reader", "Role", "reader", granting.user("system:anonymous"))
        assert (await self.world.request("POST", f"{PUBLIC}/roles", role)).status == 201
        assert (await self.world.request("POST", f"{PUBLIC}/rolebindings", binding)).status == 201

    async def add(self, token: tokens.Token, *usages: str, ago: float | None = None) -> None:
        """`ago` it expired."""
        ended = None if ago is None else self.world.clock.now() - datetime.timedelta(seconds=ago)
        document = tokens.secret_document(token, usages=usages, expiration=ended)
        answer = await self.world.request("POST", SECRETS, document)
        assert answer.status == 201, answer.body

    async def run(self, *words: object) -> int:
        arguments = [str(word) for word in words]
        return await asyncio.to_thread(output.run, main.command, arguments)

    async def join(self, *words: object) -> int:
        return await self.run("join", "--discovery-only", *words, "--bootstrap-kubeconfig", self.kubeconfig)

    async def search(self, *, pinned: bool = True) -> searching.Cluster:
        """With the world's own clock, which tests move."""
        clock = self.world.movable()
        search = searching.Discovery(clock, timeout=50.0)
        method = discovery.ByToken(TOKEN, (self.pin,) if pinned else ())
        found = await tls_cluster.while_time_passes(clock, search.by_token([endpoints.parse(self.address)], method))
        await tls_cluster.while_time_passes(clock, search.login(found, TOKEN, signs=True))
        return found


@pytest.fixture
async def joinable(world, tmp_path):
    made = Joinable(world, tmp_path)
    await made.publish(made.info, TOKEN)
    await made.open_to_all()
    return made


class TestToken:
    async def test_found_and_written(self, joinable, capfd):
        await joinable.add(TOKEN, "signing", "authentication")
        words = ("--token", TOKEN.text, "--discovery-token-ca-cert-hash", joinable.pin)
        assert await joinable.join(joinable.address, *words) == 0, capfd.readouterr().err
        out, err = capfd.readouterr()
        assert "found the cluster, and it is the right one" in out
        assert "token       abcdef, accepted for logging in" in out
        assert "has not joined yet" in out
        assert err == ""
        found = kubeconfig.parse(joinable.kubeconfig.read_text())
        assert found.user == kubeconfig.User(name="tls-bootstrap-token-user", token=TOKEN.text)
        assert cluster_cache.load(joinable.kubeconfig).info == joinable.info

    async def test_not_for_authentication(self, joinable):
        await joinable.add(TOKEN, "signing")
        error = await refusal(joinable.search())
        assert error.reason == "UsageMissing"
        assert "not for authentication" in error.message

    async def test_not_for_signing(self, joinable):
        await joinable.publish(joinable.info, OTHER)
        await joinable.add(TOKEN, "authentication")
        error = await refusal(joinable.search())
        assert error.reason == "UsageMissing"
        assert "not for signing" in error.message

    @pytest.mark.parametrize("pinned", [True, False])
    async def test_a_token_without_a_signature_is_refused_as_unknown(self, joinable, pinned):
        await joinable.publish(joinable.info, OTHER)
        assert (await refusal(joinable.search(pinned=pinned))).reason == "UnknownTokenID"

    @pytest.mark.parametrize("signs", [TOKEN, OTHER], ids=["signature still there", "signature gone"])
    async def test_a_token_that_has_expired_is_refused_as_expired(self, joinable, signs, capfd):
        """The server knows it until the cleaner has been there, and says so to who holds it."""
        await joinable.publish(joinable.info, signs)
        await joinable.add(TOKEN, "signing", "authentication", ago=1)
        words = ("--token", TOKEN.text, "--discovery-token-ca-cert-hash", joinable.pin)
        assert await joinable.join(joinable.address, *words) == 1
        out, err = capfd.readouterr()
        assert out == ""
        assert "error: token 'abcdef' has expired\nhint: make a new one on a control plane" in err
        assert err.splitlines()[-1] == "reason: TokenExpired"
        assert not joinable.kubeconfig.exists()

    async def test_not_open_to_all(self, world, tmp_path):
        closed = Joinable(world, tmp_path)
        assert (await refusal(closed.search())).reason == "AnonymousRefused"

    async def test_nothing_published(self, world, tmp_path):
        closed = Joinable(world, tmp_path)
        await closed.open_to_all()
        assert (await refusal(closed.search())).reason == "NoClusterInfo"

    async def test_a_signature_that_comes_after_those_of_others(self, joinable):
        """The token is known, and the signer has just not been there yet: that is no fault of the token."""
        await joinable.publish(joinable.info, OTHER)
        await joinable.add(TOKEN, "signing", "authentication")

        async def later() -> None:
            await joinable.world.clock.sleep(20)
            await joinable.publish(joinable.info, OTHER, TOKEN)

        signing = asyncio.ensure_future(later())
        assert (await joinable.search()).info == joinable.info
        await signing

    async def test_a_signature_that_comes_late(self, joinable):
        await joinable.add(TOKEN, "signing", "authentication")
        await joinable.world.request("DELETE", f"{CLUSTER_INFO}/cluster-info")

        async def later() -> None:
            await joinable.world.clock.sleep(20)
            await joinable.publish(joinable.info, TOKEN)

        signing = asyncio.ensure_future(later())
        assert (await joinable.search()).info == joinable.info
        await signing


class TestDocuments:
    @contextlib.asynccontextmanager
    async def given(self, kind, text, tmp_path, monkeypatch):
        """The words of the command line for a document in a file, on stdin, or at a URL."""
        if kind == "file":
            (tmp_path / "cluster.yaml").write_text(text)
            yield (tmp_path / "cluster.yaml",)
        elif kind == "stdin":
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
            yield ("-",)
        else:
            corporate = Authority("corporate")
            (tmp_path / "corporate.crt").write_bytes(corporate.pem)
            async with tls_cluster.listening(corporate.context(), lambda _: Reply(200, text.encode())) as site:
                yield (f"{site.url}/cluster.yaml", "--discovery-ca-file", tmp_path / "corporate.crt")
                assert site.requests
                assert site.knows_nothing()

    @pytest.mark.parametrize("kind", ["file", "stdin", "url"])
    async def test_found_and_written(self, kind, joinable, tmp_path, monkeypatch, capfd):
        await joinable.add(TOKEN, "authentication")
        async with self.given(kind, cluster_info.build(joinable.info), tmp_path, monkeypatch) as words:
            code = await joinable.join("--tls-bootstrap-token", TOKEN.text, "--discovery-file", *words)
        assert code == 0, capfd.readouterr().err
        assert cluster_cache.load(joinable.kubeconfig).info == joinable.info

    @pytest.mark.parametrize("kind", ["file", "stdin", "url"])
    @pytest.mark.parametrize(
        ("user", "field"),
        [
            ("token: abc", "token"),
            ("tokenFile: /x", "tokenFile"),
            ("client-key-data: abc", "client-key-data"),
            ("client-certificate: /x", "client-certificate"),
            ("username: me", "username"),
            ("exec: {command: x}", "exec"),
            ("auth-provider: {name: x}", "auth-provider"),
        ],
    )
    async def test_credentials_are_refused(self, kind, user, field, tmp_path, monkeypatch, capfd):
        """No server is asked: there is none at that address."""
        info = cluster_info.ClusterInfo(("https://127.0.0.1:1",), None, "")
        text = cluster_info.build(info).replace("users: []", f"users: [{{name: me, user: {{{user}}}}}]")
        written = tmp_path / "bootstrap.conf"
        async with self.given(kind, text, tmp_path, monkeypatch) as words:
            arguments = [
                "join",
                "--discovery-only",
                "--tls-bootstrap-token",
                TOKEN.text,
                "--discovery-file",
                *map(str, words),
            ]
            arguments += ["--bootstrap-kubeconfig", str(written)]
            code = await asyncio.to_thread(output.run, main.command, arguments)
        out, err = capfd.readouterr()
        assert (code, out) == (1, "")
        assert f"users[0].user.{field}" in err
        assert err.endswith("reason: CredentialsInClusterInfo\n")
        assert not written.exists()

    async def test_without_a_ca_the_system_decides(self, joinable, tmp_path, capfd):
        (tmp_path / "f").write_text(cluster_info.build(dataclasses.replace(joinable.info, ca=None)))
        words = ("--tls-bootstrap-token", TOKEN.text, "--discovery-file", tmp_path / "f")
        assert await joinable.join(*words) == 1
        assert capfd.readouterr().err.endswith("reason: TLSInterception\n")

    @pytest.mark.parametrize("kind", ["file", "url"])
    async def test_what_the_system_trusts_is_taken_without_a_ca(self, kind, joinable, tmp_path, monkeypatch, capfd):
        """The server of the document, and the site that the document comes from: no command line names a CA."""
        await joinable.add(TOKEN, "authentication")
        corporate = Authority("corporate")
        # OpenSSL's own name for the list of roots of the system.
        (tmp_path / "roots.pem").write_bytes(corporate.pem + joinable.world.place.ca_certificate.read_bytes())
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "roots.pem"))
        text = cluster_info.build(dataclasses.replace(joinable.info, ca=None))
        (tmp_path / "f").write_text(text)
        async with tls_cluster.listening(corporate.context(), lambda _: Reply(200, text.encode())) as site:
            source = tmp_path / "f" if kind == "file" else f"{site.url}/cluster.yaml"
            words = ("--tls-bootstrap-token", TOKEN.text, "--discovery-file", source)
            assert await joinable.join(*words) == 0, capfd.readouterr().err
            assert len(site.requests) == (kind == "url")
        assert joinable.kubeconfig.exists()

    async def test_insecure_is_refused(self, joinable, tmp_path, capfd):
        text = cluster_info.build(joinable.info).replace(
            "    server:", "    insecure-skip-tls-verify: true\n    server:"
        )
        (tmp_path / "f").write_text(text)
        words = ("--tls-bootstrap-token", TOKEN.text, "--discovery-file", tmp_path / "f")
        assert await joinable.join(*words) == 1
        assert capfd.readouterr().err.endswith("reason: InsecureClusterInfo\n")


class TestRefresh:
    async def joined(self, joinable):
        await joinable.add(TOKEN, "signing", "authentication")
        words = ("--token", TOKEN.text, "--discovery-token-ca-cert-hash", joinable.pin)
        assert await joinable.join(joinable.address, *words) == 0

    async def test_new_servers(self, joinable, capfd):
        await self.joined(joinable)
        fresh = dataclasses.replace(joinable.info, servers=(joinable.info.servers[0], "https://127.0.0.1:1"))
        await joinable.publish(fresh)
        capfd.readouterr()
        assert await joinable.run("kubeconfig", "refresh", "--kubeconfig", joinable.kubeconfig) == 0
        out, err = capfd.readouterr()
        assert out.startswith(f"{joinable.kubeconfig} was brought up to date: servers\n")
        assert err == ""
        assert cluster_cache.load(joinable.kubeconfig).info == fresh
        assert await joinable.run("kubeconfig", "show", "--kubeconfig", joinable.kubeconfig) == 0
        assert "https://127.0.0.1:1" in capfd.readouterr().out

    async def test_what_somebody_else_changes_meanwhile_is_not_overwritten(self, joinable, monkeypatch, capfd):
        """Their credentials, for another cluster by now, must not be sent to the old one."""
        await self.joined(joinable)
        fresh = dataclasses.replace(joinable.info, servers=(joinable.info.servers[0], "https://127.0.0.1:1"))
        await joinable.publish(fresh)
        theirs = joinable.kubeconfig.read_text().replace(joinable.info.servers[0], "https://192.0.2.9:6443")
        asked = anonymous.ask

        async def meanwhile(*arguments):
            joinable.kubeconfig.write_text(theirs)
            return await asked(*arguments)

        defaults = {**(searching.Discovery.__init__.__kwdefaults__ or {}), "ask": meanwhile}
        monkeypatch.setattr(searching.Discovery.__init__, "__kwdefaults__", defaults)
        capfd.readouterr()
        assert await joinable.run("kubeconfig", "refresh", "--kubeconfig", joinable.kubeconfig) == 1
        err = capfd.readouterr().err
        assert "it was changed while the cluster was asked" in err
        assert err.endswith("hint: nothing was written; try again\nreason: KubeconfigChanged\n")
        assert joinable.kubeconfig.read_text() == theirs

    async def test_owner_and_mode_stay(self, joinable, capfd):
        await self.joined(joinable)
        joinable.kubeconfig.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(joinable.kubeconfig, 1234, 5678)
        before = joinable.kubeconfig.stat()
        await joinable.publish(
            dataclasses.replace(joinable.info, servers=(*joinable.info.servers, "https://127.0.0.1:1"))
        )
        assert await joinable.run("kubeconfig", "refresh", "--kubeconfig", joinable.kubeconfig) == 0
        after = joinable.kubeconfig.stat()
        assert before.st_ino != after.st_ino
        assert (before.st_uid, before.st_gid, before.st_mode) == (after.st_uid, after.st_gid, after.st_mode)

    async def test_the_server_moved_and_its_root_changed(self, joinable, tmp_path, capfd):
        """Another server under another CA, where the cluster was. The copy stays as it is."""
        await self.joined(joinable)
        other = Authority()
        async with tls_cluster.listening(other.context(), tls_cluster.serve(None)) as elsewhere:
            text = joinable.kubeconfig.read_text().replace(joinable.info.servers[0], elsewhere.url)
            joinable.kubeconfig.write_text(text)
            capfd.readouterr()
            assert await joinable.run("kubeconfig", "refresh", "--kubeconfig", joinable.kubeconfig) == 1
            assert elsewhere.connections
            assert elsewhere.read == b""
        err = capfd.readouterr().err
        assert err.endswith("reason: AllRootsChanged\n")
        assert f"last known: servers {elsewhere.url}; CA {joinable.pin}; cluster id uid-1" in err
        assert joinable.kubeconfig.read_text() == text

    async def test_nobody_is_there(self, joinable, capfd):
        await self.joined(joinable)
        text = joinable.kubeconfig.read_text().replace(joinable.info.servers[0], "https://127.0.0.1:1")
        joinable.kubeconfig.write_text(text)
        capfd.readouterr()
        assert await joinable.run("kubeconfig", "refresh", "--kubeconfig", joinable.kubeconfig) == 3
        assert capfd.readouterr().err.endswith("reason: AllEndpointsMoved\n")
        assert joinable.kubeconfig.read_text() == text


@pytest.mark.slow
async def test_the_machine_starts_before_the_cluster(tmp_path, capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ca = Authority()
    info = cluster_info.ClusterInfo((f"https://127.0.0.1:{port}",), ca.pem, "")
    words = ["join", f"127.0.0.1:{port}", "--token", TOKEN.text, "--discovery-token-ca-cert-hash", str(ca.pin)]
    words += ["--print-kubeconfig", "--timeout", "60s"]
    joining = asyncio.ensure_future(asyncio.to_thread(output.run, main.command, words))
    await asyncio.sleep(0.5)
    assert not joining.done()
    answers = tls_cluster.serve(tls_cluster.signed(cluster_info.build(info)))
    async with tls_cluster.listening(ca.context(), answers, port):
        assert await joining == 0
    out, err = capfd.readouterr()
    assert err == f"note: waiting: https://127.0.0.1:{port} refuses connections\n"
    assert base64.b64encode(ca.pem).decode() in out


@pytest.mark.slow
async def test_the_cluster_never_comes(capfd):
    words = [
        "join",
        "--discovery-only",
        "127.0.0.1:1",
        "--token",
        TOKEN.text,
        "--discovery-token-unsafe-skip-ca-verification",
    ]
    assert await asyncio.to_thread(output.run, main.command, [*words, "--timeout", "1s", "--dry-run"]) == 3
    err = capfd.readouterr().err
    assert "error: gave up after 1s: https://127.0.0.1:1 refuses connections\n" in err
    assert err.endswith("reason: ConnectionRefused\n")
