# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patch: lists by key, sets, the four directives and the order kubectl expects."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import status
from handfast.api.codec import nesting
from handfast.api.merging import strategic

POD = "core.v1.Pod"


def pod(*containers: Any, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def named(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def check(document: Any, patch: Any, result: Any, message: str = POD) -> None:
    untouched = copy.deepcopy((document, patch))
    assert strategic.apply_strategic(document, patch, message) == result
    assert (document, patch) == untouched


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({}, {}, {}),
        (
            {"metadata": {"name": "a"}},
            {"metadata": {"labels": {"x": "y"}}},
            {"metadata": {"name": "a", "labels": {"x": "y"}}},
        ),
        ({"metadata": {"labels": {"x": "y"}}}, {"metadata": {"labels": {"x": None}}}, {"metadata": {"labels": {}}}),
        ({"metadata": {"labels": {"x": "y"}}}, {"metadata": {"labels": None}}, {"metadata": {}}),
        (
            {"metadata": {"labels": {"x": "y"}}},
            {"metadata": {"labels": {"z": "1"}}},
            {"metadata": {"labels": {"x": "y", "z": "1"}}},
        ),
        # Nulls that meet nothing leave nothing behind.
        ({}, {"metadata": {"labels": {"x": None}, "name": None}}, {"metadata": {"labels": {}}}),
        # Fields the schema does not know merge plainly, and their lists are replaced.
        (
            {"odd": {"a": 1, "l": [1]}},
            {"odd": {"b": {"c": 2}, "l": [{"d": None, "e": 1}]}},
            {"odd": {"a": 1, "b": {"c": 2}, "l": [{"e": 1}]}},
        ),
        # A value of another type replaces.
        ({"metadata": {"labels": 7}}, {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": {"a": "b"}}}),
        ({"spec": {"containers": {}}}, pod({"name": "a"}), pod({"name": "a"})),
        ({"spec": {"nodeName": "a"}}, {"spec": {"nodeName": "b"}}, {"spec": {"nodeName": "b"}}),
        # A list without a strategy is replaced.
        (
            {"spec": {"tolerations": [{"key": "a"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
            {"spec": {"tolerations": [{"key": "b"}]}},
        ),
    ],
)
def test_a_patch_merges_as_the_schema_says(document, patch, result):
    check(document, patch, result)


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ([{"name": "a", "image": "1"}], [{"name": "a", "image": "2"}], [{"name": "a", "image": "2"}]),
        ([{"name": "a", "image": "1"}], [{"name": "a", "image": None}], [{"name": "a"}]),
        # New elements come first, as `kubectl patch` users know it.
        (named("a", "b"), named("c"), named("c", "a", "b")),
        (named("a", "b", "c"), named("c", "b"), named("a", "c", "b")),
        (named("a"), named("b", "b"), named("b", "a")),
        (named("a", "b"), [{"name": "a", "$patch": "delete"}], named("b")),
        (named("a", "b"), [{"name": "x", "$patch": "delete"}], named("a", "b")),
        (named("a", "b"), [{"$patch": "replace"}, {"name": "c"}], named("c")),
        (named("a", "b"), [{"$patch": "replace"}], []),
        (named("a"), [{"name": "a", "$patch": "merge", "image": "1"}], [{"name": "a", "image": "1"}]),
        ([], named("a"), named("a")),
        ([{"image": "keyless"}], named("a"), [{"name": "a"}, {"image": "keyless"}]),
        (
            [{"name": "a", "env": named("x", "y")}],
            [{"name": "a", "env": [{"name": "x", "$patch": "delete"}]}],
            [{"name": "a", "env": named("y")}],
        ),
    ],
)
def test_lists_with_a_merge_key(before, patch, after):
    check(pod(*before), pod(*patch), pod(*after))


def test_directives_that_meet_nothing_vanish():
    check(
        {},
        pod(
            {"name": "b", "$patch": "delete"},
            {"name": "a", "$retainKeys": ["name"], "env": [{"$patch": "merge", "name": "x"}]},
        ),
        pod({"name": "a", "env": named("x")}),
    )
    check({}, {"metadata": {"labels": {"$patch": "delete"}}}, {"metadata": {"labels": {}}})
    check({"metadata": {}}, {"metadata": {"labels": {"$patch": "delete"}}}, {"metadata": {}})


def test_object_directives():
    labels = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    check(labels, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}, {"metadata": {"labels": {"c": "3"}}})
    check(labels, {"metadata": {"labels": {"$patch": "delete", "c": "3"}}}, {"metadata": {"labels": {}}})
    check(
        labels, {"metadata": {"labels": {"$patch": "merge", "b": "3"}}}, {"metadata": {"labels": {"a": "1", "b": "3"}}}
    )


def test_retain_keys():
    before = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/a"}}]}}
    check(before, patch, {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}})
    strategy = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    change = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    check(strategy, change, {"spec": {"strategy": {"type": "Recreate"}}}, "apps.v1.Deployment")


def test_primitive_lists():
    before = {"metadata": {"finalizers": ["a", "b", "c"]}}
    check(before, {"metadata": {"finalizers": ["d"]}}, {"metadata": {"finalizers": ["d", "a", "b", "c"]}})
    check(before, {"metadata": {"finalizers": ["b"]}}, {"metadata": {"finalizers": ["a", "b", "c"]}})
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}}
    check(before, gone, {"metadata": {"finalizers": ["a", "c"]}})
    check({"metadata": {}}, gone, {"metadata": {}})
    both = {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["b"],
            "$setElementOrder/finalizers": ["c", "d"],
            "finalizers": ["d"],
        }
    }
    check(before, both, {"metadata": {"finalizers": ["a", "c", "d"]}})


