# SPDX-License-Identifier: Apache-2.0
"""Decides whether a certificate chain is good for a purpose at an instant, and says why not.

It does not check revocation (nothing here issues CRLs: short lives and retired CAs take their place), and does not map
the subject to a user: see the API server's authentication.

`verify` returns only when all of this holds; the word in brackets is the reason of the refusal:

1. One to `MAX_CHAIN` certificates, the peer's own first, the others in any order; unrelated ones are ignored
   [Malformed].
2. Every one parses, and the peer's names are well formed [Malformed].
3. The peer's key is strong enough [WeakKey]; that of every issuer on the path too [WeakKey].
4. A path of valid signatures, SHA-256 or better, leads to an anchor of the bundle [UnknownAuthority, WeakSignature].
5. Every certificate on the path, the anchor included, is in force at `now` [Expired, NotYetValid].
6. The peer's certificate is not one of a CA [WrongOrder]; every issuer is one and may sign [NotAuthority].
7. No issuer's path length is exceeded, and no path is longer than `MAX_DEPTH` [PathLength].
8. No certificate has a critical extension that is not understood [UnknownExtension].
9. The peer's extended key usage names the purpose, or any [WrongPurpose]; an issuer that has the extension must name it
   too, as Go reads it [WrongPurpose].
10. For a server, an alternative name matches the one expected; the common name never counts [WrongName].
11. Name constraints of the issuers are kept; those that are not understood refuse [NameConstraints].

Both yes and no come from the path verifier of `cryptography`, with policies for 6 and 9 instead of those for web sites: a
kubeadm administrator has no alternative names. The words of its no are for people and may change, so a second walk over
the same certificates finds the reason (`refusals`). What that walk cannot name is [Untrusted].

Deviation from Go: a peer certificate without any extended key usage is good for nothing here, where Go takes it as good
for everything.

| who           | holding                         | tries                     | check | case of test_chains.py     |
| ------------- | ------------------------------- | ------------------------- | ----- | -------------------------- |
| a kubelet     | its serving certificate         | logs in as a client       | 9     | serverAuth only, as client |
| a user        | a client certificate            | poses as the API server   | 9, 10 | clientAuth only, as server |
| a stranger    | his own CA, same name           | logs in                   | 4     | wrong CA                   |
| a leaf        | a valid certificate and its key | signs another certificate | 6     | issuer is CA:FALSE         |
| a team's CA   | a CA limited to some names      | signs for other names     | 11    | name constraints violated  |
| a team's CA   | a CA limited to leaves          | makes a further CA        | 7     | path length exceeded       |
| a former user | an expired certificate          | logs in                   | 5     | expired                    |
| a codebreaker | a certificate on a weak key     | logs in with a found key  | 3     | weak RSA-1024 leaf         |
| a vandal      | a thousand certificates         | wears the verifier down   | 1, 7  | too many certificates      |
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from cryptography import x509
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from handfast import errors
from handfast.pki import bundles, certificates, fences, names, refusals

MAX_CHAIN = 10
MAX_DEPTH = 8

ChainRefused = refusals.ChainRefused
# 2. whatever the library finds wrong, at whichever check
_FENCE = fences.Fence("a certificate of the chain cannot be read", reason="Malformed", kind=ChainRefused)


@dataclass(frozen=True, slots=True)
class Client:
    """The purpose of a peer that logs in."""


@dataclass(frozen=True, slots=True)
class Server:
    """The purpose of a peer that was called by this DNS name or IP address."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a good chain proves about its peer.

    `not_before` and `not_after` are the peer's own. `valid_from` and `valid_until` are the window of the whole path
    that was verified, anchor included: the latest notBefore and the earliest notAfter. A cached verdict is good inside
    that window; outside it, verify again, since another path may have taken over.
    """

    subject: names.Subject
    sans: names.Sans
    serial: str
    fingerprint: str
    key_fingerprint: str
    not_before: datetime.datetime
    not_after: datetime.datetime
    valid_from: datetime.datetime
    valid_until: datetime.datetime
    anchor: str

    def require_current(self, now: datetime.datetime) -> None:
        """Return if the verdict still holds at this instant, else refuse."""
        refusals.require_window(self.subject, self.valid_from, self.valid_until, now)


def verify(
    chain: Sequence[bytes], roots: bundles.TrustBundle, purpose: Client | Server, now: datetime.datetime
) -> Verified:
    """The eleven checks on a chain in DER, the peer's own certificate first."""
    if now.tzinfo is None:
        raise errors.Misuse("an instant needs its time zone")
    with _FENCE:
        return _verify(chain, roots, purpose, now)


