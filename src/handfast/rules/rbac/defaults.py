# SPDX-License-Identifier: Apache-2.0
"""The roles and bindings that every cluster starts with, as documents, and what an existing one lacks of them.

Their rules are in `rbac.default_roles`; they are written by `apiserver.default_policy`. Of what an operator changed:

1. an object with the annotation `autoupdate: "false"` stays as it is;
2. rules, selectors, subjects, labels and annotations that are missing are added, whatever else is there stays;
3. the rules of an aggregated role are not compared: they are gathered;
4. a binding to another role than ours is made anew, because the role of a binding cannot change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from handfast.api import jsonpath
from handfast.rules import access, user_names
from handfast.rules.rbac import default_roles, escalation, policy_rules

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_CONTROLLERS = ("User", user_names.CONTROLLERS)

Document = dict[str, Any]
_Subject = tuple[str, ...]


def _group(name: str) -> _Subject:
    return ("Group", name)


def _account(name: str) -> _Subject:
    return ("ServiceAccount", name, "kube-system")


# ClusterRoleBinding -> ClusterRole, subjects. Where there is no other reason it has the role's name.
_CLUSTER_BINDINGS: Mapping[str, tuple[str, tuple[_Subject, ...]]] = {
    "cluster-admin": ("cluster-admin", (_group(access.MASTERS),)),
    "system:basic-user": ("system:basic-user", (_group(user_names.AUTHENTICATED),)),
    "system:discovery": ("system:discovery", (_group(user_names.AUTHENTICATED),)),
    "handfast:node-recovery": ("handfast:node-recovery", (_group(user_names.NODE_RECOVERY),)),
    "system:kube-controller-manager": ("system:kube-controller-manager", (_CONTROLLERS,)),
    "system:monitoring": ("system:monitoring", (_group("system:monitoring"),)),
    # Nodes are authorised one by one; this is kept so that nobody needs to wonder where the binding is.
    "system:node": ("system:node", ()),
    "system:node-proxier": ("system:node-proxier", (("User", "system:kube-proxy"),)),
    "system:public-info-viewer": (
        "system:public-info-viewer",
        (_group(user_names.AUTHENTICATED), _group(user_names.UNAUTHENTICATED)),
    ),
    "system:service-account-issuer-discovery": (
        "system:service-account-issuer-discovery",
        (_group(user_names.SERVICE_ACCOUNTS),),
    ),
}
# (namespace, RoleBinding) -> Role, subjects.
_BINDINGS: Mapping[tuple[str, str], tuple[str, tuple[_Subject, ...]]] = {
    ("kube-system", "system::extension-apiserver-authentication-reader"): (
        "extension-apiserver-authentication-reader",
        (_CONTROLLERS,),
    ),
    ("kube-system", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer",
        (_account("bootstrap-signer"),),
    ),
    ("kube-public", "system:controller:bootstrap-signer"): (
        "system:controller:bootstrap-signer",
        (_account("bootstrap-signer"),),
    ),
    # Whether strangers read it, too, is said by kubeadm's binding (`bootstrap.first_objects`), which an operator may delete.
    ("kube-public", "handfast:cluster-info-reader"): (
        "handfast:cluster-info-reader",
        (_group(user_names.AUTHENTICATED),),
    ),
    ("kube-system", "system:controller:token-cleaner"): (
        "system:controller:token-cleaner",
        (_account("token-cleaner"),),
    ),
    ("kube-system", "system::leader-locking-kube-controller-manager"): (
        "system::leader-locking-kube-controller-manager",
        (_CONTROLLERS,),
    ),
    ("kube-system", "system:controller:client-ca-bundle"): ("system:controller:client-ca-bundle", (_CONTROLLERS,)),
}


class Default(msgspec.Struct, frozen=True):
    """One object that must be there; the namespace of cluster-scoped ones is empty."""

    plural: str
    namespace: str
    document: Document

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])


def documents() -> list[Default]:
    """Every default, roles before the bindings that name them."""
    defaults = [Default("clusterroles", "", _aggregated(name)) for name in default_roles.AGGREGATED]
    for name, rules in default_roles.CLUSTER_ROLES.items():
        defaults.append(Default("clusterroles", "", _role(name, rules, _goes_into(name))))
    for (namespace, name), rules in default_roles.ROLES.items():
        defaults.append(Default("roles", namespace, _role(name, rules, {})))
    for name, (role, subjects) in _CLUSTER_BINDINGS.items():
        defaults.append(Default("clusterrolebindings", "", _binding(name, "ClusterRole", role, subjects)))
    for (namespace, name), (role, subjects) in _BINDINGS.items():
        defaults.append(Default("rolebindings", namespace, _binding(name, "Role", role, subjects)))
    return defaults


def _metadata(name: str, labels: Mapping[str, str]) -> Document:
    return {"name": name, "labels": {**_LABELS, **labels}, "annotations": {AUTOUPDATE: "true"}}


def _goes_into(name: str) -> dict[str, str]:
    _, is_part, target = name.partition("system:aggregate-to-")
    return {_AGGREGATE + target: "true"} if is_part else {}


def _role(name: str, rules: tuple[policy_rules.PolicyRule, ...], labels: Mapping[str, str]) -> Document:
    return {"metadata": _metadata(name, labels), "rules": [rule.document() for rule in rules]}


def _aggregated(name: str) -> Document:
    target = default_roles.AGGREGATED[name]
    labels = {_AGGREGATE + target: "true"} if target else {}
    selector = {"matchLabels": {_AGGREGATE + name: "true"}}
    return {"metadata": _metadata(name, labels), "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": []}


def _binding(name: str, kind: str, role: str, subjects: tuple[_Subject, ...]) -> Document:
    return {
        "metadata": _metadata(name, {}),
        "roleRef": {"apiGroup": policy_rules.GROUP, "kind": kind, "name": role},
        **({"subjects": [_subject(*subject) for subject in subjects]} if subjects else {}),
    }


def _subject(kind: str, name: str, namespace: str = "") -> dict[str, str]:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"apiGroup": policy_rules.GROUP, "kind": kind, "name": name}


def is_protected(document: Document) -> bool:
    """Whether its owner wants it left alone (1)."""
    return jsonpath.text(document, "metadata", "annotations", AUTOUPDATE) == "false"


def needs_new(document: Document, wanted: Document) -> bool:
    """Whether a binding is to another role than ours (4)."""
    keys = ("kind", "name")
    return any(jsonpath.at(document, "roleRef", key) != jsonpath.at(wanted, "roleRef", key) for key in keys)


def reconciled(document: Document, wanted: Document) -> Document:
    """What is there, with what is missing added (2); the same if nothing is."""
    metadata = {**document["metadata"]}
    result = {**document, "metadata": metadata}
    for field in ("labels", "annotations"):
        metadata[field] = {**jsonpath.mapping(metadata, field), **wanted["metadata"][field]}
    # 3. not the rules of an aggregated role
    if "aggregationRule" in wanted:
        path = ("aggregationRule", "clusterRoleSelectors")
        selectors = _joined(jsonpath.sequence(document, *path), jsonpath.sequence(wanted, *path))
        result["aggregationRule"] = {**jsonpath.mapping(document, "aggregationRule"), path[-1]: selectors}
    elif "rules" in wanted:
        missing = escalation.uncovered(policy_rules.parse(document.get("rules")), policy_rules.parse(wanted["rules"]))
        if missing:
            added = [rule.document() for rule in escalation.compact(missing)]
            result["rules"] = [*jsonpath.sequence(document, "rules"), *added]
    elif "subjects" in wanted:
        result["subjects"] = _joined(jsonpath.sequence(document, "subjects"), wanted["subjects"])
    return result


def _joined(present: list[Any], wanted: list[Any]) -> list[Any]:
    return [*present, *(item for item in wanted if item not in present)]
