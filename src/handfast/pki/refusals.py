# SPDX-License-Identifier: Apache-2.0
"""Finds the reason why a chain was refused, by walking the certificates again and naming the first check that fails.

It never says yes: `chains.verify` calls it only after the path verifier has refused, so a mistake here can only give the
wrong word for a no. `chains` says what a good chain is.

The reason is that of the first of these that does not hold:

1. Every name that the walk needs can be read [Malformed].
2. Every certificate of the path but the anchor is signed with SHA-256 or better [WeakSignature].
3. A path of valid signatures leads from the peer to an anchor [UnknownAuthority].
4. Every certificate of the path is in force [Expired, NotYetValid].
5. The peer's certificate is not one of a CA [WrongOrder].
6. The path has at most `max_depth` intermediates [PathLength].
7. An issuer's key is strong enough, and of a kind that signs certificates [WeakKey].
8. An issuer is a CA and may sign [NotAuthority].
9. An issuer allows as many intermediates as are below it [PathLength].
10. No certificate has a critical extension that is not understood [UnknownExtension].
11. The extended key usages name the purpose [WrongPurpose].
12. An alternative name is the expected one [WrongName].
13. No issuer has name constraints. If one has, they are what the verifier refused: all else holds [NameConstraints].

Where all of this holds, the reason is [Untrusted], with the verifier's own words.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec
from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from handfast import errors
from handfast.pki import certificates, keys, names

# A peer chooses what it sends: the walk stops trying signatures after this many.
MAX_SIGNATURES = 32

_UNDERSTOOD = frozenset(
    kind.oid
    for kind in (
        x509.AuthorityInformationAccess,
        x509.AuthorityKeyIdentifier,
        x509.SubjectKeyIdentifier,
        x509.KeyUsage,
        x509.SubjectAlternativeName,
        x509.BasicConstraints,
        x509.NameConstraints,
        x509.ExtendedKeyUsage,
    )
)


class ChainRefused(errors.Refused):
    """A chain that is not trusted for the purpose at that instant; `reason` is one of the words listed in `chains`."""

    reason = "Untrusted"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What `chains.verify` judged: the library's certificates, the peer's first, and the purpose as usage and name."""

    presented: Sequence[x509.Certificate]
    anchors: Sequence[x509.Certificate]
    now: datetime.datetime
    usage: x509.ObjectIdentifier
    name: x509.DNSName | x509.IPAddress | None
    max_depth: int


def explain(question: Question, words: str) -> ChainRefused:
    """The refusal with its reason; `words` are the verifier's own, kept for what has no reason here."""
    try:
        return _first_failure(question, words)
    except ChainRefused as refused:
        return refused
    except errors.Refused as unreadable:
        # 1. names that can be read; the verifier compares those of issuers as octets, only this walk reads them
        return ChainRefused(unreadable.message, reason="Malformed")


def _first_failure(question: Question, words: str) -> ChainRefused:
    path = _path(question)
    # 2. signed with a strong algorithm
    for certificate in question.presented if path is None else path[:-1]:
        if not _strongly_signed(certificate):
            return ChainRefused(f"{_title(certificate)} is signed with a weak algorithm", reason="WeakSignature")
    # 3. by a known authority
    if path is None:
        peer = question.presented[0]
        issuer = names.issuer_of(peer).rfc4514_string()
        return ChainRefused(f"{_title(peer)} is signed by an unknown authority ({issuer})", reason="UnknownAuthority")
    # 4. in force
    for certificate in path:
        require_window(
            _title(certificate), certificate.not_valid_before_utc, certificate.not_valid_after_utc, question.now
        )
    # 5. to 9. issuers that may sign
    _require_issuers(path, question)
    # 10. no critical extension that is not understood
    for certificate in path:
        _require_understood(certificate)
    # 11. meant for the purpose
    for depth, certificate in enumerate(path):
        _require_purpose(certificate, question.usage, is_peer=depth == 0)
    # 12. the expected name
    _require_name(path[0], question.name)
    # 13. name constraints: all else holds, so they are what the verifier refused
    for certificate in path[1:]:
        if certificates.extension(certificate, x509.NameConstraints) is not None:
            message = f"{_title(path[0])} is outside the name constraints of {_title(certificate)}"
            return ChainRefused(message, reason="NameConstraints")
    return ChainRefused(f"the chain is not trusted: {words}", reason="Untrusted")


def require_window(
    title: object, not_before: datetime.datetime, not_after: datetime.datetime, now: datetime.datetime
) -> None:
    """Return if `now` lies in the window, its ends included, else refuse (4). `title` is written out only then."""
    if now > not_after:
        raise ChainRefused(f"{title} expired at {not_after:%Y-%m-%dT%H:%M:%SZ}", reason="Expired")
    if now < not_before:
        raise ChainRefused(f"{title} is not valid before {not_before:%Y-%m-%dT%H:%M:%SZ}", reason="NotYetValid")


