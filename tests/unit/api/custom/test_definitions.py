# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions: who gets which names, what becomes of them, and the rows they add."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast import errors
from handfast.api import conversion, kinds
from handfast.api.cel import engine
from handfast.api.custom import definitions

NOW, LATER = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object"}}}


def version(name: str = "v1", **more: Any) -> dict[str, Any]:
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}, **more}


def definition(
    *versions: dict[str, Any], plural: str = "widgets", group: str = "example.com", **names: Any
) -> dict[str, Any]:
    wanted = {"plural": plural, "singular": "widget", "kind": "Widget", "listKind": "WidgetList", **names}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": wanted, "versions": list(versions or [version()])},
    }


def accepted(document: dict[str, Any], *others: definitions.Claim, now: str = NOW) -> dict[str, Any]:
    return {**document, "status": definitions.accept(document, others, now)}


def conditions(document: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    rows = document["status"]["conditions"]
    return {row["type"]: (row["status"], row["reason"], row["lastTransitionTime"]) for row in rows}


def test_a_definition_alone_is_established() -> None:
    found = accepted(definition(shortNames=["wd"], categories=["all"]))
    assert conditions(found) == {
        "NamesAccepted": ("True", "NoConflicts", NOW),
        "Established": ("True", "InitialNamesAccepted", NOW),
    }
    assert found["status"]["acceptedNames"] == found["spec"]["names"]
    assert found["status"]["storedVersions"] == ["v1"]
    assert definitions.accept(found, [definitions.claim(found)], LATER) == found["status"]


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        ({"plural": "wd"}, "PluralConflict", '"wd" is already in use'),
        ({"singular": "widgets"}, "SingularConflict", '"widgets" is already in use'),
        ({"shortNames": ["ok", "widget"]}, "ShortNamesConflict", '"widget" is already in use'),
        ({"kind": "Widget"}, "KindConflict", '"Widget" is already in use'),
        ({"listKind": "WidgetList"}, "ListKindConflict", '"WidgetList" is already in use'),
    ],
)
def test_names_belong_to_who_had_them_first(names: dict[str, Any], reason: str, message: str) -> None:
    first = definitions.claim(accepted(definition(shortNames=["wd"])))
    fresh = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList", **names}
    found = accepted(definition(**fresh), first)
    assert conditions(found) == {
        "NamesAccepted": ("False", reason, NOW),
        "Established": ("False", "NotAccepted", NOW),
    }
    assert found["status"]["conditions"][0]["message"] == message
    assert next(iter(names)) not in found["status"]["acceptedNames"]
    assert definitions.rows(found) == []
    freed = accepted(found, now=LATER)
    assert conditions(freed)["Established"] == ("True", "InitialNamesAccepted", LATER)
    assert len(definitions.rows(freed)) == 1


def test_another_group_is_another_world() -> None:
    other = definitions.claim(accepted(definition(group="other.example.com")))
    assert definitions.is_established(accepted(definition(), other))


def test_built_in_kinds_hold_their_names() -> None:
    found = accepted(definition(plural="leases", group="coordination.k8s.io", singular="x", kind="X", listKind="XList"))
    assert conditions(found)["NamesAccepted"][:2] == ("False", "PluralConflict")


FORGED = [
    {"plural": "leases", "group": "coordination.k8s.io", "singular": "x", "kind": "X", "listKind": "XList"},
    {"plural": "xs", "group": "coordination.k8s.io", "singular": "x", "kind": "Lease", "listKind": "XList"},
    {"plural": "revocations", "group": "handfast.dev", "singular": "x", "kind": "X", "listKind": "XList"},
    {"plural": "secrets", "group": "core", "singular": "x", "kind": "X", "listKind": "XList"},
]


