# SPDX-License-Identifier: Apache-2.0
"""Signs certificates: a judged key, a subject and alternative names in, a certificate under a profile out.

It does not decide whether to sign: whoever calls `issue` has a verdict in hand. It never sees a request, only a key, a
subject and names. So no wish of a request (CA, usages, extensions) can reach a certificate.

1. The authority's certificate and key belong together, and the certificate may sign others.
2. It is in force at `now`: an expired signer signs nothing.
3. The new certificate ends with its issuer at the latest.
4. An intermediate CA is issued only where the issuer's path length leaves room for it.
5. It has a name: a subject, an alternative name, or both. The subject of a leaf is a common name and organizations: what
   Kubernetes reads, and what the ledger writes down. Another attribute, such as OU, might mean something to others.
6. The serial number is random: 16 octets, positive, 126 bits from the system's generator. Two bits are fixed, so that
   every serial has the same length in DER.

Leaves are written by `template`, from a sample that the library's builder makes; a CA, which is rare, by the builder.
"""

from __future__ import annotations

import dataclasses
import datetime
import secrets
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from handfast import errors
from handfast.pki import certificates, fences, keys, names, pem, profiles, template, usages

_SAMPLE = names.Subject(common_name="sample")
# One for each set of usages: a handful, unless someone asks for odd ones on purpose.
_TEMPLATES = 64
_FENCE = fences.Fence("a certificate with these names cannot be written", reason="BadName")


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A new certificate and what the ledger writes down about it; the fingerprints are SHA-256 in hex."""

    der: bytes = field(repr=False)
    serial: str
    not_before: datetime.datetime
    not_after: datetime.datetime
    fingerprint: str
    key_fingerprint: str

    @property
    def pem(self) -> bytes:
        """The certificate alone, without its chain, as Kubernetes' signers answer."""
        return pem.encode(pem.CERTIFICATE, self.der)


class Authority:
    """A CA certificate with its key."""

    __slots__ = ("_identifier", "_key", "_name", "_templates", "certificate")

    def __init__(self, der: bytes, key: keys.PrivateKey) -> None:
        issuer = certificates.load(der)
        self.certificate = certificates.facts(issuer, der)
        # 1. certificate and key belong together, and the certificate may sign others
        if self.certificate.public_key.spki != key.public.spki:
            raise _bad("the CA certificate and the private key do not belong together")
        certificates.require_ca(self.certificate)
        self._key = key
        self._name = names.name_of(issuer)
        self._identifier = _key_identifier(issuer, key.public)
        self._templates: dict[frozenset[str], template.Template] = {}

    def __repr__(self) -> str:
        return f"<Authority {self.certificate.subject} {self.certificate.fingerprint[:16]}>"

    @property
    def pem(self) -> bytes:
        """The CA's own certificate."""
        return pem.encode(pem.CERTIFICATE, self.certificate.der)

    def issue(
        self,
        public_key: keys.PublicKey,
        subject: names.Subject,
        sans: names.Sans,
        profile: profiles.Profile,
        now: datetime.datetime,
        ttl: datetime.timedelta | None = None,
    ) -> Issued:
        """Sign under a profile; `ttl`, if given, shortens the profile's lifetime, never below ten minutes."""
        not_before, not_after = profile.window(now, ttl)
        # 2. the signer is in force
        self._require_in_force(now, not_before)
        # 3. not longer than its issuer; in whole seconds, as certificates have them: a lifetime may have fractions
        window = (not_before, min(not_after, self.certificate.not_after).replace(microsecond=0))
        # 4. an intermediate only where the path length leaves room
        if profile.is_ca:
            profile = self._below(profile)
            if public_key.kind not in keys.ISSUER_KINDS:
                raise _bad(f"a CA key must be RSA or EC, not {public_key.kind}")
        # 5. it has a name
        _require_name(subject, sans, profile)
        if profile.is_ca:
            with _FENCE:
                builder = _builder(public_key, subject, sans, profile, window).issuer_name(self._name)
            return _sign(builder, self._key, self._identifier, public_key)
        return self._leaf(public_key, subject, sans, profile, window)

    def _require_in_force(self, now: datetime.datetime, not_before: datetime.datetime) -> None:
        begins, ends = self.certificate.not_before, self.certificate.not_after
        if now >= ends:
            # Kubernetes has two texts: by its backdating, the certificate would have been in force, though only in the
            # past.
            text = "the signer has expired"
            if not_before < ends:
                text = "refusing to sign a certificate that expired in the past"
            raise errors.Unavailable(f"{text}: NotAfter={ends:%Y-%m-%dT%H:%M:%SZ}", reason="SignerExpired")
        if now < begins:
            raise errors.Unavailable(
                f"the signer is not valid yet: NotBefore={begins:%Y-%m-%dT%H:%M:%SZ}", reason="SignerNotYetValid"
            )

    def _leaf(
        self,
        public_key: keys.PublicKey,
        subject: names.Subject,
        sans: names.Sans,
        profile: profiles.Profile,
        window: tuple[datetime.datetime, datetime.datetime],
    ) -> Issued:
        leaf_template = self._template(profile, window)
        # 6. a random serial number
        serial = new_serial()
        with _FENCE:
            tbs = leaf_template.tbs(serial, window, subject, public_key.spki, sans)
        return _issued(leaf_template.certificate(tbs, self._key.sign(tbs)), serial, window, public_key)

    def _template(
        self, profile: profiles.Profile, window: tuple[datetime.datetime, datetime.datetime]
    ) -> template.Template:
        # Of a leaf's profile only the usages are seen in a certificate.
        leaf_template = self._templates.get(profile.usages)
        if leaf_template is None:
            own = self._key.public
            builder = _builder(own, _SAMPLE, names.Sans(), profile, window).issuer_name(self._name)
            leaf_template = template.Template(_sign(builder, self._key, self._identifier, own).der)
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
            self._templates[profile.usages] = leaf_template
        return leaf_template

    def _below(self, profile: profiles.Profile) -> profiles.Profile:
        room = self.certificate.path_length
        if room is None:
            return profile
        if room == 0:
            raise _bad("this CA may sign leaf certificates only (path length 0)")
        wanted = profile.path_length
        return dataclasses.replace(profile, path_length=room - 1 if wanted is None else min(wanted, room - 1))


