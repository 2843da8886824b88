# SPDX-License-Identifier: Apache-2.0
"""Admission: new objects need a namespace that exists and is not going away; three namespaces never go."""

from __future__ import annotations

from handfast.api import status
from handfast.apiserver import admission
from handfast.rules import decision

_PLUGIN = "NamespaceLifecycle"
_NAMESPACES = ("", "namespaces")
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_PROTECTED = decision.Deny("ProtectedNamespace", "this namespace may not be deleted", _PLUGIN)
_TERMINATING = "NamespaceTerminating"


def admit(asked: admission.Attributes, context: admission.Context) -> None:
    """Refuse what would outlive its namespace, or make one without it."""
    if asked.operation == admission.DELETE:
        if asked.kind.resource == _NAMESPACES and asked.name in PROTECTED_NAMESPACES:
            raise admission.Refusal(asked, _PROTECTED)
        return
    if not asked.kind.namespaced or asked.subresource:
        return
    found = context.replica.collection("core/namespaces/").get("", asked.namespace)
    if found is None:
        raise status.not_found("namespaces", "", asked.namespace)
    # Cheap test first: only a namespace on its way out has the field at all.
    if b'"deletionTimestamp"' in found.body and found.document()["metadata"].get("deletionTimestamp"):
        sentence = f"unable to create new content in namespace {asked.namespace} because it is being terminated"
        cause = status.Cause(_TERMINATING, f"namespace {asked.namespace} is being terminated", "metadata.namespace")
        raise admission.Refusal(asked, decision.Deny(_TERMINATING, sentence, _PLUGIN), [cause])


ROW = admission.Row(_PLUGIN, frozenset({admission.CREATE, admission.DELETE}), admit)
