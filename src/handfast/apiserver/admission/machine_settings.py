# SPDX-License-Identifier: Apache-2.0
"""Admission: who may change the machine-approver's settings. What they say is read by `rules.machines.settings`, not here.

Whoever writes ConfigMap openshift-cluster-machine-approver/machine-approver-config says whose requests are approved, and by
which proofs; and without it the defaults count, which ask for less. So a write of that one object is let through only if

1. it changes nothing but labels and annotations, or
2. it creates an empty one, which says no more than none: the machine-approver makes it so, without the verb. An owner, a
   finalizer or `immutable` is not empty, or
3. it deletes it together with its namespace, which takes the right to delete namespaces, or
4. the caller may `trust` it: that verb on configmaps, by this name, in that namespace. The verbs of the role `edit` are not enough.
   Finalizers and owner references need it, too, since the garbage collector deletes for whoever names an owner.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_machine_settings.py |
|---|---|---|---|---|
| an editor of the namespace | update on configmaps | add themselves to the bootstrap identities | 4 | test_an_editor_cannot_change_the_settings |
| … | delete, create on configmaps | turn the proofs off by deleting the settings | 4 | test_an_editor_cannot_delete_them |
| … | create on configmaps | be the first to write them | 2 | test_an_editor_may_only_create_an_empty_one |
| … | update on configmaps | have the garbage collector delete them | 4 | test_an_editor_cannot_name_an_owner |
"""

from __future__ import annotations

from typing import Final

from handfast.api import objects
from handfast.apiserver.admission import plugin, trust
from handfast.rules.machines import settings

_PLUGIN: Final = "MachineSettingsTrust"
_DECIDES: Final = "whoever changes the machine-approver's settings decides which machines are let in"
_CONTENT: Final = ("data", "binaryData", "immutable")
_HELD: Final = ("ownerReferences", "finalizers")


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Refuse who may not change the machine-approver's settings."""
    if write.name != settings.NAME or write.namespace != settings.NAMESPACE:
        return
    # 1. only labels and annotations
    if trust.unchanged(write):
        return
    # 2. an empty one where there is none
    if write.operation == plugin.CREATE and _is_empty(write.document or {}):
        return
    # 3. with its namespace
    if write.operation == plugin.DELETE and _namespace_goes(context):
        return
    # 4. the verb `trust`
    trust.require(write, context, _DECIDES, _PLUGIN)


def _is_empty(document: objects.Document) -> bool:
    metadata = objects.metadata(document)
    return not any(document.get(key) for key in _CONTENT) and not any(metadata.get(key) for key in _HELD)


def _namespace_goes(context: plugin.Context) -> bool:
    namespace = context.find("core/namespaces/", "", settings.NAMESPACE)
    return namespace is not None and objects.metadata(namespace).get("deletionTimestamp") is not None


ROW = plugin.Row(
    _PLUGIN,
    frozenset({plugin.CREATE, plugin.UPDATE, plugin.DELETE}),
    admit,
    frozenset({("", "configmaps")}),
)
