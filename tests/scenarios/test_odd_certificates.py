# SPDX-License-Identifier: Apache-2.0
"""Certificates and requests that no library reads, at every door where this program takes one.

What is given now is refused with a reason: a 4xx, or an error of the command line without a traceback. What was stored
before is reported and left out, and everything else goes on.
"""

from __future__ import annotations

import asyncio
import base64
import pathlib
import ssl
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from handfast.api import kinds, objects, signer_names
from handfast.apiserver import identity
from handfast.apiserver.strategy import strategies
from handfast.bootstrap import cluster_info, kubeconfig, tokens
from handfast.cli import main, output
from handfast.node import certificate_store
from handfast.pki import certificates, keys, pem
from handfast.rules import client_ca_bundle
from handfast.runtime import tls
from tests.scenarios import callers, certified, hooked
from tests.unit.apiserver import hooking
from tests.unit.pki import making, odd
from tests.world import tls_cluster
from tests.world import world as worlds
from tests.world.clock import MovableClock
from tests.world.tls_cluster import TOKEN

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet")]
GOOD = making.ca("good")
SAN = "subjectAltName"
# What may be found where a CA should be.
BAD_CAS = {
    "x400Address": odd.ca(SAN, "x400Address").der,
    "ediPartyName": odd.ca("cRLDistributionPoints", "ediPartyName").der,
    "an issuer's name": odd.ca("authorityKeyIdentifier", "x400Address").der,
    "junk": b"junk",
    "cut off": GOOD.der[:-20],
}
bad_cas = pytest.mark.parametrize("bad", BAD_CAS.values(), ids=BAD_CAS)


def in_force() -> dict[str, Any]:
    """The window of a certificate that TLS takes today."""
    now = MovableClock().now()
    return {"not_before": now - making.DAY, "not_after": now + making.DAY}


def cluster_ca(world: worlds.World) -> making.Made:
    certificate = x509.load_pem_x509_certificate(world.place.ca_certificate.read_bytes())
    return making.Made(certificate, serialization.load_pem_private_key(world.place.ca_key.read_bytes(), None))


def context_of(world: worlds.World, made: making.Made) -> ssl.SSLContext:
    return tls.client_context(world.place.ca_certificate.read_bytes(), made.pem, made.key_pem)


async def failures(world: worlds.World) -> list[str]:
    """The counters of answers with 500."""
    lines = (await world.get("/metrics")).body.decode().splitlines()
    return [line for line in lines if line.startswith("apiserver_request_total") and 'code="5' in line]


class TestTheApi:
    @pytest.mark.parametrize("place", ["subjectAltName", "issuerAltName", "cRLDistributionPoints", "freshestCRL"])
    async def test_client_certificates(self, world: worlds.World, place: str) -> None:
        issuer = cluster_ca(world)
        for name in odd.GENERAL_NAMES:
            context = context_of(world, odd.leaf(issuer, place, name, **in_force()))
            answer = await world.request("POST", callers.WHO_AM_I, {}, context=context)
            assert answer.status == 401 if name in odd.UNSUPPORTED else answer.status in {201, 401}, (name, answer.body)
        assert await callers.refusals(world, "Malformed") >= 2
        assert await failures(world) == []

    async def test_requests_for_certificates(self, world: worlds.World) -> None:
        async def ask(number: int, data: bytes) -> worlds.Answer:
            document = certified.request(name=f"odd-{number}", request=base64.b64encode(data).decode())
            return await world.request("POST", certified.PATH, document)

        subject = x509.Name(
            [
                x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(x509.NameOID.COMMON_NAME, "system:node:n1"),
            ]
        )
        for number, (place, name) in enumerate(odd.CASES):
            answer = await ask(number, odd.request(place, name, subject))
            assert answer.status in {201, 422}, (place, name, answer.body)
            if name in odd.UNSUPPORTED and place == SAN:
                assert answer.status == 422
                assert "spec.request: Invalid value" in answer.message
                assert "the request's extensions cannot be read" in answer.message
        whole = pem.one(odd.request(SAN, "dNSName", subject), pem.CERTIFICATE_REQUEST)
        for number, cut in enumerate(odd.cut(whole, 9)):
            answer = await ask(1000 + number, pem.encode(pem.CERTIFICATE_REQUEST, cut))
            assert answer.status == 422, answer.body
        assert await failures(world) == []

    @bad_cas
    async def test_client_cas(self, world: worlds.World, bad: bytes) -> None:
        text = world.place.ca_certificate.read_text() + pem.encode(pem.CERTIFICATE, bad).decode()
        path = f"/api/v1/namespaces/{client_ca_bundle.NAMESPACE}/configmaps/{client_ca_bundle.NAME}"
        patch = {"data": {client_ca_bundle.KEY: text}}
        answer = await world.request("PATCH", path, patch, headers=dict(callers.MERGE))
        assert answer.status == 422
        assert "data[client-ca-file]: Invalid value: must be one or more CA certificates in PEM: certificate 2: " in (
            answer.message
        )

    @bad_cas
    async def test_a_webhooks_ca(self, world: worlds.World, bad: bytes) -> None:
        async with hooked.serving() as server:
            bundle = base64.b64encode(pem.encode(pem.CERTIFICATE, bad)).decode()
            config = hooking.configuration(
                hooking.VALIDATING,
                hooking.webhook("odd", server.config(caBundle=bundle), rules=hooked.rules("configmaps")),
            )
            answer = await world.request("POST", f"{hooked.CONFIGURATIONS}/validatingwebhookconfigurations", config)
            if answer.status == 422:
                assert "caBundle" in answer.message
                return
            assert answer.status == 201
            # It is the caller's to mend, and it never lets the write through.
            refused = await world.request("POST", callers.CONFIG_MAPS, {"metadata": {"name": "a"}})
            assert refused.status == 500
            assert "failed calling webhook" in refused.message

    @bad_cas
    async def test_a_signers_answer(self, world: worlds.World, bad: bytes) -> None:
        await callers.make(world, certified.PATH, certified.request(name="n", signerName="example.com/any"))
        found = (await world.get(f"{certified.PATH}/n")).json()
        found["status"] = {
            "conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}],
        }
        assert (await world.request("PUT", f"{certified.PATH}/n/approval", found)).status == 200
        found = (await world.get(f"{certified.PATH}/n")).json()
        found["status"]["certificate"] = base64.b64encode(pem.encode(pem.CERTIFICATE, bad)).decode()
        answer = await world.request("PUT", f"{certified.PATH}/n/status", found)
        assert answer.status == 422
        assert "status.certificate" in answer.message


