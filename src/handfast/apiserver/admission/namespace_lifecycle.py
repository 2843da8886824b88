# SPDX-License-Identifier: Apache-2.0
"""Admission: new objects need a namespace that exists and is not going away; three namespaces never go."""

from __future__ import annotations

from handfast.api import status
from handfast.apiserver.admission import plugin
from handfast.rules import decision

_PLUGIN = "NamespaceLifecycle"
_NAMESPACES = ("", "namespaces")
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_PROTECTED = decision.Deny("ProtectedNamespace", "this namespace may not be deleted", _PLUGIN)
_TERMINATING = "NamespaceTerminating"


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Refuse a new object in a namespace that is gone or going, and the deletion of a protected namespace."""
    if write.operation == plugin.DELETE:
        if write.kind.resource == _NAMESPACES and write.name in PROTECTED_NAMESPACES:
            raise plugin.Refusal(write, _PROTECTED)
        return
    if not write.kind.namespaced or write.subresource:
        return
    namespace = context.replica.collection("core/namespaces/").get("", write.namespace)
    if namespace is None:
        raise status.not_found("namespaces", "", write.namespace)
    # Cheap test first: only a namespace on its way out has the field at all.
    if b'"deletionTimestamp"' in namespace.body and namespace.document()["metadata"].get("deletionTimestamp"):
        sentence = f"unable to create new content in namespace {write.namespace} because it is being terminated"
        cause = status.Cause(_TERMINATING, f"namespace {write.namespace} is being terminated", "metadata.namespace")
        raise plugin.Refusal(write, decision.Deny(_TERMINATING, sentence, _PLUGIN), [cause])


ROW = plugin.Row(_PLUGIN, frozenset({plugin.CREATE, plugin.DELETE}), admit)
