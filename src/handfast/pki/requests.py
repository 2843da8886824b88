# SPDX-License-Identifier: Apache-2.0
"""Builds certificate signing requests and parses them strictly, with proof that the sender holds the key.

It does not decide whether the request is granted: `rules` sees the parsed facts, and `authority` copies only subject,
alternative names and key from them.

`parse` returns only when all of this holds:

1. The input is at most `MAX_BYTES`.
2. It is exactly one PEM block `CERTIFICATE REQUEST`, without text around it.
3. The block is one complete PKCS#10 request in DER, version 1, nothing after it.
4. The public key is one that `keys` accepts.
5. The signature uses SHA-256 or better, or EdDSA, and verifies under that very key (proof of possession).
6. No attribute and no requested extension occurs twice, and the extensions parse.
7. The subject has at most one common name, and every alternative name is DNS, IP, URI or e-mail, well formed.

Not refused here but reported, so that a rule can: a wish to be a CA (`wants_ca`), attributes and extensions that
nothing here reads (`other_attributes`, `other_extensions`). None of them ever reaches a certificate.

| who        | holding                  | tries                            | check     | shown by (tests/unit/pki)     |
| ---------- | ------------------------ | -------------------------------- | --------- | ----------------------------- |
| a thief    | another's public key     | a certificate for a key he lacks | 5         | test_signature_of_another_key |
| a forger   | a victim's request       | changes the names                | 5         | test_changed_after_signing    |
| a smuggler | two readers that differ  | two blocks or two CNs            | 2, 3, 7   | test_a_request_that_breaks_a_check_is_refused_in_words |
| a smuggler | two readers that differ  | the same extension twice         | 6         | test_extension_twice          |
| a weakling | an RSA-1024 or P-224 key | a forgeable certificate          | 4         | test_weak_key                 |
| a climber  | a valid key              | asks for CA:TRUE                 | authority | test_wishes_are_not_issued    |
| a vandal   | patience                 | megabytes of request             | 1         | test_a_request_that_breaks_a_check_is_refused_in_words |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, types
from cryptography.x509.oid import SignatureAlgorithmOID

from handfast import errors
from handfast.pki import certificates, fences, keys, names, pem, usages

MAX_BYTES = 64 << 10

_EXTENSION_REQUEST = "1.2.840.113549.1.9.14"
_READ = frozenset(
    kind.oid for kind in (x509.SubjectAlternativeName, x509.KeyUsage, x509.ExtendedKeyUsage, x509.BasicConstraints)
)
_STRONG = (hashes.SHA256, hashes.SHA384, hashes.SHA512)
_ECDSA = {
    SignatureAlgorithmOID.ECDSA_WITH_SHA256: ec.ECDSA(hashes.SHA256()),
    SignatureAlgorithmOID.ECDSA_WITH_SHA384: ec.ECDSA(hashes.SHA384()),
    SignatureAlgorithmOID.ECDSA_WITH_SHA512: ec.ECDSA(hashes.SHA512()),
}
_NO_SANS = names.Sans()
_WHOLE = fences.Fence("not a PKCS#10 certificate request in DER", reason="MalformedRequest")
_ATTRIBUTES = fences.Fence(
    "the request's attributes cannot be read, or one of them has several values", reason="MalformedRequest"
)
_EXTENSIONS = fences.Fence("the request's extensions cannot be read", reason="MalformedRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a checked request asks for. `requested_usages` are Kubernetes' words."""

    subject: names.Subject
    sans: names.Sans
    public_key: keys.PublicKey
    requested_usages: frozenset[str] = frozenset()
    wants_ca: bool = False
    other_attributes: tuple[str, ...] = ()
    other_extensions: tuple[str, ...] = ()
    der: bytes = field(repr=False)

    @property
    def public_key_spki(self) -> bytes:
        """The SubjectPublicKeyInfo of the key whose possession was proven."""
        return self.public_key.spki


