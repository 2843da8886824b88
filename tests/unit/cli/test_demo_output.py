# SPDX-License-Identifier: Apache-2.0
"""How the demo is shown: what is typed can be typed, machines get one line of JSON for each step, and nothing of either is lost."""

from __future__ import annotations

import json
import sys

from handfast import errors
from handfast.cli import demo_output
from handfast.demo import lines, telling
from handfast.runtime import clock as clocks

LINE = lines.Line("handfast token list", show=("^ID",))
STEP = lines.Step("Tokens", "They are listed.", (LINE,))
ANSWER = telling.Answer(line=LINE, text=LINE.text, output="ID\nabcdef\n", code=0, seconds=0.25)
BAD = telling.Answer(line=LINE, text=LINE.text, output="", code=1, seconds=0.25, missing="it ended with exit code 1")
MISSING = errors.Refused("no gRPC", reason="MeshExtraMissing", hint="install it")


def tell(audience: telling.Audience) -> None:
    """Everything that an audience can be told."""
    audience.opened(["cd /tmp/x", "umask 077"])
    audience.begun(1, 3, STEP)
    audience.typed(LINE.text)
    audience.waiting()
    audience.answered(ANSWER)
    audience.done(telling.Result(number=1, step=STEP, verdict=telling.PASSED, seconds=0.25, answers=(ANSWER,)))
    audience.done(telling.Result(number=2, step=STEP, verdict=telling.LEFT_OUT, missing=MISSING))
    audience.done(telling.Result(number=3, step=STEP, verdict=telling.FAILED, answers=(BAD,)))
    audience.logs([("up.log", ["the end"])])
    audience.stays("/tmp/x/admin.conf", [ANSWER])
    audience.cleaning()
    audience.ended(telling.Left(places=["/tmp/x"]), 36.4)
    audience.ended(telling.Left(processes=["12 sleep"], files=["/tmp/x"], places=["/tmp/x"]), 36.4)


def test_a_page_has_plain_lines_where_nobody_looks_on(capsys):
    page = demo_output.Page(clocks.SystemClock())
    tell(page)
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "1 of 3  Tokens\nThey are listed.\n$ handfast token list\n  ID\n  …\n✓ 0.2 s\n" in out
    assert "left out: no gRPC; install it" in out
    assert "✗ it ended with exit code 1" in out
    assert "the end of up.log:\n  the end\n" in out
    assert "kubeconfig  /tmp/x/admin.conf" in out
    assert "/tmp/x is gone\n✓ nothing is left: no process, no port, no file\n\n36 s in all\n" in out
    assert "✗ something is left" in out
    assert (page.step, page.is_staying) == (1, True)


def as_terminal(monkeypatch) -> None:
    """What is captured passes for a terminal of 60 columns."""
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    # click asks a stream of its own around it.
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_terminal_has_colours_folded_lines_and_a_line_that_is_taken_back(capsys, monkeypatch):
    as_terminal(monkeypatch)
    page = demo_output.Page(clocks.SystemClock())
    tell(page)
    text = "handfast join 127.0.0.1:6443 --token-file worker-1.token --node-name worker-1"
    page.typed(text)
    page.answered(telling.Answer(line=lines.Line("x"), text="x", output=f"error: {'word ' * 20}\n", code=1, seconds=1))
    out, err = capsys.readouterr()
    assert "\x1b[1;36m1 of 3  Tokens\x1b[0m" in out
    assert " \\\x1b[0m\n" in out
    assert "0 s" in err
    assert err.endswith("\x1b[1A\x1b[J")
    plain = out.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(map(len, plain.partition("$ handfast join")[2].splitlines())) <= 60
    # Whoever wants none has none.
    monkeypatch.setenv("NO_COLOR", "1")
    page.begun(1, 3, STEP)
    assert "\x1b" not in capsys.readouterr().out


def test_machines_get_one_line_for_each_step_with_all_that_was_printed(capsys):
    audience = demo_output.Lines()
    tell(audience)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    opening, passed, left_out, failed, logs, stays, end, left = rows
    assert opening == {"opening": ["cd /tmp/x", "umask 077"]}
    assert (passed["step"], passed["title"], passed["verdict"], passed["seconds"]) == (1, "Tokens", "passed", 0.25)
    assert passed["lines"] == [{"command": "handfast token list", "output": "ID\nabcdef\n", "code": 0, "seconds": 0.25}]
    assert (left_out["verdict"], left_out["reason"], left_out["hint"]) == ("left out", "MeshExtraMissing", "install it")
    assert failed["lines"][0]["missing"] == "it ended with exit code 1"
    assert logs == {"logs": {"up.log": ["the end"]}}
    assert (stays["stays"], stays["kubeconfig"]) == (True, "/tmp/x/admin.conf")
    assert (end["clean"], end["seconds"]) == (True, 36.4)
    assert (left["clean"], left["left"]["processes"]) == (False, ["12 sleep"])
    assert audience.is_staying
