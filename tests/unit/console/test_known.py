# SPDX-License-Identifier: Apache-2.0
"""What is in the way, on a real API server with something in between: in the middle of a list, of one kind, of the server as a whole, and how it ends."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
import re

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from handfast.api import resources
from handfast.bootstrap import kubeconfig as kubeconfig_words
from handfast.client import hearing
from handfast.console import known
from handfast.pki import authority, keys, names
from tests.unit.console import between, served
from tests.world import world as worlds

NODES = ("node-a", "node-b", "node-c")


async def make_nodes(world: worlds.World) -> None:
    async with served.client(world) as client:
        for name in NODES:
            await client.create(resources.NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def shown(reply: served.Reply) -> list[str]:
    return re.findall(r'data-key="(node-.)"', reply.text)


@pytest.mark.parametrize(
    ("code", "sentence"), [(429, "turns requests down"), (503, "turns requests down"), (410, "being read")]
)
async def test_a_list_that_is_refused_in_its_middle_is_told_and_then_read_whole(
    world: worlds.World, tmp_path: pathlib.Path, code: int, sentence: str
):
    await make_nodes(world)
    async with between.between(world) as proxy:
        proxy.code = code
        path = between.config_of(proxy.url, tmp_path / "between.conf")
        async with served.console(world, kubeconfig=path, base=proxy.url) as browser:
            half = await browser.until("/nodes", lambda page: sentence in page.text and proxy.refused > 1)
            # What came before stands there, and is not taken for the whole.
            assert (half.status, "none of which" in half.text, "There are no nodes" in half.text) == (200, False, False)
            assert "as far as was read" in half.text or "is not known" in half.text
            assert (await browser.get("/requests")).status == 200
            proxy.code = 0
            whole = await browser.until("/nodes", lambda page: len(shown(page)) == len(NODES))
            whole = await browser.until("/nodes", lambda page: sentence not in page.text)
            assert "3 nodes, none of which needs somebody" in whole.text


async def test_a_list_that_cannot_be_read_is_told_of_its_kind_and_the_others_go_on(
    world: worlds.World, tmp_path: pathlib.Path
):
    await make_nodes(world)
    async with between.between(world, "leases") as proxy:
        proxy.changes = {'"items"': "<script>"}
        path = between.config_of(proxy.url, tmp_path / "between.conf")
        async with served.console(world, kubeconfig=path, base=proxy.url) as browser:
            await browser.until("/nodes", lambda reply: "answer cannot be read" in reply.text)
            page = await browser.until("/nodes", lambda reply: len(shown(reply)) == len(NODES))
            assert "Nothing of Leases of nodes was read so far." in page.text
            assert "does not answer" not in page.text
            assert "<script>" not in page.text


async def test_an_object_of_another_form_is_left_out_and_the_others_are_shown(
    world: worlds.World, tmp_path: pathlib.Path
):
    await make_nodes(world)
    async with between.between(world) as proxy:
        # What is between them spoils one Node: its labels are no map.
        proxy.changes = {'"name":"node-b"': '"labels":"<script>","name":"node-b"'}
        path = between.config_of(proxy.url, tmp_path / "between.conf")
        async with served.console(world, kubeconfig=path, base=proxy.url) as browser:
            page = await browser.until("/nodes", lambda reply: shown(reply) == ["node-a", "node-c"])
            assert (page.status, "<script>" in page.text) == (200, False)
            # Set right, it is there.
            proxy.changes = {}
            async with served.client(world) as client:
                right = {"metadata": {"labels": {"zone": "a"}}}
                await client.patch(resources.NODES, "node-b", right)
            await browser.until("/nodes", lambda reply: len(shown(reply)) == len(NODES))


async def test_a_server_that_hangs_is_not_called_live(
    world: worlds.World, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hearing, "_ASK_SECONDS", 0.1)
    monkeypatch.setattr(hearing, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(known, "_LOOK_SECONDS", 0.1)
    await make_nodes(world)
    async with between.between(world) as proxy:
        path = between.config_of(proxy.url, tmp_path / "between.conf")
        async with served.console(world, kubeconfig=path, base=proxy.url) as browser:
            await browser.until("/nodes", lambda page: len(shown(page)) == len(NODES) and "as of" in page.text)
            async with browser.live("/nodes") as stream:
                await stream.readuntil(b"event: upto")
                proxy.hang()
                # Whoever has the page open is told, although every watch is open still.
                told = await stream.readuntil(b"The API server does not answer")
                assert b"data-stale=" in told
            # Pages that ask the server themselves do not wait for it.
            async with asyncio.timeout(10):
                for whole in ("/machines", "/store", "/check"):
                    assert (await browser.get(whole)).status == 200
                for one in ("/requests/one", "/tokens/abcdef"):
                    page = await browser.get(one)
                    assert (page.status, "does not answer" in page.text) == (503, True), one
            page = await browser.get("/nodes")
            assert "What is shown was known before that." in page.text
            assert re.search(r'id="live"[^>]*>not live since \d\d:\d\d:\d\d UTC', page.text)
            proxy.go_on()
            page = await browser.until("/nodes", lambda reply: "does not answer" not in reply.text)
            assert "data-stale" not in page.text


async def test_a_page_waits_for_no_server_that_has_just_begun_to_hang(
    world: worlds.World, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(known, "_ASK_SECONDS", 0.1)
    async with between.between(world) as proxy:
        path = between.config_of(proxy.url, tmp_path / "between.conf")
        async with served.console(world, kubeconfig=path, base=proxy.url) as browser:
            await browser.until("/nodes", lambda page: "as of" in page.text)
            proxy.hang()
            page = await browser.get("/requests/one")
            assert (page.status, "nothing came within 0.1 s" in page.text) == (503, True)
            assert "Next: " in page.text
            assert (await browser.get("/store")).status == 200


async def test_the_kubeconfig_of_another_cluster_has_a_sentence_of_its_own(world: worlds.World, tmp_path: pathlib.Path):
    other = authority.self_signed_ca(names.Subject(common_name="other"), keys.generate(), world.clock.now())
    path = served.kubeconfig_of(world, tmp_path / "other.conf", "anna")
    ours = kubeconfig_words.parse(path.read_text())
    assert ours.user is not None
    certificate, key = ours.user.client_certificate_data, ours.user.client_key_data
    assert certificate is not None
    assert key is not None
    path.write_text(
        kubeconfig_words.build(
            cluster="other",
            server=world.base,
            ca=other.pem,
            user="anna",
            client_certificate=certificate,
            client_key=key,
        )
    )
    async with served.console(world, kubeconfig=path) as browser:
        page = await browser.until("/nodes", lambda reply: "The server is not believed" in reply.text)
        assert "presents a certificate that is not from a CA of" in page.text
        assert "Nothing was read so far." in page.text
        assert "handfast console --kubeconfig FILE" in page.text
        assert not re.search(r"SSLCertVerificationError|_ssl\.c|Cannot connect|does not answer", page.text)


def expired(world: worlds.World, path: pathlib.Path) -> pathlib.Path:
    """A kubeconfig whose certificate is of this world's CA, and has ended."""
    ca_pem = world.place.ca_certificate.read_bytes()
    ca = x509.load_pem_x509_certificate(ca_pem)
    signing = serialization.load_pem_private_key(world.place.ca_key.read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), world.clock.now()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "anna")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=20))
        .not_valid_after(now - datetime.timedelta(minutes=2))
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_text(
        kubeconfig_words.build(
            cluster="world",
            server=world.base,
            ca=ca_pem,
            user="anna",
            client_certificate=builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            client_key=private,
        )
    )
    return path


async def test_a_certificate_that_has_ended_is_told(world: worlds.World, tmp_path: pathlib.Path):
    async with served.console(world, kubeconfig=expired(world, tmp_path / "expired.conf")) as browser:
        page = await browser.until("/requests", lambda reply: "does not know your credentials" in reply.text)
        assert "Whether a request waits is not known" in page.text
        assert "Nothing was read so far." in page.text