class TestWhatIsStored:
    async def test_a_history_with_one_that_cannot_be_read(self, tmp_path: pathlib.Path) -> None:
        directory = tmp_path / "d"
        async with worlds.world(directory) as world:
            text = b"".join(pem.encode(pem.CERTIFICATE, der) for der in (*BAD_CAS.values(), GOOD.der)).decode()
            kind = next(row for row in world.server.table if row.resource == ("", "configmaps"))
            found = await world.server.storage.find(kind, client_ca_bundle.NAMESPACE, client_ca_bundle.HISTORY)
            assert found is not None
            document = {**found.document(), "data": {client_ca_bundle.HISTORY_KEY: text}}
            document["metadata"].pop("resourceVersion")
            await world.server.storage.replace(kind, document, found)
        with structlog.testing.capture_logs() as logs:
            async with worlds.world(directory) as world:
                assert (await world.get("/readyz")).status == 200
                path = f"/api/v1/namespaces/{client_ca_bundle.NAMESPACE}/configmaps/{client_ca_bundle.HISTORY}"
                kept = (await world.get(path)).json()["data"][client_ca_bundle.HISTORY_KEY]
                assert GOOD.pem.decode() in kept
                assert kept.count("BEGIN CERTIFICATE") == 2
        told = [entry for entry in logs if entry["event"].startswith("a CA in the history")]
        assert [entry["position"] for entry in told] == list(range(1, len(BAD_CAS) + 1))

    async def test_requests_that_controllers_meet(self, tmp_path: pathlib.Path) -> None:
        """Stored by an older version, before anything was checked; a good one beside them is signed."""
        async with certified.told(tmp_path) as story:
            await story.bind("nodeclient", certified.JOINERS)
            kind = next(row for row in story.world.server.table if row.plural == "certificatesigningrequests")
            for number, name in enumerate((*odd.UNSUPPORTED, "junk")):
                junk = pem.encode(pem.CERTIFICATE_REQUEST, b"junk")
                data = junk if name == "junk" else odd.request(SAN, name)
                await _store(story.world, kind, f"odd-{number}", data, number)
            asked = await story.ask(certified.request(), story.joiner())
            with structlog.testing.capture_logs() as logs:
                async with certified.running(story.world):
                    await story.issued(asked["metadata"]["name"])

                    async def judged() -> bool:
                        conditions = [await story.conditions(f"odd-{number}") for number in range(3)]
                        return all("Failed" in found for found in conditions)

                    await story.eventually(judged, "the others failed")
                    await story.clock.advance(86400 * 2)

                    async def cleaned() -> bool:
                        return not [number for number in range(3) if await story.csr(f"odd-{number}")]

                    await story.eventually(cleaned, "the others are gone")
            assert [entry for entry in logs if entry["log_level"] == "error"] == []


