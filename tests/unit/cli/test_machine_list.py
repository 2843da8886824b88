# SPDX-License-Identifier: Apache-2.0
"""`handfast machine list` and `delete`: what is shown, what goes, and what stays when it does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from handfast.api import status
from handfast.cli import main, output
from handfast.rules.machines import inventory
from tests.unit.cli import reaching
from tests.unit.cli.fleet_api import FleetApi


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetApi]:
    with reaching.reached(monkeypatch, FleetApi()) as there:
        yield there


def run(*arguments: str) -> int:
    return output.run(main.command, ["machine", *arguments])


@pytest.fixture
def fleet(reached: FleetApi, capsys: pytest.CaptureFixture[str]) -> FleetApi:
    """A machine that has joined, one whose node is gone, and one that waits."""
    for number in (1, 2, 3):
        run("create", f"w{number}", "--dns", f"w{number}.example", "--ip", f"10.0.0.{number}", "--serial", f"S{number}")
    for number in (1, 2):
        reached.machine(f"w{number}")["status"]["nodeRef"] = {"name": f"w{number}.example"}
    reached.put("nodes", "w1.example")
    capsys.readouterr()
    return reached


def test_the_list_says_who_has_joined(fleet, capsys):
    assert run("list") == 0
    lines = [line.split("   ") for line in capsys.readouterr().out.splitlines()]
    assert [cell.strip() for cell in lines[0] if cell.strip()] == ["NAME", "ROLE", "STATE", "NODE", "ADDRESSES", "AGE"]
    assert [[cell.strip() for cell in line if cell.strip()][:4] for line in lines[1:]] == [
        ["w1", "worker", "joined", "w1.example"],
        ["w2", "worker", "node gone", "w2.example"],
        ["w3", "worker", "waiting", "-"],
    ]


def test_more_is_shown_where_there_is_room(fleet, capsys, monkeypatch):
    assert run("list") == 0
    assert "openshift-machine-api" not in capsys.readouterr().out
    assert run("list", "-o", "wide") == 0
    assert "openshift-machine-api" in capsys.readouterr().out
    monkeypatch.setattr("handfast.cli.tables.room", lambda: 60)
    assert run("list", "-o", "wide") == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_machines_read_it_as_json_or_by_name(fleet, capsys):
    assert run("list", "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)["machines"]
    assert [(row["name"], row["state"], row["serial"]) for row in rows] == [
        ("w1", "joined", "S1"),
        ("w2", "node gone", "S2"),
        ("w3", "waiting", "S3"),
    ]
    assert run("list", "-o", "name") == 0
    assert capsys.readouterr().out == "w1\nw2\nw3\n"


def test_an_empty_list_is_a_note(reached, capsys):
    assert run("list", "--namespace", "other") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "note: there are no Machines in the namespace other\n")


@pytest.mark.parametrize(("reason", "code"), [("Forbidden", 0), ("InternalError", 1)])
def test_who_may_not_read_nodes_is_shown_what_machines_say(fleet, capsys, reason, code):
    def refuse(verb: str, plural: str, _name: str) -> None:
        if plural == "nodes":
            raise status.StatusError(reason, "no")

    fleet.before = refuse
    assert run("list") == code
    if not code:
        assert "joined" in capsys.readouterr().out.splitlines()[2]


def test_without_the_kind_the_command_that_defines_it_is_named(reached, capsys):
    reached.defined = False
    assert run("list") == 1
    assert "hint: make the cluster ready for machines: `handfast init --machines`" in capsys.readouterr().err


def test_delete_says_what_stays(fleet, capsys):
    fleet.machine("w3")["metadata"]["annotations"][inventory.APPROVED_KEY] = "ab"
    assert run("delete", "w1", "w3", "w1") == 0
    printed = capsys.readouterr()
    assert printed.out == "Machine openshift-machine-api/w1 deleted\nMachine openshift-machine-api/w3 deleted\n"
    assert (
        "note: the node w1.example of w1 stays, and its certificate is good until it expires: "
        "`handfast node revoke w1.example` refuses it" in printed.err
    )
    assert "a certificate was approved for w3 before" in printed.err
    assert [name for plural, _, name in fleet.objects if plural == "machines"] == ["w2"]


def test_delete_as_json(fleet, capsys):
    assert run("delete", "w2", "-o", "json") == 0
    row = {"name": "w2", "namespace": "openshift-machine-api", "node": "w2.example"}
    assert json.loads(capsys.readouterr().out) == {"deleted": [row]}


def test_a_machine_of_a_provider_is_not_deleted_nor_any_other_with_it(fleet, capsys):
    fleet.machine("w3")["metadata"]["annotations"] = {}
    assert run("delete", "w2", "w3") == 1
    err = capsys.readouterr().err
    assert "its provider would delete the machine itself" in err
    assert err.endswith("reason: NotDeclared\n")
    assert ("machines", "openshift-machine-api", "w2") in fleet.objects


def test_a_machine_that_is_not_there_is_told(fleet, capsys):
    assert run("delete", "w9") == 1
    assert 'there is no Machine "w9"' in capsys.readouterr().err
    assert run("delete") == 2
    assert "missing argument 'NAME...'" in capsys.readouterr().err
