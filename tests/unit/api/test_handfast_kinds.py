# SPDX-License-Identifier: Apache-2.0
"""Handfast's own kinds: the schema says everything, and the definition for other servers says the same."""

from __future__ import annotations

import copy
import dataclasses
import datetime

import pytest

from handfast.api import handfast_kinds, kinds
from handfast.api.custom import definitions, structural, structural_schema, structural_values
from handfast.api.defaulting import defaults
from handfast.api.handfast_kinds import ISSUANCE_LOG, REVOCATION
from handfast.api.printing import printers
from handfast.api.validation import validation

SHA = "sha256:" + "0aB" * 21 + "c"


def document(**spec):
    return {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "Revocation",
        "metadata": {"name": "x"},
        "spec": spec,
    }


def problems(given):
    """What is wrong, as the server would find it: pruned and filled first."""
    given = copy.deepcopy(given)
    schema = REVOCATION.schema
    assert schema is not None
    assert structural.prune(schema, given) == []
    structural.fill(schema, given)
    return structural_values.check(schema, given)


def test_the_row():
    assert REVOCATION.resource == handfast_kinds.REVOCATIONS
    assert REVOCATION.prefix == "handfast.dev/revocations/"
    assert (REVOCATION.api_version, REVOCATION.list_kind) == ("handfast.dev/v1alpha1", "RevocationList")
    assert not REVOCATION.namespaced
    assert not REVOCATION.message


@pytest.mark.parametrize("row", handfast_kinds.rows(), ids=lambda row: row.kind)
def test_no_name_is_taken(row):
    others = [other for other in (*kinds.builtin(), *handfast_kinds.rows()) if other.resource != row.resource]
    taken = {name for other in others for name in (other.plural, other.singular, *other.short_names)}
    assert not taken & {row.plural, row.singular, *row.short_names}


@pytest.mark.parametrize("row", handfast_kinds.rows(), ids=lambda row: row.kind)
def test_the_schema_is_structural(row):
    assert row.schema is not None
    assert structural_schema.problems(row.schema, "schema") == []


