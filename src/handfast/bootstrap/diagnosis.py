# SPDX-License-Identifier: Apache-2.0
"""Decides what to tell a person whose machine does not find its cluster: one message, hint and reason for each cause.

It sees answers and troubles as values, and neither causes nor repeats them: `client/discovery.py` does. Nobody is told
"invalid or expired" where the cause is known:

| cause | reason | told by |
|---|---|---|
| the id signs nothing, others do | UnknownTokenID | the names of the signatures |
| nobody signs | SignatureMissing | the same |
| the token has expired | TokenExpired | the challenge in a trusted server's 401 |
| the token is not for signing, or not for logging in | UsageMissing | a trusted server accepts it otherwise |
| the token is not accepted from this address | TokenNotFromHere | the challenge in a trusted server's 401 |
| another secret, or a changed document | SignatureMismatch | the signature (`jws.verify`); which of the two, by what a pinned server says to the token |
| another CA | WrongPin | the pin |
| clocks differ | ClockSkew | the Date header beside a certificate that is not valid by this machine's clock |
| somebody in between opens TLS | TLSInterception | the chain of the certificate |
| something else listens there | NotAnAPIServer | its answer |
| nobody listens, no such name, no answer | ConnectionRefused, NameNotFound, Timeout | the network |

A Date header that nobody has vouched for ends up in a hint or chooses between two refusals, and never lets anything pass.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import durations
from handfast.bootstrap import cluster_info, tokens

# From this difference on, a clock is named as a possible cause.
SKEW: Final = datetime.timedelta(minutes=1)
# The answers of a server that has looked at the token that came with the question. One that is busy or not ready has not.
JUDGED: Final = frozenset({200, 401, 403})
# Refusals that may pass, and for how many seconds it is worth asking again: a token may have been made a moment ago, a 401
# that does not say why may be a proxy's, and between a change of cluster-info and its new signatures there is an instant in which
# they do not fit.
PATIENCE: Final[Mapping[str, float]] = {
    "UnknownTokenID": 30.0,
    "AnonymousRefused": 30.0,
    "UsageMissing": 30.0,
    "TokenRefused": 30.0,
    "SignatureMismatch": 10.0,
    "ClusterInfoChanged": 10.0,
}
_NO_LOGIN: Final = (
    "its signature is good, but the cluster does not let it log in; or no bootstrap token may log in there "
    "(--enable-bootstrap-token-auth)"
)
_MAKE_ANEW: Final = "make a new one on a control plane with `handfast token create --print-join-command`"
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE: Final = re.compile(r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT")


def document(body: bytes) -> dict[str, Any]:
    """The JSON object in an answer; an empty one if it is none."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def unknown_token(token: tokens.Token) -> errors.Refused:
    """Others sign, this one does not."""
    return errors.Refused(
        f"could not find a JWS signature in the cluster-info ConfigMap for token ID {token.id!r}: the cluster does not "
        "know this token, or it has expired or is not for signing",
        reason="UnknownTokenID",
        hint=f"`handfast token explain {token.id}` on a control plane says which; or {_MAKE_ANEW}",
    )


class Trouble(enum.Enum):
    """What went wrong on the way to an answer."""

    CONNECTION_REFUSED = "connection refused"
    NAME_NOT_FOUND = "name not found"
    NO_ANSWER = "no answer"
    UNREACHABLE = "unreachable"
    NOT_TLS = "not TLS"
    NOT_HTTP = "not HTTP"
    UNTRUSTED = "certificate not trusted"
    WRONG_NAME = "certificate for another name"
    NOT_VALID_NOW = "certificate not valid now"


class _Row(msgspec.Struct, frozen=True):
    family: type[errors.HandfastError]
    reason: str
    # With {where}, {detail} and {by}.
    message: str
    hint: str


