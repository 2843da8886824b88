# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors: grammar, texts of refusals, canonical form, matching. Round trips are in properties."""

from __future__ import annotations

import pytest

from handfast.api import selectors, status

LABELS = {"app": "web", "tier": "front", "empty": "", "count": "7"}


@pytest.mark.parametrize(
    ("text", "canonical", "matches"),
    [
        ("", "", True),
        (" \t", "", True),
        ("app=web", "app=web", True),
        ("app==web", "app=web", True),
        ("app = web , tier\t==\nfront", "app=web,tier=front", True),
        ("app=db", "app=db", False),
        ("other=web", "other=web", False),
        ("app!=db", "app!=db", True),
        ("app!=web", "app!=web", False),
        ("other!=web", "other!=web", True),
        ("app in (web, db)", "app in (db,web)", True),
        ("app in (db)", "app in (db)", False),
        ("other in (db)", "other in (db)", False),
        ("app notin (db,web)", "app notin (db,web)", False),
        ("app notin (db,db)", "app notin (db)", True),
        ("other notin (db)", "other notin (db)", True),
        ("app", "app", True),
        ("other", "other", False),
        ("!other", "!other", True),
        ("! app", "!app", False),
        ("empty=", "empty=", True),
        ("other=", "other=", False),
        ("empty=,app=web", "app=web,empty=", True),
        ("empty!=", "empty!=", False),
        ("empty in ()", "empty in ()", True),
        ("app notin ( )", "app notin ()", True),
        ("empty in (,web)", "empty in (,web)", True),
        ("empty in (web,)", "empty in (,web)", True),
        ("app in (a,,b)", "app in (,a,b)", False),
        ("in in (in,notin)", "in in (in,notin)", False),
        ("app=web,app=web", "app=web", True),
        ("tier=front,app=web", "app=web,tier=front", True),
        ("app=web,tier=back", "app=web,tier=back", False),
        ("app,!app", "!app,app", False),
        ("count>6", "count>6", True),
        ("count>7", "count>7", False),
        ("count<8", "count<8", True),
        ("app>1", "app>1", False),
        ("other<1", "other<1", False),
        ("example.com/a-b=c.d", "example.com/a-b=c.d", False),
    ],
)
def test_a_label_selector_has_one_canonical_form_and_matches(text: str, canonical: str, matches: bool):
    selector = selectors.parse_labels(text)
    assert str(selector) == canonical
    assert selector.match(LABELS) is matches
    assert selector.empty is (canonical == "")
    assert selectors.parse_labels(canonical) == selector
    assert hash(selectors.parse_labels(canonical)) == hash(selector)


