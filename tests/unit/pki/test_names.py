# SPDX-License-Identifier: Apache-2.0
"""Subjects and alternative names are read, checked and written; it does not test who may have them."""

from __future__ import annotations

import ipaddress

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from handfast import errors
from handfast.pki import names

NODE = names.Subject(common_name="system:node:a", organizations=("system:nodes",))


def test_subject_text():
    assert str(NODE) == "CN=system:node:a,O=system:nodes"
    assert names.Subject.parse("CN=system:node:a,O=system:nodes") == NODE
    assert str(names.Subject()) == ""


def test_subject_in_go_order():
    subject = names.Subject(
        common_name="jane",
        organizations=("dev", "ops", "dev"),
        others=(("0.9.2342.19200300.100.1.1", "u1"), ("2.5.4.11", "unit"), ("2.5.4.6", "CH")),
    )
    assert names.to_name(subject).rfc4514_string() == "UID=u1,CN=jane,OU=unit,O=dev+O=ops,C=CH"


def test_other_attributes_are_kept():
    subject = names.Subject.parse("CN=jane,OU=unit")
    assert subject == names.Subject(common_name="jane", others=(("2.5.4.11", "unit"),))
    assert str(subject) == "CN=jane,OU=unit"


def test_long_node_names_are_read_and_written():
    subject = names.Subject(common_name="system:node:" + "n" * 200)
    assert names.Subject.parse(str(subject)) == subject
    assert names.from_name(names.to_name(subject)) == subject


@pytest.mark.parametrize("text", ["CN", "=", "jane", "CN=a,CN=b", "CN=a+CN=b"])
def test_subject_refused(text: str):
    with pytest.raises(errors.Refused) as caught:
        names.Subject.parse(text)
    assert caught.value.reason == "BadName"


def test_subject_with_bits_instead_of_text():
    bits = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\x01", x509.name._ASN1Type.BitString)
    with pytest.raises(errors.Refused, match="is not text"):
        names.from_name(x509.Name([bits]))


def test_common_name_has_its_own_field():
    with pytest.raises(errors.Misuse):
        names.to_name(names.Subject(others=(("2.5.4.3", "jane"),)))


def test_subject_with_a_nul():
    for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.LOCALITY_NAME):
        with pytest.raises(errors.Refused, match=rf"{oid.dotted_string} contains a NUL"):
            names.from_name(x509.Name([x509.NameAttribute(oid, "kubernetes-admin\0.example.com")]))


def test_sans_text():
    texts = ["DNS:a.example", "DNS:*.b.example", "email:a@b", "IP:192.0.2.1", "IP:2001:db8::1", "URI:spiffe://a/b"]
    sans = names.Sans.parse(texts)
    assert sans.texts() == texts
    assert sans.ip == (ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("2001:db8::1"))
    assert names.from_general_names(names.to_general_names(sans)) == sans


def test_sans_truth():
    assert not names.Sans()
    for text in ("DNS:a", "IP:::1", "URI:a:b", "email:a@b"):
        assert names.Sans.parse([text])


@pytest.mark.parametrize(
    "text",
    [
        "a.example",
        "dns:a.example",
        "UPN:a",
        "DNS:",
        "DNS:a b",
        "DNS:a\0b",
        "DNS:-a",
        "DNS:a..b",
        "DNS:a.*.b",
        "DNS:*",
        "DNS:b*.a",
        "DNS:ä.example",
        "DNS:a\n",
        f"DNS:{'a' * 64}",
        f"DNS:{'a.' * 127}a",
        "IP:1.2.3",
        "IP:01.2.3.4",
        "IP:fe80::1%eth0",
        "URI:nothing",
        "URI:a: b",
        "URI:://a",
        "email:a",
        "email:a@b@c",
        "email:a @b",
    ],
)
def test_sans_refused(text: str):
    with pytest.raises(errors.Refused) as caught:
        names.Sans.parse([text])
    assert caught.value.reason == "BadName"


@pytest.mark.parametrize(
    "general",
    [
        x509.DirectoryName(names.to_name(NODE)),
        x509.RegisteredID(NameOID.COMMON_NAME),
        x509.OtherName(NameOID.COMMON_NAME, b"\x05\x00"),
        x509.IPAddress(ipaddress.ip_network("192.0.2.0/24")),
    ],
)
def test_other_forms_refused(general: x509.GeneralName):
    with pytest.raises(errors.Refused, match="not accepted"):
        names.from_general_names([general])
