# SPDX-License-Identifier: Apache-2.0
"""`handfast explain`: what is said of a reason, what is suggested, and that nothing else reads the catalogue."""

import io
import json
import pathlib

import pytest
import yaml
from click import shell_completion

from handfast import errors
from handfast.cli import main, output, reasons

REFERENCE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def run(capsys, *words):
    code = output.run(main.command, ["explain", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("word", ["TokenExpired", "tokenexpired", "TOKENEXPIRED"])
def test_a_reason_is_explained_in_whichever_case_it_is_written(word, capsys):
    code, out, _ = run(capsys, word)
    assert code == 0
    assert out.splitlines()[0].split() == ["reason", "TokenExpired"]
    assert [line.split()[0] for line in out.splitlines()] == ["reason", "about", "means", "do", "page"]
    assert "handfast token create" in out


def test_the_reference_shows_what_is_printed(capsys):
    _, out, _ = run(capsys, "tokenusedup")
    assert f"```text\n{out}```\n" in REFERENCE.read_text()


def test_several_are_explained_each_once(capsys):
    code, out, _ = run(capsys, "NotFound", "notfound", "Conflict")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith("reason")] == ["NotFound", "Conflict"]


def test_for_machines(capsys):
    _, out, _ = run(capsys, "NotFound", "-o", "json")
    (row,) = json.loads(out)["reasons"]
    assert row == reasons.catalogue()["NotFound"].document()
    assert row["page"] == "docs/request-flow.md"
    _, out, _ = run(capsys, "NotFound", "-o", "yaml")
    assert yaml.safe_load(out)["reasons"] == [row]


def test_the_list_has_every_reason_with_one_sentence(capsys):
    code, out, _ = run(capsys, "--list")
    assert code == 0
    rows = dict(line.split(maxsplit=1) for line in out.splitlines()[1:])
    assert list(rows) == list(reasons.catalogue())
    assert rows["Abandoned"].strip() == reasons.catalogue()["Abandoned"].means
    assert rows["InternalError"].count(". ") == 0
    _, out, _ = run(capsys, "--list", "-o", "json")
    assert len(json.loads(out)["reasons"]) == len(rows)


def test_a_near_miss_gets_suggestions(capsys):
    code, out, err = run(capsys, "TokenExpird")
    assert (code, out) == (1, "")
    assert "did you mean TokenExpired" in err
    assert err.splitlines()[-1] == "reason: UnknownReason"


def test_a_part_of_a_reason_gets_those_that_have_it(capsys):
    _, _, err = run(capsys, "recoverable")
    assert "did you mean NotRecoverable or " in err


@pytest.mark.parametrize("word", ["Kitchen", "x", "\u202e", "-" + "y" * 300])
def test_what_is_no_reason_is_said_to_be_none(word, capsys):
    code, _, err = run(capsys, "--", word)
    assert code == 1
    assert err.splitlines()[-2] == "hint: `handfast explain --list` shows all of them"
    assert max(map(len, err.splitlines())) < 200


def test_what_is_known_is_printed_beside_what_is_not(capsys):
    code, out, err = run(capsys, "NotFound", "Kitchen", "-o", "json")
    assert code == 1
    assert [row["reason"] for row in json.loads(out)["reasons"]] == ["NotFound"]
    assert json.loads(err)["reason"] == "UnknownReason"


@pytest.mark.parametrize("words", [[], ["--list", "NotFound"]])
def test_either_reasons_or_all_of_them(words, capsys):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "--list" in err


def test_a_shell_is_offered_reasons():
    complete = shell_completion.ShellComplete(main.command, {}, "handfast", "_HANDFAST_COMPLETE")
    offered = [item.value for item in complete.get_completions(["explain"], "tokenexp")]
    assert offered == ["TokenExpired"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(error, monkeypatch, stream, *, as_json=False):
    monkeypatch.setattr("sys.stderr", stream)
    output.show_error(error, as_json=as_json)
    return stream.getvalue().splitlines()


def test_on_a_terminal_an_error_without_a_hint_says_where_to_read_on(monkeypatch):
    error = errors.Refused("x", reason="TokenExpired")
    assert shown(error, monkeypatch, Terminal()) == [
        "error: x",
        "hint: `handfast explain TokenExpired` tells what it means",
        "reason: TokenExpired",
    ]
    assert shown(error, monkeypatch, io.StringIO()) == ["error: x", "reason: TokenExpired"]
    assert shown(error, monkeypatch, Terminal(), as_json=True) == ['{"error": "x", "reason": "TokenExpired"}']


@pytest.mark.parametrize(
    "error",
    [
        errors.Refused("x", reason="TokenExpired", hint="y"),
        errors.Refused("x", reason="SomebodyElses"),
        errors.Refused("x"),
        KeyboardInterrupt(),
    ],
)
def test_no_error_leads_to_an_explanation_that_says_nothing_more(error, monkeypatch):
    assert not any("handfast explain" in line for line in shown(error, monkeypatch, Terminal()))


def test_no_other_command_reads_the_catalogue(monkeypatch, capsys):
    monkeypatch.setattr(reasons, "_text", lambda: pytest.fail("read"))
    assert output.run(main.command, ["version"]) == 0
    assert output.run(main.command, ["explain", "--help"]) == 0
    assert "csr explain" in capsys.readouterr().out


@pytest.mark.parametrize(("reason", "words"), [("NoRequest", "Nobody has asked"), ("NodeSilent", "renews no Lease")])
def test_a_reason_that_two_parts_give_says_what_it_means_to_an_operator_first(capsys, reason, words):
    assert output.run(main.command, ["explain", reason]) == 0
    told = capsys.readouterr().out
    assert words in told
    assert "docs/check.md" in told
