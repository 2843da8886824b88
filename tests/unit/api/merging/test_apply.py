# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: merging, taking back, conflicts, the record, and its bookkeeping for ordinary writes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import status
from handfast.api.merging import apply, managed_fields, updates

T0, T1, T2 = (f"2026-01-01T00:00:0{second}Z" for second in range(3))


def config(data: Any = None, **metadata: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}}
    return document if data is None else {**document, "data": data}


def do_apply(
    live: Any,
    applied: Any,
    manager: str = "one",
    *,
    force: bool = False,
    types: Any = "core.v1.ConfigMap",
    now: str = T1,
    **rest: Any,
):
    untouched = copy.deepcopy((live, applied))
    document, managed = apply.server_side_apply(
        live, applied, manager=manager, force=force, types=types, api_version="v1", now_text=now, **rest
    )
    assert (live, applied) == untouched
    assert document["metadata"].get("managedFields", []) == managed
    return document


def update(before: Any, after: Any, manager: str = "writer", now: str = T2, **rest: Any):
    sent = after["metadata"].get("managedFields")
    untouched = copy.deepcopy((before, after))
    rows = updates.updated(
        before, after, sent, manager=manager, types="core.v1.ConfigMap", api_version="v1", now_text=now, **rest
    )
    assert (before, after) == untouched
    return rows