@pytest.mark.parametrize("names", FORGED, ids=[f"{row['plural']}.{row['group']}" for row in FORGED])
def test_no_status_makes_a_definition_take_a_built_in_kinds_place(names: dict[str, str]) -> None:
    document = definition(**names)
    document["status"] = {
        "acceptedNames": dict(document["spec"]["names"]),
        "conditions": [{"type": kind, "status": "True"} for kind in ("NamesAccepted", "Established")],
    }
    assert not definitions.is_established(document)
    assert definitions.rows(document) == []


def test_names_of_built_in_kinds_are_taken_back() -> None:
    document = definition(plural="leases", group="coordination.k8s.io", kind="Lease", shortNames=["le"])
    document["status"] = {"acceptedNames": copy.deepcopy(document["spec"]["names"])}
    document["status"]["conditions"] = [{"type": "Established", "status": "True", "lastTransitionTime": NOW}]
    found = accepted(document, now=LATER)
    assert conditions(found) == {
        "Established": ("False", "NotAccepted", LATER),
        "NamesAccepted": ("False", "KindConflict", LATER),
    }
    assert found["status"]["acceptedNames"] == {"singular": "widget", "listKind": "WidgetList", "shortNames": ["le"]}
    # Nor may it keep one that it no longer asks for.
    found["spec"]["names"] |= {"plural": "widgets", "kind": "Widget"}
    found["status"]["acceptedNames"]["shortNames"] = ["lease"]
    found = accepted(found)
    assert found["status"]["acceptedNames"] == found["spec"]["names"]


def test_what_is_built_in() -> None:
    assert definitions.is_builtin_resource("", "secrets")
    assert not definitions.is_builtin_resource("example.com", "secrets")
    assert definitions.is_builtin_kind("handfast.dev", "Revocation")
    assert not definitions.is_builtin_kind("handfast.dev", "Secret")
    assert definitions.is_builtin_prefix("core/secrets/")
    assert definitions.is_builtin_prefix("handfast.dev/revocations/")
    assert not definitions.is_builtin_prefix("example.com/secrets/")


def test_nobody_writes_what_the_server_computes() -> None:
    old = accepted(definition())
    sent = copy.deepcopy(old)
    sent["status"] = {"acceptedNames": {"plural": "x"}, "conditions": [], "storedVersions": ["v9"], "note": "mine"}
    definitions.keep_computed(sent, old)
    assert sent["status"] == {**old["status"], "note": "mine"}
    bare: dict[str, Any] = {"status": {"acceptedNames": {"plural": "x"}}}
    definitions.keep_computed(bare, {})
    assert bare["status"] == {}


def test_conditions_of_other_types_are_whose_they_are():
    old = {"status": {"conditions": [{"type": "Established", "status": "True"}, {"type": "Old", "status": "True"}]}}
    sent: dict[str, Any] = {"status": {"conditions": [{"type": "Established", "status": "False"}, {"message": "mine"}]}}
    definitions.keep_computed(sent, old)
    assert sent["status"]["conditions"] == [{"type": "Established", "status": "True"}, {"message": "mine"}]


def test_versions_that_nothing_is_stored_in_may_be_taken_out():
    old = {"status": {"storedVersions": ["v1alpha1", "v1"]}}
    for sent, kept in ((["v1"], ["v1"]), (["v1", "v9"], ["v1"]), ([], ["v1alpha1", "v1"]), (None, ["v1alpha1", "v1"])):
        document = {"status": {"storedVersions": sent} if sent is not None else {}}
        definitions.keep_computed(document, old)
        assert document["status"]["storedVersions"] == kept


def test_established_stays_when_new_names_are_taken() -> None:
    rival = definitions.claim(accepted(definition(plural="gadgets", singular="gadget", kind="G", listKind="GL")))
    found = accepted(definition(shortNames=["wd"]))
    found["spec"]["names"]["shortNames"] = ["gadget"]
    found = accepted(found, rival, now=LATER)
    assert conditions(found)["NamesAccepted"] == ("False", "ShortNamesConflict", LATER)
    assert conditions(found)["Established"] == ("True", "InitialNamesAccepted", NOW)
    assert definitions.rows(found)[0].short_names == ("wd",)
    del found["spec"]["names"]["shortNames"]
    assert "shortNames" not in accepted(found, rival)["status"]["acceptedNames"]


