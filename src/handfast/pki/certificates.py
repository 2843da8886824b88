# SPDX-License-Identifier: Apache-2.0
"""Reads the facts of one certificate from its DER, strictly; for listings, ledgers and the other modules of this room.

It does not verify what is read: whoever needs to believe the facts asks `chains.verify`. `require_signed_by` compares one signature, for pictures.

1. The DER is one complete certificate, at most `MAX_BYTES`, nothing after it.
2. Its extensions parse, and none occurs twice.
3. Its public key is one that `keys` accepts.
4. Its names are ones that `names` accepts.

A certificate is read or refused, and no other error comes out: every call of the library stands inside a fence.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
from dataclasses import dataclass, field
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import types

from handfast import errors
from handfast.pki import fences, keys, names, usages

MAX_BYTES = 64 << 10

_FENCE = fences.Fence("not a certificate in DER, or one with broken or repeated extensions", reason="Malformed")
_SIGNATURE_FENCE = fences.Fence("the certificate was not signed by that one", reason="UnknownAuthority")
_KEY_FENCE = fences.Fence("the public key's kind or curve is not supported", reason="BadKey")

Signed = x509.Certificate | x509.CertificateSigningRequest
_T = TypeVar("_T", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a certificate says about itself. `usages` are Kubernetes' words; `path_length` counts for a CA only.

    `may_sign` is False for a CA whose key usage lacks keyCertSign; without that extension a CA may sign (RFC 5280).
    """

    der: bytes = field(repr=False)
    subject: names.Subject
    issuer: str
    sans: names.Sans
    serial: str
    not_before: datetime.datetime
    not_after: datetime.datetime
    public_key: keys.PublicKey
    usages: frozenset[str]
    is_ca: bool
    may_sign: bool
    path_length: int | None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the DER, in hex."""
        return fingerprint(self.der)


def fingerprint(der: bytes) -> str:
    """SHA-256 of a certificate's DER, in hex: how certificates are named in caches, ledgers and messages."""
    return hashlib.sha256(der).hexdigest()


def serial_text(serial: int) -> str:
    """A serial number in hex, two digits to the octet."""
    digits = f"{serial:x}"
    return digits.zfill(len(digits) + len(digits) % 2)


def load(der: bytes) -> x509.Certificate:
    """The library's object after checks 1 and 2; for this room only."""
    # 1. not too large, and one complete certificate
    if len(der) > MAX_BYTES:
        raise _malformed(f"a certificate of {len(der)} bytes; at most {MAX_BYTES} are read")
    with _FENCE:
        certificate = x509.load_der_x509_certificate(der)
        # 2. extensions that parse, none twice; the library reads them only now
        _ = certificate.extensions
    return certificate


def read(der: bytes) -> Certificate:
    """The facts, after checks 1 to 4."""
    return facts(load(der), der)


def validity(der: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """notBefore and notAfter, after checks 1 and 2: for whoever needs nothing else."""
    certificate = load(der)
    with _FENCE:
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def facts(certificate: x509.Certificate, der: bytes) -> Certificate:
    """Checks 3 and 4 on a loaded certificate; for this room only."""
    with _FENCE:
        return _facts(certificate, der)


def _facts(certificate: x509.Certificate, der: bytes) -> Certificate:
    # 4. names that are accepted
    subject, issuer = names.both_of(certificate)
    constraints = extension(certificate, x509.BasicConstraints)
    key_usage = extension(certificate, x509.KeyUsage)
    is_ca = constraints is not None and constraints.ca
    return Certificate(
        der=der,
        subject=subject,
        issuer=_text(issuer),
        sans=names.from_general_names(extension(certificate, x509.SubjectAlternativeName) or ()),
        serial=serial_text(certificate.serial_number),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        # 3. a key that is accepted
        public_key=public_key(certificate),
        usages=usages.words_of(key_usage, extension(certificate, x509.ExtendedKeyUsage) or ()),
        is_ca=is_ca,
        may_sign=is_ca and (key_usage is None or key_usage.key_cert_sign),
        path_length=None if constraints is None else constraints.path_length,
    )


# Nearly all certificates have the same few issuers.
@functools.lru_cache(maxsize=64)
def _text(name: x509.Name) -> str:
    return name.rfc4514_string()


def require_ca(certificate: Certificate) -> None:
    """Return if this may be a signer or a trust anchor, else refuse."""
    if not certificate.is_ca:
        raise _not_authority("the certificate is not one of a CA (basicConstraints CA:TRUE is missing)")
    if not certificate.may_sign:
        raise _not_authority("the CA certificate's key usage does not include keyCertSign")
    if certificate.public_key.kind not in keys.ISSUER_KINDS:
        raise _not_authority(f"a CA key must be RSA or EC, not {certificate.public_key.kind}")


def require_signed_by(certificate: Certificate, signer: Certificate) -> None:
    """Return if the signature of a certificate is that of the signer's key, and names it, else refuse. Nothing else is judged: `chains.verify` does."""
    with _SIGNATURE_FENCE:
        load(certificate.der).verify_directly_issued_by(load(signer.der))


def extension(signed: Signed, kind: type[_T]) -> _T | None:
    """The value of an extension, None if there is none; for this room only."""
    try:
        return signed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def public_key(signed: Signed) -> keys.PublicKey:
    """The judged public key of a certificate or request (3); for this room only."""
    return keys.judge(library_key(signed))


def library_key(signed: Signed) -> types.PublicKeyTypes:
    """The library's public key of a certificate or request, not judged yet; for this room only."""
    with _KEY_FENCE:
        return signed.public_key()


def _malformed(message: str) -> errors.Refused:
    return errors.Refused(message, reason="Malformed")


def _not_authority(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadAuthority")
