# SPDX-License-Identifier: Apache-2.0
"""A manifest as YAML: every reader reads the same."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.cli import manifest_text


@pytest.mark.parametrize(
    ("text", "written"),
    [("y", "'y'"), ("1e3", "'1e3'"), ("010", "'010'"), ("web", "web"), ("", "''"), (".inf", "'.inf'")],
)
def test_a_text_that_would_be_read_as_something_else_has_quotes(text, written):
    assert manifest_text.dump({"a": text}) == f"a: {written}\n"


def test_lines_stand_in_lines_of_their_own_and_nothing_is_an_alias():
    row = {"b": "one\ntwo\n"}
    assert manifest_text.dump({"a": [row, row]}).count("    one\n    two\n") == 2


def test_what_would_not_be_read_as_it_was_written_is_not_written():
    with pytest.raises(errors.Misuse):
        manifest_text.dump({"a": (1, 2), "b": "x"})
