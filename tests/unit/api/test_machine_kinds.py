# SPDX-License-Identifier: Apache-2.0
"""The kinds of machine fleets: structural schemas, and the names, types and list types of OpenShift's own definitions."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.api import kinds, machine_kinds
from handfast.api import machine_config_kinds as configs
from handfast.api.custom import definitions, structural, structural_schema, structural_values
from handfast.api.defaulting import defaults
from handfast.api.printing import printers
from handfast.api.validation import validation

# Facts about the real definitions, where they are at hand.
FACTS = pathlib.Path(__file__).parents[4] / "shared" / "schema" / "machine-crds.json"
ROWS = machine_kinds.rows()
OWN = {"description", "x-kubernetes-validations"}


def fields(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of a schema, with what is said of its type."""
    said = {key: value for key, value in schema.items() if key not in {*OWN, "properties", "items"}}
    if isinstance(said.get("additionalProperties"), dict):
        said["additionalProperties"] = said["additionalProperties"]["type"]
    if "required" in said:
        said["required"] = sorted(said["required"])
    yield path, said
    for name, part in schema.get("properties", {}).items():
        yield from fields(part, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_the_schema_is_structural(row):
    assert structural_schema.problems(row.schema, "schema") == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_every_field_says_what_it_is_for(row):
    unsaid = [
        path
        for path, part in _parts(row.schema)
        if "description" not in part and path != ".metadata" and not path.endswith("[]")
    ]
    assert unsaid == []


def _parts(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from _parts(part, f"{path}.{name}")
    if "items" in schema:
        yield from _parts(schema["items"], f"{path}[]")


@pytest.mark.parametrize("document", machine_kinds.definitions(), ids=lambda one: one["metadata"]["name"])
def test_a_definition_is_accepted_and_gives_its_row(document):
    assert list(definitions.problems(document)) == []
    kind = kinds.row("customresourcedefinitions", "apiextensions.k8s.io")
    filled = copy.deepcopy(document)
    defaults.apply(kind, filled)
    assert list(validation.create(kind, filled)) == []
    assert definitions.warnings(document) == []
    document["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    document["status"]["acceptedNames"] = document["spec"]["names"]
    row = next(row for row in ROWS if f"{row.plural}.{row.group}" == document["metadata"]["name"])
    assert definitions.rows(document) == [dataclasses.replace(row)]


@pytest.mark.skipif(not FACTS.exists(), reason="the facts about OpenShift's definitions are not at hand")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_names_types_and_list_types_are_those_of_openshift(row):
    theirs = next(
        each
        for each in json.loads(FACTS.read_text())["items"]
        if each["metadata"]["name"] == f"{row.plural}.{row.group}"
    )
    version = theirs["spec"]["versions"][0]
    ours = machine_kinds.definitions()[ROWS.index(row)]["spec"]
    assert dict(fields(row.schema)) == dict(fields(version["schema"]["openAPIV3Schema"]))
    assert (ours["names"], ours["scope"]) == (theirs["spec"]["names"], theirs["spec"]["scope"])
    assert ours["versions"][0].get("subresources") == version.get("subresources")
    assert {column["name"] for column in version["additionalPrinterColumns"]} <= {each["name"] for each in row.columns}


@pytest.mark.parametrize("role", machine_kinds.ROLES)
def test_a_pool_is_valid_and_chooses_by_its_role(role):
    pool = configs.pool(role)
    schema = configs.MACHINE_CONFIG_POOL.schema
    assert schema is not None
    assert structural.prune(schema, pool) == []
    assert structural_values.check(schema, pool) == []
    assert pool["spec"]["nodeSelector"]["matchLabels"] == {f"node-role.kubernetes.io/{role}": ""}


def test_the_columns_of_a_machine_show_its_role_and_its_node():
    machine = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": "m1", "labels": {machine_kinds.ROLE_LABEL: "worker"}},
        "status": {"phase": "Running", "nodeRef": {"name": "n1"}},
    }
    titles = [column["name"] for column in printers.columns(machine_kinds.MACHINE)]
    cells = printers.cells(machine_kinds.MACHINE, machine, datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC))
    assert (cells[titles.index("Role")], cells[titles.index("Node")]) == ("worker", "n1")
