# SPDX-License-Identifier: Apache-2.0
"""Scripts and styles: few, our own, and nothing of them in line in a page."""

from __future__ import annotations

import pathlib
import re

import pytest

from handfast import console
from handfast.console import assets, html

ROOM = pathlib.Path(console.__file__).parent
SCRIPTS = sorted((ROOM / "static").glob("*.js"))
TEMPLATES = sorted((ROOM / "templates").glob("*.html"))
# What the policy forbids, or what would let a text become more than that.
IN_LINE = re.compile(
    r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=\"|javascript:|\|safe\b|autoescape", re.IGNORECASE
)
RISKY = re.compile(r"innerHTML|outerHTML\s*=(?!=)|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://")


def test_all_scripts_together_are_small():
    assert sum(path.stat().st_size for path in SCRIPTS) <= 25_000


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_nothing_in_line_and_escapes_everything(path: pathlib.Path):
    assert IN_LINE.findall(path.read_text()) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_makes_no_markup_of_texts_and_asks_nobody_else(path: pathlib.Path):
    # The name of SVG is an address that nobody asks.
    assert RISKY.findall(path.read_text().replace("http://www.w3.org/2000/svg", "")) == []


def test_a_file_is_named_by_its_digest_and_may_be_kept():
    files = assets.Assets()
    link = files.link("console.css")
    assert re.fullmatch(r"/static/console\.css\?v=[0-9a-f]{16}", link)
    answer = files.answer("/static/console.css")
    assert answer is not None
    assert answer.headers["Content-Type"].startswith("text/css")
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Security-Policy"] == html.POLICY


@pytest.mark.parametrize(
    "path", ["/static/", "/static/../handler.py", "/static/templates/base.html", "/static//etc/passwd"]
)
def test_nothing_else_is_served(path: str):
    assert assets.Assets().answer(path) is None
