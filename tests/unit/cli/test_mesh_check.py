# SPDX-License-Identifier: Apache-2.0
"""`mesh check`: what is printed, and which verdicts change the exit code."""

import json

import pytest

from handfast.cli import connecting, main, mesh_check, output
from handfast.rules import check

ROWS = {
    "ok": check.Check("settings", check.Verdict.OK, "fine"),
    "unknown": check.unknown("issuer", "you may not"),
    "warning": check.Check("webhook", check.Verdict.WARNING, "there is none", "NoWebhook", "make one"),
    "failed": check.Check("clock", check.Verdict.FAILED, "late\x1b", "ClockSkew", "set it"),
}


def run(monkeypatch, rows, *words):
    async def work(path, namespace):
        assert (path, namespace) == ("k", "linkerd")
        return [ROWS[row] for row in rows]

    monkeypatch.setattr(connecting, "chosen", lambda *_: "k")
    monkeypatch.setattr(mesh_check, "_work", work)
    return output.run(main.command, ["mesh", "check", *words])


@pytest.mark.parametrize(
    ("rows", "code", "strict"),
    [(["ok"], 0, 0), (["ok", "warning"], 0, 1), (["ok", "unknown"], 0, 1), (["failed", "warning"], 1, 1)],
)
def test_a_warning_changes_the_exit_code_only_where_that_is_wanted(monkeypatch, capsys, rows, code, strict):
    assert run(monkeypatch, rows) == code
    assert run(monkeypatch, rows, "--fail-on-warning") == strict


def test_every_check_is_shown_with_its_next_step_and_no_control_characters(monkeypatch, capsys):
    assert run(monkeypatch, ROWS) == 1
    printed = capsys.readouterr().out
    assert [line.split()[1] for line in printed.splitlines()[1:5]] == list(ROWS)
    assert "\nwebhook: NoWebhook\n  next: make one\n" in printed
    assert "\x1b" not in printed


def test_for_machines_a_check_has_its_reason_where_it_is_not_well(monkeypatch, capsys):
    assert run(monkeypatch, ["ok", "warning"], "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "verdict": "warning",
        "checks": [
            {"name": "settings", "verdict": "ok", "message": "fine"},
            {
                "name": "webhook",
                "verdict": "warning",
                "message": "there is none",
                "reason": "NoWebhook",
                "hint": "make one",
            },
        ],
    }