@pytest.mark.parametrize(
    ("before", "patch", "order", "after"),
    [
        (named("a", "b"), None, ["b", "a"], named("b", "a")),
        (named("a", "b", "c"), named("d"), ["a", "b", "d", "c"], named("a", "b", "d", "c")),
        # Elements that only the server has keep their place before those they preceded.
        (named("s", "a", "t", "b", "u"), None, ["a", "b"], named("s", "a", "t", "b", "u")),
        (named("s", "a", "b"), named("c"), ["c", "b", "a"], named("c", "s", "b", "a")),
        (named("a", "b"), [{"name": "a", "$patch": "delete"}], ["b"], named("b")),
        (None, named("a", "b"), ["a", "b"], named("a", "b")),
        (None, None, ["a", "b"], None),
    ],
)
def test_element_order(before, patch, order, after):
    document: dict[str, Any] = {"spec": {} if before is None else {"containers": before}}
    spec: dict[str, Any] = {"$setElementOrder/containers": named(*order)}
    if patch is not None:
        spec["containers"] = patch
    check(document, {"spec": spec}, {"spec": {} if after is None else {"containers": after}})


def test_order_of_a_list_that_the_schema_does_not_know():
    check({"odd": [1, 2]}, {"$setElementOrder/odd": [2, 1]}, {"odd": [2, 1]})


def test_entries_of_a_map_of_messages_know_their_schema():
    crd = "apiextensions.v1.JSONSchemaProps"
    before = {"properties": {"a": {"x-kubernetes-validations": [{"rule": "1", "message": "x"}], "$ref": "r"}}}
    patch = {"properties": {"a": {"x-kubernetes-validations": [{"rule": "1", "reason": "y"}]}}}
    after = {
        "properties": {"a": {"x-kubernetes-validations": [{"rule": "1", "message": "x", "reason": "y"}], "$ref": "r"}}
    }
    check(before, patch, after, crd)


def test_values_without_fields_are_replaced_or_merged_plainly():
    check(
        {"spec": {"x": 1}},
        {"spec": {"ports": [{"port": 1, "targetPort": "a"}]}},
        {"spec": {"x": 1, "ports": [{"port": 1, "targetPort": "a"}]}},
        "core.v1.Service",
    )
    schema = {"properties": {"a": {"default": {"x": 1}}}}
    check(
        schema,
        {"properties": {"a": {"default": {"y": 2}}}},
        {"properties": {"a": {"default": {"x": 1, "y": 2}}}},
        "apiextensions.v1.JSONSchemaProps",
    )


