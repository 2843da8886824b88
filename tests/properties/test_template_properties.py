# SPDX-License-Identifier: Apache-2.0
"""What the template writes is byte for byte what the library's builder writes, whatever the content is."""

from __future__ import annotations

import dataclasses
import datetime
import string

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.pki import authority, certificates, keys, names, profiles, usages

UTC = datetime.UTC
NOW = datetime.datetime(2026, 6, 1, tzinfo=UTC)
YEAR = profiles.YEAR
ROOT = dataclasses.replace(profiles.ROOT_CA, lifetime=1000 * YEAR)
HOLDERS = [keys.generate(kind).public for kind in keys.Kind]


def issuer(kind: keys.Kind) -> tuple[authority.Authority, keys.PrivateKey]:
    key = keys.generate(kind)
    name = names.Subject(common_name=f"root {kind}", organizations=("Örg", "b"), others=(("2.5.4.6", "DE"),))
    return authority.self_signed_ca(name, key, NOW, ROOT), key


EC, RSA = [issuer(kind) for kind in (keys.Kind.P256, keys.Kind.P384, keys.Kind.P521)], issuer(keys.Kind.RSA)

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=150)
labels = st.text(string.ascii_letters + string.digits, min_size=1, max_size=20)
hosts = st.lists(labels, min_size=1, max_size=6).map(".".join)
subjects = st.builds(
    names.Subject,
    common_name=st.one_of(st.just(""), words),
    organizations=st.lists(words, max_size=5).map(tuple),
)
sans = st.builds(
    names.Sans,
    dns=st.lists(st.one_of(hosts, hosts.map("*.{}".format)), max_size=4).map(tuple),
    ip=st.lists(st.ip_addresses(), max_size=4).map(tuple),
    uri=st.lists(hosts.map("spiffe://{}/ns/a?b#c".format), max_size=3).map(tuple),
    email=st.lists(hosts.map("jane.doe+tag@{}".format), max_size=3).map(tuple),
)
leaves = (
    st.frozensets(st.sampled_from(sorted(usages.ALL - {usages.CERT_SIGN, "encipher only", "decipher only"})))
    .filter(bool)
    .map(lambda chosen: profiles.for_usages("leaf", chosen, 200 * YEAR))
)
moments = st.datetimes(datetime.datetime(2027, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(UTC))
# Many of them around the instant at which the form of times changes.
around = st.builds(
    lambda seconds: datetime.datetime(2050, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=seconds),
    st.integers(-1000, 1000),
)
lifetimes = st.timedeltas(datetime.timedelta(minutes=10), 200 * YEAR)


@dataclasses.dataclass(frozen=True)
class Content:
    """What a certificate is made of."""

    subject: names.Subject
    sans: names.Sans
    profile: profiles.Profile
    now: datetime.datetime
    ttl: datetime.timedelta
    holder: keys.PublicKey


contents = st.builds(
    Content, subjects, sans, leaves, st.one_of(moments, around), lifetimes, st.sampled_from(HOLDERS)
).filter(lambda content: bool(content.sans) or content.subject != names.Subject())


def built(
    issued: authority.Issued, by: authority.Authority, key: keys.PrivateKey, content: Content
) -> x509.Certificate:
    """The certificate with this serial number and content as the library's builder makes it."""
    own = x509.load_der_x509_certificate(by.certificate.der)
    holder = serialization.load_der_public_key(content.holder.spki)
    begins, ends = content.profile.window(content.now, content.ttl)
    builder = (
        x509.CertificateBuilder()
        .issuer_name(own.subject)
        .subject_name(names.to_name(content.subject))
        .public_key(holder)  # type: ignore[arg-type]
        .serial_number(int(issued.serial, 16))
        .not_valid_before(begins)
        .not_valid_after(min(ends, by.certificate.not_after))
    )
    key_usage = usages.key_usage(content.profile.usages)
    if key_usage is not None:
        builder = builder.add_extension(key_usage, critical=True)
    extended = usages.extended_key_usage(content.profile.usages)
    if extended is not None:
        builder = builder.add_extension(extended, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    if content.sans:
        general = x509.SubjectAlternativeName(names.to_general_names(content.sans))
        builder = builder.add_extension(general, critical=content.subject == names.Subject())
    identifier = own.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    aki = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    return builder.add_extension(aki, critical=False).sign(*key.for_builder())


@pytest.mark.parametrize(("by", "key"), EC, ids=[key.public.kind for _, key in EC])
@settings(max_examples=30, deadline=None)
@given(content=contents)
def test_ec_signs_the_same_bytes(by: authority.Authority, key: keys.PrivateKey, content: Content):
    issued = by.issue(content.holder, content.subject, content.sans, content.profile, content.now, content.ttl)
    found = x509.load_der_x509_certificate(issued.der)
    wanted = built(issued, by, key, content)
    assert found.tbs_certificate_bytes == wanted.tbs_certificate_bytes
    assert found.signature_algorithm_oid == wanted.signature_algorithm_oid
    # ECDSA signatures differ each time: this one must be right, and be enclosed as the library would.
    found.verify_directly_issued_by(x509.load_der_x509_certificate(by.certificate.der))
    assert found.public_bytes(serialization.Encoding.DER) == issued.der


@settings(max_examples=60, deadline=None)
@given(content=contents)
def test_rsa_certificates_are_identical(content: Content):
    by, key = RSA
    issued = by.issue(content.holder, content.subject, content.sans, content.profile, content.now, content.ttl)
    assert issued.der == built(issued, by, key, content).public_bytes(serialization.Encoding.DER)


@settings(max_examples=40, deadline=None)
@given(content=contents)
def test_the_record_is_what_the_certificate_says(content: Content):
    by, _ = EC[0]
    issued = by.issue(content.holder, content.subject, content.sans, content.profile, content.now, content.ttl)
    facts = certificates.read(issued.der)
    assert (issued.serial, issued.not_before, issued.not_after) == (facts.serial, facts.not_before, facts.not_after)
    assert (issued.fingerprint, issued.key_fingerprint) == (facts.fingerprint, facts.public_key.fingerprint)
    assert facts.sans == content.sans
