# SPDX-License-Identifier: Apache-2.0
"""The systemd unit: its text, where it goes, and what is left to a person."""

from __future__ import annotations

import os
import pathlib
import stat
import sys

import pytest

import handfast
from handfast import errors
from handfast.node import units
from handfast.runtime import supervisor

COMMANDS = "systemctl daemon-reload && systemctl enable --now handfast-node.service"


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch, tmp_path):
    monkeypatch.setattr(units, "DIRECTORY", tmp_path / "system")
    monkeypatch.setattr(units, "BOOTED", tmp_path / "run")


def never(words):
    pytest.fail(f"ran {words}")


def test_the_unit_starts_the_agent_again_for_ever():
    found = units.text(["/usr/bin/handfast", "node", "run"])
    assert '\nExecStart="/usr/bin/handfast" "node" "run"\n' in found
    assert "\nRestart=always\n" in found
    said = "# The agent ends after five minutes without a certificate. It is started again for ever."
    assert f"\n{said}\nStartLimitIntervalSec=0\n" in found


def test_the_unit_of_the_reference_tells_when_up_gives_up():
    """With the numbers of the code, which the page repeats in words."""
    page = (pathlib.Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
    timing = supervisor.Timing()
    rule = f"dies {timing.give_up} times in a row, each time within {timing.young:g} s of its start, ends `up`"
    unit = page.partition("```ini\n")[2].partition("```")[0]
    assert rule in unit
    assert "\nRestart=on-failure\n" in unit
    assert "\nStartLimitIntervalSec=0\n" in unit
    # It has to have stopped its children before systemd loses patience.
    assert float(unit.partition("\nTimeoutStopSec=")[2].partition("\n")[0]) > timing.stop
    said = f"dies five times in a row, each time within {timing.young:g} seconds of its start, ends everything"
    assert said in " ".join(page.split())


@pytest.fixture
def installed_by_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handfast lies where a package puts it, wherever these tests run."""
    monkeypatch.setattr(sys, "executable", "/opt/handfast/bin/python")
    monkeypatch.setattr(handfast, "__file__", "/opt/handfast/lib/handfast/__init__.py")


@pytest.mark.usefixtures("installed_by_root")
def test_it_may_write_its_own_places_only():
    places = [pathlib.Path("/var/lib/kubelet/pki"), pathlib.Path("/etc/ku be"), pathlib.Path("/etc/ku be")]
    found = units.text(["/x"], places)
    assert '\nReadWritePaths="-/var/lib/kubelet/pki"\nReadWritePaths="-/etc/ku be"\nPrivateTmp=yes\n' in found
    assert "\nNoNewPrivileges=yes\nProtectSystem=strict\n" in found


@pytest.mark.usefixtures("installed_by_root")
def test_a_directory_that_its_own_tmp_would_hide():
    assert "PrivateTmp" not in units.text(["/x"], [pathlib.Path("/var/tmp/pki")])


@pytest.mark.usefixtures("installed_by_root")
def test_a_program_that_its_own_tmp_would_hide(monkeypatch: pytest.MonkeyPatch):
    assert "PrivateTmp" in units.text(["/opt/handfast/bin/handfast"])
    assert "PrivateTmp" not in units.text(["/tmp/clone/.venv/bin/handfast"])
    monkeypatch.setattr(sys, "executable", "/tmp/clone/.venv/bin/python")
    assert "PrivateTmp" not in units.text(["/x"])


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("plain", '"plain"'),
        ("a b", '"a b"'),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        ("50%", '"50%%"'),
        ("$HOME", '"$$HOME"'),
        ("it's", '"it\'s"'),
        ("", '""'),
        (";", '";"'),
        ("#", '"#"'),
    ],
)
def test_words_are_quoted_as_systemd_reads_them(word, written):
    assert f'\nExecStart="/x" {written}\n' in units.text(["/x", word])


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\0", "\t", "\x1b", "\x85", "\u2028"])
def test_a_line_end_cannot_add_a_setting(end):
    evil = f"a{end}ExecStartPre=evil"
    for words, places in ((["/x", evil], []), ([f"/{evil}"], []), (["/x"], [pathlib.Path(f"/{evil}")])):
        with pytest.raises(errors.Refused) as refused:
            units.text(words, places)
        assert refused.value.reason == "BadPath"


@pytest.mark.parametrize("command", ["handfast", "+/usr/bin/handfast", "-/x", "/a/$b"])
def test_the_program_is_a_path_and_nothing_more(command):
    with pytest.raises(errors.Refused, match="a path from the root"):
        units.text([command])


def test_the_program_is_that_of_this_installation(monkeypatch, tmp_path):
    """Of this very installation, whatever PATH says."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    monkeypatch.setenv("PATH", "/elsewhere")
    assert units.program() == [sys.executable, "-P", "-m", "handfast"]
    (tmp_path / "handfast").touch()
    assert units.program() == [str(tmp_path / "handfast")]


class TestExposed:
    @pytest.fixture
    def place(self, monkeypatch):
        """Where all is root's, but for what a test says of a name: its owner and mode."""
        modes: dict[str, tuple[int, int]] = {}

        def found(path):
            said = modes.get(path.name, (0, 0o755))
            return os.stat_result((said[1] | stat.S_IFDIR, 0, 0, 0, said[0], 0, 0, 0, 0, 0))

        monkeypatch.setattr(pathlib.Path, "stat", lambda path, **_: found(path))
        return modes

    def test_a_program_that_nobody_else_can_change_is_not_exposed(self, place):
        assert units.exposed(["/opt/handfast/bin/handfast"]) == ""

    @pytest.mark.parametrize("said", [(1000, 0o755), (0, 0o775), (0, 0o757)])
    @pytest.mark.parametrize("name", ["handfast-cli", "bin", "opt"])
    def test_any_part_of_the_way(self, place, said, name):
        place[name] = said
        assert units.exposed(["/opt/x/bin/handfast-cli"]).endswith(f"/{name}")

    def test_nobody_replaces_what_is_anothers_in_tmp(self, place):
        place["opt"] = (0, 0o1777)
        assert units.exposed(["/opt/x"]) == ""

    def test_what_is_not_there(self, monkeypatch):
        def missing(path, **_):
            raise FileNotFoundError

        monkeypatch.setattr(pathlib.Path, "stat", missing)
        assert units.exposed(["/opt/x"]) == ""


def test_where_systemd_runs_it_is_started(tmp_path):
    units.BOOTED.mkdir()
    ran = []
    path, left = units.install(["/x"], units.DIRECTORY, lambda words: ran.append(" ".join(words)))
    assert (path, left) == (tmp_path / "system" / units.NAME, "")
    assert " && ".join(ran) == COMMANDS
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_where_it_does_not_run_it_is_said_what_is_left():
    assert units.install(["/x"], units.DIRECTORY, never)[1] == COMMANDS


def test_another_directory_is_not_systemds(tmp_path):
    units.BOOTED.mkdir()
    assert units.install(["/x"], tmp_path / "elsewhere", never)[1] == COMMANDS


def test_nowhere_to_write(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.Refused) as refused:
        units.install(["/x"], tmp_path / "file" / "d")
    assert "leave --systemd out" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-program-anywhere"], "no-such-program-anywhere: "),
        (["sh", "-c", "echo broken >&2; exit 3"], "broken"),
        (["false"], "exit code 1"),
    ],
)
def test_a_command_that_fails(words, says):
    with pytest.raises(errors.Unavailable, match=r".") as failed:
        units._run(words)
    assert says in failed.value.message
    assert failed.value.reason == "SystemdFailed"


def test_a_command_that_works():
    units._run(["true"])


def test_a_command_that_is_never_done_is_given_up(monkeypatch):
    monkeypatch.setattr(units, "_SECONDS", 0.05)
    with pytest.raises(errors.Unavailable, match=r"sleep 5: .*timed out after 0\.05 seconds") as failed:
        units._run(["sleep", "5"])
    assert failed.value.reason == "SystemdFailed"