def test_absent_labels_are_none():
    assert selectors.parse_labels("!a").match(None)
    assert not selectors.parse_labels("a=b").match(None)
    assert selectors.EVERYTHING.match(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,=b", "found '=', expected: identifier after ','"),
        ("a in ()x", "found 'x', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
        ("! (", "unable to parse requirement: found '(', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',', or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',', or ')'"),
        ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        (
            "a>b",
            (
                'unable to parse requirement: values[0]: Invalid value: "b": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
        (
            "a>" + "9" * 19,
            (
                f'unable to parse requirement: values[0]: Invalid value: "{"9" * 19}": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
    ],
)
def test_refused_labels(text: str, message: str):
    with pytest.raises(status.StatusError) as refused:
        selectors.parse_labels(text)
    assert refused.value.message == message
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("-a=b", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'),
        ("/a", 'unable to parse requirement: <nil>: Invalid value: "/a": prefix part'),
        ('a"', 'unable to parse requirement: <nil>: Invalid value: "a\\"": name part must consist of'),
        ("x=-b", 'unable to parse requirement: values[0][x]: Invalid value: "-b": a valid label must be'),
        ("x in (a,b_)", 'unable to parse requirement: values[1][x]: Invalid value: "b_": a valid label must be'),
        ("x=" + "a" * 64, "unable to parse requirement: values[0][x]: Invalid value: "),
    ],
)
def test_refused_keys_and_values(text: str, start: str):
    with pytest.raises(status.StatusError) as refused:
        selectors.parse_labels(text)
    assert refused.value.message.startswith(start)


def test_label_selector_objects():
    selector = selectors.from_label_selector(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "tier", "operator": "NotIn", "values": ["mid"]},
                {"key": "app", "operator": "Exists"},
                {"key": "gone", "operator": "DoesNotExist", "values": []},
            ],
        }
    )
    assert str(selector) == "app=web,app,!gone,tier in (back,front),tier notin (mid)"
    assert selector.match(LABELS)
    assert selectors.from_label_selector({}) == selectors.EVERYTHING


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "a label selector must be an object with matchLabels and matchExpressions"),
        ({"matchLabels": {"a": 1}}, "matchLabels: Invalid value: must be a map of strings"),
        ({"matchLabels": ["a"]}, "matchLabels: Invalid value: must be a map of strings"),
        ({"matchExpressions": {"a": 1}}, "matchExpressions: Invalid value: must be a list of requirements"),
        ({"matchExpressions": ["a"]}, "matchExpressions: Invalid value: each requirement must be an object"),
        ({"matchExpressions": [{"operator": "In"}]}, "key: Invalid value: each requirement needs a string"),
        ({"matchExpressions": [{"key": "a", "operator": "in"}]}, '"in" is not a valid label selector operator'),
        ({"matchExpressions": [{"key": "a"}]}, '"None" is not a valid label selector operator'),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]},
            "values: Invalid value: must be a list of strings",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
            'values: Invalid value: ["x"]: values set must be empty for exists and does not exist',
        ),
    ],
)
def test_refused_label_selector_objects(document, message: str):
    with pytest.raises(status.StatusError) as refused:
        selectors.from_label_selector(document)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("text", "canonical", "matches"),
    [
        ("", "", True),
        ("metadata.name=a", "metadata.name=a", True),
        ("metadata.name==a", "metadata.name=a", True),
        ("metadata.name!=a", "metadata.name!=a", False),
        ("metadata.name!=b,type=Opaque", "metadata.name!=b,type=Opaque", True),
        ("type=Opaque,metadata.name=a", "metadata.name=a,type=Opaque", True),
        ("type=", "type=", False),
        ("spec.nodeName=", "spec.nodeName=", True),
        ("spec.nodeName!=", "spec.nodeName!=", False),
        (",,type=Opaque,", "type=Opaque", True),
        (r"odd=a\,b\=c\\d", r"odd=a\,b\=c\\d", True),
    ],
)
def test_a_field_selector_has_one_canonical_form_and_matches(text: str, canonical: str, matches: bool):
    selector = selectors.parse_fields(text)
    assert str(selector) == canonical
    assert selector.match({"metadata.name": "a", "type": "Opaque", "odd": "a,b=c\\d"}) is matches
    assert selector.empty is (canonical == "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        ("a=b=c", "invalid field selector: unescaped character in value: ="),
        (r"a=b\c", r"invalid field selector: invalid escape sequence: \c"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_refused_fields(text: str, message: str):
    with pytest.raises(status.StatusError) as refused:
        selectors.parse_fields(text)
    assert refused.value.message == message
    assert refused.value.code == 400


def test_exact_field():
    selector = selectors.parse_fields("metadata.name=a,metadata.namespace!=b")
    assert selector.fields == ("metadata.name", "metadata.namespace")
    assert selector.requires_exact("metadata.name") == "a"
    assert selector.requires_exact("metadata.namespace") is None
    assert selector.requires_exact("type") is None


def test_a_label_selector_is_bounded() -> None:
    within = ",".join(f"!k{number}" for number in range(selectors.MAX_REQUIREMENTS))
    assert len(selectors.parse_labels(within).requirements) == 64
    with pytest.raises(status.StatusError, match="more than 64 terms"):
        selectors.parse_labels(within + ",!more")
    values = ",".join(f"v{number}" for number in range(selectors.MAX_WORDS))
    assert len(selectors.parse_labels(f"a in ({values})").requirements[0].values) == 1000
    with pytest.raises(status.StatusError, match="more than 1000 terms and values"):
        selectors.parse_labels(f"a in ({values},more)")


def test_a_field_selector_is_bounded() -> None:
    within = ",".join(f"f{number}=v" for number in range(selectors.MAX_TERMS))
    assert len(selectors.parse_fields(within).terms) == 128
    with pytest.raises(status.StatusError, match="more than 128 terms"):
        selectors.parse_fields(within + ",g=v")
