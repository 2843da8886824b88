# SPDX-License-Identifier: Apache-2.0
"""What an address asks for, within bounds."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.rules.console import questions


def test_an_address_without_words_asks_for_the_first_rows():
    question = questions.read("/nodes", {})
    assert (question.start, question.count, question.sort, question.filter) == (0, questions.FIRST, "", "")
    assert question.query() == {}


def test_every_word_is_read_and_written_back():
    words = {"from": "200", "count": "50", "sort": "-name", "filter": "edge", "state": "late"}
    question = questions.read("/nodes", words)
    assert (question.start, question.count, question.sort, question.descending) == (200, 50, "name", True)
    assert question.more == {"state": "late"}
    assert question.query() == words
    assert question.query(sort="", **{"from": ""}) == {"count": "50", "filter": "edge", "state": "late"}


def test_a_range_is_cut_and_never_empty():
    assert questions.read("/", {"count": "100000"}).count == questions.MOST
    assert questions.read("/", {"count": "0"}).count == 1


@pytest.mark.parametrize(
    "words",
    [{"from": "-1"}, {"from": "1e3"}, {"from": "9" * 10}, {"count": "many"}, {"from": "١"}, {"filter": "x" * 201}],
)
def test_what_cannot_be_asked_is_refused_with_what_is_allowed(words: dict[str, str]):
    with pytest.raises(errors.Refused, match="allowed") as refused:
        questions.read("/nodes", words)
    assert refused.value.reason == "BadQuestion"


def test_a_page_gets_few_words_of_its_own():
    question = questions.read("/", {f"w{number}": "x" * 1000 for number in range(100)})
    assert len(question.more) == questions.MANY
    assert max(map(len, question.more.values())) == questions.LONGEST


def test_two_addresses_with_the_same_words_are_the_same():
    first = questions.read("/n", {"sort": "a", "x": "1", "filter": "f"}, "of")
    assert first.key == questions.read("/n", {"filter": "f", "x": "1", "sort": "a"}, "of").key
    assert first.key != questions.read("/n", {"filter": "f", "x": "1", "sort": "-a"}, "of").key
    assert first.key != questions.read("/n", {"filter": "f", "x": "1", "sort": "a"}, "off").key
