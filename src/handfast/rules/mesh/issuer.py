# SPDX-License-Identifier: Apache-2.0
"""By whom the certificates of the mesh are signed, and who is believed: issuer, key and trust anchors, PEM or DER, judged in order.

It reads no file and no Secret, and signs no workload: whoever installs the mesh and the identity service do. Both ask here, so that
what was installed is what is used.

`load` gives an issuer only when all of this holds; the word in brackets is the reason of the refusal:

1. There is a trust anchor at least [NoTrustAnchors]. Every one is a CA that may sign [BadTrustAnchor], with a key on P-256 or an RSA key of 2048
   or 4096 bits, which is what the proxies of Linkerd verify [TrustAnchorKey].
2. The issuer's certificate can be read; those that follow it are its chain, towards the root [BadIssuer].
3. Its private key can be read [BadIssuerKey], and needs no passphrase: nobody is there to type it [EncryptedIssuerKey].
4. Key and certificate belong together [IssuerKeyMismatch].
5. The issuer is a CA that may sign [IssuerNotCA].
6. Its key lies on P-256. An RSA key, P-384 or P-521 signs what a proxy of Linkerd calls `UnknownIssuer` [IssuerKeyKind].
7. It is in force [IssuerNotYetValid, IssuerExpired].
8. What it signs is believed by whoever has the anchors: a sample certificate, with a name of the mesh, is signed and verified as a peer
   would, chain, times, path lengths, name constraints and purposes included [IssuerNotTrusted].

Not checked: whether the CA above it is revoked, and who else has its key.

9. An anchor or an issuer that ends soon is told: with less than a third of its life left, and less than 60 days. So is an issuer that is an
   anchor itself: it cannot be replaced without replacing what every workload trusts.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_issuer.py |
|---|---|---|---|---|
| a workload | its certificate and key | be the issuer | 5 | test_what_cannot_be_an_issuer_is_refused_with_its_reason |
| a stranger | his own CA, with the name of ours | have his issuer taken | 8 | test_an_issuer_of_another_root_with_the_same_name_is_refused |
| a team's CA | a CA for other names | sign for the mesh | 8 | test_an_issuer_limited_to_other_names_is_refused |
| a reader of logs | the text of a refusal | find the key in it | 3 | test_no_text_has_anything_of_the_key |
| a thief | yesterday's anchor, expired | be believed once more | 8 | test_an_expired_anchor_is_no_anchor |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

from handfast import errors
from handfast.pki import authority, bundles, certificates, chains, keys, pem, profiles, usages
from handfast.pki import names as pki_names
from handfast.rules.mesh import expiry, names

RSA_BITS: Final = (2048, 4096)
_SAMPLE: Final = names.Account(namespace="sample", name="sample", uid="sample")
# As long as its issuer lives, to which a certificate is cut.
_SAMPLE_PROFILE: Final = profiles.Profile(
    name="mesh-sample", usages=frozenset({usages.SERVER_AUTH}), lifetime=100 * profiles.YEAR
)
_LEGACY_ENCRYPTION: Final = b"Proc-Type: 4,ENCRYPTED"
_T = TypeVar("_T")


class Unfit(errors.Refused):
    """Issuer, key or anchors are not to be used; `reason` is one of the words above."""

    reason = "BadIssuer"


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer that passed the checks. `chain` begins with its own certificate; `ends` is the first end on the way to the anchor."""

    authority: authority.Authority
    chain: tuple[bytes, ...] = field(repr=False)
    anchors: bundles.TrustBundle
    ends: datetime.datetime
    # SHA-256 of the anchor that it leads to.
    anchor: str

    @property
    def certificate(self) -> certificates.Certificate:
        """The issuer's own."""
        return self.authority.certificate


@dataclass(frozen=True, slots=True)
class Material:
    """Issuer, key and anchors as they are stored: PEM, DER, PEM. The key does not print."""

    certificate: bytes
    key: bytes = field(repr=False)
    anchors: bytes


