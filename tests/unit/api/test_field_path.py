# SPDX-License-Identifier: Apache-2.0
"""Paths read as Kubernetes writes them, and never grow with the input."""

from __future__ import annotations

import pytest

from handfast.api import field_path
from handfast.api.field_path import Path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (Path("spec"), "spec"),
        (Path("image", Path(0, Path("containers", Path("spec")))), "spec.containers[0].image"),
        (Path("a", Path(1, Path(0))), "[0][1].a"),
    ],
)
def test_a_path_is_written_as_kubernetes_writes_it(path, text):
    assert str(path) == text


def test_long_paths_are_cut():
    text = str(Path("b", Path("a" * 1_000_000)))
    assert text == "a" * field_path.MAX_TEXT + "…"


def test_a_path_of_just_that_length_is_whole():
    longest = "a" * field_path.MAX_TEXT
    assert field_path.render([longest]) == longest
    assert field_path.render([longest[:-2], "b"]) == longest[:-2] + ".b"
    assert field_path.render([longest, 0]) == longest + "…"


def test_no_steps_is_no_text():
    assert field_path.render([]) == ""