_NOT_AN_API_SERVER: Final = "check host and port: the API of Kubernetes is usually on port 6443, over TLS"
_ROWS: Final[Mapping[Trouble, _Row]] = {
    Trouble.CONNECTION_REFUSED: _Row(
        errors.Unavailable,
        "ConnectionRefused",
        "{where} refuses connections",
        "start the API server there, or check host, port and firewall",
    ),
    Trouble.NAME_NOT_FOUND: _Row(
        errors.Unavailable,
        "NameNotFound",
        "the name in {where} cannot be resolved: {detail}",
        "check the spelling and this machine's DNS, or give an IP address",
    ),
    Trouble.NO_ANSWER: _Row(
        errors.Unavailable,
        "Timeout",
        "{where} did not answer in time",
        "a firewall that drops packets, or an overloaded server: try again, with another endpoint or a longer --timeout where "
        "there is one",
    ),
    Trouble.UNREACHABLE: _Row(
        errors.Unavailable,
        "Unreachable",
        "{where} cannot be reached: {detail}",
        "check the route to it, or give another endpoint",
    ),
    Trouble.NOT_TLS: _Row(
        errors.Refused,
        "NotAnAPIServer",
        "{where} is not an API server: it does not speak TLS ({detail})",
        _NOT_AN_API_SERVER,
    ),
    Trouble.NOT_HTTP: _Row(
        errors.Refused, "NotAnAPIServer", "{where} is not an API server: {detail}", _NOT_AN_API_SERVER
    ),
    Trouble.UNTRUSTED: _Row(
        errors.Refused,
        "TLSInterception",
        "{where} presents a certificate that is not from {by}: {detail}",
        "something in between answers in the API server's place (a proxy that opens TLS, or an attacker), or the "
        "certificate is from a CA that is not trusted here; nothing secret was sent",
    ),
    Trouble.WRONG_NAME: _Row(
        errors.Refused,
        "WrongServerName",
        "{where} presents a certificate of the cluster for other names: {detail}",
        "use a name or address that the certificate has, or restart the control plane with --advertise",
    ),
    Trouble.NOT_VALID_NOW: _Row(
        errors.Refused,
        "CertificateNotValid",
        "{where} presents a certificate that is not valid now: {detail}",
        "check the clocks of both machines; if they are right, the server's certificate has to be renewed",
    ),
}


def explain(
    trouble: Trouble, where: str, detail: str, skew: datetime.timedelta | None, *, by: str = "the cluster's CA"
) -> errors.HandfastError:
    """The error of a fetch without an answer; `skew`: how far this machine's clock is ahead, where that is known.

    `by` is whose certificate was wanted.
    """
    row = _ROWS[trouble]
    if trouble is Trouble.NOT_VALID_NOW and skew is not None and abs(skew) >= SKEW:
        return errors.Refused(
            f"the certificate of {where} is not valid by this machine's clock, which is {difference(skew)} the server's",
            reason="ClockSkew",
            hint="set the clock of this machine (or of the server) right, and try again",
        )
    return row.family(row.message.format(where=where, detail=detail, by=by), reason=row.reason, hint=row.hint)


def not_an_api_server(where: str, why: str) -> errors.Refused:
    """It answers, and not as one."""
    return errors.Refused(f"{where} is not an API server: {why}", reason="NotAnAPIServer", hint=_NOT_AN_API_SERVER)


def answered(code: int, body: bytes, where: str) -> errors.HandfastError | None:
    """What an answer to the request for cluster-info means; None: go on with its body."""
    if code == 200:
        return None
    if code == 429:
        return busy(where)
    # Balancers answer for servers that are not up yet, in pages of their own.
    if code >= 500:
        return errors.Unavailable(
            f"{where} is not ready: it answered {code}", reason="ServerNotReady", hint="wait, or give another endpoint"
        )
    if document(body).get("kind") != "Status":
        return not_an_api_server(where, f"it answered {code} without a Status")
    if code in {401, 403}:
        return errors.Refused(
            f"{where} does not let anybody without a credential read cluster-info ({code})",
            reason="AnonymousRefused",
            hint="allow it on the control plane (`handfast init` does, --anonymous-from may forbid it), or use "
            "--discovery-file",
        )
    return errors.Unavailable(
        f"{where} has no ConfigMap {cluster_info.NAMESPACE}/{cluster_info.NAME} ({code})",
        reason="NoClusterInfo",
        hint="its control plane has not published it yet, or was not set up with `handfast init` or kubeadm",
    )


