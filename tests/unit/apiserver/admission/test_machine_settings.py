# SPDX-License-Identifier: Apache-2.0
"""Who may change the machine-approver's settings. The names of the table in `machine_settings.py` are here."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.apiserver import identity
from handfast.apiserver.admission import machine_settings, plugin
from handfast.rules import access, user_names
from handfast.rules.machines import settings
from handfast.rules.rbac import default_roles, policy
from tests.unit.apiserver.admission.test_client_ca import ADMIN, CONFIG_MAPS, EDITOR, Asked
from tests.unit.pki.making import NOW

STRICT = {settings.KEY: "credential: per-machine\nnodeClientCert: {disabled: true}\n"}
Document = dict[str, Any]


def config_map(data: Document | None = None, *, name: str = settings.NAME, body: Document | None = None) -> Document:
    metadata = {"name": name, "namespace": settings.NAMESPACE, "uid": "1"}
    return {"metadata": metadata, "data": STRICT if data is None else data, **(body or {})}


def with_metadata(document: Document, **more: Any) -> Document:
    return {**document, "metadata": {**document["metadata"], **more}}


class Context(plugin.Context):
    """One with a namespace, which may be going."""

    namespace: Document | None = None

    def find(self, prefix: str, namespace: str, name: str) -> Document | None:
        assert (prefix, namespace, name) == ("core/namespaces/", "", settings.NAMESPACE)
        return self.namespace


def admit(
    new: Document | None,
    old: Document | None,
    user: identity.User = EDITOR,
    *,
    namespace: str = settings.NAMESPACE,
    space: Document | None = None,
    asked: Any = None,
) -> None:
    operation = plugin.CREATE if old is None else plugin.DELETE if new is None else plugin.UPDATE
    name = (new or old or {})["metadata"]["name"]
    write = plugin.Write(
        operation, CONFIG_MAPS, "", namespace, name, copy.deepcopy(new), copy.deepcopy(old), user, False
    )
    going = type("Going", (Context,), {"namespace": space})
    machine_settings.ROW.plugin(write, going(None, (asked or Asked()).decide, lambda: NOW))


def forbidden(new: Document | None, old: Document | None, **more: Any) -> str:
    with pytest.raises(plugin.Refusal) as caught:
        admit(new, old, **more)
    assert (caught.value.code, caught.value.why) == (403, "TrustNotPermitted")
    return caught.value.message


def test_an_editor_cannot_change_the_settings() -> None:
    mine = {settings.KEY: "bootstrapIdentities: [{user: eve, groups: [editors]}]"}
    assert forbidden(config_map(mine), config_map()) == (
        'configmaps "machine-approver-config" is forbidden: User "eve" cannot trust resource "configmaps" in API group "" in '
        'the namespace "openshift-cluster-machine-approver": whoever changes the machine-approver\'s settings decides which '
        "machines are let in, so that UPDATE of this object, except of its labels and annotations, also needs the verb "
        '"trust" on it'
    )
    forbidden(config_map({}), config_map())
    forbidden(config_map({}, body={"immutable": True}), config_map({}))
    forbidden(config_map({**STRICT, "other": "x"}), config_map())


def test_an_editor_cannot_delete_them() -> None:
    here: Document = {"metadata": {"name": settings.NAMESPACE}}
    for space in (None, here):
        assert "DELETE" in forbidden(None, config_map(), space=space)


def test_they_go_with_their_namespace() -> None:
    going = {"metadata": {"name": settings.NAMESPACE, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    admit(None, config_map(), space=going)
    forbidden(config_map({}), config_map(), space=going)


def test_an_editor_may_only_create_an_empty_one() -> None:
    admit(config_map({}), None)
    admit(with_metadata(config_map({}), labels={"a": "b"}), None)
    assert "CREATE" in forbidden(config_map(), None)
    forbidden(config_map({}, body={"binaryData": {"x": "AA=="}}), None)
    forbidden(config_map({}, body={"immutable": True}), None)
    forbidden(with_metadata(config_map({}), finalizers=["example.com/x"]), None)
    forbidden(with_metadata(config_map({}), ownerReferences=[{"name": "gone", "uid": "2"}]), None)


def test_an_editor_cannot_name_an_owner() -> None:
    forbidden(with_metadata(config_map(), ownerReferences=[{"name": "gone", "uid": "2"}]), config_map())
    forbidden(with_metadata(config_map(), finalizers=["example.com/x"]), config_map())


def test_labels_and_annotations_are_free() -> None:
    asked = Asked()
    admit(with_metadata(config_map(), labels={"a": "b"}, annotations={"c": "d"}), config_map(), asked=asked)
    assert asked.questions == []


def test_who_may_trust_may_do_everything() -> None:
    for new, old in ((config_map(), None), (config_map({}), config_map()), (None, config_map())):
        admit(new, old, ADMIN)


def test_other_config_maps_are_not_guarded() -> None:
    admit(config_map(name="other"), None)
    admit(config_map(), None, namespace="other")


def test_by_default_only_administrators_have_the_verb() -> None:
    held = policy.Policy()
    for role, rules in default_roles.CLUSTER_ROLES.items():
        held.set_role("", role, {"rules": [rule.document() for rule in rules]})
        subject = {"kind": "User", "name": f"has {role}"}
        reference = {"kind": policy.CLUSTER_ROLE, "name": role}
        held.set_binding("", role, {"roleRef": reference, "subjects": [subject]})
    judge = access.Authorizers((held,))
    for role in default_roles.CLUSTER_ROLES:
        user = identity.User(f"has {role}", (user_names.AUTHENTICATED,))
        if role == "cluster-admin":
            admit(None, config_map(), user, asked=judge)
        else:
            forbidden(None, config_map(), user=user, asked=judge)
