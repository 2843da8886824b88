# SPDX-License-Identifier: Apache-2.0
"""`handfast machine create` and `import`: what is written, what is refused, and what a person reads."""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Iterator

import pytest

from handfast.api import machine_kinds, status
from handfast.cli import machine_declare, main, output
from handfast.rules.machines import declaration, inventory
from tests.unit.cli import reaching
from tests.unit.cli.fleet_api import FleetApi

CSV = "name,dns,ip,role,mac,serial\nm1,m1,10.0.0.1,master,52:54:00:00:00:01,S1\nw1,w1,10.0.0.11,,,\n"


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetApi]:
    with reaching.reached(monkeypatch, FleetApi()) as there:
        yield there


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "rack-4.csv"
    path.write_text(CSV)
    return path


def run(*arguments: object) -> int:
    return output.run(main.command, ["machine", *map(str, arguments)])


def test_words_are_those_of_the_kind():
    assert (machine_declare.NAMESPACE, machine_declare.ROLES) == (machine_kinds.NAMESPACE, machine_kinds.ROLES)


def test_create_makes_a_machine_with_its_addresses(reached, capsys):
    flags = ("--dns", "W1.example.", "--ip", "FD00::000b", "--mac", "52-54-00-12-34-56", "--serial", "S1")
    assert run("create", "w1", *flags, "--role", "worker", "--provider-id", "p1") == 0
    printed = capsys.readouterr()
    assert printed.out == "machine w1: created\n"
    assert 'note: dns: "W1.example." is written as "w1.example"' in printed.err
    machine = reached.machine("w1")
    assert machine["status"]["addresses"] == [
        {"type": "InternalDNS", "address": "w1.example"},
        {"type": "InternalIP", "address": "fd00::b"},
    ]
    assert machine["spec"]["providerID"] == "p1"
    assert machine["metadata"]["annotations"][inventory.MAC] == "52:54:00:12:34:56"
    assert declaration.SET_LABEL not in machine["metadata"]["labels"]


def test_create_refuses_what_is_there(reached, capsys):
    run("create", "w1", "--dns", "w1")
    assert run("create", "w1", "--dns", "w2") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(
        'error: "w1" has 1 problem, and nothing was written: name: Machine openshift-machine-api/w1 is there already'
    )
    assert lines[-1] == "reason: BadInventory"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "missing option '--dns'"),
        (("--dns", "localhost"), 'dns: "localhost" is what every machine calls itself'),
        (("--dns", "w1", "--ip", "::1"), 'ip: "::1" is of every machine or of none'),
    ],
)
def test_create_judges_what_was_typed_before_the_api_is_asked(reached, capsys, flags, words):
    assert run("create", "w1", *flags) == 2
    assert words in capsys.readouterr().err
    assert reached.calls == []


def test_two_machines_of_one_name_in_the_cluster_are_refused(reached, capsys):
    run("create", "w1", "--dns", "panda")
    assert run("create", "w2", "--dns", "Panda.") == 1
    assert 'dns: "panda" is that of Machine openshift-machine-api/w1 in the cluster' in capsys.readouterr().err


def test_import_creates_then_finds_nothing_to_do(reached, capsys, file):
    assert run("import", file) == 0
    assert capsys.readouterr().out == "machine m1: created\nmachine w1: created\n"
    assert reached.machine("m1")["metadata"]["labels"][declaration.SET_LABEL] == "rack-4"
    before = list(reached.calls)
    assert run("import", file) == 0
    assert capsys.readouterr().out == "machine m1: unchanged\nmachine w1: unchanged\n"
    assert reached.calls == before


def test_import_updates_and_prunes_what_the_file_no_longer_has(reached, capsys, file):
    run("import", file)
    run("create", "alone", "--dns", "alone")
    reached.machine("w1")["status"]["nodeRef"] = {"name": "node one"}
    file.write_text("name,dns,ip\nm1,m1,10.0.0.2\n")
    capsys.readouterr()
    assert run("import", file, "--prune", "--dry-run") == 0
    shown = capsys.readouterr()
    assert "machine m1: would update (role: master → worker; ip: 10.0.0.1 → 10.0.0.2;" in shown.out
    assert "machine w1: would prune\n" in shown.out
    assert "`handfast node revoke 'node one'` refuses it" in shown.err
    assert "w1" in str(reached.objects)
    assert run("import", file, "--prune") == 0
    assert "machine w1: deleted" in capsys.readouterr().out
    assert sorted(name for _, _, name in reached.objects) == ["alone", "m1"]
    assert reached.machine("m1")["status"]["addresses"][1]["address"] == "10.0.0.2"
    assert inventory.MAC not in reached.machine("m1")["metadata"]["annotations"]


