# SPDX-License-Identifier: Apache-2.0
"""Handfast's own kinds: a row of the table for each, with a structural schema that says all there is to validate.

The rows have the form of custom resources, so that checking, printing, `explain` and apply need no code of their own;
`definition` gives the same kind as a CustomResourceDefinition, for a cluster whose API server is another. What an
object of such a kind brings about is elsewhere: revocation is `rules.revocation`, the issuance ledger `rules.ledger.segments`,
policy in the mesh `rules.mesh.policy`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, Final

from handfast.api import kind_schemas as parts
from handfast.api import kinds, mesh_schemas
from handfast.api import mesh_workload_schemas as workloads

GROUP: Final = "handfast.dev"
_VERSION: Final = "v1alpha1"
# What a Revocation gives as its reason when nobody gave one: the word of RFC 5280, section 5.3.1.
UNSPECIFIED: Final = "unspecified"
# What a Revocation can name; at least one.
TARGETS: Final = ("node", "user", "serialNumber", "keyFingerprint", "pod")

_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
# 20 octets, and the zero octet that DER puts before a high bit.
_SERIAL: Final = r"^((0[xX])?[0-9a-fA-F]{1,42}|[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){1,20})$"
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_INSTANT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"


_SPEC: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": (
        "Whom to refuse, by at least one of node, user, serialNumber, keyFingerprint and pod. "
        "Where several are given, each of them is refused."
    ),
    "anyOf": [{"required": [target]} for target in TARGETS],
    "properties": {
        "node": parts.text(
            "Name of a node. Refuses the user system:node:NAME, whichever certificate it shows, also one issued "
            "later, and the tokens of service accounts that are bound to Pods of the node.",
            minLength=1,
            maxLength=253,
            pattern=_SUBDOMAIN,
        ),
        "user": parts.text(
            "Name of a user, compared whole. A service account is system:serviceaccount:NAMESPACE:NAME.",
            minLength=1,
            maxLength=1024,
        ),
        "serialNumber": parts.text(
            "Serial number of a client certificate in hex, in any case, with 0x in front or with colons between the "
            "octets. CAs count for themselves: a certificate of another CA with this number is refused too.",
            pattern=_SERIAL,
        ),
        "keyFingerprint": parts.text(
            "Public key of client certificates, sha256: and the hex of the SHA-256 of its SubjectPublicKeyInfo. "
            "Refuses every certificate of that key.",
            pattern="^sha256:[0-9a-fA-F]{64}$",
        ),
        "pod": parts.structure(
            "A Pod. Refuses the tokens of service accounts that are bound to it, and in the mesh every certificate that "
            "was issued for one of them.",
            {
                "namespace": parts.text("Namespace of the Pod.", minLength=1, maxLength=63, pattern=_LABEL),
                "name": parts.text("Name of the Pod.", minLength=1, maxLength=253, pattern=_SUBDOMAIN),
                "uid": parts.text(
                    "UID of the Pod. Absent: every Pod of this name is refused, also one made later.",
                    minLength=1,
                    maxLength=128,
                    pattern="^[^/]*$",
                ),
            },
            required=["namespace", "name"],
        ),
        "reason": parts.text(
            "Why, for people; it is in the server's log and, of a node, on its Node. It is not told to who is refused.",
            default=UNSPECIFIED,
            minLength=1,
            maxLength=1024,
        ),
        "expires": parts.text(
            "When this ends, as in 2030-01-31T12:00:00Z. Absent: it holds until it is deleted.",
            format="date-time",
            pattern=_INSTANT,
        ),
    },
}
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": (
        "Revocation refuses one identity: whatever it names gets 401 from the next request on, and open watches end. "
        "Deleting it takes that back."
    ),
    "required": ["spec"],
    "properties": {
        "apiVersion": parts.text("Version of this form of the object."),
        "kind": parts.text("Revocation."),
        "metadata": {"type": "object"},
        "spec": _SPEC,
    },
}

_HASH: Final = "^[0-9a-f]{64}$"
_LOG_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": (
        "IssuanceLog is one segment of the issuance ledger: a line for every certificate issued, chained by hashes, "
        "written by signers. Lines are only ever added; a sealed segment never changes."
    ),
    "required": ["spec"],
    "properties": {
        "apiVersion": parts.text("Version of this form of the object."),
        "kind": parts.text("IssuanceLog."),
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "description": "The segment.",
            "required": ["sequence", "previous", "entries", "sealed"],
            "properties": {
                "sequence": {
                    "type": "integer",
                    "format": "int64",
                    "description": "Which segment this is, counted from 1.",
                    "minimum": 1,
                },
                "previous": parts.text("The hash of the segment before; zeros where there was none.", pattern=_HASH),
                "entries": {
                    "type": "array",
                    "description": (
                        "One line for each certificate: the SHA-256 that chains it to the line before, its number, "
                        "and a JSON object that says who asked, how they had authenticated, by which rule they were "
                        "allowed to, and what was issued."
                    ),
                    "items": {"type": "string"},
                },
                "sealed": {"type": "boolean", "description": "Whether it is closed for good."},
                "hash": parts.text("Of a sealed segment, the SHA-256 of its last line.", pattern=_HASH),
                "chain": parts.text("Which chain it is of; without one, that of Kubernetes' signers.", enum=["mesh"]),
            },
        },
    },
}


_COLUMNS: Final = (
    parts.column("Node", ".spec.node", "Node that is refused."),
    parts.column("User", ".spec.user", "User that is refused."),
    parts.column("Serial", ".spec.serialNumber", "Serial number of the certificate that is refused."),
    parts.column("Key", ".spec.keyFingerprint", "Public key that is refused.", priority=1),
    parts.column("Pod", ".spec.pod.name", "Pod that is refused."),
    parts.column("Reason", ".spec.reason", "Why."),
    parts.column("Expires", ".spec.expires", "When it ends."),
    parts.column("Age", ".metadata.creationTimestamp", "Time since it was created.", kind="date"),
)

_LOG_COLUMNS: Final = (
    parts.column("Sealed", ".spec.sealed", "Whether it is closed for good.", kind="boolean"),
    parts.column("Hash", ".spec.hash", "What the next segment is chained to."),
    parts.column("Age", ".metadata.creationTimestamp", "Time since it was begun.", kind="date"),
)


# What all kinds of this group have in common.
_kind = functools.partial(
    kinds.Kind,
    group=GROUP,
    version=_VERSION,
    namespaced=False,
    categories=("handfast",),
    needs_resource_version=True,
    has_generation=True,
)
REVOCATION: Final = _kind(
    kind="Revocation",
    plural="revocations",
    singular="revocation",
    short_names=("rev",),
    listed_as="RevocationList",
    schema=_SCHEMA,
    columns=_COLUMNS,
)
ISSUANCE_LOG: Final = _kind(
    kind="IssuanceLog",
    plural="issuancelogs",
    singular="issuancelog",
    short_names=("il",),
    listed_as="IssuanceLogList",
    schema=_LOG_SCHEMA,
    columns=_LOG_COLUMNS,
)
MESH_POLICY: Final = _kind(
    kind="MeshPolicy",
    plural="meshpolicies",
    singular="meshpolicy",
    short_names=("mp",),
    listed_as="MeshPolicyList",
    namespaced=True,
    schema=mesh_schemas.POLICY,
    columns=mesh_schemas.POLICY_COLUMNS,
)
MESH_WORKLOAD: Final = _kind(
    kind="MeshWorkload",
    plural="meshworkloads",
    singular="meshworkload",
    short_names=("mw",),
    listed_as="MeshWorkloadList",
    namespaced=True,
    subresources=(kinds.Subresource(name="status", kind="MeshWorkload"),),
    schema=workloads.SCHEMA,
    columns=workloads.COLUMNS,
)
# As a request, or the store, names them.
REVOCATIONS: Final = REVOCATION.resource
ISSUANCE_LOGS: Final = ISSUANCE_LOG.resource


def rows() -> tuple[kinds.Kind, ...]:
    """Every row, in discovery order."""
    return REVOCATION, ISSUANCE_LOG, MESH_POLICY, MESH_WORKLOAD


def definition(kind: kinds.Kind) -> dict[str, Any]:
    """The CustomResourceDefinition that makes another API server serve this kind."""
    more = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    names = {
        "plural": kind.plural,
        "singular": kind.singular,
        "kind": kind.kind,
        "listKind": kind.list_kind,
        **{key: words for key, words in more.items() if words},
    }
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": copy.deepcopy(kind.schema)},
        **({"subresources": {row.name: {} for row in kind.subresources}} if kind.subresources else {}),
        "additionalPrinterColumns": [dict(column) for column in kind.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }
