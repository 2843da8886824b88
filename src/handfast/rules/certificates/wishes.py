# SPDX-License-Identifier: Apache-2.0
"""What a machine wants of a certificate, and whether what it finds or gets is that. It asks nobody: `client.requests` does.

The name of a request is a hash of its key and its wishes, so that whoever starts again with the same key finds the
request filed before. One that is there already is ours when all of this holds:

1. It carries our public key, and was signed with it.
2. Its subject, alternative names, signer and usages are those wanted.
3. Its certificate, if it has one, has not expired.

A certificate is taken when all of this holds:

4. It can be read, is not longer than `MAX_BYTES`, and is for our key. What comes after it is its chain: of that,
   what cannot be read is left out.
5. It has the subject, the alternative names and the usages wanted.
6. It is in force now. One that begins later speaks of a clock that is wrong, and the same request is asked again.

| who | holding | tries | stopped by | shown in tests/unit/rules/certificates/test_wishes.py |
|---|---|---|---|---|
| who may file requests | the name of ours, which is no secret | have us wait for a request of theirs | 1, 2 | test_not_ours |
| who may write certificates | one of another node, or for another key | have us run as somebody else | 4, 5 | test_a_certificate_that_is_not_the_one_wanted_is_refused |
| who may write certificates | an old one of ours | have us wait for what has ended | 3 | test_not_ours |
| who may write certificates | an old one of ours | have us fall back to what has ended | 6 | test_a_certificate_that_is_not_the_one_wanted_is_refused |
"""

from __future__ import annotations

import base64
import binascii
import datetime

import msgspec

from handfast import errors
from handfast.api import signer_names, signing_requests
from handfast.pki import certificates, keys, names, pem, renewal, request_names, requests, usages
from handfast.rules import user_names

# A certificate with its chain; a store of pairs takes no longer ones.
MAX_BYTES = 256 << 10
# The reasons of refusals, after which the key of a request is of no use.
INCOMPATIBLE = "IncompatibleRequest"
WRONG_CERTIFICATE = "WrongCertificate"

_NO_SANS = names.Sans()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a certificate is to say. `usages` are those for an EC key, in the order in which the request's name hashes them."""

    subject: names.Subject
    sans: names.Sans = _NO_SANS
    signer: str
    usages: tuple[str, ...]
    expiration_seconds: int | None = None

    def usages_of(self, key: keys.PublicKey) -> tuple[str, ...]:
        """Those for this key."""
        # With RSA, TLS 1.2 may encipher the session's key with the certificate's.
        more = (usages.KEY_ENCIPHERMENT,) if key.kind is keys.Kind.RSA else ()
        return (*self.usages, *more)


def node_client(node: str, expiration_seconds: int | None = None) -> Wanted:
    """The certificate by which a node logs in."""
    return Wanted(
        subject=user_names.node_subject(node),
        signer=signer_names.KUBELET_CLIENT,
        usages=(usages.DIGITAL_SIGNATURE, usages.CLIENT_AUTH),
        expiration_seconds=expiration_seconds,
    )


def node_serving(node: str, sans: names.Sans, expiration_seconds: int | None = None) -> Wanted:
    """The certificate of a node's own HTTPS endpoint."""
    return Wanted(
        subject=user_names.node_subject(node),
        sans=sans,
        signer=signer_names.KUBELET_SERVING,
        usages=(usages.DIGITAL_SIGNATURE, usages.SERVER_AUTH),
        expiration_seconds=expiration_seconds,
    )


def name_of(key: keys.PublicKey, wanted: Wanted) -> str:
    """The name of the request for this key."""
    return request_names.csr_name(key, wanted.subject, wanted.usages_of(key))


def require_ours(filed: signing_requests.Request, key: keys.PublicKey, wanted: Wanted, now: datetime.datetime) -> None:
    """Return if a request with our name is ours (1 to 3), else Refused."""
    spec, certificate = filed.spec, filed.status.certificate
    # 1. our key: reading the request verifies its signature …
    try:
        request = requests.parse(base64.b64decode(spec.request, validate=True))
    except (errors.Refused, binascii.Error, ValueError):
        raise _incompatible("its request cannot be read") from None
    rows = (
        # … by this key
        ("it is for another key", request.public_key.spki == key.spki),
        # 2. subject, names, signer and usages
        (f"its subject is {request.subject}, not {wanted.subject}", request.subject == wanted.subject),
        ("its alternative names differ", set(request.sans.texts()) == set(wanted.sans.texts())),
        (f"its signer is {spec.signer_name}, not {wanted.signer}", spec.signer_name == wanted.signer),
        ("its usages differ", set(spec.usages or ()) == set(wanted.usages_of(key))),
    )
    for text, good in rows:
        if not good:
            raise _incompatible(text)
    # 3. nothing that has ended is waited for
    if certificate and (ends := _leaf(_unpacked(certificate)).not_after) <= now:
        raise _incompatible(f"its certificate expired at {ends:%Y-%m-%dT%H:%M:%SZ}")


def granted(certificate: str, key: keys.PublicKey, wanted: Wanted, now: datetime.datetime) -> bytes:
    """The certificate in PEM if it is the one wanted (4 to 6); Refused, or Unavailable if it may yet become good."""
    data = _unpacked(certificate)
    # 4. for our key, and not too long
    if len(data) > MAX_BYTES:
        raise _wrong(f"it is longer than {MAX_BYTES} bytes")
    leaf = _leaf(data)
    if leaf.public_key.spki != key.spki:
        raise _wrong("it is for a different key than the one requested for")
    # 5. subject, names and usages
    if (why := renewal.lacking(leaf, wanted.subject, wanted.sans)) is not None:
        raise _wrong(why)
    if missing := sorted(set(wanted.usages) - leaf.usages):
        raise _wrong(f"it lacks the usages {', '.join(missing)}")
    # 6. in force now
    if now >= leaf.not_after:
        raise _wrong(
            f"it expired at {leaf.not_after:%Y-%m-%dT%H:%M:%SZ}, and it is {now:%Y-%m-%dT%H:%M:%SZ} here",
            hint="compare this machine's clock with the API server's",
        )
    if now < leaf.not_before:
        raise errors.Unavailable(
            f"the certificate returned is not valid before {leaf.not_before:%Y-%m-%dT%H:%M:%SZ}, and it is "
            f"{now:%Y-%m-%dT%H:%M:%SZ} here",
            reason="CertificateNotYetValid",
            hint="compare this machine's clock with the API server's; the same request is asked again",
        )
    return _readable(data)


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("status.certificate is not base64") from None


def _leaf(data: bytes) -> certificates.Certificate:
    try:
        return certificates.read(pem.certificates_from_pem(data)[0])
    except errors.Refused as refused:
        raise _wrong(f"it cannot be read: {refused.message}") from refused


def _readable(data: bytes) -> bytes:
    """Without those certificates of the chain that nobody could use (4)."""
    first, *chain = pem.certificates_from_pem(data)
    kept = [first, *filter(_is_readable, chain)]
    return data if len(kept) == len(chain) + 1 else pem.certificates_to_pem(kept)


def _is_readable(der: bytes) -> bool:
    try:
        certificates.read(der)
    except errors.Refused:
        return False
    return True


def _incompatible(why: str) -> errors.Refused:
    return errors.Refused(f"retrieved csr is not compatible: {why}", reason=INCOMPATIBLE)


def _wrong(why: str, hint: str | None = None) -> errors.Refused:
    return errors.Refused(f"the certificate returned is refused: {why}", reason=WRONG_CERTIFICATE, hint=hint)
