# SPDX-License-Identifier: Apache-2.0
"""Forged, broken and oversized credentials against a served world: each is refused, and told to the operator once.

What TLS itself turns away never gets an answer: OpenSSL checks the purpose of a certificate and its critical extensions
in the handshake, and the connection ends there. The log tells those apart, too. Kubernetes would answer them with 401.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import hmac
import json
import pathlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric import utils as signatures
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from handfast.pki import jwt, keys
from handfast.runtime import tls
from tests.scenarios import callers, wire
from tests.unit.pki import making
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
CN, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
MASTERS = (ORG, "system:masters")
Dropped = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)


def packed(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Forger:
    """Makes tokens of any shape from a good one; holds the server's own key, where that is what is tried."""

    def __init__(self, world: worlds.World, good: str) -> None:
        self.good = good
        self.header, self.claims = (
            json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in good.split(".")[:2]
        )
        self.own = keys.private_from_pem(world.place.service_account_key.read_bytes())

    def signed(self, key: keys.PrivateKey, header: Mapping[str, Any], claims: Any = None) -> str:
        """With an ES256 signature, whatever the header says."""
        text = f"{packed(header)}.{packed(self.claims if claims is None else claims)}"
        r, s = signatures.decode_dss_signature(key.sign(text.encode()))
        return f"{text}.{packed(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def hmac(self, secret: bytes) -> str:
        text = f"{packed({**self.header, 'alg': 'HS256'})}.{packed(self.claims)}"
        return f"{text}.{packed(hmac.digest(secret, text.encode(), 'sha256'))}"

    def without_signature(self, algorithm: str) -> str:
        return f"{packed({'alg': algorithm, 'typ': 'JWT'})}.{packed(self.claims)}."

    def public_pem(self) -> bytes:
        public = serialization.load_der_public_key(self.own.public.spki)
        return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


