# SPDX-License-Identifier: Apache-2.0
"""A file of machines: both forms give the same, and every problem has its line."""

from __future__ import annotations

import pytest

from handfast.rules.machines import declaration, inventory_file

CSV = """name,role,dns,ip,mac,serial
master-1,master,master-1,10.0.0.1 fd00::1,52:54:00:00:00:01,S1
worker-1,,worker-1.example,10.0.0.11,,

"worker-2",worker,"worker-2
worker-2.example",10.0.0.12,,S2
"""
YAML = """
machines:
- name: master-1
  role: master
  dns: master-1
  ip: [10.0.0.1, "fd00::1"]
  mac: 52:54:00:00:00:01
  serial: S1
- name: worker-1
  role:
  dns: [worker-1.example]
  ip: [10.0.0.11]
- {name: worker-2, dns: [worker-2, worker-2.example], ip: 10.0.0.12, serial: S2}
"""


def problems(text: str) -> list[str]:
    return [problem.text for problem in inventory_file.read(text.encode()).problems]


@pytest.mark.parametrize(
    "text", [CSV, CSV.replace(",", ";"), CSV.replace(",", "\t"), YAML, YAML.replace("machines:", ""), "\ufeff" + CSV]
)
def test_both_forms_give_the_same_machines(text):
    result = inventory_file.read(text.encode())
    assert result.problems == []
    first, second, third = result.entries
    assert (first.name, first.role, first.dns, first.ip) == (
        "master-1",
        "master",
        ("master-1",),
        ("10.0.0.1", "fd00::1"),
    )
    assert (first.mac, first.serial) == (("52:54:00:00:00:01",), "S1")
    assert (second.role, second.dns, second.serial) == ("worker", ("worker-1.example",), "")
    assert third.dns == ("worker-2", "worker-2.example")


def test_the_line_of_a_machine_is_that_in_which_it_begins():
    assert [entry.line for entry in inventory_file.read(CSV.encode()).entries] == [2, 3, 5]
    assert [entry.line for entry in inventory_file.read(YAML.encode()).entries] == [3, 9, 13]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            [
                "line 1: file: is empty: write a list of machines, each with name, role, dns, ip, mac, serial, providerID"
            ],
        ),
        (
            " \n\n",
            [
                "line 1: file: is empty: write a list of machines, each with name, role, dns, ip, mac, serial, providerID"
            ],
        ),
        (
            "name,dns,colour\na,b,green\n",
            ['line 1: column: "colour" is none: there are name, role, dns, ip, mac, serial, providerID'],
        ),
        ("name,dns,dns\na,b,c\n", ['line 1: column: "dns" is there 2 times']),
        ("name,dns\na,b,c\n", ["line 2: line: has 3 cells, and there are 2 columns"]),
        ('name,dns\na,"b\n', ["line 2: line: is no CSV: unexpected end of data"]),
        (
            "name,dns,ip\na,localhost,10.0.0.1\na2,b,10.0.0.1\na3,,10.0.0.3\na4,c,10.0.0.1\n",
            [
                (
                    'line 2: dns: "localhost" is what every machine calls itself before it knows its name: '
                    "write the name of its node"
                ),
                "line 4: dns: is missing: a machine without it has no address that its node could join by",
                'line 5: ip: "10.0.0.1" is also that of a2 in line 3',
            ],
        ),
        (
            "- name: a\n  dns: b\n  colour: green\n",
            ['line 3: key: "colour" is none: there are name, role, dns, ip, mac, serial, providerID'],
        ),
        (
            "- name: a\n  dns: b\n  serial: 0012\n  ip: [10.0.0.1, 5]\n",
            [
                "line 3: serial: is no text: put numbers and true or false in quotes",
                "line 4: ip: is no text or a list of texts: put numbers and true or false in quotes",
            ],
        ),
        (
            "- a\n- name: b\n  dns: c\n",
            ["line 1: machine: is no mapping: it has name, role, dns, ip, mac, serial, providerID"],
        ),
        ("- name: a\n  name: b\n  dns: c\n", ["line 2: key: [0].name is there twice"]),
        (
            "hello",
            [
                (
                    "line 1: file: is no list of machines, nor a mapping whose only key is machines, "
                    "nor CSV with a column name"
                )
            ],
        ),
        (
            "machines: []\nmore: 1\n",
            [
                (
                    "line 1: file: is no list of machines, nor a mapping whose only key is machines, "
                    "nor CSV with a column name"
                )
            ],
        ),
        ("- name: [a\n- b: }\n", ["line 2: file: is no YAML: did not find expected ',' or ']'"]),
        ("- name: *a\n", ["line 1: file: is no YAML: aliases are not accepted: write the value out"]),
    ],
)
def test_every_problem_has_its_line(text, expected):
    assert problems(text) == expected


def test_what_is_no_utf_8_is_told_with_its_line():
    result = inventory_file.read(b"name,dns\na,b\n\xff,c\n")
    assert [problem.text for problem in result.problems] == ["line 3: file: is no UTF-8 text: save it as UTF-8"]


def test_an_empty_list_is_no_problem():
    result = inventory_file.read(b"machines: []\n")
    assert (result.entries, result.problems) == ([], [])


def test_thousands_of_machines_are_read():
    rows = "\n".join(
        f"- {{name: w{n}, dns: [w{n}.example], ip: [10.{n >> 16}.{n >> 8 & 255}.{n & 255}]}}" for n in range(12_000)
    )
    result = inventory_file.read(rows.encode())
    assert (len(result.entries), result.problems) == (12_000, [])
    assert result.entries[-1] == declaration.Entry(
        line=12_000, name="w11999", dns=("w11999.example",), ip=("10.0.46.223",)
    )
