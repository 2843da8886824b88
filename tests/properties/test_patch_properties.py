# SPDX-License-Identifier: Apache-2.0
"""Patches of all three kinds: inputs stay as they were, and a difference applied gives the target."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.api import status
from handfast.api.codec import nesting
from handfast.api.merging import patch, strategic

names = st.sampled_from(["a", "b", "c", "~", "/", "0"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["", "x"]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
documents = st.dictionaries(names, values, max_size=4)
pointers = st.lists(st.sampled_from(["a", "b", "c", "~0", "~1", "0", "1", "-"]), max_size=3).map(
    lambda tokens: "".join("/" + token for token in tokens)
)
operations = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        "path": pointers,
        "from": pointers,
        "value": values,
    }
)


def _pointers(value: Any, pointer: str = "") -> Iterator[str]:
    yield pointer
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _pointers(child, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")


@st.composite
def patched(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A document and a patch of it. Most pointers lead somewhere in it: of any others hardly a patch would apply."""
    document = draw(documents)
    aimed = st.sampled_from(list(_pointers(document)))
    changes = draw(st.lists(operations, max_size=4))
    for change in changes:
        change["from"] = draw(aimed)
        change["path"] = draw(aimed | aimed.map("{}/a".format) | pointers)
    return document, changes


@settings(max_examples=80)
@given(patched())
def test_json_patch_changes_no_input(drawn):
    document, changes = drawn
    untouched = copy.deepcopy((document, changes))
    with contextlib.suppress(status.StatusError):
        result = patch.apply_json_patch(document, changes)
        # One operation at a time, with copies between, must come to the same.
        slowly = document
        for change in changes:
            slowly = patch.apply_json_patch(copy.deepcopy(slowly), [change]) if isinstance(slowly, dict) else slowly
        assert patch.json_equal(result, slowly)
    assert patch.json_equal(list(untouched), [document, changes])


@settings(max_examples=80)
@given(patched(), st.one_of(operations, values, st.lists(values, max_size=2), st.none()))
def test_any_json_patch_is_applied_or_refused(drawn, junk):
    document, changes = drawn
    untouched = copy.deepcopy(document)
    with contextlib.suppress(status.StatusError):
        result = patch.apply_json_patch(document, changes if junk is None else junk)
        assert isinstance(result, dict)
        assert not nesting.is_too_deep(result)
    assert patch.json_equal(document, untouched)


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    change: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if isinstance(value, dict) and isinstance(before.get(key), dict):
            change[key] = _difference(before[key], value)
        elif key not in before or not patch.json_equal(before[key], value):
            change[key] = value
    return change


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return value


@settings(max_examples=80)
@given(documents, documents)
def test_a_merge_patch_gives_the_target(before, after):
    before, after = _without_nulls(before), _without_nulls(after)
    untouched = copy.deepcopy(before)
    assert patch.json_equal(patch.apply_merge_patch(before, _difference(before, after)), after)
    assert patch.json_equal(before, untouched)


def _keyed(key: str, fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    element = st.fixed_dictionaries({key: st.sampled_from("abcd")}, optional=fields)
    return st.lists(element, max_size=4, unique_by=lambda each: each[key])


env = _keyed("name", {"value": st.sampled_from("xy")})
containers = _keyed("name", {"image": st.sampled_from("xy"), "env": env, "args": st.lists(st.sampled_from("xy"))})
labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=2)
finalizers = st.lists(st.sampled_from("abcd"), max_size=4, unique=True)
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({}, optional={"labels": labels, "finalizers": finalizers}),
        "spec": st.fixed_dictionaries({}, optional={"containers": containers, "nodeName": st.sampled_from("xy")}),
    }
)


def _strategic(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """A patch as kubectl would make it: by key where there is one, with the order of the target."""
    change: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        was = before.get(key)
        if was == value:
            continue
        if isinstance(value, dict) and isinstance(was, dict):
            change[key] = _strategic(was, value)
        elif key == "finalizers" and isinstance(was, list):
            change["$setElementOrder/finalizers"] = value
            change["$deleteFromPrimitiveList/finalizers"] = [each for each in was if each not in value]
            change[key] = [each for each in value if each not in was]
        elif key in {"containers", "env"} and isinstance(was, list):
            there = {each["name"]: each for each in was}
            wanted = {each["name"]: each for each in value}
            change["$setElementOrder/" + key] = [{"name": name} for name in wanted]
            change[key] = [{**_strategic(there.get(name, {}), each), "name": name} for name, each in wanted.items()]
            change[key] += [{"name": name, "$patch": "delete"} for name in there if name not in wanted]
        else:
            change[key] = value
    return change


@settings(max_examples=80)
@given(pods, pods)
def test_a_strategic_patch_gives_the_target(before, after):
    change = _strategic(before, after)
    untouched = copy.deepcopy((before, change))
    assert strategic.apply_strategic(before, change, "core.v1.Pod") == after
    assert (before, change) == untouched


directives = st.sampled_from(
    [
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "$setElementOrder/a",
    ]
)
wild = st.recursive(
    st.one_of(scalars, st.sampled_from(["delete", "replace", "merge", "a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(directives, st.sampled_from(["metadata", "spec", "containers", "finalizers", "name", "a"])),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=10,
)


@settings(max_examples=80)
@given(wild, wild)
def test_any_strategic_patch_is_applied_or_refused(document, change):
    document = document if isinstance(document, dict) else {"metadata": document, "spec": {"containers": document}}
    untouched = copy.deepcopy((document, change))
    for tried in (change, {"spec": {"containers": change}}, {"metadata": {"finalizers": change}}):
        with contextlib.suppress(status.StatusError):
            assert isinstance(strategic.apply_strategic(document, tried, "core.v1.Pod"), dict)
    assert (document, change) == untouched
