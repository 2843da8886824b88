# SPDX-License-Identifier: Apache-2.0
"""Colour: on terminals only, and only where nobody turned it off."""

import io

import pytest

from handfast.telemetry import colour


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "environment, wanted",
    [
        ({}, True),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm"}, True),
    ],
)
def test_a_terminal_has_colour_unless_it_is_turned_off(monkeypatch, environment, wanted):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colour.wanted(Terminal()) is wanted
    assert colour.wanted(io.StringIO()) is False


def test_a_style_ends_with_its_text():
    assert colour.paint("x", colour.Style.WARNING) == "\x1b[33mx\x1b[0m"
    assert colour.paint("x", colour.Style.PLAIN) == "x"
    assert colour.paint("", colour.Style.GOOD) == ""
