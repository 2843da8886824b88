# SPDX-License-Identifier: Apache-2.0
"""Requests are built, and parsed with proof of possession; it does not test who is granted what."""

from __future__ import annotations

import pathlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import AttributeOID

from handfast import errors
from handfast.pki import authority, certificates, keys, names, pem, profiles, requests
from tests.unit.pki import making, odd

VECTORS = pathlib.Path(__file__).parents[2] / "vectors" / "pki"
NODE = names.Subject(common_name="system:node:a", organizations=("system:nodes",))
SANS = names.Sans.parse(["DNS:a.example", "IP:192.0.2.1"])
NULL = b"\x05\x00"


def made(*extensions: x509.ExtensionType, key=None, subject: x509.Name | None = None, attributes=()) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject or making.name("jane"))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    for oid, value in attributes:
        builder = builder.add_attribute(oid, value)
    return builder.sign(key or making.new_key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def unknown(oid: str) -> x509.UnrecognizedExtension:
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), NULL)


def resigned(data: bytes, old: bytes, new: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
    """The request with octets replaced (same length) and signed again, so that only the content is wrong."""
    der = pem.one(data, "CERTIFICATE REQUEST")
    csr = x509.load_der_x509_csr(der)
    body = csr.tbs_certrequest_bytes
    assert old in body
    body = body.replace(old, new)
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")
    signature = key.sign(body, ec.ECDSA(hashes.SHA256()))
    content = body + algorithm + b"\x03" + bytes([len(signature) + 1]) + b"\0" + signature
    length = b"\x81" + bytes([len(content)]) if len(content) < 256 else b"\x82" + len(content).to_bytes(2, "big")
    return pem.encode("CERTIFICATE REQUEST", b"\x30" + length + content)


@pytest.mark.parametrize("kind", [keys.Kind.P256, keys.Kind.P384, keys.Kind.ED25519, keys.Kind.RSA])
def test_build_and_parse(kind: keys.Kind):
    key = keys.generate(kind)
    request = requests.parse(requests.build(NODE, SANS, key))
    assert request.subject == NODE
    assert request.sans == SANS
    assert request.public_key == key.public
    assert request.public_key_spki == key.public.spki
    assert request.requested_usages == frozenset()
    assert (request.wants_ca, request.other_attributes, request.other_extensions) == (False, (), ())


def _signed(*relative_names: bytes) -> bytes:
    """A request without attributes whose subject is made of these octets, signed by the key it carries."""
    key = ec.generate_private_key(ec.SECP256R1())
    spki = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    body = odd.der(0x30, b"\x02\x01\x00" + odd.der(0x30, b"".join(relative_names)) + spki + b"\xa0\x00")
    signature = odd.der(0x03, b"\0" + key.sign(body, ec.ECDSA(hashes.SHA256())))
    return odd.der(0x30, body + bytes.fromhex("300a06082a8648ce3d040302") + signature)


_COMMON_NAME = bytes.fromhex("0603550403")
_JANE = odd.der(0x31, odd.der(0x30, _COMMON_NAME + odd.der(0x0C, b"jane")))
_EMPTY = odd.der(0x31, b"")
_LONG_TAG = odd.der(0x31, odd.der(0x30, _COMMON_NAME + bytes.fromhex("1f81010161")))


@pytest.mark.parametrize(
    "relative_names",
    [(_EMPTY,), (_JANE, _EMPTY), (_LONG_TAG,)],
    ids=["an empty relative name", "one more", "a tag of several octets"],
)
def test_odd_subjects_are_refused(relative_names: tuple[bytes, ...]):
    with pytest.raises(errors.Refused, match="distinguished name"):
        requests.parse_der(_signed(*relative_names))


def test_plain_subjects_are_read():
    assert requests.parse_der(_signed(_JANE)).subject == names.Subject(common_name="jane")


@pytest.mark.parametrize("digest", [hashes.SHA256(), hashes.SHA384(), hashes.SHA512()])
@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_any_strong_hash_with_any_curve(curve: ec.EllipticCurve, digest: hashes.SHA256 | hashes.SHA384 | hashes.SHA512):
    key = ec.generate_private_key(curve)
    builder = x509.CertificateSigningRequestBuilder().subject_name(making.name("jane"))
    data = builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)
    assert requests.parse(data).subject.common_name == "jane"


