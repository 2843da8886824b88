# SPDX-License-Identifier: Apache-2.0
"""The pictures of the documentation are what scripts/pictures.py draws, load nothing, and can be read in both themes. That of the console is of the size that a page can bear."""

from __future__ import annotations

import re
import struct
from xml.etree import ElementTree

import pytest

from tests import contrast, source_text

SVG = "{http://www.w3.org/2000/svg}"


PICTURES = source_text.script("pictures")
DRAWN = PICTURES.drawn()


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_is_what_the_script_draws(name):
    assert (PICTURES.PLACE / name).read_text(encoding="utf-8") == DRAWN[name], "run: python scripts/pictures.py"


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_has_words_for_those_who_do_not_see_it(name):
    tree = ElementTree.fromstring(DRAWN[name])
    assert tree.findtext(f"{SVG}title")
    assert len(tree.findtext(f"{SVG}desc") or "") > 60


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_loads_nothing_and_runs_nothing(name):
    tree = ElementTree.fromstring(DRAWN[name])
    assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= {
        *("svg", "title", "desc", "style", "defs", "marker", "path", "rect", "text")
    }
    assert "url(#head)" in DRAWN[name]
    assert not re.search(r"href|url\((?!#)|@import|<script", DRAWN[name])


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_every_word_is_inside_the_picture(name):
    tree = ElementTree.fromstring(DRAWN[name])
    _, _, width, height = map(int, tree.attrib["viewBox"].split())
    for words in tree.iter(f"{SVG}text"):
        half = 3.6 * len(words.text or "")
        left = float(words.attrib["x"]) - (half if words.attrib["text-anchor"] == "middle" else 0)
        assert left >= 0, words.text
        assert left + 2 * half <= width, words.text
        assert float(words.attrib["y"]) < height, words.text


def _light_and_dark():
    light, dark = PICTURES.STYLE.split("@media(prefers-color-scheme:dark)")
    return [dict(re.findall(r"([.\w]+)\{[^}]*?fill:(#\w+)", style)) for style in (light, dark)]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("words", ["text", ".small"])
@pytest.mark.parametrize("ground", [".page", ".box", ".strong"])
def test_words_stand_out_from_their_ground(theme, words, ground):
    colours = _light_and_dark()[theme]
    assert contrast.ratio(colours[words], colours[ground]) >= contrast.LEAST


def test_the_picture_of_the_console_is_as_wide_as_a_page_and_small():
    screenshot = source_text.script("screenshot")
    octets = screenshot.PICTURE.read_bytes()
    assert octets.startswith(b"\x89PNG\r\n\x1a\n"), "run: python scripts/screenshot.py"
    # The first chunk, IHDR, begins with the width and the height.
    width, height = struct.unpack(">II", octets[16:24])
    assert width == screenshot.WIDTH
    assert height <= screenshot.HEIGHT
    assert len(octets) <= screenshot.LARGEST