def build(subject: names.Subject, sans: names.Sans, key: keys.PrivateKey) -> bytes:
    """A request in PEM: subject, alternative names if any, signed by the key. It asks for nothing else."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(names.to_name(subject))
    if sans:
        # RFC 5280: critical when the subject is empty, since then it is the only name.
        critical = subject == names.Subject()
        builder = builder.add_extension(x509.SubjectAlternativeName(names.to_general_names(sans)), critical)
    signing, digest = key.for_builder()
    return pem.encode(pem.CERTIFICATE_REQUEST, builder.sign(signing, digest).public_bytes(serialization.Encoding.DER))


def parse(data: bytes) -> Request:
    """Checks 1 to 7 on a request in PEM."""
    # 1. not too large
    if len(data) > MAX_BYTES:
        raise _refused(f"a certificate request of {len(data)} bytes; at most {MAX_BYTES} are read")
    # 2. exactly one PEM block
    return parse_der(pem.one(data, pem.CERTIFICATE_REQUEST))


def parse_der(data: bytes) -> Request:
    """Checks 1 and 3 to 7 on a request in DER, as gRPC clients send it."""
    # 1. not too large
    if len(data) > MAX_BYTES:
        raise _refused(f"a certificate request of {len(data)} bytes; at most {MAX_BYTES} are read")
    # 3. one complete PKCS#10 request; whatever the library finds wrong later is refused here, too
    with _WHOLE:
        return _parsed(x509.load_der_x509_csr(data), data)


def _parsed(csr: x509.CertificateSigningRequest, data: bytes) -> Request:
    # 4. a key that is accepted
    key = certificates.library_key(csr)
    public = keys.judge(key)
    # 5. proof of possession
    _require_possession(csr, key)
    # 6. no attribute and no extension occurs twice
    attributes = [attribute.oid.dotted_string for attribute in _attributes(csr)]
    if not attributes:
        # Most requests of nodes have neither: nothing is left to check but the subject (7).
        return Request(subject=names.subject_of(csr), sans=_NO_SANS, public_key=public, der=data)
    extensions = _extensions(csr)
    # 7. one common name at most, and well-formed alternative names
    constraints = certificates.extension(csr, x509.BasicConstraints)
    return Request(
        subject=names.subject_of(csr),
        sans=names.from_general_names(certificates.extension(csr, x509.SubjectAlternativeName) or ()),
        public_key=public,
        requested_usages=usages.words_of(
            certificates.extension(csr, x509.KeyUsage), certificates.extension(csr, x509.ExtendedKeyUsage) or ()
        ),
        wants_ca=constraints is not None and constraints.ca,
        other_attributes=tuple(oid for oid in attributes if oid != _EXTENSION_REQUEST),
        other_extensions=tuple(wish.oid.dotted_string for wish in extensions if wish.oid not in _READ),
        der=data,
    )


def _require_possession(csr: x509.CertificateSigningRequest, key: types.PublicKeyTypes) -> None:
    try:
        digest = csr.signature_hash_algorithm
        if digest is not None and not isinstance(digest, _STRONG):
            raise errors.Refused(f"the request is signed with {digest.name}, which is too weak", reason="WeakSignature")
        ecdsa = _ECDSA.get(csr.signature_algorithm_oid)
        if ecdsa is not None and isinstance(key, ec.EllipticCurvePublicKey):
            # As the library does, without loading the key a second time.
            key.verify(csr.signature, csr.tbs_certrequest_bytes, ecdsa)
            return
        good = csr.is_signature_valid
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm, exceptions.InvalidSignature):
        good = False
    if not good:
        raise errors.Refused("the request is not signed by the key it carries", reason="BadSignature")


def _attributes(csr: x509.CertificateSigningRequest) -> list[x509.Attribute]:
    with _ATTRIBUTES:
        attributes = list(csr.attributes)
    if len({attribute.oid for attribute in attributes}) != len(attributes):
        raise _refused("an attribute occurs twice in the request")
    return attributes


def _extensions(csr: x509.CertificateSigningRequest) -> x509.Extensions:
    with _EXTENSIONS:
        try:
            return csr.extensions
        except x509.DuplicateExtension as twice:
            raise _refused(f"extension {twice.oid.dotted_string} occurs twice in the request") from None


def _refused(message: str) -> errors.Refused:
    return errors.Refused(message, reason="MalformedRequest")