def self_signed_ca(
    subject: names.Subject,
    key: keys.PrivateKey,
    now: datetime.datetime,
    profile: profiles.Profile = profiles.ROOT_CA,
    ttl: datetime.timedelta | None = None,
) -> Authority:
    """A new root."""
    if not profile.is_ca:
        raise errors.Misuse(f"profile {profile.name} is not that of a CA")
    if subject == names.Subject():
        raise errors.Misuse("a CA needs a name")
    if key.public.kind not in keys.ISSUER_KINDS:
        raise _bad(f"a CA key must be RSA or EC, not {key.public.kind}")
    builder = _builder(key.public, subject, names.Sans(), profile, profile.window(now, ttl))
    own = x509.AuthorityKeyIdentifier.from_issuer_public_key(keys.for_certificate(key.public))
    return Authority(_sign(builder.issuer_name(names.to_name(subject)), key, own, key.public).der, key)


def new_serial() -> int:
    """A serial number (6)."""
    # 6. positive, and always of one length
    octets = bytearray(secrets.token_bytes(16))
    octets[0] = octets[0] & 0x3F | 0x40
    return int.from_bytes(octets, "big")


def _require_name(subject: names.Subject, sans: names.Sans, profile: profiles.Profile) -> None:
    if subject == names.Subject() and not sans:
        raise errors.Refused("a certificate needs a subject or an alternative name", reason="BadName")
    if subject.others and not profile.is_ca:
        listed = ", ".join(subject.other_types)
        raise errors.Refused(
            f"the subject of a certificate has a common name and organizations only, not: {listed}",
            reason="BadName",
        )


def _builder(
    public_key: keys.PublicKey,
    subject: names.Subject,
    sans: names.Sans,
    profile: profiles.Profile,
    window: tuple[datetime.datetime, datetime.datetime],
) -> x509.CertificateBuilder:
    key = keys.for_certificate(public_key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(names.to_name(subject))
        .public_key(key)
        # 6. a random serial number
        .serial_number(new_serial())
        .not_valid_before(window[0])
        .not_valid_after(window[1])
    )
    key_usage = usages.key_usage(profile.usages)
    if key_usage is not None:
        builder = builder.add_extension(key_usage, critical=True)
    extended = usages.extended_key_usage(profile.usages)
    if extended is not None:
        builder = builder.add_extension(extended, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(profile.is_ca, profile.path_length), critical=True)
    if profile.is_ca:
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    if sans:
        # RFC 5280: critical when the subject is empty, since then it is the only name.
        critical = subject == names.Subject()
        builder = builder.add_extension(x509.SubjectAlternativeName(names.to_general_names(sans)), critical)
    return builder


def _sign(
    builder: x509.CertificateBuilder,
    key: keys.PrivateKey,
    issuer_key: x509.AuthorityKeyIdentifier,
    public_key: keys.PublicKey,
) -> Issued:
    signing, digest = key.for_builder()
    certificate = builder.add_extension(issuer_key, critical=False).sign(signing, digest)
    window = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return _issued(certificate.public_bytes(serialization.Encoding.DER), certificate.serial_number, window, public_key)


def _issued(
    der: bytes, serial: int, window: tuple[datetime.datetime, datetime.datetime], public_key: keys.PublicKey
) -> Issued:
    return Issued(
        der=der,
        serial=certificates.serial_text(serial),
        not_before=window[0],
        not_after=window[1],
        fingerprint=certificates.fingerprint(der),
        key_fingerprint=public_key.fingerprint,
    )


def _key_identifier(issuer: x509.Certificate, public_key: keys.PublicKey) -> x509.AuthorityKeyIdentifier:
    own = certificates.extension(issuer, x509.SubjectKeyIdentifier)
    if own is not None:
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(keys.for_certificate(public_key))


def _bad(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadAuthority")