def test_without_alternative_names():
    request = requests.parse(requests.build(NODE, names.Sans(), keys.generate()))
    assert request.sans == names.Sans()


@pytest.mark.parametrize(("subject", "critical"), [(NODE, False), (names.Subject(), True)])
def test_alternative_names_are_critical_when_they_are_the_only_name(subject: names.Subject, critical: bool):
    csr = x509.load_pem_x509_csr(requests.build(subject, SANS, keys.generate()))
    assert csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical is critical


def test_request_of_openssl():
    request = requests.parse((VECTORS / "openssl.csr.pem").read_bytes())
    assert request.subject == names.Subject(common_name="jane", organizations=("dev", "ops"))
    assert request.sans.texts() == [
        "DNS:jane.example",
        "email:jane@example.org",
        "IP:192.0.2.7",
        "URI:spiffe://example/jane",
    ]
    assert request.requested_usages == {"digital signature", "client auth", "1.2.3.4"}
    assert request.wants_ca
    assert request.other_extensions == ("2.16.840.1.113730.1.13",)


def test_attributes_are_reported():
    data = made(attributes=[(AttributeOID.CHALLENGE_PASSWORD, b"hello")])
    assert requests.parse(data).other_attributes == (AttributeOID.CHALLENGE_PASSWORD.dotted_string,)


def test_wishes_are_not_issued():
    request = requests.parse(
        made(
            x509.BasicConstraints(ca=True, path_length=None),
            making.key_usage(key_cert_sign=True),
            x509.ExtendedKeyUsage([making.SERVER]),
            unknown("1.2.3.4"),
        )
    )
    root = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), making.NOW)
    issued = root.issue(request.public_key, request.subject, request.sans, profiles.CLIENT, making.NOW)
    facts = certificates.read(issued.der)
    assert not facts.is_ca
    assert facts.usages == {"digital signature", "client auth"}
    extensions = x509.load_der_x509_certificate(issued.der).extensions
    assert {extension.oid._name for extension in extensions} == {
        "basicConstraints",
        "keyUsage",
        "extendedKeyUsage",
        "authorityKeyIdentifier",
    }


def test_signature_of_another_key():
    mine, theirs = keys.generate(), keys.generate()
    der = pem.one(requests.build(NODE, SANS, mine), "CERTIFICATE REQUEST")
    swapped = der.replace(mine.public.spki, theirs.public.spki)
    with pytest.raises(errors.Refused, match="not signed by the key it carries") as caught:
        requests.parse_der(swapped)
    assert caught.value.reason == "BadSignature"


def test_changed_after_signing():
    der = pem.one(requests.build(NODE, SANS, keys.generate()), "CERTIFICATE REQUEST")
    with pytest.raises(errors.Refused) as caught:
        requests.parse_der(der.replace(b"system:node:a", b"system:node:b"))
    assert caught.value.reason == "BadSignature"


def test_signature_algorithm_of_another_kind():
    der = pem.one(requests.build(NODE, SANS, keys.generate()), "CERTIFICATE REQUEST")
    # ecdsa-with-SHA256 becomes an algorithm that does not exist.
    with pytest.raises(errors.Refused) as caught:
        requests.parse_der(der.replace(bytes.fromhex("06082a8648ce3d040302"), bytes.fromhex("06082a8648ce3d04037f")))
    assert caught.value.reason == "BadSignature"