@pytest.mark.parametrize("row", handfast_kinds.rows(), ids=lambda row: row.kind)
def test_the_definition_gives_the_same_row(row):
    definition = handfast_kinds.definition(row)
    kind = kinds.row("customresourcedefinitions", "apiextensions.k8s.io")
    assert list(definitions.problems(definition)) == []
    filled = copy.deepcopy(definition)
    defaults.apply(kind, filled)
    # For another server: this one has the kind already, and nothing else is wrong.
    assert [cause.field for cause in validation.create(kind, filled)] == ["spec.names.plural", "spec.names.kind"]
    definition["spec"]["group"] = "elsewhere.example.com"
    definition["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    definition["status"]["acceptedNames"] = definition["spec"]["names"]
    assert definitions.rows(definition) == [dataclasses.replace(row, group="elsewhere.example.com")]
    assert definitions.warnings(definition) == []


def test_only_the_long_column_is_for_wide_output():
    wide = [
        (row.kind, column["name"]) for row in handfast_kinds.rows() for column in row.columns if "priority" in column
    ]
    assert wide == [(REVOCATION.kind, "Key")]


def test_the_definition_is_the_callers_own():
    definition = handfast_kinds.definition(REVOCATION)
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clear()
    definition["spec"]["versions"][0]["additionalPrinterColumns"][0].clear()
    assert problems(document(node="a")) == []
    assert REVOCATION.columns[0]["name"] == "Node"


@pytest.mark.parametrize(
    "spec",
    [
        {"node": "worker-1"},
        {"node": "worker-1.example.com", "reason": "stolen"},
        {"user": "jane"},
        {"user": "system:serviceaccount:default:builder"},
        {"serialNumber": "7b"},
        {"serialNumber": "0x7B01"},
        {"serialNumber": "7B:01:ff"},
        {"serialNumber": "00" + "f" * 40},
        {"serialNumber": ":".join(["ff"] * 21)},
        {"keyFingerprint": SHA},
        {"node": "a", "user": "b", "serialNumber": "1", "keyFingerprint": SHA},
        {"node": "a", "expires": "2030-01-31T12:00:00Z"},
        {"node": "a", "expires": "2030-01-31T12:00:00.123456+02:00"},
        {"pod": {"namespace": "shop", "name": "web-1.a"}},
        {"pod": {"namespace": "shop", "name": "web-1", "uid": "6a2f"}},
    ],
)
def test_a_revocation_that_names_its_target_is_accepted(spec):
    assert problems(document(**spec)) == []


def test_the_reason_has_a_default():
    given = document(node="a")
    structural.fill(REVOCATION.schema or {}, given)
    assert given["spec"]["reason"] == handfast_kinds.UNSPECIFIED


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec"),
        ({"reason": "only"}, "spec"),
        ({"expires": "2030-01-31T12:00:00Z"}, "spec"),
        ({"node": None}, "spec"),
        ({"node": ""}, "spec.node"),
        ({"node": "Worker"}, "spec.node"),
        ({"node": "a b"}, "spec.node"),
        ({"node": "a\n"}, "spec.node"),
        ({"node": "system:node:a"}, "spec.node"),
        ({"node": "a" * 254}, "spec.node"),
        ({"node": 7}, "spec.node"),
        ({"user": ""}, "spec.user"),
        ({"user": "u" * 1025}, "spec.user"),
        ({"serialNumber": ""}, "spec.serialNumber"),
        ({"serialNumber": "0x"}, "spec.serialNumber"),
        ({"serialNumber": "xyz"}, "spec.serialNumber"),
        ({"serialNumber": "7b:1"}, "spec.serialNumber"),
        ({"serialNumber": "7b 01"}, "spec.serialNumber"),
        ({"serialNumber": "-7b"}, "spec.serialNumber"),
        ({"serialNumber": "f" * 43}, "spec.serialNumber"),
        ({"serialNumber": 123}, "spec.serialNumber"),
        ({"keyFingerprint": SHA[:-1]}, "spec.keyFingerprint"),
        ({"keyFingerprint": SHA.removeprefix("sha256:")}, "spec.keyFingerprint"),
        ({"keyFingerprint": "sha1:" + "a" * 40}, "spec.keyFingerprint"),
        ({"pod": {"name": "web-1"}}, "spec.pod.namespace"),
        ({"pod": {"namespace": "shop"}}, "spec.pod.name"),
        ({"pod": {"namespace": "a.b", "name": "web-1"}}, "spec.pod.namespace"),
        ({"pod": {"namespace": "shop", "name": "a/b"}}, "spec.pod.name"),
        ({"pod": {"namespace": "shop", "name": "a", "uid": ""}}, "spec.pod.uid"),
        ({"pod": {"namespace": "shop", "name": "a", "uid": "a/b"}}, "spec.pod.uid"),
        ({"node": "a", "reason": ""}, "spec.reason"),
        ({"node": "a", "reason": "r" * 1025}, "spec.reason"),
        ({"node": "a", "expires": "tomorrow"}, "spec.expires"),
        ({"node": "a", "expires": "2030-01-31"}, "spec.expires"),
        ({"node": "a", "expires": "2030-01-31T12:00:00"}, "spec.expires"),
        ({"node": "a", "expires": "2030-02-31T12:00:00Z"}, "spec.expires"),
        ({"node": "a", "expires": "2030-01-31T12:00:60Z"}, "spec.expires"),
        ({"node": "a", "expires": "2030-01-31T25:00:00Z"}, "spec.expires"),
    ],
)
def test_a_wrong_revocation_is_refused_at_the_field(spec, field):
    found = problems(document(**spec))
    assert field in {cause.field for cause in found}


def test_without_a_spec():
    given = document(node="a")
    del given["spec"]
    assert [cause.field for cause in problems(given)] == ["spec"]


def test_what_it_does_not_know_is_dropped_and_named():
    given = document(node="a", nodes=["b"])
    assert structural.prune(REVOCATION.schema or {}, given) == ["spec.nodes"]
    assert given["spec"] == {"node": "a"}


def test_it_prints():
    given = document(node="a", reason="stolen", expires="2030-01-31T12:00:00Z")
    given["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    now = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    names = [column["name"] for column in printers.columns(REVOCATION)]
    assert names == ["Name", "Node", "User", "Serial", "Key", "Pod", "Reason", "Expires", "Age"]
    cells = printers.cells(REVOCATION, given, now)
    assert cells == ["x", "a", None, None, None, None, "stolen", "2030-01-31T12:00:00Z", "24h"]


def test_a_segment_of_the_ledger():
    assert ISSUANCE_LOG.resource == handfast_kinds.ISSUANCE_LOGS
    assert ISSUANCE_LOG.short_names == ("il",)
    schema = ISSUANCE_LOG.schema
    assert schema is not None
    spec = {"sequence": 1, "previous": "0" * 64, "entries": ["x"], "sealed": True, "hash": "f" * 64}

    def wrong(**more):
        given = {"metadata": {"name": "x"}, "spec": {**spec, **more}}
        return [cause.field for cause in structural_values.check(schema, given)]

    assert wrong() == []
    assert wrong(sequence=0) == ["spec.sequence"]
    assert wrong(previous="x") == ["spec.previous"]
    assert wrong(hash="x") == ["spec.hash"]
    assert wrong(entries=[1]) == ["spec.entries[0]"]
