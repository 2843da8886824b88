# SPDX-License-Identifier: Apache-2.0
"""Generates, loads and judges keys: which kinds are strong enough to be used here, and no private key ever prints.

It does not store keys (files and their modes belong to the doing half) nor decide who may hold one.

A key is accepted, private or public, when all of this holds:

1. Its kind is RSA, EC or Ed25519. DSA, Ed448, X25519 and the rest are refused by name.
2. An EC key lies on P-256, P-384 or P-521. P-224 is too weak; secp256k1 and Brainpool are foreign to TLS.
3. An RSA key has 2048 to 8192 bits: fewer are weak, and more would let a peer cost us time.
4. A private key is one PEM block, PKCS#8, SEC1 or PKCS#1, without a passphrase: a server that starts unattended has
   nobody to ask. `EC PARAMETERS` and, on request, certificates may stand beside it, as OpenSSL and the kubelet do.
   Where the caller expects DER, it is one value of the same three forms.

Ed25519 may identify a leaf but not a CA (`ISSUER_KINDS`): the path verifier of `cryptography` has no Ed25519 issuers.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from cryptography import exceptions
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, types

from handfast import errors
from handfast.pki import fences, pem

MIN_RSA_BITS = 2048
MAX_RSA_BITS = 8192


class Kind(enum.StrEnum):
    """The kinds of key in use, named as people write them."""

    P256 = "P-256"
    P384 = "P-384"
    P521 = "P-521"
    ED25519 = "Ed25519"
    RSA = "RSA"


ISSUER_KINDS = frozenset({Kind.P256, Kind.P384, Kind.P521, Kind.RSA})

_CURVES: dict[str, Kind] = {"secp256r1": Kind.P256, "secp384r1": Kind.P384, "secp521r1": Kind.P521}
_GENERATED: dict[Kind, ec.EllipticCurve] = {
    Kind.P256: ec.SECP256R1(),
    Kind.P384: ec.SECP384R1(),
    Kind.P521: ec.SECP521R1(),
}
_HASHES: dict[Kind, hashes.SHA256 | hashes.SHA384 | hashes.SHA512] = {
    Kind.P256: hashes.SHA256(),
    Kind.P384: hashes.SHA384(),
    Kind.P521: hashes.SHA512(),
    Kind.RSA: hashes.SHA256(),
}
# The same objects each time: making one costs a tenth of a signature.
_ECDSA = {kind: ec.ECDSA(digest) for kind, digest in _HASHES.items()}
_ENCRYPTED = "ENCRYPTED PRIVATE KEY"
_FOREIGN = {
    _ENCRYPTED: "the key is encrypted; remove its passphrase first",
    "DSA PRIVATE KEY": "DSA keys are not accepted",
    "OPENSSH PRIVATE KEY": "OpenSSH's own key format is not accepted; convert it to PKCS#8",
}
_SPKI_FENCE = fences.Fence("not a SubjectPublicKeyInfo", reason="BadKey")
_SIGNATURE_FENCE = fences.Fence("the signature cannot be compared with this key", reason="BadSignature")


class Encrypted(errors.Refused):
    """A private key that needs a passphrase."""

    reason = "BadKey"


Signing = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
Verifying = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key that passed the checks: its kind, its size and its SubjectPublicKeyInfo."""

    kind: Kind
    bits: int
    spki: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the SubjectPublicKeyInfo, in hex: what pins and ledgers name a key by."""
        return hashlib.sha256(self.spki).hexdigest()

    def require_signature(self, signature: bytes, data: bytes) -> None:
        """Return if `signature` over `data` was made by this key, else refuse."""
        with _SIGNATURE_FENCE:
            key = serialization.load_der_public_key(self.spki)
            try:
                if isinstance(key, ec.EllipticCurvePublicKey):
                    key.verify(signature, data, _ECDSA[self.kind])
                elif isinstance(key, rsa.RSAPublicKey):
                    key.verify(signature, data, padding.PKCS1v15(), _HASHES[self.kind])
                else:
                    _ed25519(key).verify(signature, data)
            except exceptions.InvalidSignature:
                raise errors.Refused("the signature was not made by this key", reason="BadSignature") from None


class PrivateKey:
    """A private key that passed the checks. It signs and is written out on request; it never prints or pickles."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Signing) -> None:
        self._key = key
        self.public = judge(key.public_key())

    def __repr__(self) -> str:
        return f"<PrivateKey {self.public.kind} public={self.public.fingerprint[:16]}>"

    def __reduce__(self) -> NoReturn:
        raise errors.Misuse("a private key is not pickled or copied: pass the object, or write its PEM where keys live")

    def to_pem(self) -> bytes:
        """PKCS#8, unencrypted: for a file that only its owner can read."""
        return pem.encode(pem.PRIVATE_KEY, self.to_der())

    def to_der(self) -> bytes:
        """The same without PEM: for a Secret."""
        return self._key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def sign(self, data: bytes) -> bytes:
        """The signature X.509 would carry: ECDSA in DER, RSA PKCS#1 v1.5, or EdDSA."""
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            return self._key.sign(data, _ECDSA[self.public.kind])
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(data, padding.PKCS1v15(), _HASHES[self.public.kind])
        return self._key.sign(data)

    def for_builder(self) -> tuple[Signing, hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None]:
        """The library's key and the hash that goes with it: for the X.509 builders of this room only."""
        return self._key, _HASHES.get(self.public.kind)