def test_a_request_signed_with_sha1_is_refused():
    with pytest.raises(errors.Refused, match="sha1") as caught:
        requests.parse((VECTORS / "sha1.csr.pem").read_bytes())
    assert caught.value.reason == "WeakSignature"


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP224R1())], ids=["RSA-1024", "P-224"]
)
def test_weak_key(key):
    with pytest.raises(errors.Refused) as caught:
        requests.parse(made(key=key))
    assert caught.value.reason == "WeakKey"


def test_extension_twice():
    key = making.new_key()
    data = made(unknown("1.2.3.4"), unknown("1.2.3.5"), key=key)
    assert requests.parse(data).other_extensions == ("1.2.3.4", "1.2.3.5")
    with pytest.raises(errors.Refused, match=r"extension 1\.2\.3\.4 occurs twice"):
        requests.parse(resigned(data, bytes.fromhex("06032a0305"), bytes.fromhex("06032a0304"), key))


def test_extension_broken():
    key = making.new_key()
    data = made(x509.BasicConstraints(ca=True, path_length=None), key=key)
    with pytest.raises(errors.Refused, match="extensions cannot be read"):
        requests.parse(resigned(data, bytes.fromhex("30030101ff"), bytes.fromhex("3003020101"), key))


def test_attribute_twice():
    key = making.new_key()
    one, two = x509.ObjectIdentifier("1.2.3.4"), x509.ObjectIdentifier("1.2.3.5")
    data = made(key=key, attributes=[(one, b"a"), (two, b"b")])
    assert requests.parse(data).other_attributes == ("1.2.3.4", "1.2.3.5")
    with pytest.raises(errors.Refused, match="attribute occurs twice"):
        requests.parse(resigned(data, bytes.fromhex("06032a0305"), bytes.fromhex("06032a0304"), key))


def test_attribute_with_several_values():
    key = making.new_key()
    data = made(key=key, attributes=[(x509.ObjectIdentifier("1.2.3.4"), b"abcd")])
    # SET { UTF8String "abcd" } becomes SET { UTF8String "a", UTF8String "b" }.
    with pytest.raises(errors.Refused, match="several values"):
        requests.parse(resigned(data, b"\x31\x06\x0c\x04abcd", b"\x31\x06\x0c\x01a\x0c\x01b", key))


GOOD = requests.build(NODE, SANS, keys.generate())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "exactly one PEM block", id="empty"),
        pytest.param(GOOD + GOOD, "found 2", id="two"),
        pytest.param(b"Certificate Request:\n" + GOOD, "text outside a block", id="text around"),
        pytest.param(
            GOOD.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"),
            "PEM block type must be CERTIFICATE REQUEST",
            id="label",
        ),
        pytest.param(
            pem.encode("CERTIFICATE REQUEST", pem.one(GOOD, "CERTIFICATE REQUEST") + b"\0"),
            "not a PKCS#10",
            id="trailing bytes",
        ),
        pytest.param(pem.encode("CERTIFICATE REQUEST", b"garbage"), "not a PKCS#10", id="garbage"),
        pytest.param(b" " * (requests.MAX_BYTES + 1), "at most 65536 are read", id="too large"),
        pytest.param(
            made(subject=x509.Name([*making.name("jane"), *making.name("root")])),
            "at most one common name",
            id="two CNs",
        ),
        pytest.param(
            made(x509.SubjectAlternativeName([x509.RegisteredID(making.CLIENT)])),
            "are not accepted",
            id="registered id",
        ),
        pytest.param(made(x509.SubjectAlternativeName([x509.DNSName("a b")])), "is not a DNS name", id="blank in DNS"),
    ],
)
def test_a_request_that_breaks_a_check_is_refused_in_words(data: bytes, words: str):
    with pytest.raises(errors.Refused) as caught:
        requests.parse(data)
    assert words in caught.value.message


def test_too_large_in_der():
    with pytest.raises(errors.Refused, match="at most 65536"):
        requests.parse_der(b"\0" * (requests.MAX_BYTES + 1))


def test_the_bytes_are_not_shown():
    assert "der=" not in repr(requests.parse(made()))
