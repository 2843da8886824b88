# SPDX-License-Identifier: Apache-2.0
"""What an operator declares: the form that is compared, everything that is refused, and the documents that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import machine_kinds
from handfast.api.custom import structural, structural_values
from handfast.rules.machines import declaration, linking

GOOD = {"name": ("worker-1",), "dns": ("worker-1.example",), "ip": ("10.0.0.11",)}


def declared(**values: Any) -> declaration.Declaration:
    texts = {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    return declaration.declare([declaration.Row(3, {**GOOD, **texts})])


@pytest.mark.parametrize(
    ("field", "written", "value"),
    [
        ("name", "Worker-1", "worker-1"),
        ("dns", "WORKER-1.Example.", "worker-1.example"),
        ("ip", "FD00:0:0::000B", "fd00::b"),
        ("ip", "::ffff:10.0.0.11", "10.0.0.11"),
        ("mac", "52-54-00-12-34-AB", "52:54:00:12:34:ab"),
        ("mac", "5254.0012.34ab", "52:54:00:12:34:ab"),
        ("mac", "5254001234AB", "52:54:00:12:34:ab"),
        ("mac", "52:54:00:12:34:ab:cd:ef", "52:54:00:12:34:ab:cd:ef"),
        ("serial", "VMware-56 4d".replace(" ", "_"), "VMware-56_4d"),
        ("providerID", "metal://rack/1", "metal://rack/1"),
        ("role", "master", "master"),
    ],
)
def test_fields_are_kept_in_the_form_that_is_compared_with_a_note_of_what_changed(field, written, value):
    result = declared(**{field: written})
    assert result.problems == []
    (entry,) = result.entries
    assert entry.values(field) == (value,)
    notes = [note.text for note in result.notes]
    assert notes == ([] if written == value else [f'line 3: {field}: "{written}" is written as "{value}"'])


@pytest.mark.parametrize(
    ("field", "written", "words"),
    [
        ("name", "worker_1", "no DNS name"),
        ("name", "a" * 254, "253 characters at most"),
        ("dns", "worker 1", "no DNS name"),
        ("dns", "localhost", "what every machine calls itself before it knows its name"),
        ("dns", "LOCALHOST.localdomain.", "what every machine calls itself"),
        ("dns", "10.0.0.1", "write it as ip"),
        ("dns", ".", "no DNS name"),
        ("ip", "300.0.0.1", "no IP address, as in 10.0.0.11 or fd00::11"),
        ("ip", "10.0.0.1/24", "without a zone or a prefix"),
        ("ip", "fe80::1%eth0", "without a zone"),
        ("ip", "127.0.0.1", "of every machine or of none"),
        ("ip", "0.0.0.0", "of every machine or of none"),
        ("ip", "fe80::1", "of every machine or of none"),
        ("ip", "ff02::1", "of every machine or of none"),
        ("mac", "52:54:00:12:34", "no hardware address: six or eight octets in hex"),
        ("mac", "zz:54:00:12:34:56", "no hardware address"),
        ("mac", "00:00:00:00:00:00", "no hardware address of one machine"),
        ("mac", "ff:ff:ff:ff:ff:ff", "no hardware address of one machine"),
        ("serial", "a b", "has blanks"),
        ("serial", "sérial", "not ASCII"),
        ("providerID", "x" * 254, "more than 253 characters"),
        ("role", "boss", "no role: write master or worker"),
    ],
)
def test_what_is_wrong_is_told_with_line_field_value_and_what_is_allowed(field, written, words):
    (problem,) = declared(**{field: written}).problems
    assert problem.text.startswith(f'line 3: {field}: "{written}"')
    assert words in problem.sentence


def test_a_machine_without_a_name_or_a_dns_name_is_refused():
    result = declaration.declare([declaration.Row(0, {"ip": ("10.0.0.1",)})])
    assert [problem.text for problem in result.problems] == [
        "name: is missing: write the name of the Machine",
        "dns: is missing: a machine without it has no address that its node could join by",
    ]
    assert result.entries == []


@pytest.mark.parametrize("field", ["name", "dns", "ip", "mac", "serial", "providerID"])
def test_nothing_is_of_two_machines(field):
    values = {"mac": "52:54:00:12:34:56", "serial": "S1", "providerID": "p1"}
    first = {**GOOD, **({field: (values[field],)} if field in values else {})}
    other = {"name": ("worker-2",), "dns": ("worker-2.example",), "ip": ("10.0.0.12",), field: first[field]}
    # In another form, where there is one: it is the value that counts.
    if field == "dns":
        other[field] = ("WORKER-1.example.",)
    result = declaration.declare([declaration.Row(2, first), declaration.Row(7, other)])
    (problem,) = result.problems
    assert problem.text == f'line 7: {field}: "{first[field][0]}" is also that of worker-1 in line 2'


def test_everything_that_is_wrong_is_told_in_the_order_of_lines():
    rows = [
        declaration.Row(9, {"name": ("a",), "dns": ("localhost",), "ip": ("x", "y")}),
        declaration.Row(2, {"name": ("a_",), "dns": ("b",)}),
    ]
    result = declaration.declare(rows)
    assert [(problem.line, problem.field) for problem in result.problems] == [
        (2, "name"),
        (9, "dns"),
        (9, "ip"),
        (9, "ip"),
    ]


def test_the_machine_that_comes_of_it_is_valid_and_says_the_same():
    (entry,) = declared(
        mac=("52:54:00:12:34:56", "52:54:00:12:34:57"), serial="S1", providerID="p1", role="master"
    ).entries
    document = declaration.document(entry, "fleet", "rack-4") | {"status": declaration.status(entry)}
    schema = machine_kinds.MACHINE.schema
    assert schema is not None
    assert structural.prune(schema, document) == []
    assert structural_values.check(schema, document) == []
    assert document["metadata"]["labels"] == {machine_kinds.ROLE_LABEL: "master", declaration.SET_LABEL: "rack-4"}
    assert document["metadata"]["annotations"] == {
        linking.DECLARED: "true",
        "machines.handfast.dev/mac": "52:54:00:12:34:56,52:54:00:12:34:57",
        "machines.handfast.dev/serial": "S1",
    }
    assert document["spec"]["metadata"]["labels"] == {
        "node-role.kubernetes.io/master": "",
        "node-role.kubernetes.io/control-plane": "",
    }
    assert document["status"]["phase"] == "Provisioned"
    again = declaration.of_machine(document)
    assert [again.values(name) for name in declaration.FIELDS] == [entry.values(name) for name in declaration.FIELDS]


def test_a_machine_with_little_says_little():
    (entry,) = declared().entries
    document = declaration.document(entry, "fleet", "")
    assert document["metadata"]["labels"] == {machine_kinds.ROLE_LABEL: "worker"}
    assert document["metadata"]["annotations"] == {linking.DECLARED: "true"}
    assert "providerID" not in document["spec"]
    assert declaration.node_labels("") == {}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("racks/rack 4.csv", "rack-4"),
        ("C:\\racks\\rack4.yaml", "rack4"),
        (".csv", "csv"),
        ("äö.csv", "inventory"),
        ("a" * 80 + ".csv", "a" * 63),
        ("machines", "machines"),
    ],
)
def test_an_import_has_the_name_of_its_file(file, name):
    assert declaration.set_name(file) == name
