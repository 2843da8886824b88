# SPDX-License-Identifier: Apache-2.0
"""Every row of the checks of Certify: its code and its text. What passes all of them is signed."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import warnings
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import AttributeOID, ExtendedKeyUsageOID, NameOID

from handfast.pki import certificates, chains, requests
from handfast.rules import revocation
from handfast.rules.ledger import entries
from handfast.rules.mesh import certify, issuer, names, settings

MESH = names.Mesh("cluster.local")
NOW = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)
MINUTE, DAY = datetime.timedelta(minutes=1), datetime.timedelta(days=1)
NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
ISSUER = issuer.load(issuer.generate(NOW), MESH, NOW)
KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)


def csr(*alternatives: x509.GeneralName, cn: str = "", key: Any = KEY, extensions: Any = (), **more: Any) -> bytes:
    """A request in DER; without alternatives it has the name."""
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, cn)] if cn else []
    subject += [x509.NameAttribute(oid, text) for oid, text in more.get("subject", ())]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    chosen = more.get("names", alternatives or (x509.DNSName(NAME),))
    if chosen:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(chosen)), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    for oid, value in more.get("attributes", ()):
        builder = builder.add_attribute(oid, value)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, digest).public_bytes(serialization.Encoding.DER)


def read(request: bytes, identity: str = NAME, token: bytes = b"t") -> requests.Request:
    return certify.read(certify.Call(identity, token, request))


def good(username: str = "system:serviceaccount:shop:web", **more: Any) -> dict[str, Any]:
    user = {
        "username": username,
        "uid": "u-1",
        "groups": ["system:serviceaccounts"],
        "extra": {
            "authentication.kubernetes.io/credential-id": ["JTI=abc"],
            "authentication.kubernetes.io/pod-name": ["web-1"],
            "authentication.kubernetes.io/pod-uid": ["p-1"],
            "authentication.kubernetes.io/node-name": ["node-1"],
        },
    }
    return {"authenticated": True, "audiences": ["identity.l5d.io"], "user": user, **more}


def refusal(action: Any, *arguments: Any, **more: Any) -> tuple[str, str]:
    with pytest.raises(certify.Refusal) as refused:
        action(*arguments, **more)
    assert refused.value.reason
    return refused.value.code, refused.value.message


def test_without_an_issuer_nothing_is_answered():
    assert refusal(certify.require_ready, None) == ("UNAVAILABLE", "cert issuer not ready yet")
    assert certify.require_ready(ISSUER) is ISSUER


@pytest.mark.parametrize(
    ("identity", "token", "request_der", "text"),
    [
        ("", b"", b"", "missing identity"),
        (NAME, b"", b"", "missing token"),
        (NAME, b"t", b"", "missing certificate signing request"),
        (NAME, b"t", b"fake-data", "not a PKCS#10 certificate request in DER"),
    ],
)
def test_what_is_missing_is_named_in_order(identity, token, request_der, text):
    code, message = refusal(read, request_der, identity, token)
    assert code == "INVALID_ARGUMENT"
    assert text in message


@pytest.mark.parametrize(
    ("identity", "token", "request_der", "text"),
    [
        ("a" * 254, b"t", b"x", "identity: it has 254 characters; at most 253 are allowed"),
        (NAME, b"t" * 16385, b"x", "token: it has 16385 bytes; at most 16384 are allowed"),
        (
            NAME,
            b"t",
            b"x" * (1 << 20),
            "certificate_signing_request: it has 1048576 bytes; at most 65536 are allowed",
        ),
    ],
)
def test_what_is_too_large_is_refused_by_field_value_and_bound(identity, token, request_der, text):
    assert refusal(read, request_der, identity, token) == ("INVALID_ARGUMENT", text)


def test_a_request_that_another_key_signed_is_refused():
    request = csr()
    own = KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    theirs = other.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert refusal(read, request.replace(own, theirs)) == (
        "INVALID_ARGUMENT",
        "the request is not signed by the key it carries",
    )


@pytest.mark.parametrize("days", [-400, 4000])
def test_an_issuer_that_is_not_in_force_signs_nothing(days):
    code, message = refusal(certify.require_in_force, ISSUER, NOW + days * DAY)
    assert code == "UNKNOWN"
    assert " - Current Time : 20" in message
    assert f" - Invalid before {ISSUER.certificate.not_before:%Y-%m-%d}" in message
    assert f" - Invalid After {ISSUER.ends:%Y-%m-%d}" in message
    certify.require_in_force(ISSUER, NOW)


DNS = x509.DNSName(NAME)
ONE_TOO_MANY: dict[str, tuple[bytes, str, str]] = {
    "no name": (csr(names=()), NAME, "CSR must have exactly one DNSName"),
    "only a common name": (csr(names=(), cn="web.shop"), "web.shop", "CSR must have exactly one DNSName"),
    "two names": (csr(DNS, x509.DNSName("b.test")), NAME, "CSR must have exactly one DNSName"),
    "another": (
        csr(x509.DNSName("b.test")),
        NAME,
        f"CSR name does not match requested identity: csr=b.test; req={NAME}",
    ),
    "upper case": (
        csr(x509.DNSName(NAME.upper())),
        NAME,
        f"CSR name does not match requested identity: csr={NAME.upper()}; req={NAME}",
    ),
    "another common name": (csr(cn="somebody"), NAME, "invalid CommonName: somebody"),
    "e-mail": (csr(DNS, x509.RFC822Name("a@b.test")), NAME, "cannot validate email addresses"),
    "IP": (csr(DNS, x509.IPAddress(ipaddress.ip_address("10.0.0.1"))), NAME, "cannot validate IP addresses"),
    "URI": (csr(DNS, x509.UniformResourceIdentifier("spiffe://d/w")), NAME, "cannot validate URIs"),
    "wildcard": (csr(x509.DNSName("*.shop.test")), "*.shop.test", "an identity is no wildcard: *.shop.test"),
    "organization": (
        csr(subject=[(NameOID.ORGANIZATION_NAME, "system:masters")]),
        NAME,
        "the subject may have a CommonName only, not: O",
    ),
    "unit": (
        csr(subject=[(NameOID.ORGANIZATIONAL_UNIT_NAME, "x")]),
        NAME,
        "the subject may have a CommonName only, not: OU",
    ),
    "attribute": (
        csr(attributes=[(AttributeOID.CHALLENGE_PASSWORD, b"x")]),
        NAME,
        "a CSR may have no other attributes: 1.2.840.113549.1.9.7",
    ),
    "CA": (
        csr(extensions=[x509.BasicConstraints(ca=True, path_length=None)]),
        NAME,
        "a CSR may ask for no other extensions: CA",
    ),
    "usage": (
        csr(extensions=[x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])]),
        NAME,
        "a CSR may ask for no other extensions: code signing",
    ),
    "extension": (
        csr(extensions=[x509.TLSFeature([x509.TLSFeatureType.status_request])]),
        NAME,
        "a CSR may ask for no other extensions: 1.3.6.1.5.5.7.1.24",
    ),
}


@pytest.mark.parametrize("case", ONE_TOO_MANY)
def test_a_request_names_one_thing_and_nothing_else(case):
    request, identity, text = ONE_TOO_MANY[case]
    assert refusal(certify.require_name, read(request), identity) == ("FAILED_PRECONDITION", text)


def test_other_kinds_of_names_are_not_even_read():
    named = x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")]))
    assert refusal(read, csr(DNS, named))[0] == "INVALID_ARGUMENT"


def test_the_requests_of_linkerds_helper_pass():
    certify.require_name(read(csr()), NAME)
    certify.require_name(read(csr(cn=NAME)), NAME)


def test_a_common_name_longer_than_x509_allows_passes():
    """Linkerd writes it so: an identity is often longer than 64 characters."""
    name = f"{'a' * 40}.{NAME}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attribute = x509.NameAttribute(NameOID.COMMON_NAME, name, _validate=False)
        request = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(x509.Name([attribute]))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(KEY, hashes.SHA256())
        )
    certify.require_name(read(request.public_bytes(serialization.Encoding.DER), name), name)


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        ({"error": "invalid bearer token"}, "INVALID_ARGUMENT", "invalid bearer token"),
        ({}, "FAILED_PRECONDITION", "authentication token could not be authenticated"),
        ({"authenticated": "yes"}, "FAILED_PRECONDITION", "authentication token could not be authenticated"),
    ],
)
def test_what_the_api_server_refuses_is_refused(status, code, text):
    assert refusal(certify.reviewed, status, MESH, NAME) == (code, text)


def test_a_review_that_failed_is_told_with_the_identity():
    failed = certify.review_failed(NAME, "the API server does not answer")
    assert (failed.code, failed.message) == (
        "INTERNAL",
        f"error validating token for {NAME}: the API server does not answer",
    )


@pytest.mark.parametrize(
    ("audiences", "said"), [([], "none"), (["https://kubernetes.default.svc"], "https://kubernetes.default.svc")]
)
def test_a_token_for_another_audience_is_refused(audiences, said):
    assert refusal(certify.reviewed, good(audiences=audiences), MESH, NAME) == (
        "FAILED_PRECONDITION",
        f"the token is not for the audience identity.l5d.io, but for: {said}",
    )
    # By setting, tokens for the API itself are accepted.
    assert certify.reviewed(good(audiences=audiences), MESH, NAME, "").account.name == "web"


@pytest.mark.parametrize(
    ("username", "text"),
    [
        ("", "Username must be in form system:TYPE:NS:SA: "),
        ("alice", "Username must be in form system:TYPE:NS:SA: alice"),
        ("system:node:x", "Username must be in form system:TYPE:NS:SA: system:node:x"),
        ("a:serviceaccount:shop:web", "Username must be in form system:TYPE:NS:SA: a:serviceaccount:shop:web"),
        ("system:serviceaccount:shop:a.b", "Not a label: a.b"),
        ("system:serviceaccount:Shop:web", "Not a label: Shop"),
        ("system:serviceaccount::web", "Not a label: "),
        ("system:user:shop:web", "TYPE must be serviceaccount, not user: system:user:shop:web"),
    ],
)
def test_who_is_no_service_account_has_no_identity(username, text):
    assert refusal(certify.reviewed, good(username), MESH, NAME) == ("INVALID_ARGUMENT", text)


def test_an_account_whose_name_cannot_be_written_has_no_identity():
    long = names.Mesh(".".join(["a" * 60] * 4))
    code, text = refusal(certify.reviewed, good(), long, NAME)
    assert code == "INTERNAL"
    assert text.startswith(f"error validating token for {NAME}: the identity of account web in namespace shop would")
    uids = names.Mesh("cluster.local", scheme=names.Scheme.UID)
    status = good()
    status["user"]["uid"] = ""
    assert refusal(certify.reviewed, status, uids, NAME)[0] == "INTERNAL"


def test_another_accounts_name_is_refused():
    review = certify.reviewed(good(), MESH, NAME)
    certify.require_own(MESH, review, NAME)
    other = NAME.replace("web", "db")
    assert refusal(certify.require_own, MESH, review, other) == (
        "FAILED_PRECONDITION",
        f"requested identity did not match provided token: requested={other}; found={NAME}",
    )


@pytest.mark.parametrize("key", [RSA_KEY, ed25519.Ed25519PrivateKey.generate()], ids=["RSA", "Ed25519"])
def test_a_key_that_is_not_of_ecdsa_is_refused(key):
    code, text = refusal(certify.require_key, read(csr(key=key)))
    assert code == "INTERNAL"
    assert text.startswith("CSR must contain an ECDSA public key: it has ")
    certify.require_key(read(csr()))


@pytest.mark.parametrize(
    "spec",
    [
        {"user": "system:serviceaccount:shop:web"},
        {"node": "node-1"},
        {"keyFingerprint": read(csr()).public_key.fingerprint},
    ],
)
def test_who_is_revoked_is_refused(spec):
    index = revocation.Index()
    review, request = certify.reviewed(good(), MESH, NAME), read(csr())
    certify.require_not_revoked(review, request, index, NOW)
    index.add(revocation.read({"metadata": {"name": "r"}, "spec": {**spec, "reason": "a secret matter"}}))
    code, text = refusal(certify.require_not_revoked, review, request, index, NOW)
    assert code == "FAILED_PRECONDITION"
    assert "secret" not in text


@pytest.mark.parametrize(("uid", "is_refused"), [({"uid": "p-1"}, True), ({}, True), ({"uid": "p-2"}, False)])
def test_a_revoked_pod_is_refused_and_its_neighbours_are_not(uid, is_refused):
    index = revocation.Index()
    review, request = certify.reviewed(good(), MESH, NAME), read(csr())
    for name, more in (("web-1", uid), ("web-2", {})):
        pod = {"namespace": "shop", "name": name, **more}
        index.add(revocation.read({"metadata": {"name": name}, "spec": {"pod": pod}}))
    if is_refused:
        assert refusal(certify.require_not_revoked, review, request, index, NOW)[0] == "FAILED_PRECONDITION"
    else:
        certify.require_not_revoked(review, request, index, NOW)


def issue(chosen: settings.Settings, now: datetime.datetime = NOW) -> tuple[certificates.Certificate, entries.Entry]:
    review, request = certify.reviewed(good(), MESH, NAME), read(csr())
    sans = certify.sans(chosen, MESH, review.account)
    profile = certify.profile(chosen, ISSUER, now)
    issued = ISSUER.authority.issue(request.public_key, request.subject, sans, profile, now)
    return certificates.read(issued.der), certify.entry(review, sans, issued, ISSUER, now)


def test_a_leaf_has_one_name_both_purposes_and_its_lifetime():
    leaf, entry = issue(settings.Settings())
    assert leaf.sans.texts() == [f"DNS:{NAME}"]
    assert leaf.not_before == NOW - datetime.timedelta(seconds=20)
    assert DAY - MINUTE <= leaf.not_after - NOW <= DAY
    for purpose in (chains.Client(), chains.Server(NAME)):
        chains.verify([leaf.der, *ISSUER.chain], ISSUER.anchors, purpose, NOW)
    assert b"\x55\x1d\x11\x01\x01\xff" in leaf.der, "the alternative name is critical, since there is no subject"
    assert (entry.signer, entry.names, entry.token_id) == ("handfast.dev/mesh-identity", (f"DNS:{NAME}",), "abc")
    assert (entry.requester, entry.authenticated_by) == ("system:serviceaccount:shop:web", "service-account")
    assert (entry.request, entry.rule) == (
        "shop/web-1/p-1/node-1",
        f"MeshCertify: issuer {ISSUER.certificate.fingerprint[:16]}",
    )
    assert (entry.serial, entry.not_after, entry.certificate) == (leaf.serial, leaf.not_after, leaf.fingerprint)


def test_the_ledger_says_which_issuer_signed():
    _, entry = issue(settings.Settings())
    assert certify.issuer_of(entry) == certify.issuer_tag(ISSUER.certificate) == ISSUER.certificate.fingerprint[:16]
    # As entries were written before.
    assert certify.issuer_of(dataclasses.replace(entry, rule="MeshCertify")) == ""


def test_a_leaf_may_live_for_a_minute():
    leaf, _ = issue(settings.Settings(lifetime=MINUTE))
    assert leaf.not_after == NOW + MINUTE


def test_a_leaf_ends_with_its_issuer():
    leaf, _ = issue(settings.Settings(), ISSUER.ends - datetime.timedelta(hours=1))
    assert leaf.not_after == ISSUER.ends


def test_a_spiffe_id_stands_behind_the_name():
    leaf, entry = issue(settings.Settings(spiffe=True))
    assert leaf.sans.texts() == [f"DNS:{NAME}", "URI:spiffe://cluster.local/ns/shop/sa/web"]
    assert entry.names == tuple(leaf.sans.texts())


def test_two_leaves_never_share_a_serial_number():
    assert issue(settings.Settings())[0].serial != issue(settings.Settings())[0].serial


def test_a_token_that_is_bound_to_no_pod_names_none():
    status = good()
    status["user"]["extra"] = {}
    review = certify.reviewed(status, MESH, NAME)
    assert (review.pod, review.node) == ("", "")
    sans = certify.sans(settings.Settings(), MESH, review.account)
    issued = ISSUER.authority.issue(
        read(csr()).public_key, read(csr()).subject, sans, certify.profile(settings.Settings(), ISSUER, NOW), NOW
    )
    assert certify.entry(review, sans, issued, ISSUER, NOW).request == ""


def test_the_token_is_not_printed():
    assert "secret" not in repr(certify.Call(NAME, b"secret", b""))
