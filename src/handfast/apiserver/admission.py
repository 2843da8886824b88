# SPDX-License-Identifier: Apache-2.0
"""Station: admission. Ordered plugins that may change or refuse a write after the caller was authorised.

Each plugin is a row: its name, the operations it looks at, and a function that returns nothing or raises. The order is
the table's. Today there is one; webhooks, node restriction and the certificate plugins take their rows here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from handfast.api import kinds, objects, status
from handfast.apiserver import authn, replica

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
_NAMESPACES = ("", "namespaces")
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


@dataclass(frozen=True, slots=True)
class Attributes:
    """What plugins see of a write. `document` may be changed; `old` is None for a create."""

    operation: str
    kind: kinds.Kind
    subresource: str
    namespace: str
    name: str
    document: objects.Document | None
    old: objects.Document | None
    user: authn.User
    dry_run: bool


Plugin = Callable[[Attributes, replica.Replica], None]


def namespace_lifecycle(asked: Attributes, copy: replica.Replica) -> None:
    """New objects need a namespace that exists and is not going away; three namespaces never go."""
    if asked.operation == DELETE:
        if asked.kind.resource == _NAMESPACES and asked.name in PROTECTED_NAMESPACES:
            raise status.forbidden("namespaces", "", asked.name, "this namespace may not be deleted")
        return
    if not asked.kind.namespaced or asked.subresource:
        return
    found = copy.collection("core/namespaces/").get("", asked.namespace)
    if found is None:
        raise status.not_found("namespaces", "", asked.namespace)
    # Cheap test first: only a namespace on its way out has the field at all.
    if b'"deletionTimestamp"' in found.body and found.document()["metadata"].get("deletionTimestamp"):
        refusal = status.forbidden(
            asked.kind.plural,
            asked.kind.group,
            asked.name,
            f"unable to create new content in namespace {asked.namespace} because it is being terminated",
        )
        refusal.causes = (
            status.Cause(
                "NamespaceTerminating", f"namespace {asked.namespace} is being terminated", "metadata.namespace"
            ),
        )
        raise refusal


PLUGINS: tuple[tuple[str, frozenset[str], Plugin], ...] = (
    ("NamespaceLifecycle", frozenset({CREATE, DELETE}), namespace_lifecycle),
)


def admit(asked: Attributes, copy: replica.Replica) -> None:
    """Ask every plugin that looks at this operation, in order."""
    for _, operations, plugin in PLUGINS:
        if asked.operation in operations:
            plugin(asked, copy)