def _verify(
    chain: Sequence[bytes], roots: bundles.TrustBundle, purpose: Client | Server, now: datetime.datetime
) -> Verified:
    # 1. one to MAX_CHAIN certificates
    if not 1 <= len(chain) <= MAX_CHAIN:
        raise ChainRefused(f"a chain has 1 to {MAX_CHAIN} certificates, this one {len(chain)}", reason="Malformed")
    # 2. every one parses, and the peer's names are well formed; 3. the peer's key is strong enough
    try:
        presented = [certificates.load(der) for der in chain]
        peer = presented[0]
        subject, _ = names.both_of(peer)
        sans = names.from_general_names(certificates.extension(peer, x509.SubjectAlternativeName) or ())
        public_key = certificates.public_key(peer)
    except errors.Refused as refused:
        reason = "WeakKey" if refused.reason in {"WeakKey", "BadKey"} else "Malformed"
        raise ChainRefused(refused.message, reason=reason) from None
    # 4. to 11. by the path verifier, and 3. for the keys of the issuers
    judges = _judges(roots.ders)
    path = _verified_path(presented, judges, purpose, now)
    verified = Verified(
        subject=subject,
        sans=sans,
        serial=certificates.serial_text(peer.serial_number),
        fingerprint=certificates.fingerprint(chain[0]),
        key_fingerprint=public_key.fingerprint,
        not_before=peer.not_valid_before_utc,
        not_after=peer.not_valid_after_utc,
        valid_from=max([certificate.not_valid_before_utc for certificate in path]),
        valid_until=min([certificate.not_valid_after_utc for certificate in path]),
        anchor=judges.anchors[path[-1]],
    )
    # 5. in force to the fraction of a second, as a cached verdict is judged; the path verifier looks at whole seconds
    verified.require_current(now)
    return verified


def _verified_path(
    presented: list[x509.Certificate], judges: _Judges, purpose: Client | Server, now: datetime.datetime
) -> list[x509.Certificate]:
    if not judges.anchors:
        raise ChainRefused("the trust bundle is empty: nobody is trusted", reason="UnknownAuthority")
    at = now.astimezone(datetime.UTC).replace(tzinfo=None)
    peer, rest = presented[0], presented[1:]
    expected = None if isinstance(purpose, Client) else _general_name(purpose.name)
    try:
        if expected is None:
            return judges.client.time(at).build_client_verifier().verify(peer, rest).chain
        return judges.server.time(at).build_server_verifier(expected).verify(peer, rest)
    except verification.VerificationError as refused:
        wanted = ExtendedKeyUsageOID.CLIENT_AUTH if expected is None else ExtendedKeyUsageOID.SERVER_AUTH
        question = refusals.Question(
            presented=presented, anchors=list(judges.anchors), now=now, usage=wanted, name=expected, max_depth=MAX_DEPTH
        )
        raise refusals.explain(question, str(refused)) from None


class _Judges(msgspec.Struct, frozen=True):
    """The anchors of a bundle with their fingerprints, and verifiers by them that lack only the instant."""

    anchors: dict[x509.Certificate, str]
    client: verification.PolicyBuilder
    server: verification.PolicyBuilder


# The same few bundles judge every chain.
@functools.lru_cache(maxsize=8)
def _judges(ders: tuple[bytes, ...]) -> _Judges:
    anchors = {certificates.load(der): certificates.fingerprint(der) for der in ders}
    builder = verification.PolicyBuilder().max_chain_depth(MAX_DEPTH)
    if anchors:
        builder = builder.store(verification.Store(list(anchors)))
    return _Judges(
        anchors,
        builder.extension_policies(ca_policy=_CA_POLICY, ee_policy=_CLIENT_POLICY),
        builder.extension_policies(ca_policy=_CA_POLICY, ee_policy=_SERVER_POLICY),
    )


def _general_name(text: str) -> x509.DNSName | x509.IPAddress:
    # An address first: it is also a well-formed DNS name.
    try:
        return x509.IPAddress(names.ip_address(text))
    except errors.Refused:
        return x509.DNSName(names.dns_name(text).removesuffix("."))


def _issuer_may_sign(_policy: verification.Policy, _issuer: x509.Certificate, value: x509.KeyUsage | None) -> None:
    # 6. every issuer may sign
    if value is not None and not value.key_cert_sign:
        raise ValueError("issuer may not sign certificates")


def _issuer_has_purpose(
    policy: verification.Policy, _issuer: x509.Certificate, value: x509.ExtendedKeyUsage | None
) -> None:
    # 9. an issuer that is limited to purposes has this one
    if value is not None and not refusals.names_usage(value, policy.extended_key_usage):
        raise ValueError("issuer is limited to other purposes")


def _peer_is_leaf(_policy: verification.Policy, _peer: x509.Certificate, value: x509.BasicConstraints | None) -> None:
    # 6. the peer is not a CA
    if value is not None and value.ca:
        raise ValueError("peer is a CA")


def _peer_has_purpose(policy: verification.Policy, _peer: x509.Certificate, value: x509.ExtendedKeyUsage) -> None:
    # 9. the peer has this purpose
    if not refusals.names_usage(value, policy.extended_key_usage):
        raise ValueError("peer is meant for other purposes")


_ANY = verification.Criticality.AGNOSTIC
_CA_POLICY = (
    verification.ExtensionPolicy.permit_all()
    # Once present, CA:TRUE and the path length are enforced by the verifier itself.
    .require_present(x509.BasicConstraints, _ANY, None)
    .may_be_present(x509.KeyUsage, _ANY, _issuer_may_sign)
    .may_be_present(x509.ExtendedKeyUsage, _ANY, _issuer_has_purpose)
)
_CLIENT_POLICY = (
    verification.ExtensionPolicy.permit_all()
    .may_be_present(x509.BasicConstraints, _ANY, _peer_is_leaf)
    .require_present(x509.ExtendedKeyUsage, _ANY, _peer_has_purpose)
)
_SERVER_POLICY = _CLIENT_POLICY.require_present(x509.SubjectAlternativeName, _ANY, None)