def entry(manager: str, fields: Any, operation: str = "Apply", time: str = T1) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def bare(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


def test_apply_creates():
    document = do_apply(
        None, config({"a": "1"}, labels={"x": "y"}, creationTimestamp=None, uid="u", resourceVersion="7")
    )
    assert bare(document) == config({"a": "1"}, labels={"x": "y"})
    assert document["metadata"]["managedFields"] == [
        entry("one", {"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}})
    ]


def test_the_same_again_changes_nothing():
    first = do_apply(None, config({"a": "1"}), now=T0)
    assert do_apply(first, config({"a": "1"}), now=T1) == first
    # Server-set fields and defaults do not matter either.
    served = {**first, "metadata": {**first["metadata"], "uid": "u", "resourceVersion": "3"}, "immutable": False}
    assert do_apply(served, config({"a": "1"}), now=T1) == served


def test_an_object_that_sets_nothing_is_not_tracked():
    first = do_apply(None, config())
    assert first == config()
    live = {**first, "data": {"a": "1"}}
    assert do_apply(live, config()) == live


def test_what_is_no_longer_applied_goes():
    first = do_apply(None, config({"a": "1", "b": "2"}, labels={"x": "y"}))
    second = do_apply(first, config({"a": "1"}), now=T2)
    assert bare(second) == config({"a": "1"})
    assert second["metadata"]["managedFields"] == [entry("one", {"f:data": {"f:a": {}}}, time=T2)]
    assert do_apply(second, config()) == config()


def test_what_another_owns_stays():
    first = do_apply(None, config({"a": "1", "b": "2"}))
    shared = do_apply(first, config({"a": "1"}), "two", now=T2)
    assert bare(shared) == bare(first)
    left = do_apply(shared, config({"b": "2"}), "one", now=T2)
    assert left["data"] == {"a": "1", "b": "2"}
    assert [each["fieldsV1"] for each in left["metadata"]["managedFields"]] == [
        {"f:data": {"f:b": {}}},
        {"f:data": {"f:a": {}}},
    ]


def test_a_map_that_another_holds_empty_stays():
    live = do_apply(do_apply(None, config({"a": "1"})), config({}), "two")
    assert bare(do_apply(live, config())) == config({})


def test_a_change_to_a_field_that_another_owns_is_a_conflict():
    live = do_apply(None, config({"a": "1", "b": "2"}))
    with pytest.raises(status.StatusError) as refused:
        do_apply(live, config({"a": "9"}), "two")
    assert refused.value.code == 409
    assert refused.value.reason == "Conflict"
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert refused.value.causes == (status.Cause("FieldManagerConflict", 'conflict with "one"', ".data.a"),)


def test_conflicts_with_several():
    live = do_apply(None, config({"a": "1", "b": "2", "c": "3"}), "one")
    live["metadata"]["managedFields"] += [
        {**entry("kubectl", {"f:data": {"f:a": {}}}, "Update"), "subresource": "status"},
        entry("kubectl", {"f:data": {"f:c": {}}}, "Update"),
    ]
    with pytest.raises(status.StatusError) as refused:
        do_apply(live, config({"a": "9", "b": "9"}), "two")
    assert refused.value.message == (
        'Apply failed with 3 conflicts: conflicts with "kubectl" with subresource "status" using v1:\n- .data.a\n'
        'conflicts with "one":\n- .data.a\n- .data.b'
    )
    assert len(refused.value.causes) == 3
    with pytest.raises(status.StatusError) as refused:
        do_apply(live, config({"a": "1", "b": "2", "c": "9"}), "one")
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "kubectl" using v1: .data.c'


def test_force_takes_over():
    live = do_apply(None, config({"a": "1", "b": "2"}))
    forced = do_apply(live, config({"a": "9"}), "two", force=True, now=T2)
    assert forced["data"] == {"a": "9", "b": "2"}
    assert forced["metadata"]["managedFields"] == [
        entry("one", {"f:data": {"f:b": {}}}),
        entry("two", {"f:data": {"f:a": {}}}, time=T2),
    ]
    # The first finds its own configuration in conflict now, and loses nothing by leaving the field out.
    with pytest.raises(status.StatusError, match='conflict with "two"'):
        do_apply(forced, config({"a": "1", "b": "2"}), "one")
    assert do_apply(forced, config({"b": "2"}), "one")["data"] == {"a": "9", "b": "2"}
    everything = do_apply(live, config({"a": "8", "b": "8"}), "two", force=True)
    assert [each["manager"] for each in everything["metadata"]["managedFields"]] == ["two"]


def test_equal_values_are_shared():
    live = do_apply(None, config({"a": "1"}))
    both = do_apply(live, config({"a": "1"}), "two")
    assert [each["manager"] for each in both["metadata"]["managedFields"]] == ["one", "two"]
    assert "a" in do_apply(both, config(), "one")["data"]


def test_the_first_apply_to_an_untracked_object():
    live = config({"a": "1", "b": "2"}, uid="u")
    with pytest.raises(status.StatusError) as refused:
        do_apply(live, config({"a": "9"}))
    assert refused.value.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    )
    document = do_apply(live, config({"a": "1", "c": "3"}))
    assert document["data"] == {"a": "1", "b": "2", "c": "3"}
    assert document["metadata"]["managedFields"] == [
        entry("one", {"f:data": {"f:a": {}, "f:c": {}}}),
        entry("before-first-apply", {"f:data": {".": {}, "f:a": {}, "f:b": {}}}, "Update"),
    ]


def test_lists_with_keys():
    def pod(*containers: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": list(containers)}}

    def order(document: Any) -> list[str]:
        return [each["name"] for each in document["spec"]["containers"]]

    types = "core.v1.Pod"
    first = do_apply(None, pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"}), types=types)
    second = do_apply(first, pod({"name": "s", "image": "1"}), "two", types=types)
    assert order(second) == ["a", "b", "s"]
    third = do_apply(
        second, pod({"name": "n"}, {"name": "b", "image": "2"}, {"name": "m"}, {"name": "a", "image": "1"}), types=types
    )
    assert order(third) == ["n", "b", "m", "a", "s"]
    assert third["spec"]["containers"][1] == {"name": "b", "image": "2"}
    fourth = do_apply(third, pod({"name": "a", "image": "1"}), types=types)
    assert order(fourth) == ["a", "s"]
    with pytest.raises(status.StatusError) as refused:
        do_apply(fourth, pod({"name": "a", "image": "3"}), "two", types=types)
    assert (
        refused.value.message == 'Apply failed with 1 conflict: conflict with "one": .spec.containers[name="a"].image'
    )
    # Another's part in an element keeps the element, though not what was only this applier's.
    shared = do_apply(fourth, pod({"name": "a", "tty": True}), "two", types=types)
    assert do_apply(shared, pod(), types=types)["spec"]["containers"] == [{"name": "a", "tty": True}]


def test_sets_and_atomic_lists():
    types = "core.v1.Pod"

    def pod(finalizers: Any, tolerations: Any) -> dict[str, Any]:
        metadata = {"name": "p", "finalizers": finalizers}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"tolerations": tolerations}}

    live = do_apply(None, pod(["a", "b"], [{"key": "x"}]), types=types)
    other = do_apply(live, pod(["c"], [{"key": "x"}]), "two", types=types)
    assert other["metadata"]["finalizers"] == ["a", "b", "c"]
    with pytest.raises(status.StatusError, match=r"conflict with \"one\": \.spec\.tolerations"):
        do_apply(other, pod(["c"], [{"key": "y"}]), "two", types=types)
    less = do_apply(
        other, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["b"]}}, types=types
    )
    assert less["metadata"]["finalizers"] == ["b", "c"]
    assert less["spec"] == {"tolerations": [{"key": "x"}]}
    none = do_apply(less, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, "two", types=types)
    assert "spec" not in none
    assert none["metadata"]["finalizers"] == ["b"]


