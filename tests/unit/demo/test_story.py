# SPDX-License-Identifier: Apache-2.0
"""The story as it is written: every command is one that there is, nothing secret is typed, and every step shows something."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from handfast.cli import main
from handfast.demo import lines, material, story

FACTS = {
    "api": "127.0.0.1:6443",
    "mesh": " --mesh",
    "console": "",
    "web": "18080",
    "python": "python3",
    "pin": "sha256:" + "0" * 64,
    "id": "abcdef",
    "request": "node-csr-x",
}
LINES = [(step.title, line) for step in story.STEPS for line in step.lines]
LINES += [("the end of a demo that stays", line) for line in story.STAYING]
# Everything that is typed; kubectl may be missing, all else is on every machine that runs Python.
PROGRAMS = {"handfast", "kubectl", "python3", "grep", "cut", "echo", "tail"}


@pytest.mark.parametrize("text", [each for _, line in LINES for each in (line.text, line.instead) if each])
def test_every_line_is_one_of_programs_that_are_there_and_is_read_by_its_command(text):
    words = shlex.split(lines.filled(text, FACTS), comments=False)
    assert words[0] in PROGRAMS
    if words[0] == "handfast":
        stop = next((at for at, word in enumerate(words) if word in {">", "2>", "&"}), len(words))
        _parse(main.command, words[1:stop])


def _parse(command: click.Command, words: list[str]) -> None:
    context = click.Context(command, info_name="handfast")
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, words)
        assert found is not None, words
        if isinstance(found, click.Group) or rest is not None:
            command, words = found, rest
            context = click.Context(command, info_name=name, parent=context, obj=context.obj)
        # `join` is a group that takes words of its own.
        if isinstance(command, click.Group) and not (words and words[0] in command.list_commands(context)):
            break
    for word in words:
        if word.startswith("--") and word != "--":
            flags = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
            assert word.partition("=")[0] in flags, (word, words)
        if word == "--":
            break


def test_every_step_says_why_and_shows_what_it_must():
    for step in story.STEPS:
        assert step.title, step
        assert step.why.endswith("."), step.title
        assert any(line.seen or line.keep or line.again for line in step.lines), step.title


def test_no_secret_is_typed():
    for _, line in LINES:
        # A token is in a file. The one that is guessed is nobody's.
        assert not re.search(r"--(?:tls-bootstrap-)?token (?!file)", line.text), line.text
        assert "cat " not in line.text
        if "token create" in line.text or "token generate" in line.text:
            assert " > " in line.text, line.text


def test_every_place_is_filled_before_it_is_asked_for():
    known = {"api", "mesh", "console", "web", "python"}
    for title, line in LINES:
        wanted = set(re.findall(r"\{([a-z]+)\}", f"{line.text} {line.instead} {' '.join(line.seen)}"))
        assert wanted <= known, (title, line.text)
        known |= set(line.keep)


def test_every_file_that_is_read_lies_there_or_was_written_before():
    there = set(material.FILES)
    for title, line in LINES:
        words = shlex.split(lines.filled(line.text, FACTS))
        there |= {words[at + 1] for at, word in enumerate(words[:-1]) if word in {">", "2>"}}
        for word in words:
            if re.fullmatch(r"[a-z0-9-]+\.(token|csv|json|yaml|py|txt|log)", word):
                assert word in there, (title, line.text)


def test_without_the_mesh_most_of_the_story_is_left_and_up_does_not_start_it():
    left = [step for step in story.STEPS if not step.part]
    assert len(left) >= 9
    assert not any(" mesh " in line.text or "calls.txt" in line.text for step in left for line in step.lines)


@pytest.mark.parametrize("name", [name for name in material.FILES if name.endswith(".py")])
def test_the_programs_of_the_shop_are_python(name):
    compile(material.FILES[name], name, "exec")


@pytest.mark.parametrize("text", [line.text for _, line in LINES])
def test_every_line_is_folded_into_a_window_of_a_hundred_columns(text):
    """As that of the recording; two are for the prompt."""
    rows = lines.folded(lines.filled(text, FACTS), 98)
    assert max(map(len, rows)) <= 98
