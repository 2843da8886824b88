# SPDX-License-Identifier: Apache-2.0
"""Server-side apply and sets of fields: idempotence, taking back, and the laws of sets."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.api import status
from handfast.api.merging import apply, differences, fieldsets, managed_fields, shapes, updates

letters = st.sampled_from("abcd")
env = st.lists(
    st.fixed_dictionaries({"name": letters}, optional={"value": letters}),
    max_size=3,
    unique_by=lambda each: each["name"],
)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": letters}, optional={"image": letters, "env": env, "args": st.lists(letters, max_size=2)}
    ),
    max_size=3,
    unique_by=lambda each: each["name"],
)
metadata = st.fixed_dictionaries(
    {"name": st.just("p")},
    optional={
        "labels": st.dictionaries(letters, letters, max_size=3),
        "finalizers": st.lists(letters, max_size=3, unique=True),
    },
)
spec = st.fixed_dictionaries(
    {},
    optional={
        "containers": containers,
        "nodeName": letters,
        "nodeSelector": st.dictionaries(letters, letters, max_size=2),
        "tolerations": st.lists(st.fixed_dictionaries({"key": letters}), max_size=2),
        "odd": st.dictionaries(letters, st.dictionaries(letters, st.integers(0, 2), max_size=2), max_size=2),
    },
)
pods = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("Pod"), "metadata": metadata}, optional={"spec": spec}
)
types = st.sampled_from(["core.v1.Pod", None])


def _apply(live: Any, applied: Any, of: Any, manager: str = "one", now: str = "t1") -> dict[str, Any]:
    untouched = copy.deepcopy((live, applied))
    document, managed = apply.server_side_apply(
        live, applied, manager=manager, force=True, types=of, api_version="v1", now_text=now
    )
    assert (live, applied) == untouched
    assert document["metadata"].get("managedFields", []) == managed
    return document


def _bare(document: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": rest}


@settings(max_examples=80)
@given(st.one_of(st.none(), pods), pods, types)
def test_applying_the_same_again_changes_nothing(live, applied, of):
    once = _apply(live, applied, of)
    assert _apply(once, applied, of, now="t2") == once


@settings(max_examples=80)
@given(pods, pods, types)
def test_the_only_applier_gets_what_it_applies(before, after, of):
    assert _bare(_apply(_apply(None, before, of), after, of)) == after


@settings(max_examples=80)
@given(pods, pods, types)
def test_who_comes_and_goes_takes_nothing_of_others(first, second, of):
    shape = shapes.shape_of(of)
    alone = _apply(None, first, of)
    both = _apply(alone, second, of, "two")
    left = _apply(both, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, of, "two")
    there = fieldsets.FieldSet.of(_bare(left), shape)
    owned = {entry.manager: entry.fields for entry in managed_fields.read_entries(both)}
    owned.pop("two", None)
    # Nobody but the first is left, and owns what it owned; and all of it is there.
    assert {entry.manager: entry.fields for entry in managed_fields.read_entries(left)} == owned
    for fields in owned.values():
        for path in fields.paths():
            tree = there.tree
            for element in path:
                tree = tree[element]
    taken = fieldsets.FieldSet.of(_bare(both), shape).difference(fieldsets.FieldSet.of(_bare(alone), shape))
    assert not there.intersection(taken)


@settings(max_examples=80)
@given(pods, pods, types)
def test_without_force_applying_succeeds_or_conflicts(first, second, of):
    live = _apply(None, first, of)
    with contextlib.suppress(status.StatusError):
        document, _ = apply.server_side_apply(
            live, second, manager="two", force=False, types=of, api_version="v1", now_text="t2"
        )
        # Nobody lost anything: applying the first again could at most put elements back into its order.
        again = _apply(document, first, of)
        assert differences.compare(document, again, shapes.shape_of(of)) == (
            fieldsets.FieldSet(),
            fieldsets.FieldSet(),
        )
        return
    with pytest.raises(status.StatusError) as refused:
        apply.server_side_apply(live, second, manager="two", force=False, types=of, api_version="v1", now_text="t2")
    assert refused.value.reason == "Conflict"
    assert refused.value.causes


@settings(max_examples=80)
@given(pods, pods, types)
def test_an_update_owns_what_differs(before, after, of):
    live = _apply(None, before, of)
    wanted = {**after, "metadata": {**after["metadata"], "managedFields": live["metadata"].get("managedFields", [])}}
    rows = updates.updated(live, wanted, None, manager="two", types=of, api_version="v1", now_text="t2")
    changed, removed = differences.compare(live, wanted, shapes.shape_of(of))
    entries = managed_fields.read_entries({"metadata": {"managedFields": rows}})
    for entry in entries:
        assert not entry.fields.intersection(removed)
        assert entry.fields.intersection(changed) == (changed if entry.manager == "two" else fieldsets.FieldSet())
    # What nobody applied has no owners, and gets none.
    is_tracked = "managedFields" in live["metadata"]
    assert ("two" in {entry.manager for entry in entries}) is (is_tracked and bool(changed))


elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "i:0"])
raw: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.one_of(st.just("."), elements), inner, max_size=4), max_leaves=12
)
sets = raw.map(lambda tree: fieldsets.FieldSet.parse(_marked(tree)))


def _marked(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: {} if name == "." else _marked(below) for name, below in tree.items()}


@settings(max_examples=80)
@given(sets, sets)
def test_the_laws_of_sets(one, other):
    ones, others = set(one.paths()), set(other.paths())
    assert set(one.union(other).paths()) == ones | others
    assert set(one.intersection(other).paths()) == ones & others
    assert set(one.difference(other).paths()) == ones - others
    assert fieldsets.FieldSet.parse(one.fields_v1()) == one