FORGERIES: Mapping[str, tuple[str, Callable[[Forger], str]]] = {
    "alg none": ("UnsupportedAlgorithm", lambda it: it.without_signature("none")),
    "alg None": ("UnsupportedAlgorithm", lambda it: it.without_signature("None")),
    "alg none, with our signature": (
        "UnsupportedAlgorithm",
        lambda it: f"{it.without_signature('none')}{it.good.rpartition('.')[2]}",
    ),
    "HS256 by the public key in PEM": ("UnsupportedAlgorithm", lambda it: it.hmac(it.public_pem())),
    "HS256 by the public key in DER": ("UnsupportedAlgorithm", lambda it: it.hmac(it.own.public.spki)),
    "HS256 by the kid": ("UnsupportedAlgorithm", lambda it: it.hmac(it.header["kid"].encode())),
    "another algorithm of ours": ("WrongAlgorithm", lambda it: it.signed(it.own, {**it.header, "alg": "ES384"})),
    "unknown kid": (
        "UnknownKey",
        lambda it: jwt.Signer(keys.generate()).sign(it.claims),
    ),
    "our kid, another key": ("BadSignature", lambda it: it.signed(keys.generate(), it.header)),
    "no kid, another key": ("BadSignature", lambda it: it.signed(keys.generate(), {"alg": "ES256"})),
    "the key sent along": (
        "UnknownKey",
        lambda it: it.signed(keys.generate(), {"alg": "ES256", "kid": "mine", "jwk": {"kty": "EC"}}),
    ),
    "a critical extension": ("UnsupportedHeader", lambda it: it.signed(it.own, {**it.header, "crit": ["x"]})),
    "other claims under the signature": (
        "BadSignature",
        lambda it: f"{it.good.split('.')[0]}.{packed({**it.claims, 'sub': 'x'})}.{it.good.split('.')[2]}",
    ),
    "truncated by one letter": ("MalformedToken", lambda it: it.good[:-1]),
    "truncated by an octet": ("BadSignature", lambda it: it.good[:-2]),
    "without its signature": ("BadSignature", lambda it: it.good[: it.good.rindex(".") + 1]),
    "two parts": ("UnknownToken", lambda it: it.good.rpartition(".")[0]),
    "half of it": ("UnknownToken", lambda it: it.good[: len(it.good) // 2]),
    "padding": ("MalformedToken", lambda it: f"{it.good}=="),
    "another issuer": (
        "UnknownToken",
        lambda it: it.signed(it.own, it.header, {**it.claims, "iss": "https://example.com"}),
    ),
    "claims that are a list": ("UnknownToken", lambda it: it.signed(it.own, it.header, [1])),
    "a bound token as a legacy one": (
        "BadClaim",
        lambda it: it.signed(it.own, it.header, {**it.claims, "iss": "kubernetes/serviceaccount"}),
    ),
    "no end": (
        "BadClaim",
        lambda it: it.signed(it.own, it.header, {key: value for key, value in it.claims.items() if key != "exp"}),
    ),
    "longer than any token": ("MalformedToken", lambda it: it.good + "A" * (20 << 10)),
}


class TestTokens:
    @staticmethod
    async def forger(world: worlds.World) -> Forger:
        return Forger(world, await callers.account_token(world))

    async def test_every_forged_token_is_refused_alike_and_its_reason_logged(self, world: worlds.World) -> None:
        it = await self.forger(world)
        async with wire.line(world.server.address[1], world.anonymous_context()) as line:
            assert (await line.ask("GET", "/version", **callers.bearer(it.good))).status == 200
            assert (await line.ask("GET", "/version", **callers.bearer(it.signed(it.own, it.header)))).status == 200
            for case, (why, make) in FORGERIES.items():
                token = make(it)
                with structlog.testing.capture_logs() as logs:
                    reply = await line.ask("GET", "/version", **callers.bearer(token))
                assert (reply.status, reply.json()) == (401, callers.BARE), case
                assert [entry["reason"] for entry in logs] == [why], (case, logs)
                assert token.rpartition(".")[2][:20] not in str(logs) or token.endswith("."), case
            # A good one is as good as before.
            assert (await line.ask("GET", "/version", **callers.bearer(it.good))).status == 200

    async def test_a_review_says_the_same(self, world: worlds.World) -> None:
        it = await self.forger(world)
        assert (await callers.review(world, it.good))["authenticated"] is True
        for case, (_, make) in FORGERIES.items():
            found = await callers.review(world, make(it))
            assert found["user"] == {}, case
            assert "authenticated" not in found, case

    async def test_a_mebibyte(self, world: worlds.World) -> None:
        """The header does not fit: the connection ends, before anything is hashed or parsed."""
        it = await self.forger(world)
        for token in (it.good + "A" * (1 << 20), "A" * (1 << 20)):
            async with wire.line(world.server.address[1], world.anonymous_context()) as line:
                await line.send(wire.request("GET", "/version", **callers.bearer(token)))
                answer = await line.rest()
                assert b"431" in answer.partition(b"\r\n")[0]
        assert (await world.get("/version")).status == 200
        # As the token of a review a shorter one fits into the body, and is no token all the same.
        async with wire.line(world.server.address[1], world.admin_context()) as line:
            body = json.dumps({"spec": {"token": "A" * (60 << 10)}}).encode()
            reply = await line.ask("POST", callers.TOKEN_REVIEWS, body)
            assert reply.json()["status"] == {"user": {}, "error": "invalid bearer token"}
            body = json.dumps({"spec": {"token": "A" * (1 << 20)}}).encode()
            assert (await line.ask("POST", callers.TOKEN_REVIEWS, body)).status == 413

    async def test_odd_headers(self, world: worlds.World) -> None:
        it = await self.forger(world)
        rows = {
            "Bearer": "MalformedToken",
            "Bearer  ": "MalformedToken",
            f"Token {it.good}": "UnsupportedCredential",
            it.good: "UnsupportedCredential",
            f"Bearer {it.good},{it.good}": "UnknownToken",
            f"Bearer {it.good} x": "MalformedToken",
            "Bearer \xff\xfe": "UnknownToken",
        }
        async with wire.line(world.server.address[1], world.anonymous_context()) as line:
            for header, why in rows.items():
                with structlog.testing.capture_logs() as logs:
                    reply = await line.ask("GET", "/version", Authorization=header)
                assert (reply.status, reply.json()) == (401, callers.BARE), header
                assert callers.reasons(logs) == [why], header
            for header in (f"bearer {it.good}", f"BEARER {it.good}", f"Bearer  {it.good}"):
                assert (await line.ask("GET", "/version", Authorization=header)).status == 200, header

    async def test_the_first_of_two_headers_counts(self, world: worlds.World) -> None:
        it = await self.forger(world)
        async with wire.line(world.server.address[1], world.anonymous_context()) as line:
            for first, second, code in ((it.good, "x", 200), ("x", it.good, 401)):
                both: dict[str, Any] = {"Authorization": f"Bearer {first}", "authorization": f"Bearer {second}"}
                assert (await line.ask("GET", "/version", **both)).status == code


class Mint:
    """Makes client certificates of the cluster's own CA, the wrong ones too."""

    def __init__(self, world: worlds.World) -> None:
        self._world = world
        ca = x509.load_pem_x509_certificate(world.place.ca_certificate.read_bytes())
        key = serialization.load_pem_private_key(world.place.ca_key.read_bytes(), None)
        self.ca = making.Made(ca, key)
        now = world.clock.now()
        self.window: dict[str, Any] = {
            "not_before": now - datetime.timedelta(minutes=5),
            "not_after": now + datetime.timedelta(hours=1),
        }

    def leaf(self, *usages: x509.ObjectIdentifier, subject: Any = None, **more: Any) -> making.Made:
        subject = subject if subject is not None else self.subject((CN, "mallory"), MASTERS)
        return making.leaf(self.ca, *usages, subject=subject, **{**self.window, **more})

    @staticmethod
    def subject(*pairs: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
        return x509.Name([x509.NameAttribute(oid, text) for oid, text in pairs])

    def context(self, made: making.Made, more: bytes = b"") -> ssl.SSLContext:
        return tls.client_context(self._world.place.ca_certificate.read_bytes(), made.pem + more, made.key_pem)

    def careless_context(self, made: making.Made, directory: pathlib.Path) -> ssl.SSLContext:
        """Of a client that takes what OpenSSL would not load by itself."""
        context = ssl.create_default_context(cafile=str(self._world.place.ca_certificate))
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        both = directory / "client.pem"
        both.write_bytes(made.pem + made.key_pem)
        context.load_cert_chain(both)
        return context

    def signed_with_sha1(self) -> making.Made:
        """A good certificate, signed again with SHA-1: the library makes none, so its DER is taken apart."""
        good = self.leaf(CLIENT)
        strong, weak = bytes.fromhex("300a06082a8648ce3d040302"), bytes.fromhex("300906072a8648ce3d0401")
        body = der(0x30, inner(good.certificate.tbs_certificate_bytes).replace(strong, weak, 1))
        digest = hashlib.sha1(body).digest()
        signature = self.ca.key.sign(digest, ec.ECDSA(signatures.Prehashed(hashes.SHA1())))
        whole = der(0x30, body + weak + der(0x03, b"\0" + signature))
        return making.Made(x509.load_der_x509_certificate(whole), good.key)


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x80 | (size.bit_length() + 7) // 8])
    return bytes([tag]) + length + (b"" if size < 128 else size.to_bytes((size.bit_length() + 7) // 8, "big")) + content


def inner(sequence: bytes) -> bytes:
    return sequence[2 + (sequence[1] & 0x7F if sequence[1] & 0x80 else 0) :]


# What gets as far as an answer.
ANSWERED: Mapping[str, tuple[str, Callable[[Mint], making.Made]]] = {
    "no extended key usage": ("WrongPurpose", lambda mint: mint.leaf()),
    "no CN": ("NoCommonName", lambda mint: mint.leaf(CLIENT, subject=mint.subject(MASTERS))),
    "empty subject": (
        "NoCommonName",
        lambda mint: mint.leaf(CLIENT, subject=x509.Name([]), sans=[x509.DNSName("kubernetes-admin")]),
    ),
    "two CNs": ("Malformed", lambda mint: mint.leaf(CLIENT, subject=mint.subject((CN, "a"), (CN, "b"), MASTERS))),
    "NUL in CN": (
        "Malformed",
        lambda mint: mint.leaf(CLIENT, subject=mint.subject((CN, "kubernetes-admin\0.example.com"), MASTERS)),
    ),
    "NUL in O": (
        "Malformed",
        lambda mint: mint.leaf(CLIENT, subject=mint.subject((CN, "a"), (ORG, "system:masters\0"))),
    ),
    "expired": (
        "Expired",
        lambda mint: mint.leaf(CLIENT, not_after=mint.window["not_before"] + datetime.timedelta(minutes=1)),
    ),
    "not yet valid": (
        "NotYetValid",
        lambda mint: mint.leaf(CLIENT, not_before=mint.window["not_after"] - datetime.timedelta(minutes=1)),
    ),
}
# What OpenSSL ends in the handshake.
DROPPED: Mapping[str, tuple[str, Callable[[Mint], making.Made]]] = {
    "for servers only": ("WrongPurpose", lambda mint: mint.leaf(ExtendedKeyUsageOID.SERVER_AUTH)),
    "for code only": ("WrongPurpose", lambda mint: mint.leaf(ExtendedKeyUsageOID.CODE_SIGNING)),
    "a key that may only sign certificates": (
        "WrongPurpose",
        lambda mint: mint.leaf(CLIENT, more=[(making.key_usage(key_cert_sign=True), True)]),
    ),
    "a key that may only encipher": (
        "WrongPurpose",
        lambda mint: mint.leaf(CLIENT, more=[(making.key_usage(key_encipherment=True), True)]),
    ),
    "an unknown critical extension": (
        "UnknownExtension",
        lambda mint: mint.leaf(
            CLIENT, more=[(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0"), True)]
        ),
    ),
    "a CA": (
        "WrongPurpose",
        lambda mint: making.ca("ca", mint.ca, (x509.ExtendedKeyUsage([CLIENT]), False), **mint.window),
    ),
    "a stranger's": (
        "UnknownAuthority",
        lambda mint: making.leaf(making.ca("other", **mint.window), CLIENT, **mint.window),
    ),
    "a stranger's by the same name": (
        "UnknownAuthority",
        lambda mint: making.leaf(making.ca(mint.ca.certificate.subject, **mint.window), CLIENT, **mint.window),
    ),
}


async def told(logs: list[Any]) -> None:
    """The client may learn of the end of a handshake a moment before the log does."""
    async with asyncio.timeout(wire.PATIENCE):
        while not logs:
            await asyncio.sleep(0)


class TestCertificates:
    @staticmethod
    async def outcome(world: worlds.World, context: ssl.SSLContext) -> int:
        """The code of the answer, 0 if there is none because TLS ends the connection."""
        try:
            async with wire.line(world.server.address[1], context) as line:
                return (await line.ask("GET", "/healthz")).status
        except Dropped:
            return 0

    async def test_a_good_one(self, world: worlds.World) -> None:
        """That the mint's certificates are refused for what is wrong with them."""
        mint = Mint(world)
        async with wire.line(world.server.address[1], mint.context(mint.leaf(CLIENT))) as line:
            assert (await line.ask("GET", "/api/v1/nodes")).status == 200

    async def test_those_that_are_answered(self, world: worlds.World) -> None:
        mint = Mint(world)
        for case, (why, make) in ANSWERED.items():
            with structlog.testing.capture_logs() as logs:
                async with wire.line(world.server.address[1], mint.context(make(mint))) as line:
                    reply = await line.ask("GET", "/healthz")
            assert (reply.status, reply.json()) == (401, callers.BARE), case
            assert [entry["reason"] for entry in logs] == [why], (case, logs)
            assert "\0" not in str(logs), case

    async def test_those_that_are_dropped(self, world: worlds.World) -> None:
        mint = Mint(world)
        for case, (why, make) in DROPPED.items():
            with structlog.testing.capture_logs() as logs:
                assert await self.outcome(world, mint.context(make(mint))) == 0, case
                await told(logs)
            assert [(entry["event"], entry["reason"]) for entry in logs] == [("handshake refused", why)], (case, logs)
            assert logs[0]["source"] == "127.0.0.1"

    async def test_a_certificate_signed_with_sha1_is_refused(self, world: worlds.World, tmp_path: pathlib.Path) -> None:
        """OpenSSL turns it away or lets it pass, by its version and security level; the server refuses it either way."""
        mint = Mint(world)
        made = mint.signed_with_sha1()
        assert made.certificate.signature_algorithm_oid.dotted_string == "1.2.840.10045.4.1"
        with structlog.testing.capture_logs() as logs:
            code = await self.outcome(world, mint.careless_context(made, tmp_path))
            await told(logs)
        assert code in {0, 401}
        assert [entry["reason"] for entry in logs] == ["WeakSignature"]

    async def test_a_hundred_organisations(self, world: worlds.World) -> None:
        """Kubernetes sets no limit, nor is there one here: they are a hundred groups, and every one counts."""
        mint = Mint(world)
        groups = [f"team-{at}" for at in range(100)]
        made = mint.leaf(CLIENT, subject=mint.subject((CN, "jane"), *((ORG, group) for group in groups)))
        await callers.bind(world, "cluster-admin", "Group", "team-99")
        async with wire.line(world.server.address[1], mint.context(made)) as line:
            reply = await line.ask("POST", callers.WHO_AM_I, b"{}")
            assert reply.json()["status"]["userInfo"]["groups"] == [*groups, "system:authenticated"]
            assert (await line.ask("GET", "/api/v1/nodes")).status == 200

    async def test_a_chain_of_too_many(self, world: worlds.World) -> None:
        mint = Mint(world)
        padding = b"".join(making.ca(f"ca {at}", **mint.window).pem for at in range(10))
        context = mint.context(mint.leaf(CLIENT), padding)
        with structlog.testing.capture_logs() as logs:
            async with wire.line(world.server.address[1], context) as line:
                assert (await line.ask("GET", "/healthz")).status == 401
        assert callers.reasons(logs) == ["Malformed"]