def test_custom_resources():
    schema = {
        "properties": {
            "spec": {
                "properties": {
                    "rows": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "items": {}},
                    "plain": {},
                }
            }
        }
    }

    def row(**spec: Any) -> dict[str, Any]:
        return {"apiVersion": "x/v1", "kind": "R", "metadata": {"name": "r"}, "spec": spec}

    live = do_apply(None, row(rows=[{"id": 1, "v": 1}], plain=[1]), types=schema)
    both = do_apply(live, row(rows=[{"id": 2, "v": 1}]), "two", types=schema)
    assert both["spec"]["rows"] == [{"id": 1, "v": 1}, {"id": 2, "v": 1}]
    untyped = do_apply(None, row(rows=[{"id": 1}]), types=None)
    with pytest.raises(status.StatusError, match=r"\.spec\.rows"):
        do_apply(untyped, row(rows=[{"id": 2}]), "two", types=None)
    assert "spec" not in do_apply(untyped, {"apiVersion": "x/v1", "kind": "R", "metadata": {"name": "r"}}, types=None)


def test_a_value_that_changes_its_type():
    live = do_apply(None, {"metadata": {"name": "r"}, "spec": {"a": {"b": 1}}}, types=None)
    document = do_apply(live, {"metadata": {"name": "r"}, "spec": {"a": [1]}}, types=None)
    assert document["spec"] == {"a": [1]}
    with pytest.raises(status.StatusError, match=r"\.spec\.a$"):
        do_apply(document, {"metadata": {"name": "r"}, "spec": {"a": {"b": 2}}}, "two", types=None)
    forced = do_apply(document, {"metadata": {"name": "r"}, "spec": {"a": {"b": 2}}}, "two", types=None, force=True)
    assert forced["spec"] == {"a": {"b": 2}}
    assert do_apply(forced, {"metadata": {"name": "r"}, "spec": {"a": 7}}, "two", types=None)["spec"] == {"a": 7}


def test_what_was_taken_away_meanwhile_is_not_missed():
    live = do_apply(None, {"metadata": {"name": "r"}, "spec": {"a": {"b": {"c": 1}}, "d": 1}}, types=None)
    live = {**live, "spec": {"a": 7}}
    document = do_apply(live, {"metadata": {"name": "r"}, "spec": {"x": 1}}, types=None)
    assert document["spec"] == {"x": 1}
    fields = live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    del fields["f:a"]["."]
    fields["i:0"] = {}
    assert do_apply(live, {"metadata": {"name": "r"}, "spec": {"x": 1}}, types=None)["spec"] == {"a": 7, "x": 1}


