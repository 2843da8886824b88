# SPDX-License-Identifier: Apache-2.0
"""Lines of the story: what is shown is what is run, and what must be seen is looked for."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.demo import lines

FACTS = {"api": "127.0.0.1:6443", "mesh": " --mesh", "none": "", "odd": "a b; rm -rf /"}


def test_what_is_known_is_put_into_its_place():
    assert lines.filled("handfast join {api} --timeout 5s", FACTS) == "handfast join 127.0.0.1:6443 --timeout 5s"
    assert lines.filled("handfast up --machines{mesh} &", FACTS) == "handfast up --machines --mesh &"
    assert lines.filled("handfast up --machines{none} &", FACTS) == "handfast up --machines &"


def test_what_is_put_in_is_one_word_for_a_shell():
    assert lines.filled("cut -f 1 {odd}", FACTS) == "cut -f 1 'a b; rm -rf /'"


def test_what_a_shell_or_kubectl_has_in_braces_stays():
    text = "kubectl get x -o jsonpath='{.data.kubeconfig}' ${HOME}"
    assert lines.filled(text.replace("${HOME}", ""), {}) == text.replace("${HOME}", "")


def test_a_place_that_nobody_has_filled_is_a_mistake_of_the_story():
    with pytest.raises(errors.Misuse, match="before it is known"):
        lines.filled("handfast csr explain {request}", FACTS)


def test_a_line_that_stays_is_the_shells_own_process():
    assert lines.Line("handfast up &").stays
    assert lines.as_run("handfast up > up.txt &") == "exec handfast up > up.txt"
    assert lines.as_run("echo a && echo b") == "echo a && echo b"


@pytest.mark.parametrize(
    ("line", "code", "output", "word"),
    [
        (lines.Line("x"), 0, "", ""),
        (lines.Line("x"), 1, "", "exit code 1"),
        (lines.Line("x", code=1), 0, "", "and 1 was to be seen"),
        (lines.Line("x", seen=("^two$",)), 0, "one\ntwo\n", ""),
        (lines.Line("x", seen=("one", "three")), 0, "one\ntwo\n", "three"),
        (lines.Line("x", seen=("at {api}$",)), 0, "at 127.0.0.1:6443", ""),
        (lines.Line("x", seen=("at {api}$",)), 0, "at 127x0.0.1:6443", "at 127"),
    ],
)
def test_everything_that_must_be_seen_is_looked_for(line, code, output, word):
    missing = lines.why_not(line, FACTS, code, output)
    assert word in missing
    assert bool(missing) == bool(word)


def test_what_later_lines_need_is_kept():
    line = lines.Line("x", keep={"pin": r"^sha256:[0-9a-f]{4}$", "none": "zz"})
    assert lines.kept(line, "some text\nsha256:00ff\n") == {"pin": "sha256:00ff"}


def test_of_a_long_output_what_a_reader_needs_is_shown_and_that_there_is_more():
    assert lines.shown(lines.Line("x"), "one\ntwo\n") == ["one", "two"]
    assert lines.shown(lines.Line("x"), "\n") == []
    assert lines.shown(lines.Line("x", show=("^t",)), "one\ntwo\n") == ["two", "…"]
    assert lines.shown(lines.Line("x", show=("o",)), "one\ntwo\n") == ["one", "two"]


def test_a_long_line_is_folded_where_a_shell_reads_it_as_one():
    text = "handfast mesh revoke shop/client --reason 'a shell was opened in it' -o json"
    rows = lines.folded(text, 44)
    assert len(rows) == 3
    assert all(lines.is_continued(row) for row in rows[:-1])
    assert not lines.is_continued(rows[-1])
    assert lines.unfolded(rows) == text
    # A flag stays with its value, and what is in quotes is one word, however long.
    assert any("--reason 'a shell was opened in it'" in row for row in rows)
    assert lines.folded("one --two > three", 13) == ["one --two \\", "    > three"]
    assert lines.folded("a --pin 0123456789", 14) == ["a --pin \\", "    0123456789"]
    assert lines.folded("short", 30) == ["short"]


def test_a_line_is_recognised_whatever_was_put_into_it():
    found = lines.pattern("handfast up --listen {api} --machines{mesh} &")
    assert found.fullmatch("handfast up --listen 127.0.0.1:1 --machines --mesh &")
    assert found.fullmatch("handfast up --listen 127.0.0.1:1 --machines &")
    assert not found.fullmatch("handfast up --listen 127.0.0.1:1 --nothing &")
