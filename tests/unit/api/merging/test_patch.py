# SPDX-License-Identifier: Apache-2.0
"""JSON patch and merge patch against the examples of RFC 6902 (appendix A) and RFC 7386 (appendix A), and beyond."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import status
from handfast.api.codec import nesting
from handfast.api.merging import patch

# RFC 6902, appendix A: section, document, patch, result (None: it must fail).
RFC_6902: list[tuple[str, Any, Any, Any]] = [
    ("A.1", {"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ("A.2", {"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ("A.3", {"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ("A.4", {"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    (
        "A.5",
        {"baz": "qux", "foo": "bar"},
        [{"op": "replace", "path": "/baz", "value": "boo"}],
        {"baz": "boo", "foo": "bar"},
    ),
    (
        "A.6",
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        "A.7",
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        "A.8",
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    ("A.9", {"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], None),
    (
        "A.10",
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    (
        "A.11",
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
        {"foo": "bar", "baz": "qux"},
    ),
    ("A.12", {"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], None),
    ("A.14", {"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ("A.15", {"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], None),
    (
        "A.16",
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
        {"foo": ["bar", ["abc", "def"]]},
    ),
]

MORE: list[tuple[str, Any, Any, Any]] = [
    ("whole", {"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ("add whole", {"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}),
    ("test whole", {"a": 1}, [{"op": "test", "path": "", "value": {"a": 1.0}}], {"a": 1}),
    ("move to whole", {"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": ""}], {"b": 1}),
    ("copy of nothing", {}, [{"op": "copy", "from": "/a", "path": "/b"}], None),
    ("not an object", {"a": 1}, [{"op": "replace", "path": "", "value": 7}], None),
    ("remove whole", {"a": 1}, [{"op": "remove", "path": ""}], None),
    ("in nothing", {"a": 1}, [{"op": "remove", "path": ""}, {"op": "add", "path": "/a", "value": 1}], None),
    ("empty key", {"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
    ("slash", {"a/b": 1}, [{"op": "remove", "path": "/a~1b"}], {}),
    ("null is a value", {}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
    ("add replaces", {"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
    ("append by index", {"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
    ("index too large", {"a": [1]}, [{"op": "add", "path": "/a/2", "value": 2}], None),
    ("replace after the last", {"a": [1]}, [{"op": "replace", "path": "/a/1", "value": 2}], None),
    ("replace an element", {"a": [1]}, [{"op": "replace", "path": "/a/0", "value": 2}], {"a": [2]}),
    ("remove the dash", {"a": [1]}, [{"op": "remove", "path": "/a/-"}], None),
    ("leading zero", {"a": [1, 2]}, [{"op": "remove", "path": "/a/01"}], None),
    ("negative", {"a": [1, 2]}, [{"op": "remove", "path": "/a/-1"}], None),
    ("foreign digit", {"a": [1, 2]}, [{"op": "remove", "path": "/a/١"}], None),
    ("replace missing", {}, [{"op": "replace", "path": "/a", "value": 1}], None),
    ("remove missing", {}, [{"op": "remove", "path": "/a"}], None),
    ("through a scalar", {"a": 1}, [{"op": "add", "path": "/a/b/c", "value": 1}], None),
    ("into a scalar", {"a": 1}, [{"op": "add", "path": "/a/b", "value": 1}], None),
    ("get from a scalar", {"a": 1}, [{"op": "test", "path": "/a/b", "value": 1}], None),
    (
        "in a list of objects",
        {"a": [{"b": 1}]},
        [{"op": "add", "path": "/a/0/c", "value": 2}],
        {"a": [{"b": 1, "c": 2}]},
    ),
    ("true is not 1", {"a": True}, [{"op": "test", "path": "/a", "value": 1}], None),
    ("true in a list", {"a": [True]}, [{"op": "test", "path": "/a", "value": [1]}], None),
    ("move into itself", {"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}], None),
    ("move nowhere", {"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    ("move nothing nowhere", {}, [{"op": "move", "from": "/a", "path": "/a"}], None),
    ("copy", {"a": {"b": [1]}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": [1]}, "c": {"b": [1]}}),
    (
        "a copy is another",
        {"a": {"b": [1]}},
        [{"op": "copy", "from": "/a", "path": "/c"}, {"op": "add", "path": "/c/b/-", "value": 2}],
        {"a": {"b": [1]}, "c": {"b": [1, 2]}},
    ),
]


@pytest.mark.parametrize(("name", "document", "operations", "result"), RFC_6902 + MORE)
def test_json_patch(name: str, document, operations, result):
    untouched = copy.deepcopy((document, operations))
    if result is None:
        with pytest.raises(status.StatusError) as refused:
            patch.apply_json_patch(document, operations)
        assert refused.value.code == 422
        assert refused.value.reason == "Invalid"
        assert refused.value.message.startswith("the server rejected our request due to an error in our request: ")
    else:
        assert patch.json_equal(patch.apply_json_patch(document, operations), result)
    assert (document, operations) == untouched


def test_a_failure_names_operation_and_path():
    with pytest.raises(status.StatusError) as refused:
        patch.apply_json_patch({}, [{"op": "replace", "path": "/data/a", "value": "secret"}])
    assert "replace operation does not apply" in refused.value.message
    assert "'/data/a'" in refused.value.message
    assert "secret" not in refused.value.message
    assert refused.value.causes[0].field == "/data/a"


@pytest.mark.parametrize(
    "operations",
    [
        {"op": "add"},
        ["add"],
        [{"path": "/a", "value": 1}],
        [{"op": "spam", "path": "/a", "value": 1}],
        [{"op": ["add"], "path": "/a", "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": 7, "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/a~2", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "test", "path": "/a"}],
        [{"op": "copy", "path": "/a"}],
        [{"op": "move", "path": "/a", "from": "b"}],
        # RFC 6902, A.13 repeats "op"; whichever is read last, the document is refused.
        [{"op": "remove", "path": "/baz/bat~"}],
    ],
)
def test_what_is_no_json_patch(operations):
    with pytest.raises(status.StatusError) as refused:
        patch.apply_json_patch({"a": 1, "b": 2}, operations)
    assert refused.value.code == 400


def test_too_many_operations():
    test = {"op": "test", "path": "/a", "value": 1}
    assert patch.apply_json_patch({"a": 1}, [test] * 10_000) == {"a": 1}
    with pytest.raises(status.StatusError) as refused:
        patch.apply_json_patch({"a": 1}, [test] * 10_001)
    assert refused.value.code == 413
    assert "The allowed maximum operations in a JSON patch is 10000, got 10001" in refused.value.message


def test_a_copy_bomb_is_refused():
    bomb = [{"op": "copy", "from": "", "path": "/b"}, {"op": "copy", "from": "", "path": "/a"}] * 40
    with pytest.raises(status.StatusError) as refused:
        patch.apply_json_patch({"a": ["x" * 100], "b": {}}, bomb)
    assert refused.value.code == 422
    assert "accumulated size of copies" in refused.value.message


def _nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for _ in range(depth - 1):
        document = {"a": document}
    return document


def test_depth_of_the_patch_is_bounded():
    for change in (patch.apply_json_patch, patch.apply_merge_patch):
        value = _nested(nesting.MAX_DEPTH + 1)
        with pytest.raises(status.StatusError) as refused:
            change({}, [{"op": "add", "path": "/a", "value": value}] if change is patch.apply_json_patch else value)
        assert refused.value.message == nesting.TOO_DEEP


def test_depth_of_the_result_is_bounded():
    deepest = _nested(nesting.MAX_DEPTH)
    assert patch.apply_json_patch(deepest, []) == deepest
    wrap = [
        {"op": "move", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a", "value": {}},
        {"op": "move", "from": "/b", "path": "/a/a"},
    ]
    with pytest.raises(status.StatusError, match="the patched document is nested deeper than 128 levels"):
        patch.apply_json_patch(deepest, wrap)
    with pytest.raises(status.StatusError, match="the value to copy is nested deeper than 128 levels"):
        patch.apply_json_patch(deepest, [*wrap * 3, {"op": "copy", "from": "/a", "path": "/b"}])


def test_depth_of_lists_to_copy_is_bounded():
    deepest: Any = []
    for _ in range(nesting.MAX_DEPTH - 2):
        deepest = [deepest]
    wrap = [
        {"op": "move", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a", "value": []},
        {"op": "move", "from": "/b", "path": "/a/-"},
    ]
    with pytest.raises(status.StatusError, match="the value to copy is nested deeper than 128 levels"):
        patch.apply_json_patch({"a": deepest}, [*wrap * 3, {"op": "copy", "from": "/a", "path": "/b"}])


# RFC 7386, appendix A: target, patch, result.
RFC_7386: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "change", "result"), RFC_7386)
def test_merge_patch(target, change, result):
    untouched = copy.deepcopy((target, change))
    assert patch.merge(target, change) == result
    assert (target, change) == untouched


def test_a_merge_patch_is_an_object():
    assert patch.apply_merge_patch({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(status.StatusError) as refused:
        patch.apply_merge_patch({"a": 1}, [])
    assert refused.value.code == 400


def test_a_pointer_is_bounded() -> None:
    within = "/" + "k" * (patch.MAX_POINTER - 1)
    assert patch.apply_json_patch({}, [{"op": "add", "path": within, "value": 1}]) == {within[1:]: 1}
    for member in ("path", "from"):
        with pytest.raises(status.StatusError, match=f'a "{member}" of 8193 characters') as refused:
            patch.apply_json_patch({}, [{"op": "copy", "path": "/a", "from": "/b", member: within + "k"}])
        assert refused.value.code == 400