def test_elements_that_a_live_list_has_twice_are_left_alone():
    def pod(*env: Any) -> dict[str, Any]:
        return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "env": list(env)}]}}

    one, again, other = {"name": "E", "value": "1"}, {"name": "E", "value": "2"}, {"name": "F", "value": "1"}
    document = do_apply(pod(one, again), pod(one, other), types="core.v1.Pod")
    assert document["spec"]["containers"][0]["env"] == [one, other, again]
    assert do_apply(document, pod(one, other), types="core.v1.Pod") == document


def test_another_version_is_the_same_applier():
    live = do_apply(None, config({"a": "1"}), now=T0)
    live["metadata"]["managedFields"][0]["apiVersion"] = "v1beta1"
    assert do_apply(live, config({"a": "1"}), now=T1)["metadata"]["managedFields"] == [
        entry("one", {"f:data": {"f:a": {}}})
    ]


def test_a_subresource_is_another_applier():
    live = do_apply(None, config({"a": "1"}), now=T0)
    document = do_apply(live, config({"b": "1"}), subresource="status")
    assert document["data"] == {"a": "1", "b": "1"}
    assert document["metadata"]["managedFields"][1]["subresource"] == "status"


@pytest.mark.parametrize(
    ("applied", "message"),
    [
        ([], "an applied configuration must be an object"),
        ({"metadata": 7}, "metadata must be an object"),
        (config(managedFields=[{"manager": "x"}]), "metadata.managedFields must be nil"),
        (
            config(ownerReferences=[{"name": "x"}]),
            'failed to create typed patch object: .metadata.ownerReferences: element 0: associative list with keys has an element that omits key field "uid" (and doesn\'t have default value)',
        ),
        (config(ownerReferences=["x"]), "failed to create typed patch object: .metadata.ownerReferences: element 0: "),
        (
            config(ownerReferences=[{"uid": "1"}, {"uid": "1"}]),
            'failed to create typed patch object: .metadata.ownerReferences: duplicate entries for key [uid="1"]',
        ),
        (
            config(finalizers=["a", "a"]),
            'failed to create typed patch object: .metadata.finalizers: duplicate entries for key [="a"]',
        ),
    ],
)
def test_refused_configurations(applied, message):
    with pytest.raises(status.StatusError) as refused:
        do_apply(None, applied)
    assert refused.value.code == 400
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    "rows",
    [
        "x",
        ["x"],
        [{"manager": "a", "operation": "Spam", "fieldsV1": {}}],
        [{"manager": 1, "operation": "Apply", "fieldsV1": {}}],
        [{"manager": "a", "operation": "Apply", "fieldsV1": {"x": {}}}],
    ],
)
def test_a_malformed_record_counts_as_none(rows):
    assert managed_fields.read_entries({"metadata": {"managedFields": rows}}) == []
    document = do_apply(config({"a": "1"}, managedFields=rows), config({"b": "2"}))
    assert [each["manager"] for each in document["metadata"]["managedFields"]] == ["one", "before-first-apply"]


def test_no_record_at_all():
    assert managed_fields.read_entries(None) == []
    assert managed_fields.read_entries({"metadata": 7}) == []


