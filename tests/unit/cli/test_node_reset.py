# SPDX-License-Identifier: Apache-2.0
"""`handfast node reset`: what is asked before anything goes, and what is printed. The files themselves: tests/unit/node/test_reset.py."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from handfast.cli import main, node_reset, output
from handfast.runtime import files
from tests.unit.node.test_reset import Machine


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    made = Machine(tmp_path)
    made.join()
    return made


def reset(machine: Machine, *words: str) -> int:
    places = machine.places
    return output.run(
        main.command,
        [
            *("node", "reset", "--cert-dir", str(places.directory), "--kubeconfig", str(places.kubeconfig)),
            *("--bootstrap-kubeconfig", str(places.bootstrap_kubeconfig)),
            *("--systemd-dir", str(places.unit_directory), *words),
        ],
    )


def test_a_dry_run_changes_nothing(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    before = machine.left()
    assert reset(machine, "--dry-run") == 0
    assert "this machine is node worker-1; would go:" in capsys.readouterr().out
    assert machine.left() == before


def test_a_dry_run_tells_of_an_agent_that_would_be_in_the_way(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.places.unit.unlink(missing_ok=True)
    lock = files.lock_directory(machine.places.directory)
    try:
        assert reset(machine, "--dry-run") == 0
        assert f"its agent runs as process {os.getpid()}" in capsys.readouterr().err
        assert reset(machine, "--yes") == 1
        assert "reason: DirectoryInUse" in capsys.readouterr().err
    finally:
        lock.release()
    assert reset(machine, "--dry-run") == 0
    assert "its agent runs" not in capsys.readouterr().err


def test_without_a_terminal_it_has_to_be_said(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    before = machine.left()
    assert reset(machine) == 2
    assert capsys.readouterr().err.endswith("reason: NotConfirmed\n")
    assert machine.left() == before


@pytest.mark.parametrize(("typed", "code"), [("worker-1", 0), ("yes", 1)])
def test_on_a_terminal_the_name_is_typed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, typed: str, code: int
) -> None:
    monkeypatch.setattr(node_reset, "_somebody_is_here", lambda: True)
    monkeypatch.setattr("click.prompt", lambda *_, **__: typed)
    before = machine.left()
    assert reset(machine) == code
    assert machine.left() == (set() if code == 0 else before)


@pytest.mark.parametrize("flag", ["--remove", "--revoke"])
def test_what_only_an_operator_may_do_needs_a_kubeconfig(
    machine: Machine, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    before = machine.left()
    assert reset(machine, flag, "--yes") == 2
    assert "--admin-kubeconfig" in capsys.readouterr().err
    assert machine.left() == before


def test_a_node_that_nobody_can_name_is_not_removed(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    for path in machine.places.directory.glob("*.pem"):
        path.unlink()
    (machine.places.directory / "handfast-node.json").unlink()
    assert reset(machine, "--remove", "--admin-kubeconfig", "admin.conf", "--yes") == 1
    assert capsys.readouterr().err.endswith("reason: NoCertificate\n")
    assert reset(machine, "--yes") == 0
    assert "this machine is a node no more" in capsys.readouterr().out


def test_a_cluster_that_cannot_be_told_keeps_the_files(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    before = machine.left()
    assert reset(machine, "--remove", "--revoke", "--admin-kubeconfig", "not-there.conf", "--yes") == 1
    assert capsys.readouterr().err.endswith("reason: FileNotFound\n")
    assert machine.left() == before


def test_a_second_run_finds_nothing(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    (machine.places.directory / "notes.txt").write_text("mine")
    assert reset(machine, "--yes", "-o", "json") == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["node"], first["done"], first["nodeRemoved"]) == ("worker-1", True, False)
    assert [each["path"].rpartition("/")[2] for each in first["kept"]] == ["notes.txt"]
    assert reset(machine) == 0
    assert capsys.readouterr().out == "nothing to reset: this machine is no node of Handfast\n"
    assert machine.left() == {"pki/notes.txt"}