def busy(where: str) -> errors.Unavailable:
    """It has asked to be asked later."""
    return errors.Unavailable(
        f"{where} is busy: it answered 429, too many requests",
        reason="ServerNotReady",
        hint="wait, or give another endpoint; machines behind one address share what strangers may ask",
    )


def document_text(code: int, body: bytes, where: str) -> str:
    """The text of a discovery document that was fetched from a URL."""
    if code >= 500 or code == 429:
        raise errors.Unavailable(
            f"{where} is not ready: it answered {code}", reason="ServerNotReady", hint="try again later"
        )
    if code != 200:
        raise errors.Refused(
            f"error trying to fetch discovery kubeconfig over HTTPS from {where}, received status {code}",
            reason="NoDiscoveryDocument",
            hint="check the URL; redirects are not followed, and no credentials are sent",
        )
    return decoded(body, where)


def decoded(body: bytes, where: str) -> str:
    """The text of a discovery document."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise errors.Refused(f"{where}: a discovery document is UTF-8 text", reason="BadClusterInfo") from None


def asked_unsigned(token: tokens.Token, code: int, challenge: str) -> errors.Refused:
    """Why a token does not sign, by what a pinned server answered to it."""
    if code != 401:
        return errors.Refused(
            f"token {token.id!r} has no signature in the cluster-info ConfigMap, though the cluster accepts it for logging "
            "in: it is not for signing, or the bootstrapsigner controller does not run",
            reason="UsageMissing",
            hint=f"`handfast token explain {token.id}` on a control plane says what it is for; or {_MAKE_ANEW}",
        )
    return expired(token) if _says(challenge, "TokenExpired") else unknown_token(token)


def asked_mismatched(refused: errors.Refused, token: tokens.Token, code: int) -> errors.Refused:
    """Which of the two is wrong where a signature does not match, by what a pinned server answered to the token."""
    if code == 401:
        hint = f"the cluster does not accept the token: compare its secret half with what was printed when it was made; or {_MAKE_ANEW}"
    else:
        hint = (
            f"the cluster accepts token {token.id!r}, so what it publishes was changed on the way; or it was changed just now, and is "
            "signed again within seconds"
        )
    return errors.Refused(refused.message, reason=refused.reason, hint=hint)


def login(token: tokens.Token, code: int, challenge: str, *, signs: bool) -> errors.Refused | None:
    """What a trusted server's answer says of the token to log in with; `signs`: its signature was good a moment ago."""
    if code != 401:
        return None
    if _says(challenge, "TokenExpired"):
        return expired(token)
    if _says(challenge, "TokenNotFromHere"):
        return errors.Refused(
            f"token {token.id!r} is not accepted from this machine's address",
            reason="TokenNotFromHere",
            hint=f"`handfast token explain {token.id}` on a control plane says from where it is; or make one there with "
            "--cidr and a network of this machine",
        )
    if signs:
        return errors.Refused(
            f"token {token.id!r} is not for authentication: {_NO_LOGIN}",
            reason="UsageMissing",
            hint=f"{_MAKE_ANEW}, with --usages {tokens.SIGNING},{tokens.AUTHENTICATION}",
        )
    return errors.Refused(
        f"the cluster does not accept token {token.id!r} for logging in: it is unknown, expired, not for "
        "that, or not accepted from this machine's address",
        reason="TokenRefused",
        hint=f"`handfast token explain {token.id}` on a control plane says which; or {_MAKE_ANEW}",
    )


