# SPDX-License-Identifier: Apache-2.0
"""The schema of a MeshPolicy, and its columns: everything there is to validate. The kind itself is a row of `handfast_kinds`.

What a policy brings about is `rules.mesh.policy`. One thing no schema can say: that the keys of `matchLabels` are keys of labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handfast.api import kind_schemas as parts

AUDIT: Final = "audit"
ENFORCE: Final = "enforce"
# What a row of clients can be; exactly one.
MAX_CLIENTS: Final = 256
_MAX_NAMES: Final = 64

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_QUALIFIED: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"


def _label(about: str) -> dict[str, Any]:
    return parts.text(about, minLength=1, maxLength=63, pattern=_LABEL)


_VALUE: Final = parts.text("One value.", maxLength=63, pattern=_LABEL_VALUE)
_EXPRESSION: Final = parts.structure(
    "One condition on one label.",
    {
        "key": parts.text("Key of the label.", minLength=1, maxLength=317, pattern=_QUALIFIED),
        "operator": parts.text("In, NotIn, Exists or DoesNotExist.", enum=["In", "NotIn", "Exists", "DoesNotExist"]),
        "values": parts.atomic("Values, for In and NotIn alone.", _VALUE, maxItems=_MAX_NAMES),
    },
    required=["key", "operator"],
    anyOf=[
        {"properties": {"operator": {"enum": ["In", "NotIn"]}, "values": {"minItems": 1}}, "required": ["values"]},
        {"properties": {"operator": {"enum": ["Exists", "DoesNotExist"]}, "values": {"maxItems": 0}}},
    ],
)
_SELECTOR: Final = parts.structure(
    "Pods by their labels, as everywhere in Kubernetes; an empty one has all Pods.",
    {
        "matchLabels": {
            "type": "object",
            "description": "Labels that a Pod has, each with this value.",
            "maxProperties": _MAX_NAMES,
            "additionalProperties": dict(_VALUE),
        },
        "matchExpressions": parts.atomic("Conditions that all hold.", _EXPRESSION, maxItems=_MAX_NAMES),
    },
    **parts.ATOMIC,
)
_TARGETS: Final = parts.structure(
    "Whom this is about, among the workloads of its own namespace. Where several are given, all of them have to hold. "
    "Absent: every workload, on every port.",
    {
        "serviceAccounts": parts.atomic(
            "Names of service accounts: the Pods that run as one of them.",
            parts.text("Name of a service account.", minLength=1, maxLength=253, pattern=_SUBDOMAIN),
            minItems=1,
            maxItems=_MAX_NAMES,
        ),
        "podSelector": _SELECTOR,
        "ports": parts.atomic(
            "Ports of the Pods, which need not be those of a Service. Absent: every port, also the proxy's own.",
            parts.whole("One port.", minimum=1, maximum=65535),
            minItems=1,
            maxItems=_MAX_NAMES,
        ),
    },
)
_CLIENT: Final = parts.structure(
    "One row: exactly one of serviceAccount, namespace, identity and unauthenticated.",
    {
        "serviceAccount": parts.structure(
            "The workloads of one service account.",
            {
                "namespace": _label("Namespace of the account. Absent: that of the policy."),
                "name": _label("Name of the account."),
            },
            required=["name"],
        ),
        "namespace": _label("The workloads of every service account of this namespace."),
        "identity": parts.text(
            "The name in a client's certificate, compared whole.", minLength=1, maxLength=253, pattern=_SUBDOMAIN
        ),
        "unauthenticated": {
            **parts.truth(
                "Everybody, with an identity or without one; with requireIdentity.inbound, everybody who has one."
            ),
            "enum": [True],
        },
    },
    minProperties=1,
    maxProperties=1,
)
_REQUIRE: Final = parts.structure(
    "Which connections need an identity at the other end. This is about the workloads in targets.",
    {
        "inbound": parts.truth(
            "Refuse clients that have no identity, whatever this policy or another one says about clients."
        ),
        "outbound": parts.truth("Let the workloads talk to nobody but servers that have an identity."),
    },
    minProperties=1,
)
_SPEC: Final = parts.structure(
    "Who may call whom. It has clients, or requireIdentity, or both.",
    {
        "targets": _TARGETS,
        "clients": parts.atomic(
            "Who is let in. Of all enforcing policies on a workload's port that have clients, one row has to fit; an "
            "empty list lets in nobody. Absent: this policy does not say who.",
            _CLIENT,
            maxItems=MAX_CLIENTS,
        ),
        "mode": parts.text(
            "enforce refuses; audit refuses nothing, and tells what it would refuse.",
            default=ENFORCE,
            enum=[AUDIT, ENFORCE],
        ),
        "requireIdentity": _REQUIRE,
    },
    anyOf=[{"required": ["clients"]}, {"required": ["requireIdentity"]}],
)
POLICY: Final[Mapping[str, Any]] = parts.document(
    "MeshPolicy",
    "MeshPolicy says who may call the workloads of its namespace, by their identities in the mesh. Where no policy is "
    "about a workload's port, everybody may.",
    _SPEC,
    required=["spec"],
)
POLICY_COLUMNS: Final = (
    parts.column("Mode", ".spec.mode", "Whether it refuses, or only tells."),
    parts.column("Accounts", ".spec.targets.serviceAccounts", "Service accounts that it is about."),
    parts.column("Ports", ".spec.targets.ports", "Ports that it is about."),
    parts.column("Identity-In", ".spec.requireIdentity.inbound", "Whether clients need an identity.", kind="boolean"),
    parts.column("Identity-Out", ".spec.requireIdentity.outbound", "Whether servers need an identity.", kind="boolean"),
    parts.column("Age", ".metadata.creationTimestamp", "Time since it was created.", kind="date"),
)