def test_stored_versions_are_remembered_and_others_conditions_kept() -> None:
    found = accepted(definition(version("v1"), version("v2", storage=False)))
    found["status"]["conditions"].append({"type": "Mine", "status": "True"})
    found["spec"]["versions"][0]["storage"], found["spec"]["versions"][1]["storage"] = False, True
    found = accepted(found)
    assert found["status"]["storedVersions"] == ["v1", "v2"]
    assert found["status"]["conditions"][-1] == {"type": "Mine", "status": "True"}


def test_prepare_adds_the_finalizer_until_the_end() -> None:
    document = definition()
    definitions.prepare(document, [], NOW)
    definitions.prepare(document, [], NOW)
    assert document["metadata"]["finalizers"] == [definitions.FINALIZER]
    document["metadata"] |= {"finalizers": [], "deletionTimestamp": NOW}
    definitions.prepare(document, [], LATER)
    assert document["metadata"]["finalizers"] == []
    assert conditions(document)["Terminating"] == ("True", "InstanceDeletionInProgress", LATER)
    assert "create" not in definitions.rows(document)[0].verbs


def test_an_established_definition_has_a_row_for_each_served_version() -> None:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}
    old = version("v1beta1", storage=False, selectableFields=[{"jsonPath": ".spec.colour"}, {}])
    new = version("v1", subresources={"status": {}, "scale": scale}, additionalPrinterColumns=[{"name": "A"}])
    hidden = version("v3", storage=False, served=False)
    document = accepted(definition(old, hidden, new, shortNames=["wd"], categories=["all"], listKind="Widgetry"))
    first, second = definitions.rows(document)
    assert (first.api_version, second.api_version) == ("example.com/v1", "example.com/v1beta1")
    assert (first.kind, first.list_kind, first.plural, first.singular) == ("Widget", "Widgetry", "widgets", "widget")
    assert (first.short_names, first.categories, first.namespaced) == (("wd",), ("all",), True)
    assert [row.name for row in first.subresources] == ["status", "scale"]
    assert first.scale_paths == (".spec.n", ".status.n", ".status.s")
    assert first.columns == ({"name": "A"},)
    assert first.schema == SCHEMA
    assert (first.has_generation, first.needs_resource_version, first.verbs) == (True, True, kinds.ALL_VERBS)
    assert first.selectable == second.selectable == {"spec.colour": "spec.colour"}
    assert (second.stored_version, second.storage_api_version) == ("v1", "example.com/v1")
    assert second.prefix == first.prefix == definitions.stored_row(document).prefix == "example.com/widgets/"
    assert second.subresources == ()


def test_versions_in_the_order_of_preference() -> None:
    names = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(sorted(names), key=definitions.version_order) == names


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"preserveUnknownFields": True}, "spec.preserveUnknownFields", "Invalid"),
        ({"group": "x.k8s.io"}, "metadata.annotations[api-approved.kubernetes.io]", "Required"),
        ({"group": "kubernetes.io"}, "metadata.annotations[api-approved.kubernetes.io]", "Required"),
        (
            {"versions": [version(schema={"openAPIV3Schema": {"properties": {"a": {}}}})]},
            "spec.versions[0].schema.openAPIV3Schema.properties[a].type",
            "Required",
        ),
        (
            {"versions": [version(selectableFields=[{"jsonPath": ".a"}] * 9)]},
            "spec.versions[0].selectableFields",
            "TooMany",
        ),
        (
            {"versions": [version(selectableFields=[{"jsonPath": ".a[0]"}])]},
            "spec.versions[0].selectableFields[0].jsonPath",
            "Invalid",
        ),
        ({"versions": [version(selectableFields=[{}])]}, "spec.versions[0].selectableFields[0].jsonPath", "Required"),
        ({"versions": [version("v2")]}, "status.storedVersions[0]", "Invalid"),
    ],
)
def test_what_is_wrong_with_a_definition_is_one_cause_at_its_field(
    change: dict[str, Any], field: str, reason: str
) -> None:
    document = accepted(definition())
    assert list(definitions.problems(document)) == []
    document["spec"] |= change
    found = [(cause.field, cause.reason) for cause in definitions.problems(document)]
    assert found == [(field, f"FieldValue{reason}")]