def expired(token: tokens.Token) -> errors.Refused:
    """As the server says."""
    return errors.Refused(f"token {token.id!r} has expired", reason="TokenExpired", hint=_MAKE_ANEW)


def _says(challenge: str, word: str) -> bool:
    """What our servers tell who holds the secret of a token, in WWW-Authenticate (RFC 6750, 3.1)."""
    return f'error_description="{word}"' in challenge


def skew(date: str, now: datetime.datetime) -> datetime.timedelta | None:
    """How far `now` is ahead of a server's Date header; None where there is none that can be read."""
    match = _DATE.fullmatch(date)
    if match is None or match[2] not in _MONTHS:
        return None
    try:
        day, hour, minute, second = (int(match[group]) for group in (1, 4, 5, 6))
        month = _MONTHS.index(match[2]) + 1
        at = datetime.datetime(int(match[3]), month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        return None
    return now - at


def difference(ahead: datetime.timedelta) -> str:
    """As in "2h5m ahead of"."""
    rounded = datetime.timedelta(seconds=round(abs(ahead).total_seconds()))
    return f"{durations.short(rounded)} {'ahead of' if ahead > datetime.timedelta() else 'behind'}"


def clock_notes(ahead: datetime.timedelta | None) -> tuple[str, ...]:
    """What a machine that finds its cluster should be told of its clock: nothing, where it agrees with the server's."""
    if ahead is None or abs(ahead) < SKEW:
        return ()
    judged = "certificates, tokens and Leases are judged by the time, so set the one that is wrong right"
    return (f"this machine's clock is {difference(ahead)} the server's: {judged}",)


def with_clock(error: errors.HandfastError, ahead: datetime.timedelta | None) -> errors.HandfastError:
    """An error about a token, with the clocks in its hint where they differ: whoever made it may have been wrong."""
    if ahead is not None and abs(ahead) >= SKEW and error.reason in {"UnknownTokenID", "TokenExpired", "TokenRefused"}:
        error.hint = f"{error.hint}; note that this machine's clock is {difference(ahead)} the server's"
    return error


def worth_waiting(error: errors.HandfastError, waited: float) -> bool:
    """May the next attempt end otherwise, after the same error for so many seconds?"""
    return isinstance(error, errors.Unavailable) or waited < PATIENCE.get(error.reason, 0.0)


def lost(known: cluster_info.ClusterInfo, failed: Mapping[str, errors.HandfastError]) -> errors.HandfastError:
    """No server that was known leads to the cluster any more: what was known, and how to begin again."""
    # Here, because pins bring the cryptography library along, which most commands can do without (45 ms).
    from handfast.pki import pem, pins

    authorities = [str(pins.of_certificate(der)) for der in pem.certificates_from_pem(known.ca)] if known.ca else []
    last = (
        f"last known: servers {', '.join(known.servers)}; CA {', '.join(authorities) or 'the roots of this system'}; "
        f"cluster id {known.id or 'unknown'}"
    )
    why = "; ".join(error.message for error in failed.values())
    hint = (
        "the copy that is here was left as it is; to discover the cluster anew, run: handfast join ENDPOINT --token "
        "TOKEN --discovery-token-ca-cert-hash PIN --dry-run --print-kubeconfig"
    )
    for error in failed.values():
        if error.reason in {"OtherCluster", "AllRootsChanged"}:
            return error
    if any(error.reason == "TLSInterception" for error in failed.values()):
        return errors.Refused(
            f"no server that answers has a certificate from a CA that is known here: the cluster's CA was replaced, or "
            f"somebody answers in its place ({why}); {last}",
            reason="AllRootsChanged",
            hint=hint,
        )
    return errors.Unavailable(
        f"none of the cluster's servers can be used any more ({why}); {last}", reason="AllEndpointsMoved", hint=hint
    )