def load(material: Material, mesh: names.Mesh, now: datetime.datetime) -> Issuer:
    """The issuer, after all of the checks. Each of the three may be PEM or DER."""
    # 1. somebody is believed
    anchors = read_anchors(material.anchors)
    # 2. a certificate, and 3. a key that can be read
    chain = tuple(_otherwise("BadIssuer", "the issuer's certificate", lambda: _ders(material.certificate)))
    certificate = _otherwise(
        "BadIssuer", "the issuer's certificate", lambda: [certificates.read(der) for der in chain]
    )[0]
    key = _key(material.key)
    # 4. that belong together
    if certificate.public_key.spki != key.public.spki:
        raise Unfit(
            "the issuer's certificate and its private key do not belong together",
            reason="IssuerKeyMismatch",
            hint="the first certificate of the file has to be that of the key",
        )
    # 5. a CA that may sign
    _otherwise("IssuerNotCA", "the issuer's certificate", lambda: certificates.require_ca(certificate))
    # 6. with a key that every proxy verifies
    if certificate.public_key.kind is not keys.Kind.P256:
        raise Unfit(
            f"the issuer's key must lie on P-256, instead {certificate.public_key.kind} was used",
            reason="IssuerKeyKind",
            hint="make an issuer with a P-256 key; its root may have an RSA key",
        )
    # 7. in force
    _require_in_force(certificate, now)
    # 8. and believed
    signer = authority.Authority(certificate.der, key)
    verified = _believed(signer, chain, anchors, mesh, now)
    return Issuer(signer, chain, anchors, verified.valid_until, verified.anchor)


def stored(material: Material) -> Material:
    """The same in the forms in which it is stored, whatever it came in (1 to 3)."""
    chain = _otherwise("BadIssuer", "the issuer's certificate", lambda: _ders(material.certificate))
    anchors = read_anchors(material.anchors).to_pem()
    return Material(pem.certificates_to_pem(chain), _key(material.key).to_der(), anchors)


def is_of(issuer: Issuer, material: Material) -> bool:
    """Whether an issuer is the one that is stored, with its anchors. It is not judged again; what cannot be read is another one."""
    try:
        there = stored(material)
    except Unfit:
        return False
    return there.certificate == pem.certificates_to_pem(issuer.chain) and there.anchors == issuer.anchors.to_pem()


def read_anchors(data: bytes) -> bundles.TrustBundle:
    """The trust anchors of a file or of the ConfigMap (1)."""
    # 1. one at least
    if not data.strip():
        raise Unfit(
            "there are no trust anchors",
            reason="NoTrustAnchors",
            hint="give at least one root certificate, as PEM or DER",
        )
    bundle = _otherwise("BadTrustAnchor", "the trust anchors", lambda: bundles.TrustBundle.of(_ders(data)))
    for anchor in bundle.anchors:
        key = anchor.public_key
        if key.kind is not keys.Kind.P256 and not (key.kind is keys.Kind.RSA and key.bits in RSA_BITS):
            raise Unfit(
                f"trust anchor {anchor.subject}: its key must lie on P-256, or be RSA with 2048 or 4096 bits; instead "
                f"{key.kind} with {key.bits} bits was used",
                reason="TrustAnchorKey",
            )
    return bundle


def generate(now: datetime.datetime) -> Material:
    """A new root and an intermediate issuer below it. The root's key signs this one certificate, and is then forgotten."""
    root_key, key = keys.generate(), keys.generate()
    root = authority.self_signed_ca(_subject("root", root_key), root_key, now)
    issued = root.issue(key.public, _subject("issuer", key), pki_names.Sans(), profiles.INTERMEDIATE_CA, now)
    return Material(issued.pem, key.to_der(), root.pem)


def warnings(issuer: Issuer, now: datetime.datetime) -> tuple[str, ...]:
    """What the operator should know before it hurts, one sentence each (9)."""
    sentences = [ending.sentence for ending in endings(issuer, now)]
    if issuer.certificate in issuer.anchors.anchors:
        sentences.append(
            "the issuer is a trust anchor itself: it cannot be replaced without replacing what every workload trusts"
        )
    return tuple(sentences)


