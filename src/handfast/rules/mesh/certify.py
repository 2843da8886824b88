# SPDX-License-Identifier: Apache-2.0
"""May this workload have a certificate in this name: the checks of Certify, in the order, with the codes and texts of Linkerd's own.

It sends no TokenReview, signs nothing and keeps no time: the identity service does. A code is gRPC's name for it. Stock proxies try
again whatever the code is; the texts are what their users search for.

1. There is an issuer [UNAVAILABLE].
2. Identity, 3. token and 4. request are there; none is larger than anything that is in order [INVALID_ARGUMENT].
5. The request can be read, and is signed by the key that it carries: Linkerd does not look at that [INVALID_ARGUMENT].
6. The issuer is in force [UNKNOWN].
7. The request names one thing: exactly one DNS name, which is the identity, byte for byte, and no wildcard. The common name is empty or the
   same. There is nothing else in it: no e-mail address, IP address or URI, no other attribute of the subject, no other attribute, no usage and no
   other extension [FAILED_PRECONDITION].
8. The token was reviewed by the API server, and is good [INTERNAL, INVALID_ARGUMENT, FAILED_PRECONDITION]. It was reviewed for the audience of
   the identity service, unless tokens for the API itself are accepted. It is that of a service account, whose name can be in an identity
   [INVALID_ARGUMENT].
9. The identity is that of this account [FAILED_PRECONDITION].
10. The key is one of ECDSA, which is what proxies verify [INTERNAL].
11. Neither the account, nor its Pod, nor the node of that, nor the key is revoked [FAILED_PRECONDITION].

Not seen: basic constraints that ask for nothing.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_certify.py |
|---|---|---|---|---|
| a workload | its own token | a certificate in the name of another | 9 | test_another_accounts_name_is_refused |
| … | its own token, and the public key of another | a certificate for a key that it lacks | 5 | test_a_request_that_another_key_signed_is_refused |
| … | its own token | a second name, an address, a group or a wildcard beside its own | 7 | test_a_request_names_one_thing_and_nothing_else |
| a reader of another service's tokens | a token for that service | be its workload in the mesh | 8 | test_a_token_for_another_audience_is_refused |
| a user, or a node | a good credential that is no account's | an identity | 8 | test_who_is_no_service_account_has_no_identity |
| a tenant | an account with a dot in its name | the name of another namespace's account | 8 | test_who_is_no_service_account_has_no_identity |
| who took over a workload | its token and key | the next certificate, after a Revocation | 11 | test_who_is_revoked_is_refused |
| who took over one Pod | its token | the next certificate, after that Pod was revoked | 11 | test_a_revoked_pod_is_refused_and_its_neighbours_are_not |
| a vandal | a request of a megabyte | the service's time | 2 | test_what_is_too_large_is_refused_by_field_value_and_bound |
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, signer_names
from handfast.pki import authority, certificates, keys, profiles, requests, usages
from handfast.pki import names as pki_names
from handfast.rules import decision, revocation, user_names
from handfast.rules.ledger import entries
from handfast.rules.mesh import control_plane, holders, issuer, names
from handfast.rules.mesh import settings as settings_module

UNAVAILABLE: Final = "UNAVAILABLE"
INVALID_ARGUMENT: Final = "INVALID_ARGUMENT"
FAILED_PRECONDITION: Final = "FAILED_PRECONDITION"
INTERNAL: Final = "INTERNAL"
UNKNOWN: Final = "UNKNOWN"
RESOURCE_EXHAUSTED: Final = "RESOURCE_EXHAUSTED"
# The codes of a no that does not pass by itself: of who is revoked, has no token that counts, or wants another's name.
REFUSING: Final = frozenset({INVALID_ARGUMENT, FAILED_PRECONDITION})
# What a workload calls that.
REFUSED: Final = "CertificateRefused"

MAX_TOKEN: Final = 16 << 10
RULE: Final = "MeshCertify"
# Of the certificate that the identity service has from itself.
OWN: Final = "MeshOwn"
# After either, who signed: a few digits of the SHA-256 of the issuer's certificate.
_BY: Final = ": issuer "
TAG: Final = 16
_ECDSA: Final = frozenset({keys.Kind.P256, keys.Kind.P384, keys.Kind.P521})
_USAGES: Final = frozenset({usages.DIGITAL_SIGNATURE, usages.KEY_ENCIPHERMENT, usages.SERVER_AUTH, usages.CLIENT_AUTH})
_POD: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_NODE: Final = "authentication.kubernetes.io/node-name"


class Refusal(errors.Refused):
    """The answer to a call: `code` by gRPC's name. `reason` is for metrics and the log."""

    def __init__(self, code: str, message: str, reason: str) -> None:
        super().__init__(message, reason=reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Call:
    """What a workload sends. Its token does not print."""

    identity: str
    token: bytes = field(repr=False)
    request: bytes = field(repr=False)


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """Whose token it is, by the API server's word; `pod` and `node` are empty where it is bound to none."""

    account: names.Account
    username: str
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = msgspec.field(default_factory=dict)

    @property
    def pod(self) -> str:
        return next(iter(self.extra.get(_POD, ())), "")

    @property
    def pod_uid(self) -> str:
        return next(iter(self.extra.get(_POD_UID, ())), "")

    @property
    def node(self) -> str:
        return next(iter(self.extra.get(_NODE, ())), "")

    @property
    def holder(self) -> holders.Holder:
        """In which Pod the token is, as the ledger says it."""
        return holders.Holder(namespace=self.account.namespace, pod=self.pod, uid=self.pod_uid, node=self.node)


def require_ready(current: issuer.Issuer | None) -> issuer.Issuer:
    """The issuer, where there is one."""
    # 1. there is an issuer
    if current is None:
        raise Refusal(UNAVAILABLE, "cert issuer not ready yet", "IssuerNotReady")
    return current


def require_parts(call: Call) -> None:
    """Return if everything is there, and nothing too large, else refuse."""
    rows = (
        # 2. the identity
        ("identity", "missing identity", len(call.identity), names.MAX_LENGTH, "characters"),
        # 3. the token
        ("token", "missing token", len(call.token), MAX_TOKEN, "bytes"),
        # 4. the request
        (
            "certificate_signing_request",
            "missing certificate signing request",
            len(call.request),
            requests.MAX_BYTES,
            "bytes",
        ),
    )
    for part, missing, size, _bound, _unit in rows:
        if not size:
            raise Refusal(INVALID_ARGUMENT, missing, f"Missing{_word(part)}")
    for part, _missing, size, bound, unit in rows:
        if size > bound:
            text = f"{part}: it has {size} {unit}; at most {bound} are allowed"
            raise Refusal(INVALID_ARGUMENT, text, f"{_word(part)}TooLarge")


def read(call: Call) -> requests.Request:
    """The request, after the checks that need nothing but the message."""
    require_parts(call)
    try:
        # 5. it can be read, and is signed by its own key
        return requests.parse_der(call.request)
    except errors.Refused as refused:
        raise Refusal(INVALID_ARGUMENT, refused.message, refused.reason) from None


def require_in_force(current: issuer.Issuer, now: datetime.datetime) -> None:
    """Return if what the issuer signs now is believed, else refuse."""
    begins, ends = current.certificate.not_before, current.ends
    # 6. the issuer is in force
    if not begins <= now < ends:
        times = " - ".join(
            f"{title} {objects.timestamp(instant)}"
            for title, instant in (("Current Time :", now), ("Invalid before", begins), ("Invalid After", ends))
        )
        raise Refusal(
            UNKNOWN, f"the issuer's certificate has expired or is not yet valid - {times}", "IssuerNotInForce"
        )


def require_name(request: requests.Request, identity: str) -> None:
    """Return if a request asks for this name and for nothing else."""
    sans, subject = request.sans, request.subject
    # 7. exactly one DNS name, which is the identity
    if len(sans.dns) != 1:
        raise _precondition("CSR must have exactly one DNSName", "NotOneName")
    if sans.dns[0] != identity:
        raise _precondition(
            f"CSR name does not match requested identity: csr={sans.dns[0]}; req={identity}", "AnotherName"
        )
    if subject.common_name not in {"", identity}:
        raise _precondition(f"invalid CommonName: {subject.common_name}", "AnotherCommonName")
    # 7. and nothing beside it
    for others, text in (
        (sans.email, "cannot validate email addresses"),
        (sans.ip, "cannot validate IP addresses"),
        (sans.uri, "cannot validate URIs"),
    ):
        if others:
            raise _precondition(text, "OtherNames")
    if identity.startswith("*"):
        raise _precondition(f"an identity is no wildcard: {identity}", "Wildcard")
    _require_nothing_else(request)


def _require_nothing_else(request: requests.Request) -> None:
    subject = request.subject
    more = (
        (
            (*("O" for _ in subject.organizations), *subject.other_types),
            "the subject may have a CommonName only, not",
        ),
        (request.other_attributes, "a CSR may have no other attributes"),
        (
            (*request.other_extensions, *sorted(request.requested_usages), *(["CA"] if request.wants_ca else ())),
            "a CSR may ask for no other extensions",
        ),
    )
    for words, text in more:
        if words:
            raise _precondition(f"{text}: {', '.join(dict.fromkeys(words))}", "OtherWishes")


def review_failed(identity: str, why: str) -> Refusal:
    """The answer where the API server did not review the token, or its account has no name."""
    return Refusal(INTERNAL, f"error validating token for {identity}: {why}", "ReviewFailed")


def reviewed(status: Any, mesh: names.Mesh, identity: str, audience: str = control_plane.AUDIENCE) -> Reviewed:
    """Whose token it is; `audience` is empty where one of the API itself is accepted."""
    # 8. the API server says that the token is good
    if error := jsonpath.text(status, "error"):
        raise Refusal(INVALID_ARGUMENT, error, "TokenRefused")
    if jsonpath.at(status, "authenticated") is not True:
        raise _precondition("authentication token could not be authenticated", "NotAuthenticated")
    # 8. for the audience of this service
    audiences = jsonpath.texts(status, "audiences")
    if audience and audience not in audiences:
        raise _precondition(
            f"the token is not for the audience {audience}, but for: {', '.join(audiences) or 'none'}", "WrongAudience"
        )
    account = _account(jsonpath.text(status, "user", "username"), jsonpath.text(status, "user", "uid"))
    try:
        # 8. whose name can be in an identity
        mesh.name(account)
    except errors.Refused as refused:
        raise review_failed(identity, refused.message) from None
    extra = jsonpath.mapping(status, "user", "extra")
    return Reviewed(
        account=account,
        username=user_names.service_account_user(account.namespace, account.name),
        groups=tuple(jsonpath.texts(status, "user", "groups")),
        extra={key: jsonpath.texts(extra, key) for key in extra},
    )


def _account(username: str, uid: str) -> names.Account:
    # 8. it is that of a service account
    parts = username.split(":")
    if len(parts) != 4 or parts[0] != "system":
        raise Refusal(INVALID_ARGUMENT, f"Username must be in form system:TYPE:NS:SA: {username}", "NotAServiceAccount")
    for part in parts[1:]:
        if objects.dns_label(part) is not None:
            raise Refusal(INVALID_ARGUMENT, f"Not a label: {part}", "NotALabel")
    _, kind, namespace, name = parts
    if user_names.service_account_user(namespace, name) != username:
        raise Refusal(INVALID_ARGUMENT, f"TYPE must be serviceaccount, not {kind}: {username}", "NotAServiceAccount")
    return names.Account(namespace=namespace, name=name, uid=uid)


def require_own(mesh: names.Mesh, review: Reviewed, identity: str) -> None:
    """Return if the identity is that of the token's account."""
    # 9. the account's own name
    own = mesh.name(review.account)
    if own != identity:
        raise _precondition(
            f"requested identity did not match provided token: requested={identity}; found={own}", "AnotherIdentity"
        )


def require_key(request: requests.Request) -> None:
    """Return if proxies verify what is signed for this key."""
    # 10. a key of ECDSA
    if request.public_key.kind not in _ECDSA:
        raise Refusal(INTERNAL, f"CSR must contain an ECDSA public key: it has {request.public_key.kind}", "NotEcdsa")


def require_not_revoked(
    review: Reviewed, request: requests.Request, index: revocation.Index, now: datetime.datetime
) -> None:
    """Return if no Revocation names the account, its Pod, the node of that or the key. Why is for administrators."""
    pod = review.holder.revocable
    verdict = index.judge(review.username, "", request.public_key.fingerprint, review.node, now, pod)
    # 11. not revoked
    if isinstance(verdict, decision.Deny):
        raise _precondition(
            "the account, its Pod, the node of that or the key of this request is revoked", revocation.REVOKED
        )


def profile(settings: settings_module.Settings, current: issuer.Issuer, now: datetime.datetime) -> profiles.Profile:
    """What the certificate looks like: for clients and servers, back-dated, and over when its issuer is believed no more."""
    return profiles.Profile(
        name="mesh-workload",
        usages=_USAGES,
        lifetime=min(settings.lifetime, current.ends - now),
        backdate=settings.skew,
    )


def sans(settings: settings_module.Settings, mesh: names.Mesh, account: names.Account) -> pki_names.Sans:
    """The names in the certificate: the identity, and the SPIFFE ID behind it where that is set."""
    uris = [mesh.spiffe(account)] if settings.spiffe else []
    return pki_names.make_sans(dns=[mesh.name(account)], uri=uris)


def entry(
    review: Reviewed,
    alternatives: pki_names.Sans,
    issued: authority.Issued,
    current: issuer.Issuer,
    now: datetime.datetime,
    rule: str = RULE,
) -> entries.Entry:
    """What the ledger says of the certificate; by which issuer stands after the rule."""
    method, credential = entries.authenticated_by(review.username, review.groups, review.extra)
    return entries.Entry(
        issued_at=now.replace(microsecond=0),
        signer=signer_names.MESH_IDENTITY,
        requester=review.username,
        authenticated_by=method,
        token_id=credential,
        key_fingerprint=issued.key_fingerprint,
        serial=issued.serial,
        names=tuple(alternatives.texts()),
        not_after=issued.not_after,
        rule=f"{rule}{_BY}{issuer_tag(current.certificate)}",
        request=review.holder.text,
        certificate=issued.fingerprint,
    )


def issuer_tag(certificate: certificates.Certificate) -> str:
    """How the ledger tells an issuer from others: by its certificate."""
    return certificate.fingerprint[:TAG]


def issuer_of(entry: entries.Entry) -> str:
    """The tag of who signed; empty where the entry is from before it was written."""
    return entry.rule.partition(_BY)[2]


def _word(part: str) -> str:
    return "".join(word.capitalize() for word in part.split("_"))


def _precondition(text: str, reason: str) -> Refusal:
    return Refusal(FAILED_PRECONDITION, text, reason)
