# SPDX-License-Identifier: Apache-2.0
"""Makes certificates of every shape on the spot, the wrong ones too; nothing here is under test."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
ANY = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE

Extension = tuple[x509.ExtensionType, bool]


@dataclass(frozen=True)
class Made:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: Any = field(repr=False)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self._key(serialization.NoEncryption())

    def key_with_password(self, password: bytes) -> bytes:
        return self._key(serialization.BestAvailableEncryption(password))

    def _key(self, encryption: serialization.KeySerializationEncryption) -> bytes:
        return bytes(self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def key_usage(**bits: bool) -> x509.KeyUsage:
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{bit: bits.get(bit, False) for bit in every})


def certificate(
    subject: str | x509.Name,
    issuer: Made | None = None,
    extensions: Sequence[Extension] = (),
    *,
    key: Any = None,
    not_before: datetime.datetime = NOW - DAY,
    not_after: datetime.datetime = NOW + DAY,
    digest: Any = None,
) -> Made:
    """Exactly what is asked for, sensible or not."""
    key = key or new_key()
    subject = name(subject) if isinstance(subject, str) else subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )
    for value, critical in extensions:
        builder = builder.add_extension(value, critical)
    signing = issuer.key if issuer else key
    if digest is None and not isinstance(signing, ed25519.Ed25519PrivateKey):
        digest = hashes.SHA256()
    return Made(builder.sign(signing, digest), key)


def ca(
    subject: str | x509.Name = "root",
    issuer: Made | None = None,
    *extensions: Extension,
    path_length: int | None = None,
    **rest: Any,
) -> Made:
    constraints = (x509.BasicConstraints(ca=True, path_length=path_length), True)
    signs = (key_usage(key_cert_sign=True, crl_sign=True), True)
    return certificate(subject, issuer, [constraints, signs, *extensions], **rest)


def leaf(
    issuer: Made,
    *usages: x509.ObjectIdentifier,
    subject: str | x509.Name = "jane",
    sans: Sequence[x509.GeneralName] = (),
    more: Sequence[Extension] = (),
    **rest: Any,
) -> Made:
    extensions: list[Extension] = [(x509.BasicConstraints(ca=False, path_length=None), True)]
    if usages:
        extensions.append((x509.ExtendedKeyUsage(list(usages)), False))
    if sans:
        extensions.append((x509.SubjectAlternativeName(sans), False))
    return certificate(subject, issuer, [*extensions, *more], **rest)
