# SPDX-License-Identifier: Apache-2.0
"""What counts as the same when a page is followed, and what is seen as another output."""

from __future__ import annotations

import pytest

from tests import page_match, page_text


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("NAME   AGE\na   5s\n", "NAME AGE\na 12m\n"),
        ("until 2026-11-16T01:58:34Z, in 59m", "until 2027-01-01T00:00:00Z, in 1h30m"),
        ("pki/client-2026-11-16-02-34-05.pem", "pki/client-2027-01-01-00-00-00.pem"),
        ("a …\nb", "a b c\nb"),
        ("first\n…\nlast", "first\n1\n\n2\nlast"),
        ("a 5mm6n4.… b", "a abcdef.0123456789abcdef b"),
    ],
)
def test_what_differs_from_run_to_run_is_the_same(shown: str, printed: str) -> None:
    assert page_match.Match().holds(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a 5s", "b 5s"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("b …", "a b"),
        ("in 59m", "in 2026-11-16T01:58:34Z"),
        ("token 5mm6n4", "token ABCDEF"),
        ("5mm6n4 5mm6n4", "abcdef ghijkl"),
        ("a.c", "abc"),
    ],
)
def test_another_output_is_seen(shown: str, printed: str) -> None:
    assert not page_match.Match().holds(shown, printed)


def test_an_invented_word_stands_for_one_word_from_then_on() -> None:
    match = page_match.Match()
    assert match.holds("made 5mm6n4", "made abcdef")
    assert match.typed("explain 5mm6n4 5mm6n4x") == "explain abcdef 5mm6n4x"
    assert match.holds("bootstrap-token-5mm6n4 ok", "bootstrap-token-abcdef ok")
    assert not match.holds("bootstrap-token-5mm6n4 ok", "bootstrap-token-ghijkl ok")


def test_an_output_that_differs_teaches_nothing() -> None:
    match = page_match.Match()
    assert not match.holds("made 5mm6n4 well", "made abcdef badly")
    assert match.stand_for == {}


def test_the_commands_of_a_page_are_found_as_they_are_typed() -> None:
    page = (
        "```console\n$ a b\nprinted 5s\n$ c \\\n    d\n$ cat <<EOF\ntext\n$x\nEOF\nshown\n```\n```ini\n$ never\n```\n"
    )
    first, second, third = page_text.steps(page)
    assert first == page_text.Step("a b", "printed 5s\n")
    assert (second.command, second.line, second.printed) == ("c \\\n    d", "c      d", "")
    assert (third.command, third.line, third.printed) == ("cat <<EOF\ntext\n$x\nEOF\n", "cat <<EOF", "shown\n")


def test_a_command_in_a_block_that_nobody_types_is_found() -> None:
    page = (
        "```text\n$ handfast up\nNAME AGE\n```\n1. A list:\n\n   ```console\n   $ kubectl get nodes\n   ```\n"
        "```\nA_B=1 .venv/bin/pytest x\n```\n```ini\nExecStart=/usr/bin/handfast up\n```\n```console\n$ handfast up\n```\n"
    )
    assert list(page_text.untyped(page)) == ["handfast up", "kubectl get nodes", "A_B=1 .venv/bin/pytest x"]


def test_the_blocks_of_one_terminal_are_found() -> None:
    page = "<!-- tested: first terminal -->\n```console\n$ a\n```\n```console\n$ b\n```\n"
    assert list(page_text.steps(page, "first")) == [page_text.Step("a", "")]
    assert list(page_text.steps(page, "second")) == []
    assert [step.command for step in page_text.steps(page)] == ["a", "b"]
