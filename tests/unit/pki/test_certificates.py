# SPDX-License-Identifier: Apache-2.0
"""The facts read from one certificate; it does not test trust."""

from __future__ import annotations

import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from handfast import errors
from handfast.pki import certificates, keys, names
from tests.unit.pki import making


def test_facts_of_a_leaf():
    made = making.leaf(making.ca(), making.CLIENT, sans=[x509.DNSName("a.example")])
    facts = certificates.read(made.der)
    assert str(facts.subject) == "CN=jane"
    assert facts.issuer == "CN=root"
    assert facts.sans.texts() == ["DNS:a.example"]
    assert int(facts.serial, 16) == made.certificate.serial_number
    assert (facts.not_before, facts.not_after) == (making.NOW - making.DAY, making.NOW + making.DAY)
    assert facts.public_key.kind is keys.Kind.P256
    assert facts.usages == {"client auth"}
    assert (facts.is_ca, facts.may_sign, facts.path_length) == (False, False, None)
    assert facts.fingerprint == hashlib.sha256(made.der).hexdigest()


def test_the_bytes_are_not_shown():
    assert "der=" not in repr(certificates.read(making.ca().der))


def test_facts_of_a_ca():
    facts = certificates.read(making.ca(path_length=3).der)
    assert (facts.is_ca, facts.may_sign, facts.path_length) == (True, True, 3)
    certificates.require_ca(facts)


def test_without_extensions():
    facts = certificates.read(making.certificate("plain").der)
    assert (facts.is_ca, facts.usages, bool(facts.sans)) == (False, frozenset(), False)


def test_long_common_name_is_read_without_a_warning():
    long = names.Subject(common_name="system:node:" + "n" * 300)
    assert certificates.read(making.certificate(names.to_name(long)).der).subject == long


@pytest.mark.parametrize(("serial", "text"), [(1, "01"), (0xAB, "ab"), (0xABC, "0abc")])
def test_serial_text(serial: int, text: str):
    assert certificates.serial_text(serial) == text


@pytest.mark.parametrize(
    ("der", "reason"),
    [
        pytest.param(b"", "Malformed", id="empty"),
        pytest.param(b"garbage", "Malformed", id="garbage"),
        pytest.param(making.ca().der + b"\0", "Malformed", id="trailing"),
        pytest.param(making.ca().der[:-1], "Malformed", id="cut"),
        pytest.param(b"\0" * (certificates.MAX_BYTES + 1), "Malformed", id="too large"),
        pytest.param(
            making.certificate("k1", key=ec.generate_private_key(ec.SECP256K1())).der, "WeakKey", id="secp256k1"
        ),
        pytest.param(
            making.ca().der.replace(bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030177")),
            "BadKey",
            id="unknown curve",
        ),
        pytest.param(
            making.ca("rooot").der.replace(b"\x0c\x05rooot", b"\x0c\x05roo\xff\xff"), "BadName", id="not UTF-8"
        ),
    ],
)
def test_a_certificate_that_cannot_be_read_is_refused_with_its_reason(der: bytes, reason: str):
    with pytest.raises(errors.Refused) as caught:
        certificates.read(der)
    assert caught.value.reason == reason


def test_extension_twice():
    # Two extensions of the same length; the OID of one is turned into that of the other.
    one, two = bytes.fromhex("06032a0304"), bytes.fromhex("06032a0305")
    extensions = [
        (x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), b"\x05\x00"), False) for oid in ("1.2.3.4", "1.2.3.5")
    ]
    der = making.certificate("twice", None, extensions).der
    certificates.load(der)
    with pytest.raises(errors.Refused, match="repeated extensions"):
        certificates.load(der.replace(two, one))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (making.certificate("x"), "not one of a CA"),
        (
            making.certificate(
                "x",
                None,
                [
                    (x509.BasicConstraints(ca=True, path_length=None), True),
                    (making.key_usage(digital_signature=True), True),
                ],
            ),
            "does not include keyCertSign",
        ),
        (making.ca(key=ed25519.Ed25519PrivateKey.generate()), "must be RSA or EC, not Ed25519"),
    ],
)
def test_not_a_ca(made: making.Made, words: str):
    with pytest.raises(errors.Refused, match=words) as caught:
        certificates.require_ca(certificates.read(made.der))
    assert caught.value.reason == "BadAuthority"


def test_a_certificate_is_signed_by_who_signed_it_and_by_nobody_else_of_that_name():
    root, other = making.ca(), making.ca()
    leaf = certificates.read(making.leaf(root, making.CLIENT).der)
    certificates.require_signed_by(leaf, certificates.read(root.der))
    for stranger in (certificates.read(other.der), leaf):
        with pytest.raises(errors.Refused, match="was not signed by that one"):
            certificates.require_signed_by(leaf, stranger)
