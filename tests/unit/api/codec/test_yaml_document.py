# SPDX-License-Identifier: Apache-2.0
"""YAML as Kubernetes reads it, from strangers: scalars, refusals and repeated keys."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.api.codec import nesting, yaml_document


def load(text: str):
    return yaml_document.load(text.encode())[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("Yes", True),
        ("on", True),
        ("y", True),
        ("off", False),
        ("N", False),
        ("12", 12),
        ("-12", -12),
        ("+1_000", 1000),
        ("010", 8),
        ("0o10", 8),
        ("0x1F", 31),
        ("0b101", 5),
        ("0", 0),
        ("99999999999999999999999", 99999999999999999999999),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-1.", -1.0),
        ("08", 8.0),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("0x", "0x"),
        ("0b_", "0b_"),
        ("abc", "abc"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("! 12", "12"),
        ("'<<'", "<<"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_a_plain_scalar_is_read_as_kubernetes_reads_it(text, value):
    found = load(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


def test_mappings_and_sequences_keep_their_structure():
    assert load("a:\n- b: {c: [1, []]}\n- {}\nd: {}\n") == {"a": [{"b": {"c": [1, []]}}, {}], "d": {}}
    assert load("[1, 2]") == [1, 2]
    assert load("--- 3\n...\n") == 3
    assert load("# nothing\n") is None


def test_repeated_keys_are_named_and_the_last_wins():
    value, duplicates = yaml_document.load(b"a: 1\nb: [0, {c: 1, c: 2, c: 3}]\na: 2\n")
    assert value == {"a": 2, "b": [0, {"c": 3}]}
    assert duplicates == ["b[1].c", "a"]


def test_repeated_keys_are_counted_up_to_a_limit():
    text = "".join(f"k{number}: 1\n" for number in range(200)) * 2
    _, duplicates = yaml_document.load(text.encode())
    assert len(duplicates) == yaml_document.MAX_DUPLICATES


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x 1\nb: *x\n", "aliases are not accepted"),
        ("a: {<<: {b: 1}}", "merge keys"),
        ("a: !!int 3", "only the tag !!str"),
        ("a: !!binary YQ==", "only the tag !!str"),
        ("a: !!python/object:os.system []", "only the tag !!str"),
        ("a: !!map {}", "only the tag !!str"),
        ("1: a", "a key must be a string"),
        ("null: a", "a key must be a string"),
        ("{a: {1.5: a}}", "a key must be a string"),
        ("? [a]\n: b", "a key must be a string, not a mapping or a sequence"),
        ("? {a: b}\n: b", "a key must be a string, not a mapping or a sequence"),
        ("a: .nan", "not finite"),
        ("a: -.inf", "not finite"),
        ("a: 1e999", "out of range"),
        ("a: " + "1" * 1001, "more than 1000 digits"),
        ("a: 0x" + "f" * 100_000, "more than 1000 digits"),
        ("a: 1\n---\nb: 2\n", "one document"),
        ("a: [", "line 2: did not find expected node content"),
        ("a: 1\n b: 2\n", "line 2: mapping values are not allowed in this context"),
        ("a: \x07", "control characters are not allowed"),
        ('a: "\\ud800"', "line 1: found invalid Unicode character escape code"),
        ("a: !%ED%A0%80 b", "a tag in it is not valid UTF-8"),
    ],
)
def test_what_json_cannot_say_is_refused_with_the_reason(text, why):
    with pytest.raises(errors.Refused, match=why):
        load(text)


def test_not_utf_8():
    with pytest.raises(errors.Refused, match="not valid UTF-8"):
        yaml_document.load(b"a: \xff")


def test_depth_is_refused_before_it_is_read():
    assert load("[" * nesting.MAX_DEPTH + "]" * nesting.MAX_DEPTH)
    with pytest.raises(errors.Refused, match="nested too deeply"):
        load("[" * 1_000_000)


def test_an_alias_bomb_is_refused():
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(errors.Refused, match="aliases"):
        load(bomb)


@pytest.mark.parametrize("value", ["[],", "a,"])
def test_a_document_of_very_many_small_nodes_is_refused_before_it_is_read(value):
    # Without its end: whoever reads to there finds that it is no YAML.
    body = f"a: [{value * (2_000_000 // len(value))}".encode()
    with pytest.raises(errors.Refused, match="more than 100000 keys and values"):
        yaml_document.load(body)


def test_a_document_of_many_nodes_is_read(monkeypatch):
    monkeypatch.setattr(yaml_document, "MAX_NODES", 5)
    assert yaml_document.load(b"a: [1, 2]")[0] == {"a": [1, 2]}
    with pytest.raises(errors.Refused, match="more than 5 keys"):
        yaml_document.load(b"a: [1, 2, 3]")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("web", True), ("2024-01-01", True), ("y", False), ("010", False), ("1e3", False), ("", False), (".nan", False)],
)
def test_a_text_that_needs_no_quotes_is_known(value, expected):
    assert yaml_document.is_text(value) is expected


def test_a_repeated_key_has_the_line_in_which_it_comes_again():
    _, repeats = yaml_document.load_with_repeats(b"\na: 1\nb: {c: 1,\n c: 2, c: 3}\na: 2\n")
    assert repeats == {"b.c": (4, "c"), "a": (5, "a")}
