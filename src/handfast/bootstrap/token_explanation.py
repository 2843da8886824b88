# SPDX-License-Identifier: Apache-2.0
"""Why a bootstrap token works or does not: every check with its result, for the person who asks.

It judges nobody: the server does, with the checks of `tokens`. Here none is skipped after a failure, none needs the secret
half, and no sentence shows it. `now` is the server's time, since that is what counts.

1. The Secret is there and is not being deleted.
2. It has the type of token Secrets, and data in base64.
3. Its name is that of the id in its data.
4. Its secret half has the form of one: another could stand in the Secret, but no command would take it. Where the whole
   token is at hand, the secret halves are compared.
5. It has not expired. How far this machine's clock is off is told with it: that is the usual cause.
6. It is for signing: without this, no machine can verify the cluster with it.
7. It is for authentication: without this, no machine can log in with it.
8. Its groups are well formed, and one of them lets a machine ask for its certificate.
9. Uses are left, if they are limited.
10. Which nodes it may be used for, and from where; that is told, since it depends on who comes.
11. What its bearer may do; that is told, too: a token is a credential, and not only for joining.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Final

import msgspec

from handfast import errors
from handfast.api import durations, objects
from handfast.bootstrap import first_objects, token_limits, tokens

# What two clocks, and the way between them, may differ without anybody being interested.
_SAME: Final = datetime.timedelta(seconds=2)


class Finding(msgspec.Struct, frozen=True):
    """A check, whether it holds (None: it depends on who comes), and a sentence."""

    check: str
    good: bool | None
    sentence: str


class Explanation(msgspec.Struct, frozen=True):
    """All findings, and what the token is good for."""

    findings: tuple[Finding, ...]
    discovery: bool
    authentication: bool
    # Whether a machine that has not used it can get a certificate; None: it depends on the machine, or on bindings.
    joining: bool | None = False


class _Seen(msgspec.Struct, frozen=True):
    secret: tokens.TokenSecret
    document: objects.Document
    broken: str
    now: datetime.datetime
    # The server's time minus this machine's; None where it is not known.
    ahead: datetime.timedelta | None
    presented: tokens.Token | None


def explain(
    token_id: str,
    document: objects.Document | None,
    now: datetime.datetime,
    *,
    ahead: datetime.timedelta | None = None,
    presented: tokens.Token | None = None,
) -> Explanation:
    """All checks on the Secret of an id, None where there is none; `presented` is the whole token, if somebody has it."""
    # 1. it is there
    where = f"Secret {tokens.NAMESPACE}/{tokens.secret_name(token_id)}"
    if document is None:
        return Explanation((Finding("exists", False, f"there is no {where}"),), discovery=False, authentication=False)
    secret, broken = _read(document)
    seen = _Seen(secret, document, broken, now, ahead, presented)
    first = (
        Finding("exists", False, f"{where} is being deleted")
        if secret.deleting
        else Finding("exists", True, f"{where}")
    )
    findings = (first, *(check(seen) for check in _CHECKS))
    failed = {finding.check for finding in findings if finding.good is False}
    logs_in = not failed & {"exists", "type", "name", "secret", "expiry", "authentication", "groups", "restrictions"}
    depends = any(finding.good is None for finding in findings)
    return Explanation(
        findings,
        discovery=not failed & {"exists", "type", "name", "secret", "expiry", "signing"},
        authentication=logs_in,
        joining=False if not logs_in or "uses" in failed else None if depends else True,
    )


def _read(document: objects.Document) -> tuple[tokens.TokenSecret, str]:
    """What can be read, and what is wrong with the form."""
    try:
        return tokens.read(document), ""
    except errors.Refused as refused:
        name = objects.metadata(document).get("name")
        deleting = objects.metadata(document).get("deletionTimestamp") is not None
        nothing = tokens.TokenSecret(name=str(name or ""), token=tokens.Token("", ""), deleting=deleting)
        return nothing, refused.message


def _type(seen: _Seen) -> Finding:
    # 2. its type and data
    return Finding("type", not seen.broken, seen.broken or tokens.SECRET_TYPE)


def _name(seen: _Seen) -> Finding:
    # 3. its name
    try:
        tokens.require_consistent(seen.secret)
    except errors.Refused as refused:
        return Finding("name", False, refused.message)
    return Finding("name", True, f"{tokens.KEY_ID} is {json.dumps(seen.secret.token.id)}, as in the name")


def _secret(seen: _Seen) -> Finding:
    # 4. its secret half; the id put before it is well formed, so that only this half is in question
    good = tokens.is_well_formed(tokens.Token("0" * 6, seen.secret.token.secret).text)
    if good and seen.presented is not None:
        same = tokens.Token(seen.presented.id, seen.secret.token.secret) == seen.presented
        return Finding("secret", same, f"{tokens.KEY_SECRET} {'is' if same else 'is not'} the one given")
    return Finding("secret", good, f"{tokens.KEY_SECRET} {'has' if good else 'does not have'} the form of one")


def _expiry(seen: _Seen) -> Finding:
    # 5. not expired
    clocks = _clocks(seen.ahead)
    try:
        until = tokens.parse_expiration(seen.secret.expiration)
    except errors.Refused as refused:
        return Finding("expiry", False, f"{refused.message}; what cannot be read counts as expired")
    if until is None:
        return Finding("expiry", True, f"never expires{clocks}")
    left = until - seen.now
    good = left > datetime.timedelta()
    distance = durations.short(abs(left))
    when = f"expires in {distance}, at" if good else f"expired {distance} ago, at"
    return Finding("expiry", good, f"{when} {objects.timestamp(until)}{clocks}")


def _clocks(ahead: datetime.timedelta | None) -> str:
    if ahead is None:
        return "; the server's time is not known"
    if abs(ahead) <= _SAME:
        return "; the server's clock and this machine's agree"
    # From here on seconds matter.
    seconds = abs(int(ahead.total_seconds()))
    return f"; the server's clock is {seconds} s {'ahead of' if ahead > _SAME else 'behind'} this machine's"


def _usage(usage: str, purpose: str) -> Callable[[_Seen], Finding]:
    # 6. for signing, and 7. for authentication
    def check(seen: _Seen) -> Finding:
        good = usage in seen.secret.usages
        state = "is" if good else "is not"
        return Finding(usage, good, f'{tokens.USAGE_PREFIX}{usage} {state} "true": {"" if good else "not "}{purpose}')

    return check


def _groups(seen: _Seen) -> Finding:
    # 8. its groups
    try:
        groups = tokens.parse_groups(seen.secret.extra_groups, seen.secret.old_groups)
    except errors.Refused as refused:
        return Finding("groups", False, refused.message)
    listed = ", ".join(groups)
    if first_objects.NODE_GROUP in groups:
        return Finding("groups", True, listed)
    return Finding("groups", None, f"{listed}; only bindings of your own let these ask for a certificate")


def _uses(seen: _Seen) -> Finding:
    # 9. uses are left
    try:
        used, left = token_limits.count(seen.document), token_limits.uses_left(seen.document)
    except errors.Refused as refused:
        return Finding("uses", False, refused.message)
    if left is None:
        return Finding("uses", True, f"used {used} times; not limited")
    return Finding("uses", left > 0, f"used {used} times; {left} left for keys that did not use it yet")


def _restrictions(seen: _Seen) -> Finding:
    # 10. which nodes, and from where
    try:
        limits = token_limits.read(seen.document)
    except errors.Refused as refused:
        return Finding("restrictions", False, refused.message)
    if not limits.nodes and not limits.cidrs:
        return Finding("restrictions", True, "for any node, from anywhere")
    nodes, networks = ", ".join(limits.nodes), ", ".join(map(str, limits.cidrs))
    return Finding("restrictions", None, f"for {nodes or 'any node'}, from {networks or 'anywhere'}")


def _rights(seen: _Seen) -> Finding:
    # 11. what its bearer may do, as `first_objects` grants it
    if tokens.AUTHENTICATION not in seen.secret.usages:
        return Finding("rights", True, f"none but to verify {first_objects.CLUSTER_INFO}: it does not log in")
    try:
        joins = first_objects.NODE_GROUP in tokens.parse_groups(seen.secret.extra_groups, seen.secret.old_groups)
    except errors.Refused:
        return Finding("rights", True, "none: it is not accepted")
    return Finding("rights", True, _MAY_JOIN if joins else "those that bindings of your own give to its groups")


_MAY_JOIN: Final = (
    "ask for certificates as a node, and read requests for certificates; for kubeadm, get Nodes and the ConfigMaps "
    f"{first_objects.KUBEADM_CONFIG} and {first_objects.KUBELET_CONFIG} of kube-system; whoever is a node can read the "
    "Secrets of its Pods"
)
_CHECKS: Final[tuple[Callable[[_Seen], Finding], ...]] = (
    _type,
    _name,
    _secret,
    _expiry,
    _usage(tokens.SIGNING, "for verifying the cluster"),
    _usage(tokens.AUTHENTICATION, "for logging in"),
    _groups,
    _uses,
    _restrictions,
    _rights,
)
