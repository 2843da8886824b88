# SPDX-License-Identifier: Apache-2.0
"""A certificate with its chain and its private key, in the one-file form of the kubelet: read strictly, written back.

It does not touch files, and does not say whether the certificate is in force: the caller compares the times of `leaf`.

A `Pair` exists only when all of this holds:

1. The text is PEM with one private key and at least one certificate, and nothing else.
2. Every certificate can be read; the first one is the leaf, the others its chain.
3. The key is strong enough to be used here (`keys`), and it is the leaf's. Certificates in another order, or the key of
   yesterday, would fail only later, in a handshake, with a worse message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from handfast import errors
from handfast.pki import certificates, keys, pem


@dataclass(frozen=True, slots=True)
class Pair:
    """Certificates in DER, leaf first, and the key. Two pairs with one chain are equal: the leaf names the key."""

    chain: tuple[bytes, ...] = field(repr=False)
    key: keys.PrivateKey = field(compare=False)
    leaf: certificates.Certificate = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # 1. at least one certificate
        if not self.chain:
            raise _malformed("no certificate")
        # 2. every one can be read, and the first is the leaf
        leaf, *_ = [_read(der, number) for number, der in enumerate(self.chain, start=1)]
        # 3. the key is the leaf's
        if leaf.public_key.spki != self.key.public.spki:
            raise errors.Refused(
                "the private key and the first certificate do not belong together", reason="KeyMismatch"
            )
        object.__setattr__(self, "leaf", leaf)

    @property
    def certificate_pem(self) -> bytes:
        """The leaf, then its chain."""
        return pem.certificates_to_pem(self.chain)

    @property
    def key_pem(self) -> bytes:
        """The private key: for a file that only its owner can read."""
        return self.key.to_pem()

    @property
    def pem(self) -> bytes:
        """Certificates, then the key: what the kubelet keeps in one file."""
        return self.certificate_pem + self.key_pem


def read(data: bytes) -> Pair:
    """The pair in the kubelet's file form."""
    try:
        key = keys.private_from_pem(data, ignoring=[pem.CERTIFICATE])
        chain = pem.certificates_from_pem(data, ignoring=[*pem.KEY_LABELS, pem.EC_PARAMETERS])
    except errors.Refused as refused:
        raise _kept(refused, refused.message) from None
    return Pair(tuple(chain), key)


def join(certificate_pem: bytes, key: keys.PrivateKey) -> Pair:
    """The pair of a signer's answer, a certificate and perhaps its chain, and the key of the request."""
    try:
        chain = pem.certificates_from_pem(certificate_pem)
    except errors.Refused as refused:
        raise _malformed(refused.message) from None
    return Pair(tuple(chain), key)


def _read(der: bytes, number: int) -> certificates.Certificate:
    try:
        return certificates.read(der)
    except errors.Refused as refused:
        raise _kept(refused, f"certificate {number}: {refused.message}") from None


def _kept(refused: errors.Refused, message: str) -> errors.Refused:
    # A weak key is something to replace, all else something to repair: callers tell the two apart.
    if refused.reason == "WeakKey":
        return errors.Refused(message, reason=refused.reason, hint=refused.hint)
    return _malformed(message)


def _malformed(message: str) -> errors.Refused:
    return errors.Refused(f"not a certificate with its key: {message}", reason="MalformedPair")
