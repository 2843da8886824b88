# SPDX-License-Identifier: Apache-2.0
"""The recording of the demo is a picture that every browser shows, and has the lines of the story: it goes stale only with a failing test."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
import types
from xml.etree import ElementTree

import pytest

from handfast.demo import lines, story
from tests import contrast

ROOT = pathlib.Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
SVG = "{http://www.w3.org/2000/svg}"
AGAIN = "make the recording anew: .venv/bin/python scripts/recording.py"


@pytest.fixture(scope="module")
def recording() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("recording", ROOT / "scripts" / "recording.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for the module of their annotations.
    sys.modules["recording"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows() -> list[str]:
    root = ElementTree.fromstring(PICTURE.read_text())
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def test_it_is_small_and_runs_nothing_and_fetches_nothing():
    text = PICTURE.read_text()
    assert len(text.encode()) <= 300_000
    root = ElementTree.fromstring(text)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "g", "text", "tspan")
    }
    assert not [name for each in root.iter() for name in each.attrib if name.startswith("on") or "href" in name]
    assert re.findall(r"(?:https?:)?//[\w.]+|url\(|@import", re.sub(r"<text.*?</text>", "", text)) == [
        "http://www.w3.org"
    ]


def test_it_is_readable_in_light_and_dark_and_without_motion():
    text = PICTURE.read_text()
    assert "prefers-color-scheme:dark" in text
    assert "prefers-reduced-motion:reduce" in text


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_colour_of_words_stands_out_from_the_ground(theme):
    style = PICTURE.read_text().partition("<style>")[2].partition("</style>")[0]
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    colours = dict(re.findall(r"([.\w]+)\{[^}]*?fill:(#\w+)", (light, dark)[theme]))
    ground = colours.pop(".box")
    assert set(colours) == {"text", ".b", ".f", ".t", ".g", ".w", ".e"}
    weak = {name: round(contrast.ratio(colour, ground), 2) for name, colour in colours.items()}
    assert {name: ratio for name, ratio in weak.items() if ratio < contrast.LEAST} == {}


def test_every_line_that_is_typed_in_it_is_that_of_the_story_and_none_is_missing(rows):
    typed: list[list[str]] = []
    for row in rows:
        if row.startswith("$ "):
            typed.append([row[2:]])
        elif typed and lines.is_continued(typed[-1][-1]):
            typed[-1].append(row)
    commands = [lines.unfolded(each) for each in typed]
    wanted = [line.text for step in story.STEPS for line in step.lines]
    assert len(commands) == len(wanted), AGAIN
    for command, text in zip(commands, wanted, strict=True):
        assert lines.pattern(text).fullmatch(command), f"{command}\n{AGAIN}"


def test_every_step_is_in_it_with_its_reason_and_the_end(rows):
    page = re.sub(r"\s+", " ", " ".join(rows))
    for number, step in enumerate(story.STEPS, 1):
        assert f"{number} of {len(story.STEPS)} {step.title}" in page, AGAIN
        assert step.why in page, AGAIN
    assert "nothing is left: no process, no port, no file" in page


def test_no_line_is_longer_than_the_window_and_no_path_is_of_a_workplace(rows, recording):
    assert max(map(len, rows)) <= recording.COLUMNS
    assert not [row for row in rows if re.search(r"/(?:work|home|root)/", row)]


def test_lines_that_were_taken_back_are_not_in_a_recording(recording):
    pieces = [
        (0.5, b"$ one\r\n"),
        (0.6, b"\x1b[J\xe2\xa0\x8b 0 s\r\n"),
        (0.7, b"\x1b[1A\x1b[J\xe2\xa0\x99 1 s\r\n"),
        (0.8, b"\x1b[1A\x1b[J"),
        (0.9, b"\x1b[1;32mdone\x1b[0m\r\n"),
    ]
    found = recording.rows_of(pieces)
    assert [(row.text, row.at) for row in found] == [("$ one", 0.5), ("done", 0.9)]
    assert found[1].pieces == [("g", "done")]


def test_long_lines_wrap_and_pauses_are_bounded(recording):
    found = recording.rows_of([(100.0, b"x" * 150 + b"\r\n"), (100.1, b"y\r\n")])
    assert [len(row.text) for row in found] == [100, 50, 1]
    shown = recording.moments(found)
    assert shown == sorted(shown)
    assert shown[-1] < 5


def test_what_a_line_says_is_not_markup(recording):
    picture = recording.picture(recording.rows_of([(0.0, b"<script>&amp;\x1b[1m</style>\x1b[0m\r\n")]))
    (text,) = ElementTree.fromstring(picture).iter(f"{SVG}text")
    assert "".join(text.itertext()) == "<script>&amp;</style>"