def test_every_problem_is_told_with_its_line_and_nothing_is_written(reached, capsys, file):
    file.write_text("name,dns,ip\nw1,w1,10.0.0.1\nw2,localhost,x\nw3,w3,10.0.0.1\n")
    assert run("import", file) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in lines[:3]] == [["line 3", "dns"], ["line 3", "ip"], ["line 4", "ip"]]
    assert lines[3].startswith(f"error: {file} has 3 problems, and nothing was written: line 3: dns: ")
    assert reached.objects == {}


def test_json_says_what_was_done(reached, capsys, file):
    assert run("import", file, "--dry-run", "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["dryRun"] is True
    assert [(row["name"], row["action"]) for row in shown["machines"]] == [("m1", "create"), ("w1", "create")]
    assert reached.calls == []


def test_standard_input_is_read(reached, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CSV.encode())))
    assert run("import", "-", "--set", "mine") == 0
    assert reached.machine("m1")["metadata"]["labels"][declaration.SET_LABEL] == "mine"
    assert run("import", "-", "--prune") == 2
    assert "--prune with standard input needs --set" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"- {name: a, dns: a}")))
    assert run("import", "-") == 0
    assert declaration.SET_LABEL not in reached.machine("a")["metadata"]["labels"]


@pytest.mark.parametrize("how", ["file", "stdin"])
def test_what_is_too_large_is_refused(reached, capsys, monkeypatch, file, how):
    monkeypatch.setattr(machine_declare, "_MAX_BYTES", 10)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CSV.encode())))
    assert run("import", file if how == "file" else "-") == 1
    assert "larger than 10 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: file: is empty"),
        (b"\xff\xfe", "line 1: file: is no UTF-8 text"),
        (b"name,colour\na,b\n", 'line 1: column: "colour" is none: there are name, role'),
    ],
)
def test_a_file_that_cannot_be_read_says_why(reached, capsys, file, content, words):
    file.write_bytes(content)
    assert run("import", file) == 1
    assert words in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told(reached, capsys, tmp_path):
    assert run("import", tmp_path / "none.csv") == 1
    assert "none.csv" in capsys.readouterr().err


def test_an_empty_list_deletes_nothing(reached, capsys, file):
    assert run("import", file) == 0
    capsys.readouterr()
    file.write_text("machines: []\n")
    assert run("import", file) == 0
    assert "note: there are no machines in it" in capsys.readouterr().err
    assert run("import", file, "--prune") == 2
    assert "--prune would delete all of the import rack-4" in capsys.readouterr().err
    assert {name for plural, _, name in reached.objects if plural == "machines"} == {"m1", "w1"}


def test_a_wrong_name_of_an_import_is_refused(reached, capsys, file):
    assert run("import", file, "--set", "a b") == 2
    assert '--set: "a b" is no value of a label' in capsys.readouterr().err


def test_without_the_kind_the_command_that_defines_it_is_named(reached, capsys, file):
    reached.defined = False
    assert run("import", file) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "`handfast init --machines`" in lines[-2]
    assert lines[-1] == "reason: NoMachineKind"


def test_a_machine_that_changed_meanwhile_ends_the_import_and_says_how_far_it_came(reached, capsys, file):
    def conflict(verb: str, plural: str, name: str) -> None:
        if verb == "create" and name == "w1":
            raise status.conflict(plural, "machine.openshift.io", name)

    reached.before = conflict
    assert run("import", file) == 1
    assert "note: 1 of 2 were done, up to w1: the same command does the rest" in capsys.readouterr().err
    reached.before = lambda *_: None
    assert run("import", file) == 0


def test_a_namespace_that_is_not_there_has_a_hint(reached, capsys, file):
    def absent(verb: str, *_: str) -> None:
        if verb == "create":
            raise status.not_found("namespaces", "", "openshift-machine-api")

    reached.before = absent
    assert run("import", file) == 1
    assert "hint: is there a namespace openshift-machine-api?" in capsys.readouterr().err


def test_other_errors_stay_as_they_are(reached, capsys, file):
    def refuse(verb: str, *_: str) -> None:
        raise status.StatusError("Forbidden", f"you may not {verb}")

    reached.before = refuse
    assert run("import", file) == 1
    assert "you may not list" in capsys.readouterr().err