def generate(kind: Kind = Kind.P256, bits: int = MIN_RSA_BITS) -> PrivateKey:
    """A new key; `bits` counts for RSA only."""
    if kind is Kind.ED25519:
        return PrivateKey(ed25519.Ed25519PrivateKey.generate())
    if kind is not Kind.RSA:
        return PrivateKey(ec.generate_private_key(_GENERATED[kind]))
    if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
        raise errors.Misuse(f"an RSA key has {MIN_RSA_BITS} to {MAX_RSA_BITS} bits, not {bits}")
    return PrivateKey(rsa.generate_private_key(65537, bits))


def private_from_pem(data: bytes, *, ignoring: Sequence[str] = ()) -> PrivateKey:
    """The only private key of a PEM text (4), judged (1 to 3). `ignoring` names labels that may stand beside the key, such as CERTIFICATE."""
    # 4. one PEM block with a private key
    beside = {pem.EC_PARAMETERS, *ignoring}
    blocks = [block for block in pem.blocks(data) if block.label not in beside]
    for block in blocks:
        if block.label in _FOREIGN:
            kind = Encrypted if block.label == _ENCRYPTED else errors.Refused
            raise kind(_FOREIGN[block.label], reason="BadKey")
        if block.label not in pem.KEY_LABELS:
            raise _refused(
                f"PEM block {block.label} is not a private key; expected one of: {', '.join(pem.KEY_LABELS)}"
            )
    if len(blocks) != 1:
        raise _refused(f"expected exactly one private key, found {len(blocks)}")
    with fences.Fence(f"the content of the {blocks[0].label} block is not such a key", reason="BadKey"):
        try:
            # Re-encoded, so that the library also holds the content to its label.
            key = serialization.load_pem_private_key(pem.encode(blocks[0].label, blocks[0].der), None)
        except exceptions.UnsupportedAlgorithm:
            raise _refused("the private key's kind or curve is not supported") from None
        return _judged(key)


def private_from_der(der: bytes) -> PrivateKey:
    """The private key of one DER value (4), judged (1 to 3)."""
    with fences.Fence("not a private key in DER", reason="BadKey"):
        try:
            # 4. one value with a private key, not encrypted
            key = serialization.load_der_private_key(der, None)
        except TypeError:
            # The library's way to ask for a passphrase.
            raise Encrypted(_FOREIGN[_ENCRYPTED]) from None
        return _judged(key)


def _judged(key: types.PrivateKeyTypes) -> PrivateKey:
    # 1. to 3. a kind and a size that are accepted
    if not isinstance(key, Signing):
        raise _foreign(key)
    return PrivateKey(key)


def public_from_spki(spki: bytes) -> PublicKey:
    """A public key from its SubjectPublicKeyInfo, after checks 1 to 3."""
    with _SPKI_FENCE:
        try:
            key = serialization.load_der_public_key(spki)
        except exceptions.UnsupportedAlgorithm:
            raise _refused("the public key's kind or curve is not supported") from None
        return judge(key)


def publics_from_pem(data: bytes) -> list[PublicKey]:
    """The public keys of a file, at least one and nothing else, in the order given."""
    blocks = pem.blocks(data)
    for block in blocks:
        if block.label != pem.PUBLIC_KEY:
            raise _refused(f"PEM block type must be {pem.PUBLIC_KEY}, found {block.label}")
    if not blocks:
        raise _refused(f"no {pem.PUBLIC_KEY} block in the PEM input")
    return [public_from_spki(block.der) for block in blocks]


def judge(key: types.PublicKeyTypes) -> PublicKey:
    """Checks 1 to 3 on a key of the library; for this room only, others come with bytes."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        # 2. on a curve of TLS
        kind = _CURVES.get(key.curve.name)
        if kind is None:
            raise _weak(f"an EC key must lie on P-256, P-384 or P-521, not {key.curve.name}")
        return PublicKey(kind, key.key_size, spki_of(key))
    if isinstance(key, rsa.RSAPublicKey):
        # 3. neither weak nor expensive
        if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            raise _weak(f"an RSA key must have {MIN_RSA_BITS} to {MAX_RSA_BITS} bits, not {key.key_size}")
        return PublicKey(Kind.RSA, key.key_size, spki_of(key))
    # 1. of a kind that is accepted
    if isinstance(key, ed25519.Ed25519PublicKey):
        return PublicKey(Kind.ED25519, 256, spki_of(key))
    raise _foreign(key)


def spki_of(key: types.PublicKeyTypes) -> bytes:
    """The SubjectPublicKeyInfo of a key of the library."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def for_certificate(public: PublicKey) -> Verifying:
    """The library's object for a judged key: for the X.509 builder."""
    key = serialization.load_der_public_key(public.spki)
    if isinstance(key, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey)):
        return key
    return _ed25519(key)


def _ed25519(key: types.PublicKeyTypes) -> ed25519.Ed25519PublicKey:
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise errors.Misuse("a PublicKey was made without being judged")
    return key


def _foreign(key: types.PublicKeyTypes | types.PrivateKeyTypes) -> errors.Refused:
    kind = type(key).__name__.removesuffix("PublicKey").removesuffix("PrivateKey")
    return _weak(f"a key must be RSA, EC or Ed25519, not {kind}")


def _refused(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadKey")


def _weak(message: str) -> errors.Refused:
    return errors.Refused(message, reason="WeakKey")