@pytest.mark.parametrize(
    ("document", "patch", "message"),
    [
        ({}, [], "a strategic merge patch must be an object"),
        ({}, {"$patch": "spam"}, "unknown patch type: 'spam'"),
        ({}, {"$patch": ["replace"]}, "unknown patch type"),
        ({}, {"$retainKeys": "a"}, "invalid patch format of retainKeys"),
        ({}, {"$retainKeys": ["a"], "b": 1}, "invalid patch format of retainKeys"),
        (
            {"metadata": {}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
            "invalid patch format of primitive list",
        ),
        (
            {"metadata": {}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": [{}]}},
            "invalid patch format of primitive list",
        ),
        ({"a": [1]}, {"$setElementOrder/a": "x"}, "invalid patch format of setElementOrder list"),
        ({"a": [1]}, {"$setElementOrder/a": [[1]]}, "invalid patch format of setElementOrder list"),
        ({"a": [{}]}, {"$setElementOrder/a": [1]}, "invalid patch format of setElementOrder list"),
        (
            pod({"name": "a"}),
            {"spec": {"$setElementOrder/containers": ["a"]}},
            "invalid patch format of setElementOrder list",
        ),
        (pod({"name": "a"}), pod({"image": "x"}), "containers: an element does not contain declared merge key: name"),
        (pod({"name": "a"}), pod("a"), "containers: a list must hold either objects or scalars, not both"),
        (pod({"name": "a"}), pod(["a"]), "containers: lists of lists are not supported"),
        ({"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": ["b", {}]}}, "finalizers: a list must hold"),
        (
            {"metadata": {"finalizers": [{}]}},
            {"metadata": {"finalizers": [{}]}},
            "cannot merge lists without merge key for finalizers",
        ),
        (
            pod({"name": "a"}),
            {"spec": {"containers": named("b"), "$setElementOrder/containers": named("a")}},
            "The order in patch list containers doesn't match",
        ),
        (
            pod({"name": "a"}),
            {"spec": {"containers": named("b", "a"), "$setElementOrder/containers": named("a", "b")}},
            "The order in patch list containers doesn't match",
        ),
    ],
)
def test_a_malformed_patch_is_refused_in_kubernetes_words(document, patch, message):
    with pytest.raises(status.StatusError) as refused:
        strategic.apply_strategic(document, patch, POD)
    assert refused.value.code == 400
    assert refused.value.message.startswith(message)


def test_depth_is_bounded():
    patch: dict[str, Any] = {}
    for _ in range(nesting.MAX_DEPTH):
        patch = {"a": patch}
    with pytest.raises(status.StatusError) as refused:
        strategic.apply_strategic({}, patch, POD)
    assert refused.value.message == nesting.TOO_DEEP


def test_true_is_not_one_when_it_leaves_a_list():
    patch = {"$deleteFromPrimitiveList/x": [1]}
    assert strategic.apply_strategic({"x": [True, 1, {}]}, patch, "core.v1.Pod") == {"x": [True, {}]}


NAMES = [f"n{number}" for number in range(100_000)]
ALL = dict.fromkeys(NAMES, "")
# In Python all of these have the same hash.
HUGE = [number * (2**61 - 1) for number in range(1 << 63, (1 << 63) + 40_000)]


@pytest.mark.parametrize(
    ("document", "patch", "becomes"),
    [
        ({"data": ALL}, {"data": {"$retainKeys": NAMES, **ALL}}, {"data": ALL}),
        ({"x": NAMES}, {"$deleteFromPrimitiveList/x": NAMES}, {"x": []}),
        ({"x": HUGE}, {"$deleteFromPrimitiveList/x": HUGE}, {"x": []}),
        ({"metadata": {"finalizers": HUGE}}, {"metadata": {"finalizers": HUGE}}, {"metadata": {"finalizers": HUGE}}),
    ],
    ids=["retain", "delete", "collide", "merge"],
)
def test_time_grows_with_the_length_of_the_patch_only(document, patch, becomes):
    # Quadratic work would take many minutes: the limit of every test ends it.
    found = strategic.apply_strategic(document, patch, "core.v1.ConfigMap")
    # Not in the assertion: what differs would be printed, and is very long.
    same = found == becomes
    assert same
