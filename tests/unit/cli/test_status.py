# SPDX-License-Identifier: Apache-2.0
"""`handfast status`: ten lines, and an exit code that says whether something needs somebody."""

import json

import pytest

from handfast.cli import check as check_command
from handfast.cli import main, output
from tests.unit.cli.test_check import CASES


@pytest.mark.parametrize(
    ("case", "code"), [("well", 0), ("warns", 1), ("unknown", 0), ("fails", 1), ("unreachable", 3)]
)
def test_the_exit_code_says_whether_something_needs_somebody(monkeypatch, capsys, case, code):
    monkeypatch.setattr(check_command, "looked", lambda *_: CASES[case][0])
    assert output.run(main.command, ["status"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert (lines[-1] == "next: nothing needs you") == (code == 0)


def test_for_machines_every_topic_is_a_row(monkeypatch, capsys):
    monkeypatch.setattr(check_command, "looked", lambda *_: CASES["fails"][0])
    output.run(main.command, ["status", "-o", "json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["needsSomebody"] is True
    assert [row["topic"] for row in shown["topics"] if row["state"] == "failed"] == ["tokens"]
