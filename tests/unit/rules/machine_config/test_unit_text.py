# SPDX-License-Identifier: Apache-2.0
"""The text of a unit: what Ignition reads, and what it stumbles over."""

from __future__ import annotations

import time

import pytest

from handfast.rules.machine_config import unit_text

UNIT = """# before
words before the first section

[Unit]
Description=An example, with [brackets] and # no comment
; a comment that goes on \\
in this line
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo a; \\
  echo b' \\
  c
Environment=
  Indented=yes

[Install]
WantedBy=multi-user.target"""


@pytest.mark.parametrize(
    "text",
    ["", "\n", "no section", UNIT, UNIT + "\n", UNIT.replace("\n", "\r\n"), "[Unit]", "[Unit]  \n=x", "[A]\nb=\\"],
)
def test_a_unit_is_read(text):
    assert unit_text.problem(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Unit]\nDescription", "line 2 has no equals sign"),
        ("[Unit]\nA=b\n\nfoo bar\n[Install]\n", "line 4 has no equals sign"),
        ("[Unit", "line 1 is no section in brackets"),
        ("[Unit]\nA=b\n[Service] x\n", "line 3 is no section in brackets"),
        ("[Unit]\nA=" + "b" * 2047, "line 2 has 2,049 characters, and may have 2,048"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text, words):
    assert unit_text.problem(text) == words


def test_long_lines_that_go_on_are_read():
    assert unit_text.problem("[Service]\nExecStart=/bin/true" + " \\\n  a" * 2000) is None


@pytest.mark.parametrize(
    "text", ["[Unit]\n" + "a" * 10**6, "[" * 10**6, "[A]\n" + "a=\\\n" * 250_000 + "[", "#\\" * 500_000]
)
def test_time_is_in_proportion_to_the_text(text):
    begin = time.process_time()
    unit_text.problem(text)
    assert time.process_time() - begin < 1