def endings(issuer: Issuer, now: datetime.datetime) -> tuple[expiry.Ending, ...]:
    """Of the issuer, of what lies between, and of the trust anchors: those that end soon (9)."""
    return (
        *own_endings(issuer, now),
        *_near([(f"trust anchor {each.subject}", each) for each in issuer.anchors.anchors], now),
    )


def own_endings(issuer: Issuer, now: datetime.datetime) -> tuple[expiry.Ending, ...]:
    """Of the issuer, and of what lies between it and the trust anchors: those that end soon (9)."""
    above = [certificates.read(der) for der in issuer.chain[1:] if der not in issuer.anchors.ders]
    return _near(
        [("the issuer", issuer.certificate), *(("a certificate above the issuer", each) for each in above)], now
    )


def _near(titled: Sequence[tuple[str, certificates.Certificate]], now: datetime.datetime) -> tuple[expiry.Ending, ...]:
    # 9. with little of its life left
    return tuple(ending for title, each in titled if (ending := expiry.near(title, each, now)) is not None)


def _require_in_force(certificate: certificates.Certificate, now: datetime.datetime) -> None:
    if now < certificate.not_before:
        raise Unfit(
            f"the issuer's certificate is not valid before: {_time(certificate.not_before)}",
            reason="IssuerNotYetValid",
            hint="compare the clocks, or wait",
        )
    if now >= certificate.not_after:
        raise Unfit(
            f"the issuer's certificate is not valid anymore. Expired on {_time(certificate.not_after)}",
            reason="IssuerExpired",
            hint="give another issuer",
        )


def _believed(
    signer: authority.Authority,
    chain: tuple[bytes, ...],
    anchors: bundles.TrustBundle,
    mesh: names.Mesh,
    now: datetime.datetime,
) -> chains.Verified:
    name = mesh.name(_SAMPLE)
    sans = pki_names.make_sans(dns=[name])
    sample = signer.issue(signer.certificate.public_key, pki_names.Subject(), sans, _SAMPLE_PROFILE, now)
    try:
        return chains.verify([sample.der, *chain], anchors, chains.Server(name), now)
    except chains.ChainRefused as refused:
        raise Unfit(
            f"what the issuer signs for {mesh.trust_domain} would not be believed by whoever has the trust anchors: "
            f"{refused.message}",
            reason="IssuerNotTrusted",
            hint="give the root that signed the issuer as trust anchor, and what lies between them behind the issuer",
        ) from None


def _key(data: bytes) -> keys.PrivateKey:
    # 3. without a passphrase
    if _LEGACY_ENCRYPTION in data:
        raise _encrypted()
    try:
        return keys.private_from_der(data) if _is_der(data) else keys.private_from_pem(data)
    except keys.Encrypted:
        raise _encrypted() from None
    except errors.Refused as refused:
        _refuse("BadIssuerKey", "the issuer's private key", refused)


def _encrypted() -> Unfit:
    return Unfit(
        "the issuer's private key is encrypted; nobody is there to type its passphrase",
        reason="EncryptedIssuerKey",
        hint="openssl pkcs8 -topk8 -nocrypt writes it without one",
    )


def _ders(data: bytes) -> list[bytes]:
    return [data] if _is_der(data) else pem.certificates_from_pem(data)


def _is_der(data: bytes) -> bool:
    # An ASN.1 sequence begins with this octet.
    return data.startswith(b"\x30") and b"-----BEGIN" not in data


def _otherwise(reason: str, title: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except errors.Refused as refused:
        _refuse(reason, title, refused)


def _refuse(reason: str, title: str, refused: errors.Refused) -> NoReturn:
    raise Unfit(f"{title}: {refused.message}", reason=reason, hint=refused.hint) from None


def _subject(title: str, key: keys.PrivateKey) -> pki_names.Subject:
    # Each with a name of its own: an anchor and an issuer of one name have confused verifiers.
    return pki_names.Subject(common_name=f"handfast mesh {title} {key.public.fingerprint[:16]}")


def _time(instant: datetime.datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