def test_why_a_version_has_to_stay() -> None:
    document = accepted(definition())
    document["spec"] |= {"versions": [version("v2")]}
    (cause,) = definitions.problems(document)
    assert cause.message == (
        'Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in '
        "spec.versions until a storage migration ensures no data remains persisted in it and removes it from "
        "status.storedVersions"
    )


def test_a_protected_group_can_be_approved() -> None:
    document = definition(group="x.k8s.io")
    document["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com"}
    assert list(definitions.problems(document)) == []


@pytest.mark.parametrize(
    ("scale", "fields"),
    [
        ({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}, []),
        ({"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"}, []),
        ({}, ["specReplicasPath", "statusReplicasPath"]),
        (
            {"specReplicasPath": ".status.n", "statusReplicasPath": "status.n"},
            ["specReplicasPath", "statusReplicasPath"],
        ),
        (
            {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".x"},
            ["labelSelectorPath"],
        ),
    ],
)
def test_scale_paths(scale: dict[str, str], fields: list[str]) -> None:
    found = definitions.problems(definition(version(subresources={"scale": scale})))
    assert [cause.field for cause in found] == [f"spec.versions[0].subresources.scale.{name}" for name in fields]


def test_rules_and_conversion_webhooks_that_are_not_used_are_warned_of(monkeypatch) -> None:
    assert definitions.warnings(definition()) == []
    ruled = copy.deepcopy(SCHEMA) | {"x-kubernetes-validations": [{"rule": "true"}]}
    document = definition(version(schema={"openAPIV3Schema": ruled}))
    document["spec"]["conversion"] = {"strategy": "Webhook"}
    assert definitions.warnings(document) == [definitions.CONVERSION_WARNING]
    monkeypatch.setattr(engine, "_cel", lambda: None)
    assert definitions.warnings(document) == [definitions.RULES_WARNING, definitions.CONVERSION_WARNING]


def test_scale_of_an_object() -> None:
    document: dict[str, Any] = {"spec": {"n": 3}, "status": {"s": "a=b"}}
    assert definitions.replicas(document, ".spec.n") == 3
    assert definitions.replicas(document, ".status.n") == 0
    assert (definitions.selector(document, ".status.s"), definitions.selector(document, "")) == ("a=b", "")
    definitions.set_replicas(document, ".spec.deep.n", 4)
    assert document["spec"] == {"n": 3, "deep": {"n": 4}}
    with pytest.raises(errors.Refused, match=r"the object has no field \.spec\.n\.x: n is not an object"):
        definitions.set_replicas(document, ".spec.n.x", 1)


def test_the_storage_version_of_nothing() -> None:
    assert definitions.storage_version({}) == ""
    assert definitions.stored_row({}).version == ""


def test_objects_of_any_version_are_stored_as_one_and_served_as_each() -> None:
    document = accepted(definition(version("v1"), version("v2", storage=False)))
    newer, older = definitions.rows(document)
    sent = {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}, "note": "kept"}
    stored = conversion.to_stored(newer, sent)
    assert stored == {**sent, "apiVersion": "example.com/v1"}
    assert conversion.to_stored(newer, stored) is stored
    assert conversion.to_served(newer, stored) == sent
    # Stored when another version was the storage version.
    assert conversion.to_served(older, sent) == stored
    assert conversion.to_stored(older, sent) == stored
    assert kinds.stored_row(newer) is newer