def names_usage(value: x509.ExtendedKeyUsage, wanted: x509.ObjectIdentifier) -> bool:
    """Whether the extension names this usage, or any."""
    return any(oid in {wanted, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} for oid in value)


def fingerprint_of(certificate: x509.Certificate) -> str:
    """The certificate's SHA-256 in hex, as `certificates.fingerprint` gives it for DER."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _path(question: Question) -> list[x509.Certificate] | None:
    """The shortest path of valid signatures from the peer to an anchor, whatever else is wrong with it."""
    anchors = {fingerprint_of(anchor) for anchor in question.anchors}
    # An anchor that the peer sends along counts as an anchor, not as an intermediate.
    candidates = [*question.anchors, *question.presented[1:]]
    paths = [[question.presented[0]]]
    seen = {fingerprint_of(question.presented[0])}
    if seen <= anchors:
        return paths[0]
    tried = 0
    for path in paths:
        wanted = names.issuer_of(path[-1])
        for candidate in candidates:
            mark = fingerprint_of(candidate)
            if mark in seen or names.name_of(candidate) != wanted or tried == MAX_SIGNATURES:
                continue
            tried += 1
            if not _signed_by(path[-1], candidate):
                continue
            if mark in anchors:
                return [*path, candidate]
            seen.add(mark)
            paths.append([*path, candidate])
    return None


def _signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm):
        return False
    return True


def _strongly_signed(certificate: x509.Certificate) -> bool:
    try:
        digest = certificate.signature_hash_algorithm
    except exceptions.UnsupportedAlgorithm:
        return False
    return digest is None or isinstance(digest, (hashes.SHA256, hashes.SHA384, hashes.SHA512))


def _require_issuers(path: Sequence[x509.Certificate], question: Question) -> None:
    # 5. the peer is not a CA
    own = certificates.extension(path[0], x509.BasicConstraints)
    if own is not None and own.ca:
        raise ChainRefused(f"{_title(path[0])} is a CA: a peer sends its own certificate first", reason="WrongOrder")
    # 6. not too many intermediates
    if len(path) - 2 > question.max_depth:
        raise ChainRefused(f"the chain has more than {question.max_depth} intermediates", reason="PathLength")
    for depth, issuer in enumerate(path[1:]):
        # 7. a strong key
        try:
            public = certificates.public_key(issuer)
        except errors.Refused as refused:
            raise ChainRefused(f"{_title(issuer)}: {refused.message}", reason="WeakKey") from None
        if public.kind not in keys.ISSUER_KINDS:
            raise ChainRefused(f"{_title(issuer)}: a CA key must be RSA or EC, not {public.kind}", reason="WeakKey")
        # 8. a CA that may sign
        constraints = certificates.extension(issuer, x509.BasicConstraints)
        usage = certificates.extension(issuer, x509.KeyUsage)
        if constraints is None or not constraints.ca or (usage is not None and not usage.key_cert_sign):
            raise ChainRefused(f"{_title(issuer)} is not a CA that may sign certificates", reason="NotAuthority")
        # 9. within its path length
        if constraints.path_length is not None and constraints.path_length < depth:
            raise ChainRefused(
                f"{_title(issuer)} allows {constraints.path_length} intermediates below it, the chain has {depth}",
                reason="PathLength",
            )


def _require_understood(certificate: x509.Certificate) -> None:
    for extension in certificate.extensions:
        if extension.critical and extension.oid not in _UNDERSTOOD:
            oid = extension.oid.dotted_string
            raise ChainRefused(
                f"{_title(certificate)} has the critical extension {oid}, which is not understood",
                reason="UnknownExtension",
            )


def _require_purpose(certificate: x509.Certificate, usage: x509.ObjectIdentifier, *, is_peer: bool) -> None:
    value = certificates.extension(certificate, x509.ExtendedKeyUsage)
    word = "clientAuth" if usage == ExtendedKeyUsageOID.CLIENT_AUTH else "serverAuth"
    if (value is None and is_peer) or (value is not None and not names_usage(value, usage)):
        raise ChainRefused(f"{_title(certificate)} is not meant for {word}", reason="WrongPurpose")


def _require_name(peer: x509.Certificate, expected: x509.DNSName | x509.IPAddress | None) -> None:
    if expected is None:
        return
    sans = names.from_general_names(certificates.extension(peer, x509.SubjectAlternativeName) or ())
    if isinstance(expected, x509.IPAddress):
        matches = expected.value in sans.ip
    else:
        matches = any(_dns_matches(pattern, expected.value) for pattern in sans.dns)
    if not matches:
        listed = ", ".join(sans.texts()) or "none"
        raise ChainRefused(
            f"{_title(peer)} is not valid for {expected.value}; its alternative names: {listed}", reason="WrongName"
        )


def _dns_matches(pattern: str, name: str) -> bool:
    pattern, name = pattern.lower(), name.lower()
    if pattern.startswith("*."):
        return name.partition(".")[2] == pattern[2:]
    return name == pattern


def _title(certificate: x509.Certificate) -> str:
    return f'certificate "{names.name_of(certificate).rfc4514_string()}"'
