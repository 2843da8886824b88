# SPDX-License-Identifier: Apache-2.0
"""Certificates are signed as their profile says; it does not test who gets one."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import shutil
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from handfast import errors
from handfast.pki import authority, bundles, certificates, chains, keys, names, pem, profiles, usages
from tests.unit.pki import making
from tests.unit.pki.making import NOW

ROOT_NAME = names.Subject(common_name="kubernetes")
NODE = names.Subject(common_name="system:node:a", organizations=("system:nodes",))
NO_SANS = names.Sans()
HOUR = datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def root() -> authority.Authority:
    return authority.self_signed_ca(ROOT_NAME, keys.generate(), NOW)


def extensions(der: bytes) -> dict[str, bool]:
    return {found.oid._name: found.critical for found in x509.load_der_x509_certificate(der).extensions}


def test_a_root_is_a_ca_as_its_profile_says(root: authority.Authority):
    facts = root.certificate
    assert (facts.is_ca, facts.path_length) == (True, None)
    assert facts.usages == {"cert sign", "crl sign", "digital signature"}
    assert facts.issuer == "CN=kubernetes"
    assert (facts.not_before, facts.not_after) == profiles.ROOT_CA.window(NOW)
    assert extensions(facts.der)["subjectKeyIdentifier"] is False
    assert certificates.read(pem.one(root.pem, "CERTIFICATE")) == facts


def test_kubelet_client_looks_as_kubernetes_makes_it(root: authority.Authority):
    key = keys.generate()
    issued = root.issue(key.public, NODE, NO_SANS, profiles.KUBELET_CLIENT, NOW)
    assert extensions(issued.der) == {
        "keyUsage": True,
        "extendedKeyUsage": False,
        "basicConstraints": True,
        "authorityKeyIdentifier": False,
    }
    facts = certificates.read(issued.der)
    assert facts.subject == NODE
    assert facts.usages == {"digital signature", "client auth"}
    assert facts.not_before == NOW - profiles.BACKDATE
    assert facts.not_after - facts.not_before == profiles.YEAR
    assert facts.public_key == key.public
    certificate = x509.load_der_x509_certificate(issued.der)
    own = x509.load_der_x509_certificate(root.certificate.der).extensions
    identifier = own.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert (
        certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == identifier
    )


def test_what_is_issued_tells_what_the_ledger_writes_down(root: authority.Authority):
    key = keys.generate()
    issued = root.issue(key.public, NODE, NO_SANS, profiles.CLIENT, NOW, HOUR)
    facts = certificates.read(issued.der)
    assert issued.serial == facts.serial
    assert (issued.not_before, issued.not_after) == (facts.not_before, facts.not_after) == (NOW - HOUR / 12, NOW + HOUR)
    assert issued.fingerprint == facts.fingerprint
    assert issued.key_fingerprint == key.public.fingerprint
    assert pem.one(issued.pem, "CERTIFICATE") == issued.der


@pytest.mark.parametrize("issuer_kind", [keys.Kind.P256, keys.Kind.P384, keys.Kind.RSA])
@pytest.mark.parametrize("kind", [keys.Kind.P256, keys.Kind.ED25519])
def test_every_kind_of_key_verifies(issuer_kind: keys.Kind, kind: keys.Kind):
    root = authority.self_signed_ca(ROOT_NAME, keys.generate(issuer_kind), NOW)
    issued = root.issue(keys.generate(kind).public, NODE, NO_SANS, profiles.KUBELET_CLIENT, NOW)
    trust = bundles.TrustBundle.from_pem(root.pem)
    assert chains.verify([issued.der], trust, chains.Client(), NOW).subject == NODE


def test_serving_certificate(root: authority.Authority):
    sans = names.Sans.parse(["DNS:kubernetes", "IP:10.0.0.1"])
    issued = root.issue(keys.generate().public, names.Subject(), sans, profiles.APISERVER_SERVING, NOW)
    assert extensions(issued.der)["subjectAltName"] is True
    trust = bundles.TrustBundle.from_pem(root.pem)
    for name in ("kubernetes", "10.0.0.1"):
        assert chains.verify([issued.der], trust, chains.Server(name), NOW).sans == sans
    with pytest.raises(chains.ChainRefused) as caught:
        chains.verify([issued.der], trust, chains.Client(), NOW)
    assert caught.value.reason == "WrongPurpose"


def test_profile_without_key_usage(root: authority.Authority):
    profile = profiles.for_usages("legacy", ["client auth"], HOUR)
    issued = root.issue(keys.generate().public, NODE, NO_SANS, profile, NOW)
    assert "keyUsage" not in extensions(issued.der)
    profile = profiles.for_usages("legacy", ["digital signature"], HOUR)
    assert "extendedKeyUsage" not in extensions(root.issue(keys.generate().public, NODE, NO_SANS, profile, NOW).der)


def test_serials_are_random_and_of_one_length():
    serials = [authority.new_serial() for _ in range(200)]
    assert len(set(serials)) == 200
    assert {serial.bit_length() for serial in serials} == {127}


def test_an_intermediate_signs_leaves_and_no_further_ca(root: authority.Authority):
    key = keys.generate()
    subject = names.Subject(common_name="middle")
    issued = root.issue(key.public, subject, NO_SANS, profiles.INTERMEDIATE_CA, NOW)
    middle = authority.Authority(issued.der, key)
    assert middle.certificate.path_length == 0
    leaf = middle.issue(keys.generate().public, NODE, NO_SANS, profiles.CLIENT, NOW)
    trust = bundles.TrustBundle.from_pem(root.pem)
    assert chains.verify([leaf.der, issued.der], trust, chains.Client(), NOW).subject == NODE
    with pytest.raises(errors.Refused, match="leaf certificates only"):
        middle.issue(key.public, subject, NO_SANS, profiles.INTERMEDIATE_CA, NOW)


@pytest.mark.parametrize(("subject", "critical"), [(ROOT_NAME, False), (names.Subject(), True)])
def test_intermediate_with_alternative_names(root: authority.Authority, subject: names.Subject, critical: bool):
    sans = names.Sans.parse(["DNS:middle.example"])
    issued = root.issue(keys.generate().public, subject, sans, profiles.INTERMEDIATE_CA, NOW)
    assert certificates.read(issued.der).sans == sans
    assert extensions(issued.der)["subjectAltName"] is critical


@pytest.mark.parametrize(("wanted", "given"), [(None, 1), (0, 0), (5, 1)])
def test_path_length_shrinks(wanted: int | None, given: int):
    two = dataclasses.replace(profiles.ROOT_CA, path_length=2)
    root = authority.self_signed_ca(ROOT_NAME, keys.generate(), NOW, two)
    below = dataclasses.replace(profiles.INTERMEDIATE_CA, path_length=wanted)
    issued = root.issue(keys.generate().public, NODE, NO_SANS, below, NOW)
    assert certificates.read(issued.der).path_length == given


def test_ends_with_its_issuer():
    root = authority.self_signed_ca(ROOT_NAME, keys.generate(), NOW, ttl=HOUR)
    issued = root.issue(keys.generate().public, NODE, NO_SANS, profiles.CLIENT, NOW + HOUR / 2)
    assert issued.not_after == root.certificate.not_after == NOW + HOUR


@pytest.mark.parametrize(
    ("moment", "reason"),
    [(NOW + HOUR, "SignerExpired"), (NOW + 2 * HOUR, "SignerExpired"), (NOW - HOUR, "SignerNotYetValid")],
)
def test_signer_out_of_force(moment: datetime.datetime, reason: str):
    root = authority.self_signed_ca(ROOT_NAME, keys.generate(), NOW, ttl=HOUR)
    with pytest.raises(errors.Unavailable) as caught:
        root.issue(keys.generate().public, NODE, NO_SANS, profiles.CLIENT, moment)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("backdate", "text"),
    [
        pytest.param(datetime.timedelta(), "the signer has expired", id="without backdating"),
        pytest.param(profiles.BACKDATE, "refusing to sign a certificate that expired in the past", id="backdated"),
    ],
)
def test_texts_of_a_signer_that_expires_now(backdate: datetime.timedelta, text: str):
    root = authority.self_signed_ca(ROOT_NAME, keys.generate(), NOW, ttl=HOUR)
    profile = dataclasses.replace(profiles.CLIENT, backdate=backdate)
    with pytest.raises(errors.Unavailable) as caught:
        root.issue(keys.generate().public, NODE, NO_SANS, profile, NOW + HOUR)
    assert caught.value.message == f"{text}: NotAfter=2026-06-01T13:00:00Z"


def test_more_sets_of_usages_than_are_kept():
    root = authority.self_signed_ca(ROOT_NAME, keys.generate(), NOW)
    key = keys.generate().public
    words = sorted(usages.EXTENDED_USAGES)
    for first in words:
        for second in words[:8]:
            profile = profiles.for_usages("odd", {first, second}, HOUR)
            facts = certificates.read(root.issue(key, NODE, NO_SANS, profile, NOW).der)
            # Two of the words are one usage in X.509, read back as the first of them.
            assert facts.usages == {word.replace("s/mime", "email protection") for word in (first, second)}


def test_foreign_ca_without_key_identifier_and_with_a_long_name():
    key = keys.generate()
    made = making.ca(
        x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "o" * 100)]),
        key=serialization.load_pem_private_key(key.to_pem(), None),
    )
    issuer = authority.Authority(made.der, key)
    issued = issuer.issue(keys.generate().public, NODE, NO_SANS, profiles.CLIENT, NOW)
    trust = bundles.TrustBundle.of([made.der])
    assert chains.verify([issued.der], trust, chains.Client(), NOW).subject == NODE


def test_authority_refused(root: authority.Authority):
    key = keys.generate()
    leaf = root.issue(key.public, NODE, NO_SANS, profiles.CLIENT, NOW)
    with pytest.raises(errors.Refused, match="do not belong together"):
        authority.Authority(root.certificate.der, key)
    with pytest.raises(errors.Refused, match="not one of a CA"):
        authority.Authority(leaf.der, key)
    ed25519 = keys.generate(keys.Kind.ED25519)
    with pytest.raises(errors.Refused, match="not Ed25519"):
        authority.self_signed_ca(ROOT_NAME, ed25519, NOW)
    with pytest.raises(errors.Refused, match="not Ed25519"):
        root.issue(ed25519.public, NODE, NO_SANS, profiles.INTERMEDIATE_CA, NOW)


def test_a_leafs_subject_is_common_name_and_organizations(root: authority.Authority):
    subject = names.Subject(common_name="a", others=(("2.5.4.11", "unit"), ("1.2.3.4", "x")))
    with pytest.raises(errors.Refused, match=r"common name and organizations only, not: OU, 1\.2\.3\.4"):
        root.issue(keys.generate().public, subject, NO_SANS, profiles.CLIENT, NOW)
    issued = root.issue(keys.generate().public, subject.plain, NO_SANS, profiles.CLIENT, NOW)
    assert certificates.read(issued.der).subject == names.Subject(common_name="a")


def test_a_certificate_without_any_name_is_refused(root: authority.Authority):
    with pytest.raises(errors.Refused, match="needs a subject or an alternative name"):
        root.issue(keys.generate().public, names.Subject(), NO_SANS, profiles.CLIENT, NOW)


def test_a_root_without_a_cas_profile_or_a_name_is_a_bug():
    with pytest.raises(errors.Misuse, match="profile client is not that of a CA"):
        authority.self_signed_ca(ROOT_NAME, keys.generate(), NOW, profiles.CLIENT)
    with pytest.raises(errors.Misuse, match="a CA needs a name"):
        authority.self_signed_ca(names.Subject(), keys.generate(), NOW)


def test_the_key_never_shows(root: authority.Authority):
    assert repr(root) == f"<Authority CN=kubernetes {root.certificate.fingerprint[:16]}>"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_verifies_and_reads_it(root: authority.Authority, tmp_path: pathlib.Path):
    issued = root.issue(keys.generate().public, NODE, NO_SANS, profiles.KUBELET_CLIENT, NOW)
    (tmp_path / "root.pem").write_bytes(root.pem)
    (tmp_path / "leaf.pem").write_bytes(issued.pem)
    verify = ["openssl", "verify", "-x509_strict", "-attime", str(int(NOW.timestamp())), "-purpose", "sslclient"]
    subprocess.run([*verify, "-CAfile", tmp_path / "root.pem", tmp_path / "leaf.pem"], check=True, capture_output=True)
    show = ["openssl", "x509", "-noout", "-subject", "-serial", "-in", str(tmp_path / "leaf.pem")]
    shown = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    assert shown == f"subject=O = system:nodes, CN = system:node:a\nserial={issued.serial.upper()}\n"
