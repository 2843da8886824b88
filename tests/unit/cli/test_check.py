# SPDX-License-Identifier: Apache-2.0
"""`handfast check`: what is printed, in which form, and which verdicts give which exit code."""

import json
import sys
from xml.etree import ElementTree

import pytest

from handfast.cli import check as check_command
from handfast.cli import check_output, main, output
from handfast.rules import check
from handfast.rules.diagnoses import facts
from tests.unit.rules.diagnoses import known

REFUSED = check.Unread("nobody listens\x1b", "ConnectionRefused", "start it")
SILENT = check.Unread("no answer", check.TIMEOUT, "see")
OTHER = check.Unread("another CA", "TLSInterception", "see")
CASES = {
    "well": (known.good(), 0, 0),
    "warns": (known.good(stranger=403), 0, 1),
    "unknown": (known.good(webhooks=check.Unread("no")), 0, 1),
    "fails": (known.good(cluster_info=None), 1, 1),
    "unreachable": (
        facts.Facts(now=known.NOW, reach=facts.Reach(server="s", addresses=["a"], connected=REFUSED)),
        3,
        3,
    ),
    "silent": (
        facts.Facts(now=known.NOW, reach=facts.Reach(server="s", addresses=["a"], connected="a:1", certificate=SILENT)),
        3,
        3,
    ),
    "another": (known.good(reach=known.reach(certificate=OTHER)), 1, 1),
}


@pytest.fixture
def run(monkeypatch):
    def command(read, *words):
        monkeypatch.setattr(check_command, "looked", lambda *_, **__: read)
        return output.run(main.command, ["check", *words])

    return command


@pytest.mark.parametrize("case", CASES)
def test_the_exit_code_tells_what_failed_from_who_is_not_there(run, case):
    read, code, strict = CASES[case]
    assert run(read) == code
    assert run(read, "--fail-on-warning") == strict


def test_every_check_is_shown_with_its_next_step_and_page_and_no_control_characters(run, capsys):
    run(CASES["unreachable"][0])
    printed = capsys.readouterr().out
    assert "\ntcp: ConnectionRefused\n  next: start it\n  page: docs/check.md#tcp\n" in printed
    assert "\x1b" not in printed


def test_what_was_not_asked_for_one_cause_has_one_next_step(run, capsys):
    run(CASES["unreachable"][0])
    printed = capsys.readouterr().out
    assert printed.count("mend what is above it first") == 1
    assert "\ntls, clock, api, store, controllers," in printed
    assert printed.endswith(
        "bootstrap-credentials, mesh: Unknown\n  next: mend what is above it first\n  page: docs/check.md\n"
    )


def test_the_forms_for_machines(run, capsys):
    run(CASES["fails"][0], "-o", "json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["verdict"] == "failed"
    assert {row["name"] for row in shown["checks"] if row["verdict"] == "failed"} == {"cluster-info", "signatures"}
    run(CASES["fails"][0], "-o", "junit")
    assert ElementTree.fromstring(capsys.readouterr().out).get("failures") == "2"


def test_one_node_is_judged_by_its_steps(run, capsys):
    assert run(known.good(), "--node", "w1", "-o", "json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["checks"]][-5:] == [
        *("created", "approved", "signed", "used", "node-serving")
    ]
    assert run(known.good(), "--node", "w9") == 1


def test_a_name_that_no_node_can_have_is_not_looked_for(run, capsys):
    assert run(known.good(), "--node", "W 2") == output.Code.USAGE
    printed = capsys.readouterr()
    assert (printed.out, '"W 2" is no name of a node' in printed.err) == ("", True)


def test_progress_is_shown_on_a_terminal_and_nowhere_else(monkeypatch, capsys):
    check_output.Bar().progress(0, 2, ["nodes"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = check_output.Bar()
    bar.progress(1, 2, ["nodes"])
    assert "1 of 2; looking at nodes" in capsys.readouterr().err
    bar.progress(2, 2, [])
    # The line is taken back.
    assert capsys.readouterr().err == "\x1b[1A\x1b[J"
