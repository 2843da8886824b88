# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import ipaddress
import os
import pathlib
import ssl
import tempfile

import pytest
from cryptography import x509

from handfast import errors
from handfast.runtime import tls
from tests.unit.pki import making


def make(name: str, issuer: making.Made | None = None) -> making.Made:
    now = datetime.datetime.now(datetime.UTC)
    sans = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    extensions: list[making.Extension] = [
        (x509.BasicConstraints(ca=issuer is None, path_length=None), True),
        (x509.SubjectAlternativeName(sans), False),
    ]
    return making.certificate(name, issuer, extensions, not_before=now - making.DAY, not_after=now + making.DAY)


CA = make("ca")
SERVER = make("server.test", CA)
CLIENT = make("client", CA)


def handshake(client: ssl.SSLContext, name: str = "server.test") -> dict[str, object]:
    """Connect a client to a server that demands a certificate, in memory; returns what the server saw."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_pair(server, SERVER.pem, SERVER.key_pem)
    server.load_verify_locations(cadata=CA.pem.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(down, up, server_hostname=name)
    other = server.wrap_bio(up, down, server_side=True)
    for _ in range(10):
        for end in (one, other):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return {"peer": other.getpeercert(), "version": one.version()}


def test_a_client_with_a_certificate_is_known_to_the_server():
    seen = handshake(tls.client_context(CA.pem, CLIENT.pem, CLIENT.key_pem))
    assert "client" in str(seen["peer"])
    assert seen["version"] == "TLSv1.3"


def test_a_client_without_one_is_nobody():
    assert not handshake(tls.client_context(CA.pem))["peer"]


def test_the_servers_name_and_chain_are_verified():
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere"):
        handshake(tls.client_context(CA.pem), "elsewhere.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls.client_context(make("other-ca").pem))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tls.client_context(None))


def test_nothing_below_tls_1_2():
    for context in (tls.client_context(CA.pem), tls.unsafe_unverified_context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("pem", [b"", b"garbage", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_bundle_that_is_none_is_refused(pem: bytes):
    with pytest.raises(errors.Refused, match="CA bundle"):
        tls.client_context(pem)


def test_pairs_that_do_not_fit_are_refused_without_a_word_of_the_key(capfd: pytest.CaptureFixture[str]):
    for key in (SERVER.key_pem, CLIENT.key_with_password(b"secret"), b"garbage"):
        with pytest.raises(errors.Refused, match="cannot be used") as caught:
            tls.client_context(CA.pem, CLIENT.pem, key)
        assert "PRIVATE" not in str(caught.value)
    with pytest.raises(errors.Misuse):
        tls.client_context(CA.pem, CLIENT.pem)
    # Nothing asked for a passphrase on the terminal.
    assert capfd.readouterr() == ("", "")


def test_keys_do_not_touch_the_disk_and_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", None)
    before = set(pathlib.Path("/proc/self/fd").iterdir())
    tls.client_context(CA.pem, CLIENT.pem, CLIENT.key_pem)
    assert set(pathlib.Path("/proc/self/fd").iterdir()) == before


def test_without_memory_files_a_private_temporary_one_is_used_and_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    def refuse(*_: object) -> int:
        raise OSError("not here")

    modes = []
    load = ssl.SSLContext.load_cert_chain

    def spy(context: ssl.SSLContext, cert: str, key: str, password: object) -> None:
        modes.append(pathlib.Path(key).stat().st_mode & 0o777)
        load(context, cert, key, password)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    seen = handshake(tls.client_context(CA.pem, CLIENT.pem, CLIENT.key_pem))
    assert "client" in str(seen["peer"])
    assert set(modes) == {0o600}
    assert list(tmp_path.iterdir()) == []


def test_what_the_library_cannot_read_is_no_ca_for_it():
    first, second = make("a").der, make("b").der
    assert tls.useless([]) == []
    assert tls.useless([first, second, first]) == []
    assert tls.useless([first, b"garbage", second, b""]) == [b"garbage", b""]