async def _store(world: worlds.World, kind: kinds.Kind, name: str, data: bytes, number: int) -> None:
    document: dict[str, Any] = {
        **certified.request(name=name, request=base64.b64encode(data).decode(), username="joiner"),
        "status": {
            "conditions": [
                {
                    "type": "Approved",
                    "status": "True",
                    "reason": "r",
                    "message": "m",
                    "lastUpdateTime": objects.timestamp(world.clock.now()),
                    "lastTransitionTime": objects.timestamp(world.clock.now()),
                }
            ]
        },
    }
    document["spec"]["signerName"] = signer_names.KUBELET_CLIENT if number else signer_names.KUBE_APISERVER_CLIENT
    status = document["status"]
    strategies.prepare_create(kind, document, "", identity.User("joiner", (certified.JOINERS,)), world.clock.now())
    document["status"] = status
    await world.server.storage.create(kind, document)


@bad_cas
class TestTheCommandLine:
    """No command ends in an internal error, whatever CA it meets."""

    async def run(self, capfd: pytest.CaptureFixture[str], *words: object) -> str:
        code = await asyncio.to_thread(output.run, main.command, [str(word) for word in words])
        out, err = capfd.readouterr()
        assert "internal error" not in err
        assert "Traceback" not in out + err
        assert code in {0, 1, 3}, err
        if code:
            assert "error: " in err
        return err

    async def test_join_by_token(
        self, world: worlds.World, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], bad: bytes
    ) -> None:
        ca = world.place.ca_certificate.read_bytes() + pem.encode(pem.CERTIFICATE, bad)
        info = cluster_info.ClusterInfo((world.base,), ca, "uid-1")
        public = "/api/v1/namespaces/kube-public/configmaps"
        await callers.make(world, public, tls_cluster.signed(cluster_info.build(info), TOKEN))
        await callers.make(world, callers.SECRETS, tokens.secret_document(TOKEN, usages=("signing", "authentication")))
        await callers.bind(world, "cluster-admin", "User", "system:anonymous")
        address = world.base.removeprefix("https://")
        config = tmp_path / "bootstrap.conf"
        words = ("join", "--discovery-only", address, "--token", TOKEN.text, "--bootstrap-kubeconfig", config)
        for trust in (
            ("--discovery-token-ca-cert-hash", f"sha256:{'0' * 64}"),
            ("--discovery-token-unsafe-skip-ca-verification",),
        ):
            await self.run(capfd, *words, *trust)
        admin = tmp_path / "admin.conf"
        admin.write_text(world.place.admin_kubeconfig.read_text().replace("https://127.0.0.1:6443", world.base))
        await self.run(capfd, "token", "create", "--print-join-command", "--kubeconfig", admin)

    async def test_one_in_a_file_that_a_command_reads_ends_it_with_an_error(
        self, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], bad: bytes
    ) -> None:
        text = pem.encode(pem.CERTIFICATE, bad)
        config = kubeconfig.Kubeconfig(
            context="c",
            cluster=kubeconfig.Cluster(name="c", server="https://127.0.0.1:1", certificate_authority_data=text),
            user=kubeconfig.User(name="u", token="t"),
        )
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig.render(config))
        ca = tmp_path / "ca.crt"
        ca.write_bytes(text)
        out = ("--bootstrap-kubeconfig", tmp_path / "out.conf", "--discovery-only", "--timeout", "1s")
        target = (*out, "--tls-bootstrap-token", TOKEN.text)
        assert await self.run(capfd, "join", "--discovery-file", path, *target)
        url = ("--discovery-file", "https://127.0.0.1:1/info", "--discovery-ca-file", ca)
        assert await self.run(capfd, "join", *url, *target)
        await self.run(capfd, "kubeconfig", "show", "--kubeconfig", path)
        assert await self.run(capfd, "csr", "list", "--kubeconfig", path)

    async def test_a_data_directory(self, world: worlds.World, capfd: pytest.CaptureFixture[str], bad: bytes) -> None:
        with world.place.ca_certificate.open("ab") as file:
            file.write(pem.encode(pem.CERTIFICATE, bad))
        for words in (("ca", "show"), ("ca", "rotate")):
            assert await self.run(capfd, *words, "--dir", world.place.root)

    def test_a_nodes_directory(self, tmp_path: pathlib.Path, bad: bytes) -> None:
        key = keys.generate()
        tmp_path.chmod(0o700)
        path = tmp_path / "kubelet-client-current.pem"
        path.write_bytes(pem.encode(pem.CERTIFICATE, bad) + key.to_pem())
        path.chmod(0o600)
        store = certificate_store.CertificateStore(tmp_path, "kubelet-client", MovableClock())
        assert store.load() is None
        assert certificates.fingerprint(bad)
