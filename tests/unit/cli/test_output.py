# SPDX-License-Identifier: Apache-2.0
"""The rules of the terminal: streams, errors, exit codes."""

import io
import json
import pathlib
import re
import sys

import click
import pytest

from handfast import errors
from handfast.cli import output
from handfast.telemetry import colour


def failing(error):
    @click.command()
    @output.format_option
    def command(form):
        raise error

    return command


@pytest.mark.parametrize(
    "error, code, lines",
    [
        (errors.Refused("no", reason="Nope", hint="ask"), 1, ["error: no", "hint: ask", "reason: Nope"]),
        (errors.Refused("no"), 1, ["error: no", "reason: Refused"]),
        (errors.Unavailable("later"), 3, ["error: later", "reason: ServiceUnavailable"]),
        (output.Usage("wrong"), 2, ["error: wrong", "reason: Usage"]),
        (click.ClickException("odd"), 1, ["error: odd", "reason: Failed"]),
        (KeyboardInterrupt(), 1, ["error: interrupted", "reason: Interrupted"]),
    ],
)
def test_errors_on_stderr_with_reason_last(error, code, lines, capsys):
    assert output.run(failing(error), []) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip().splitlines() == lines


def test_as_json_when_json_was_asked_for(capsys):
    assert output.run(failing(errors.Refused("no", reason="Nope", hint="ask")), ["-o", "json"]) == 1
    assert json.loads(capsys.readouterr().err) == {"error": "no", "hint": "ask", "reason": "Nope"}


@pytest.mark.parametrize("error", [ValueError("hunter2"), errors.Misuse("hunter2")])
def test_a_bug_shows_its_place_and_neither_its_text_nor_a_trace(error, capsys, monkeypatch):
    monkeypatch.delenv(output.DEBUG_VARIABLE, raising=False)
    assert output.run(failing(error), []) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: internal error: {type(error).__name__} in command, line ")
    assert "HANDFAST_DEBUG=1" in err
    assert err.splitlines()[-1] == "reason: InternalError"
    assert "Traceback" not in err
    assert "hunter2" not in err


def test_a_bug_shows_all_when_debugging(capsys, monkeypatch):
    monkeypatch.setenv(output.DEBUG_VARIABLE, "1")
    assert output.run(failing(ValueError("details")), []) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ValueError: details" in err
    assert err.splitlines()[-1] == "reason: InternalError"


def test_an_error_that_was_never_raised_has_no_place():
    assert output.describe(ValueError())[0]["error"] == "internal error: ValueError"


@pytest.mark.parametrize(
    "arguments, message", [(["--nope"], "no such option"), (["extra"], "got unexpected extra argument")]
)
def test_wrong_usage(arguments, message, capsys):
    assert output.run(failing(ValueError()), arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"error: {message}")
    assert lines[-2:] == ["hint: `handfast --help` shows what is allowed", "reason: Usage"]


def test_usage_errors_without_a_context_have_no_hint():
    assert output.describe(click.UsageError("Bad thing."))[0] == {"error": "bad thing", "reason": "Usage"}


def test_a_command_may_choose_its_code():
    @click.command()
    def command():
        return 3

    assert output.run(command, []) == 3


def test_nobody_reads_stderr(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    assert output.show_error(errors.Refused("x")) == 1
    output.event("info", "x")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_events_are_for_people_on_a_terminal_and_json_elsewhere(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        output.event("warning", "it ended", stream, why="x")
    assert terminal.getvalue() == "warning: it ended (why: x)\n"
    line = json.loads(pipe.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {"event": "it ended", "level": "warning", "logger": "handfast.supervisor", "why": "x"}


def test_on_a_terminal_the_level_of_an_event_has_colour_and_its_text_has_none(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    output.event("warning", "x\x1b[0m", terminal)
    assert terminal.getvalue() == "\x1b[33mwarning\x1b[0m: x\\u001b[0m\n"


def test_a_styled_result_has_colour_on_a_terminal_only(monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    parts = [("good\x1b", colour.Style.GOOD), ("plain", colour.Style.PLAIN)]
    output.styled(parts)
    assert capsys.readouterr().out == "good\\u001b\nplain\n"
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    output.styled(parts)
    assert terminal.getvalue() == "\x1b[1;32mgood\\u001b\x1b[0m\nplain\n"


def test_a_styled_result_that_cannot_be_written(monkeypatch):
    def fail(_self, _text):
        raise BrokenPipeError

    monkeypatch.setattr(Terminal, "write", fail)
    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(output.Unwritten):
        output.styled([("x", colour.Style.PLAIN)])


def test_documents_are_json_or_yaml_in_their_order():
    assert json.loads(output.document({"a": [1]}, "json")) == {"a": [1]}
    assert output.document({"b": 1, "a": [1]}, "yaml") == "b: 1\na:\n- 1"


def test_quoted_for_a_shell():
    assert output.quoted("/a b") == "'/a b'"


HOSTILE = "a\x1b]0;evil\x07\x9b31m\x7f\u202eb\U000e0001\udcff\r\n\tc"
HARMLESS = r"a\u001b]0;evil\u0007\u009b31m\u007f\u202eb\udb40\udc01\udcff\u000d"


class TestPrintable:
    """Nothing that a terminal would obey, or take for another line, comes through."""

    def test_as_numbers(self):
        assert output.printable(HOSTILE) == HARMLESS + r"\u000a\u0009c"
        assert output.printable(HOSTILE, lines=True) == HARMLESS + "\n\tc"
        assert output.printable("Grüße, 世界 …") == "Grüße, 世界 …"

    def test_json_means_the_same(self):
        assert json.loads(output.printable(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE

    @pytest.mark.parametrize("print_", [output.note, output.warn, output.progress])
    def test_beside_the_result(self, print_, capsys):
        print_(HOSTILE)
        assert capsys.readouterr().err.endswith(HARMLESS + r"\u000a\u0009c" + "\n")

    def test_a_result_has_lines(self, capsys):
        output.result(HOSTILE)
        assert capsys.readouterr().out == HARMLESS + "\n\tc\n"

    def test_an_error_has_its_own_lines_only(self, capsys):
        forged = errors.Refused("no\nreason: Fine", reason="Nope", hint=HOSTILE)
        output.run(failing(forged), [])
        first, second, third = capsys.readouterr().err.splitlines()
        assert first == r"error: no\u000areason: Fine"
        assert second.startswith(f"hint: {HARMLESS}")
        assert third == "reason: Nope"

    def test_a_trace(self, capsys, monkeypatch):
        monkeypatch.setenv(output.DEBUG_VARIABLE, "1")
        output.run(failing(ValueError("\x1b[2J")), [])
        assert r"ValueError: \u001b[2J" in capsys.readouterr().err

    def test_an_event(self):
        terminal = Terminal()
        output.event("info", "x\x1b", terminal, why="y\n")
        assert terminal.getvalue() == r"x\u001b (why: y\u000a)" + "\n"


def test_only_this_module_prints():
    """Whatever prints on its own prints without the filter."""
    for path in sorted(pathlib.Path(output.__file__).parent.glob("*.py")):
        if path.name != "output.py":
            assert not re.search(r"\b(click\.s?echo|print|sys\.std(out|err)\.write)\(", path.read_text()), path.name


def test_who_reads_the_result(monkeypatch):
    for stream, terminal in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stdout", stream)
        assert output.to_terminal() is terminal
