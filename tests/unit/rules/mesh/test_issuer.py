# SPDX-License-Identifier: Apache-2.0
"""Issuer and trust anchors: what is good in every form, and what is refused, with its reason and without the key in the text."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from handfast.pki import bundles, certificates
from handfast.rules.mesh import issuer, names
from tests.unit.pki import making

NOW, DAY = making.NOW, making.DAY
MESH = names.Mesh("cluster.local")
ROOT = making.ca("root")
ISSUER = making.ca("issuer", ROOT, path_length=0)
RSA_KEY = rsa.generate_private_key(65537, 2048)


def key_der(made):
    return made.key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def material(made=ISSUER, anchors=ROOT.pem, *, certificate=None, key=None):
    return issuer.Material(
        made.pem if certificate is None else certificate, key_der(made) if key is None else key, anchors
    )


def load(stored, mesh=MESH, now=NOW):
    return issuer.load(stored, mesh, now)


@pytest.mark.parametrize("certificate", [ISSUER.pem, ISSUER.der], ids=["PEM", "DER"])
@pytest.mark.parametrize("key", [ISSUER.key_pem, key_der(ISSUER)], ids=["PEM key", "DER key"])
@pytest.mark.parametrize("anchors", [ROOT.pem, ROOT.der, b"# a comment\n" + ROOT.pem + b"\n\n"])
def test_an_issuer_is_read_from_pem_and_der(certificate, key, anchors):
    loaded = load(issuer.Material(certificate, key, anchors))
    assert loaded.certificate.der == ISSUER.der
    assert loaded.chain == (ISSUER.der,)
    assert [anchor.der for anchor in loaded.anchors.anchors] == [ROOT.der]
    assert loaded.ends == NOW + DAY


def test_what_is_stored_is_pem_and_the_key_der():
    stored = issuer.stored(issuer.Material(ISSUER.der, ISSUER.key_pem, ROOT.der))
    assert stored == issuer.Material(ISSUER.pem, key_der(ISSUER), ROOT.pem)
    assert issuer.stored(stored) == stored


@pytest.mark.parametrize("scheme", list(names.Scheme))
def test_what_is_generated_is_good_and_the_key_of_the_root_is_nowhere(scheme):
    made = issuer.generate(NOW)
    loaded = load(made, names.Mesh("mesh.example", "mesh", scheme))
    (root,) = loaded.anchors.anchors
    assert root.public_key != loaded.certificate.public_key
    assert loaded.certificate.path_length == 0
    assert issuer.warnings(loaded, NOW) == ()
    assert made.anchors != issuer.generate(NOW).anchors


def test_what_lies_between_issuer_and_root_is_kept_in_order():
    between = making.ca("between", ROOT, not_after=NOW + DAY / 2)
    below = making.ca("issuer", between)
    loaded = load(material(below, certificate=below.pem + between.pem))
    assert loaded.chain == (below.der, between.der)
    assert loaded.ends == NOW + DAY / 2


def test_an_anchor_may_have_an_rsa_key():
    root = making.ca("root", key=RSA_KEY)
    assert load(material(making.ca("issuer", root), root.pem)).anchors.anchors[0].public_key.bits == 2048


LEAF = making.leaf(ROOT, making.SERVER)
P521 = making.ca("issuer", ROOT, key=ec.generate_private_key(ec.SECP521R1()))
OF_RSA = making.ca("issuer", ROOT, key=RSA_KEY)
NO_SIGNER = making.certificate(
    "issuer",
    ROOT,
    [(x509.BasicConstraints(ca=True, path_length=0), True), (making.key_usage(digital_signature=True), True)],
)
PAST = making.ca("issuer", ROOT, not_before=NOW - 9 * DAY, not_after=NOW - DAY)
TO_COME = making.ca("issuer", ROOT, not_before=NOW + DAY, not_after=NOW + 9 * DAY)
OTHER = making.ca("other")
LEAVES_ONLY = making.ca("root", path_length=0)
BETWEEN = making.ca("between", LEAVES_ONLY)
BELOW = making.ca("issuer", BETWEEN)
LEGACY = (
    b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nc2VjcmV0\n"
    b"-----END EC PRIVATE KEY-----\n"
)


@pytest.mark.parametrize(
    ("stored", "reason", "words"),
    [
        pytest.param(material(anchors=b""), "NoTrustAnchors", "there are no trust anchors", id="no anchors"),
        pytest.param(material(anchors=b" \n\n"), "NoTrustAnchors", "there are no trust anchors", id="blank anchors"),
        pytest.param(material(anchors=b"none"), "BadTrustAnchor", "no CERTIFICATE block", id="text"),
        pytest.param(material(anchors=ROOT.key_pem), "BadTrustAnchor", "found PRIVATE KEY", id="a key for an anchor"),
        pytest.param(material(anchors=ROOT.der[:-1]), "BadTrustAnchor", "not a certificate in DER", id="cut short"),
        pytest.param(material(anchors=ROOT.pem + LEAF.pem), "BadTrustAnchor", "certificate 2: .* CA:TRUE", id="a leaf"),
        pytest.param(
            material(anchors=making.ca("root", key=ec.generate_private_key(ec.SECP384R1())).pem),
            "TrustAnchorKey",
            "trust anchor CN=root: .* instead P-384 with 384 bits",
            id="an anchor on P-384",
        ),
        pytest.param(
            material(anchors=making.ca("root", key=rsa.generate_private_key(65537, 3072)).pem),
            "TrustAnchorKey",
            "instead RSA with 3072 bits was used",
            id="an anchor of 3072 bits",
        ),
        pytest.param(material(certificate=b""), "BadIssuer", "no CERTIFICATE block", id="no issuer"),
        pytest.param(material(certificate=ISSUER.der + b"x"), "BadIssuer", "issuer's certificate", id="more behind it"),
        pytest.param(
            material(certificate=ISSUER.pem + b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"),
            "BadIssuer",
            "not a certificate in DER",
            id="a broken chain",
        ),
        pytest.param(material(key=b""), "BadIssuerKey", "exactly one private key, found 0", id="no key"),
        pytest.param(material(key=key_der(ISSUER)[:-1]), "BadIssuerKey", "not a private key in DER", id="half a key"),
        pytest.param(material(key=ISSUER.pem), "BadIssuerKey", "CERTIFICATE is not a private key", id="no key at all"),
        pytest.param(
            material(key=ISSUER.key_with_password(b"secret")), "EncryptedIssuerKey", "passphrase", id="encrypted"
        ),
        pytest.param(
            material(
                key=ISSUER.key.private_bytes(
                    serialization.Encoding.DER,
                    serialization.PrivateFormat.PKCS8,
                    serialization.BestAvailableEncryption(b"secret"),
                )
            ),
            "EncryptedIssuerKey",
            "passphrase",
            id="encrypted DER",
        ),
        pytest.param(material(key=LEGACY), "EncryptedIssuerKey", "passphrase", id="encrypted as OpenSSL once did"),
        pytest.param(material(key=key_der(ROOT)), "IssuerKeyMismatch", "do not belong together", id="another key"),
        pytest.param(
            material(certificate=ROOT.pem + ISSUER.pem), "IssuerKeyMismatch", "do not belong together", id="wrong order"
        ),
        pytest.param(material(LEAF), "IssuerNotCA", "not one of a CA", id="a leaf as issuer"),
        pytest.param(material(NO_SIGNER), "IssuerNotCA", "keyCertSign", id="may not sign"),
        pytest.param(
            material(making.ca("issuer", ROOT, key=ed25519.Ed25519PrivateKey.generate())),
            "IssuerNotCA",
            "must be RSA or EC",
            id="Ed25519",
        ),
        pytest.param(material(P521), "IssuerKeyKind", "must lie on P-256, instead P-521 was used", id="P-521"),
        pytest.param(material(OF_RSA), "IssuerKeyKind", "instead RSA was used", id="RSA"),
        pytest.param(material(PAST), "IssuerExpired", "Expired on 2026-05-31T12:00:00Z", id="expired"),
        pytest.param(material(TO_COME), "IssuerNotYetValid", "not valid before: 2026-06-02T12:00:00Z", id="to come"),
        pytest.param(material(anchors=OTHER.pem), "IssuerNotTrusted", "unknown authority", id="of another root"),
        pytest.param(
            material(making.ca("issuer", making.ca("between", ROOT))),
            "IssuerNotTrusted",
            "unknown authority",
            id="a gap in the chain",
        ),
        pytest.param(
            material(BELOW, LEAVES_ONLY.pem, certificate=BELOW.pem + BETWEEN.pem),
            "IssuerNotTrusted",
            "would not be believed",
            id="too deep",
        ),
        pytest.param(
            material(making.ca("issuer", ROOT, (x509.ExtendedKeyUsage([making.CLIENT]), False))),
            "IssuerNotTrusted",
            "would not be believed",
            id="for clients only",
        ),
    ],
)
def test_what_cannot_be_an_issuer_is_refused_with_its_reason(stored, reason, words):
    with pytest.raises(issuer.Unfit, match=words) as refused:
        load(stored)
    assert refused.value.reason == reason


def test_no_text_has_anything_of_the_key():
    for key in (b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n", b"\x30\x82secret", LEGACY):
        stored = material(key=key)
        with pytest.raises(issuer.Unfit) as refused:
            load(stored)
        said = f"{refused.value.message} {refused.value.hint} {stored!r}"
        assert "secret" not in said
        assert "c2VjcmV0" not in said


def test_an_issuer_of_another_root_with_the_same_name_is_refused():
    with pytest.raises(issuer.Unfit) as refused:
        load(material(making.ca("issuer", making.ca("root"))))
    assert refused.value.reason == "IssuerNotTrusted"


@pytest.mark.parametrize(("domain", "trusted"), [("cluster.local", True), ("other.example", False)])
def test_an_issuer_limited_to_other_names_is_refused(domain, trusted):
    constraints = x509.NameConstraints([x509.DNSName("cluster.local")], None)
    stored = material(making.ca("issuer", ROOT, (constraints, True)))
    mesh = names.Mesh(domain)
    if trusted:
        assert load(stored, mesh).ends == NOW + DAY
        return
    with pytest.raises(issuer.Unfit, match="would not be believed") as refused:
        load(stored, mesh)
    assert refused.value.reason == "IssuerNotTrusted"


def test_an_expired_anchor_is_no_anchor():
    root = making.ca("root", not_before=NOW - 9 * DAY, not_after=NOW - DAY)
    with pytest.raises(issuer.Unfit, match="expired") as refused:
        load(material(making.ca("issuer", root), root.pem))
    assert refused.value.reason == "IssuerNotTrusted"


def test_an_issuer_that_is_an_anchor_is_taken_with_a_warning():
    loaded = load(material(ROOT))
    assert issuer.warnings(loaded, NOW) == (
        "the issuer is a trust anchor itself: it cannot be replaced without replacing what every workload trusts",
    )


def test_what_ends_soon_is_told():
    made = issuer.generate(NOW)
    loaded = load(made)
    later = NOW + datetime.timedelta(days=310)
    assert issuer.warnings(loaded, later) == ("the issuer will expire on 2027-06-01T11:55:00Z",)
    said = issuer.warnings(loaded, NOW + datetime.timedelta(days=3640))
    assert said[0] == "the issuer is not valid anymore. Expired on 2027-06-01T11:55:00Z"
    assert said[1].startswith("trust anchor CN=handfast mesh root ")
    assert said[1].endswith(" will expire on 2036-05-29T11:55:00Z")


def test_a_short_life_is_measured_by_itself():
    short = making.ca("issuer", ROOT, not_before=NOW - DAY / 2, not_after=NOW + DAY)
    loaded = issuer.Issuer(
        load(material(short)).authority, (short.der,), bundles.TrustBundle.of([issuer_root()]), NOW + DAY, ""
    )
    assert issuer.warnings(loaded, NOW) == ()
    assert len(issuer.warnings(loaded, NOW + DAY * 0.6)) == 1


def issuer_root():
    made = making.ca("root", not_after=NOW + 3650 * DAY)
    assert certificates.read(made.der).is_ca
    return made.der


def test_an_issuer_is_that_of_its_own_material_and_of_no_other():
    loaded = load(material())
    assert issuer.is_of(loaded, material())
    assert issuer.is_of(loaded, issuer.Material(ISSUER.der, ISSUER.key_pem, ROOT.der))
    other = making.ca("issuer", ROOT, path_length=0)
    assert not issuer.is_of(loaded, material(other))
    assert not issuer.is_of(loaded, material(anchors=ROOT.pem + making.ca("second").pem))
    assert not issuer.is_of(loaded, material(certificate=b"junk"))


def test_the_end_of_what_lies_between_is_told_and_a_root_only_once():
    between = making.ca("between", ROOT, not_after=NOW + DAY)
    below = making.ca("issuer", between, path_length=0, not_after=NOW + DAY)
    loaded = load(material(below, certificate=below.pem + between.pem + ROOT.pem))
    titles = [ending.title for ending in issuer.endings(loaded, NOW + DAY * 0.95)]
    assert titles == ["the issuer", "a certificate above the issuer", "trust anchor CN=root"]
