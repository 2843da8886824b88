# SPDX-License-Identifier: Apache-2.0
"""Every door to a node's certificate: which credentials and rights lead to one, whom they let in, and what closes each.

It opens and closes none, and reads nothing itself. What is listed:

1. Bootstrap tokens that log in. csrapproving approves what they ask for if their groups have the permission.
2. CAs whose client certificates are believed. One of bootstrap credentials is good for that identity alone; any other can make
   anyone, nodes included.
3. Secrets with tokens of the bootstrap account, and Secrets that tokens of single machines are bound to. Tokens that were
   requested for the account and are bound to nothing are nowhere written down: nobody can list them.
4. Secrets with which machines fetch their configuration, in which a bootstrap credential is. Networks that need none are the server's to know.
5. ClusterRoleBindings by which requests for node certificates are filed, approved or signed.

A door to a first certificate is told apart from one to the next: a node that renews itself is one already.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from handfast.api import jsonpath, objects, signer_names, signing_requests
from handfast.bootstrap import token_views, tokens
from handfast.pki import certificates
from handfast.rules import access, client_ca_bundle, decision
from handfast.rules.certificates import kubelet
from handfast.rules.machines import bootstrapper, credential_end
from handfast.rules.rbac import policy

TOKEN: Final = "bootstrap token"  # noqa: S105 - a word for people
AUTHORITY: Final = "CA"
ACCOUNT: Final = "account"
CONFIGURATION: Final = "configuration"
BINDING: Final = "binding"

_REQUESTS: Final = "certificatesigningrequests"
_SOMEBODY: Final = "somebody"
_FOREVER: Final = "for ever"


@dataclass(frozen=True, slots=True)
class Door:
    """One door: what it is, its name, what it lets whom do, until when, and how to close it."""

    kind: str
    name: str
    opens: str
    until: str
    close: str


def of_token(view: token_views.View) -> Door | None:
    """The door that a bootstrap token is, if it logs in (1)."""
    if tokens.AUTHENTICATION not in view.usages:
        return None
    groups = ", ".join(view.groups) or "no group of its own"
    until = _FOREVER if view.expires is None else objects.timestamp(view.expires)
    return Door(
        TOKEN,
        view.token.id,
        f"asks as a bootstrap token in {groups}",
        until,
        f"handfast token delete {shlex.quote(view.token.id)}",
    )


def of_authority(certificate: certificates.Certificate, *, scoped: bool, end: datetime.datetime | None = None) -> Door:
    """The door that a client CA is, perhaps with an end before that of its certificate (2)."""
    name = f"{certificate.subject.common_name} {certificate.fingerprint[:16]}"
    until = objects.timestamp(certificate.not_after if end is None else min(end, certificate.not_after))
    if end is not None and not credential_end.is_readable(end):
        until = f"it has ended: {credential_end.KEY} is no instant"
    if scoped:
        opens = f"vouches for {bootstrapper.USER} and nobody else"
        return Door(AUTHORITY, name, opens, until, "handfast machine credentials revoke --kind master")
    where = f"ConfigMap {client_ca_bundle.NAMESPACE}/{client_ca_bundle.NAME}"
    return Door(
        AUTHORITY, name, "vouches for anyone, nodes included", until, f"handfast ca rotate; or take it out of {where}"
    )


def of_secret(metadata: Mapping[str, Any], *, machine: str = "") -> Door:
    """The door that a Secret of the bootstrap account is (3); `machine` is the one that its token is for."""
    name = jsonpath.text(metadata, "name")
    close = "handfast machine credentials revoke --kind worker"
    if machine:
        close = f"kubectl --namespace {bootstrapper.NAMESPACE} delete secret {shlex.quote(name)}"
    opens = f"asks as {bootstrapper.USER}" + (f", with the token of Machine {machine}" if machine else "")
    return Door(ACCOUNT, f"Secret {bootstrapper.NAMESPACE}/{name}", opens, "until it is deleted", close)


def of_configuration(secret: str, pool: str, machine: str, until: datetime.datetime | None) -> Door:
    """The door that a secret for fetching configurations is (4): of one Machine, or of a whole pool."""
    end = "until it is rotated" if until is None else objects.timestamp(until)
    delete = f"kubectl --namespace {bootstrapper.NAMESPACE} delete secret {shlex.quote(secret)}"
    close = (
        delete
        if machine or until is not None
        else f"handfast machine ignition --pool {shlex.quote(pool)} --rotate; or {delete}"
    )
    opens = f"fetches the configuration of the pool {pool}" + (f", as Machine {machine}" if machine else "")
    if machine:
        end = "until its first certificate"
    return Door(CONFIGURATION, f"Secret {bootstrapper.NAMESPACE}/{secret}", opens, end, close)


def of_binding(binding: Any, role: Any) -> Door | None:
    """The door that a ClusterRoleBinding to this ClusterRole is; None: it has nothing to do with node certificates (5)."""
    granted = [words for words, question in _QUESTIONS.items() if _grants(role, question)]
    subjects = [_subject(row) for row in jsonpath.mappings(binding, "subjects")]
    if not granted or not subjects:
        return None
    name = jsonpath.text(binding, "metadata", "name")
    opens = f"{', '.join(subjects)}: {'; '.join(granted)}"
    return Door(
        BINDING, f"ClusterRoleBinding {name}", opens, _FOREVER, f"kubectl delete clusterrolebinding {shlex.quote(name)}"
    )


def _grants(role: Any, questions: Sequence[access.Attributes]) -> bool:
    """Whether a ClusterRole gives all of this to whoever is bound to it."""
    rules = policy.Policy()
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _SOMEBODY}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _SOMEBODY}]
    rules.set_binding("", _SOMEBODY, {"roleRef": reference, "subjects": subjects})
    rules.set_role("", _SOMEBODY, role)
    return all(isinstance(rules.decide(question), decision.Approve) for question in questions)


def _subject(row: Mapping[str, Any]) -> str:
    kind, name, namespace = (jsonpath.text(row, key) for key in ("kind", "name", "namespace"))
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _asks(verb: str, plural: str, subresource: str = "", name: str = "") -> access.Attributes:
    return access.Attributes(
        user=_SOMEBODY,
        groups=(),
        verb=verb,
        is_resource=True,
        group=signing_requests.GROUP,
        plural=plural,
        subresource=subresource,
        name=name,
    )


# 5. what a right is good for, and what it takes
_QUESTIONS: Final[Mapping[str, Sequence[access.Attributes]]] = {
    "files requests": (_asks("create", _REQUESTS),),
    "has first certificates approved without a Machine": (_asks("create", _REQUESTS, kubelet.NODE_CLIENT),),
    "has its next certificate approved": (_asks("create", _REQUESTS, kubelet.SELF_NODE_CLIENT),),
    "approves requests": (
        _asks("update", _REQUESTS, "approval"),
        _asks("approve", "signers", name=signer_names.KUBELET_CLIENT),
    ),
    "signs requests": (
        _asks("update", _REQUESTS, "status"),
        _asks("sign", "signers", name=signer_names.KUBELET_CLIENT),
    ),
}


def ordered(doors: Iterable[Door | None]) -> tuple[Door, ...]:
    """Those that there are, by kind and name."""
    kinds = (TOKEN, AUTHORITY, ACCOUNT, CONFIGURATION, BINDING)
    return tuple(
        sorted((door for door in doors if door is not None), key=lambda door: (kinds.index(door.kind), door.name))
    )