def test_old_updates_are_folded_into_one():
    live = do_apply(None, config({"a": "1"}), now=T0)
    times = [f"2026-01-01T00:01:{second:02}Z" for second in range(30)]
    for number, now in enumerate(times):
        after = copy.deepcopy(live)
        after["data"][f"k{number:02}"] = "v"
        after["metadata"]["managedFields"] = update(live, after, f"w{number:02}", now, subresource="x")
        live = after
    rows = live["metadata"]["managedFields"]
    assert [row["manager"] for row in rows] == ["one", "ancient-changes", *(f"w{n}" for n in range(21, 30))]
    folded: dict[str, Any] = {"f:data": {f"f:k{number:02}": {} for number in range(21)}}
    assert rows[1] == entry("ancient-changes", folded, "Update", times[20])
    with pytest.raises(status.StatusError, match=r'conflict with "ancient-changes" using v1: \.data\.k03'):
        do_apply(live, config({"a": "1", "k03": "mine"}))
    again = do_apply(live, config({"a": "1"}), now=T0)
    assert again["metadata"]["managedFields"] == rows


def test_who_writes_now_is_not_folded_away_by_others_of_the_same_second():
    live = do_apply(None, config({"a": "1"}))
    for number in range(20):
        after = copy.deepcopy(live)
        after["data"][f"k{number}"] = "v"
        after["metadata"]["managedFields"] = update(live, after, f"w{number}")
        live = after
        managers = [row["manager"] for row in after["metadata"]["managedFields"]]
        assert f"w{number}" in managers
        assert len(managers) <= 1 + managed_fields.MAX_UPDATERS


def test_appliers_are_bounded(monkeypatch):
    monkeypatch.setattr(managed_fields, "MAX_APPLIERS", 3)
    live = None
    for number in range(3):
        live = do_apply(live, config({f"k{number}": "v"}), f"m{number}")
    with pytest.raises(status.StatusError, match=r"too many field managers .*\(4, allowed: 3\)") as caught:
        do_apply(live, config({"x": "v"}), "m3", force=True)
    assert caught.value.code == 400
    # Those who are there go on, also in a record that is longer from before.
    assert do_apply(live, config({"k1": "w"}), "m1")["data"] == {"k0": "v", "k1": "w", "k2": "v"}
    assert live is not None
    rows = [*live["metadata"]["managedFields"], entry("m9", {"f:data": {"f:z": {}}})]
    with pytest.raises(status.StatusError, match="too many field managers"):
        update(live, config({"a": "b"}, managedFields=rows))
    long = config({"z": "v"}, managedFields=rows)
    assert len(update(long, {**long, "data": {"z": "v", "n": "w"}})) == 5
    assert do_apply(long, config({"k1": "w"}), "m1")["data"] == {"z": "v", "k1": "w"}


def test_a_manager_does_not_conflict_with_itself_across_status():
    live = do_apply(None, config({"a": "1"}, labels={"x": "1"}), subresource="status")
    assert do_apply(live, config(labels={"x": "2"}))["metadata"]["labels"] == {"x": "2"}
    with pytest.raises(
        status.StatusError, match=r'conflict with "one" with subresource "status": \.metadata\.labels\.x'
    ):
        do_apply(live, config(labels={"x": "2"}), "two")
    # Another door, or another way to write, is somebody else, as in Kubernetes.
    with pytest.raises(status.StatusError, match='conflict with "one" with subresource "status"'):
        do_apply(live, config(labels={"x": "2"}), subresource="scale")
    written = {**live, "metadata": {**live["metadata"], "managedFields": update(live, config({"a": "2"}), "one")}}
    with pytest.raises(status.StatusError, match=r'conflict with "one" using v1: \.data\.a'):
        do_apply(written, config({"a": "3"}))


def test_what_a_write_leaves_alone_is_neither_merged_nor_owned():
    applied = {"metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"replicas": 9}}
    live = {"metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"replicas": 3}}
    document = do_apply(live, applied, types="apps.v1.Deployment", ignored={"status": frozenset()})
    assert document["status"] == {"replicas": 3}
    assert [(row["manager"], row["fieldsV1"]) for row in document["metadata"]["managedFields"]] == [
        ("one", {"f:spec": {"f:replicas": {}}}),
        ("before-first-apply", {"f:spec": {"f:replicas": {}}}),
    ]
