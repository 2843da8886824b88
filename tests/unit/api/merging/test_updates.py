# SPDX-License-Identifier: Apache-2.0
"""Who owns what after creates, updates and patches. Applying is `test_apply`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from handfast.api import kinds, status
from handfast.api.codec import bounds
from handfast.api.merging import managed_fields, updates

T0, T1, T2 = (f"2026-01-01T00:00:0{second}Z" for second in range(3))
CONFIG_MAP = "core.v1.ConfigMap"


def config(data: Any = None, **metadata: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}}
    return document if data is None else {**document, "data": data}


def entry(manager: str, fields: Any, operation: str = "Update", time: str = T1, **rest: Any) -> dict[str, Any]:
    row = {"manager": manager, "operation": operation, "apiVersion": "v1", "time": time}
    return {**row, "fieldsType": "FieldsV1", "fieldsV1": fields, **rest}


def create(document: Any, sent: Any = None, *, types: Any = CONFIG_MAP, ignored: Any = None, manager: str = "maker"):
    untouched = copy.deepcopy((document, sent))
    rows = updates.created(
        document, sent, manager=manager, types=types, api_version="v1", now_text=T1, ignored=ignored or {}
    )
    assert (document, sent) == untouched
    return rows


def made(data: Any, **metadata: Any) -> dict[str, Any]:
    """A ConfigMap that `maker` has created."""
    document = config(data, **metadata)
    document["metadata"]["managedFields"] = create(document)
    return document


def update(
    before: Any,
    after: Any,
    manager: str = "writer",
    now: str = T2,
    *,
    sent: Any = None,
    types: Any = CONFIG_MAP,
    subresource: str = "",
):
    untouched = copy.deepcopy((before, after, sent))
    rows = updates.updated(
        before,
        after,
        sent,
        manager=manager,
        types=types,
        api_version="v1",
        now_text=now,
        subresource=subresource,
    )
    assert (before, after, sent) == untouched
    return rows


def test_a_new_object_is_its_creators():
    document = config(
        {"x": "1", "y": "1"},
        namespace="default",
        uid="u",
        creationTimestamp=T0,
        generation=1,
        labels={"l": "1"},
        generateName="c-",
        finalizers=["a.b/c"],
        ownerReferences=[{"uid": "u", "name": "o"}],
    )
    assert create(document) == [
        entry(
            "maker",
            {
                "f:data": {".": {}, "f:x": {}, "f:y": {}},
                "f:metadata": {
                    "f:labels": {".": {}, "f:l": {}},
                    "f:generateName": {},
                    "f:finalizers": {".": {}, 'v:"a.b/c"': {}},
                    "f:ownerReferences": {".": {}, 'k:{"uid":"u"}': {}},
                },
            },
        )
    ]


def test_an_object_with_nothing_to_own_has_no_record():
    assert create(config()) == []
    assert create({"metadata": 7}) == [entry("maker", {"f:metadata": {}})]


def test_what_a_write_leaves_alone_is_nobodys():
    document = {
        "metadata": {"name": "w"},
        "spec": {"request": "r", "username": "me"},
        "status": {"conditions": [{"type": "Approved"}]},
    }
    ignored = {"status": frozenset(), "spec": frozenset({"username"}), "other": frozenset({"x"})}
    types = "certificates.v1.CertificateSigningRequest"
    assert create(document, types=types, ignored=ignored) == [entry("maker", {"f:spec": {"f:request": {}}})]


def test_frames_that_are_always_there_are_nobodys():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "resources": {}}]}}
    spec = {"replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 1}}, "template": template}
    container: dict[str, Any] = {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:resources": {}}}
    assert create({"metadata": {}, "spec": spec, "status": {}}, types="apps.v1.Deployment")[0]["fieldsV1"] == {
        "f:spec": {
            "f:replicas": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:containers": container}},
        }
    }
    assert create({"metadata": {}, "status": {"loadBalancer": {}}}, types="core.v1.Service") == []
    # A ReplicationController may be without a template: all of it was added, its frames included.
    rows = create({"metadata": {}, "spec": {"template": template}}, types="core.v1.ReplicationController")
    assert rows[0]["fieldsV1"] == {
        "f:spec": {
            "f:template": {
                ".": {},
                "f:metadata": {".": {}, "f:labels": {".": {}, "f:a": {}}},
                "f:spec": {".": {}, "f:containers": {".": {}, **container}},
            }
        }
    }


def test_of_a_custom_object_lists_and_maps_are_owned_as_its_schema_says():
    types = {
        "properties": {
            "spec": {
                "properties": {
                    "l": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {}},
                    "s": {"x-kubernetes-list-type": "set"},
                    "at": {"type": "array"},
                    "o": {"x-kubernetes-map-type": "atomic"},
                }
            }
        }
    }
    spec = {"l": [{"k": 1, "v": 2}], "s": ["p"], "at": ["z"], "o": {"a": "1"}, "free": {"in": [1]}}
    assert create({"metadata": {}, "spec": spec}, types=types)[0]["fieldsV1"] == {
        "f:spec": {
            ".": {},
            "f:l": {".": {}, 'k:{"k":1}': {".": {}, "f:k": {}, "f:v": {}}},
            "f:s": {".": {}, 'v:"p"': {}},
            "f:at": {},
            "f:o": {},
            "f:free": {".": {}, "f:in": {}},
        }
    }


def test_a_record_that_comes_with_a_new_object():
    sent = [entry("own", {"f:data": {"f:x": {}, "f:gone": {}}}), entry("maker", {"f:data": {"f:old": {}}}, time=T0)]
    # Of what is there everything is the creator's; what somebody owned elsewhere stays.
    assert create(config({"x": "1"}), sent) == [
        entry("maker", {"f:data": {".": {}, "f:x": {}}}),
        entry("own", {"f:data": {"f:gone": {}}}),
    ]
    cleared: list[Any] = [[], [{}], ["garbage"], None]
    for none in cleared:
        assert create(config({"x": "1"}), none) == [entry("maker", {"f:data": {".": {}, "f:x": {}}})]


def test_an_update_takes_what_it_changes_and_nobody_has_what_went():
    live = made({"x": "1", "y": "1", "z": "1"}, labels={"l": "1"})
    after = config({"x": "2", "y": "1", "n": "1"}, labels={"l": "1"}, annotations={"q": "r"}, resourceVersion="7")
    assert update(live, after) == [
        entry("maker", {"f:data": {".": {}, "f:y": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}),
        entry(
            "writer",
            {"f:data": {"f:x": {}, "f:n": {}}, "f:metadata": {"f:annotations": {".": {}, "f:q": {}}}},
            time=T2,
        ),
    ]


def test_an_update_that_changes_nothing_leaves_the_record_as_it_is():
    live = made({"x": "1"})
    assert update(live, config({"x": "1"}), "idle") == live["metadata"]["managedFields"]


def test_the_time_moves_with_a_change_of_ones_own():
    live = made({"x": "1", "y": "1"})
    assert update(live, config({"x": "2", "y": "1"}), "maker") == [
        entry("maker", {"f:data": {".": {}, "f:x": {}, "f:y": {}}}, time=T2)
    ]
    # Taking something away is no change of what one owns.
    assert update(live, config({"x": "1"}), "maker") == [entry("maker", {"f:data": {".": {}, "f:x": {}}})]
    # Both at once.
    assert update(live, config({"x": "2"}), "maker") == [entry("maker", {"f:data": {".": {}, "f:x": {}}}, time=T2)]


def test_a_row_that_loses_nothing_is_not_read():
    strange = entry("old", {"f:data": {"f:x": {"not a path": {}}}})
    live = config({"x": "1", "y": "1"}, managedFields=[strange])
    assert update(live, config({"x": "1", "y": "2"})) == [strange, entry("writer", {"f:data": {"f:y": {}}}, time=T2)]


@pytest.mark.parametrize("fields", [{"f:data": {"f:y": {}, "odd": {}}}, {"f:data": 7}, 7])
def test_a_row_that_cannot_be_read_and_loses_something_goes(fields):
    live = config({"x": "1", "y": "1"}, managedFields=[entry("old", fields), entry("writer", {"f:data": 7})])
    assert update(live, config({"x": "1", "y": "2"})) == [entry("writer", {"f:data": {"f:y": {}}}, time=T2)]


def test_who_has_lost_everything_is_no_longer_in_the_record():
    live = made({"x": "1"})
    assert update(live, config({})) == [entry("maker", {"f:data": {}})]
    assert update(live, config()) == []
    applied = [entry("one", {"f:data": {"f:x": {}}}, "Apply")]
    live = config({"x": "1"}, managedFields=applied)
    assert update(live, config({"x": "2"})) == [entry("writer", {"f:data": {"f:x": {}}}, time=T2)]


def test_an_object_without_a_record_gets_none():
    assert update(config({"a": "1"}), config({"a": "2"})) == []


def test_each_subresource_has_a_row_of_its_own():
    live: dict[str, Any] = {"metadata": {"name": "d"}, "spec": {"replicas": 1}}
    types = "apps.v1.Deployment"
    live["metadata"]["managedFields"] = create(live, types=types)
    scaled = {**live, "spec": {"replicas": 2}}
    rows = update(live, scaled, "maker", types=types, subresource="scale")
    assert rows == [entry("maker", {"f:spec": {"f:replicas": {}}}, time=T2, subresource="scale")]
    after = {**scaled, "metadata": {"name": "d", "managedFields": rows}, "status": {"replicas": 2}}
    assert update({**scaled, "metadata": after["metadata"]}, after, "maker", types=types, subresource="status") == [
        *rows,
        entry("maker", {"f:status": {"f:replicas": {}}}, time=T2, subresource="status"),
    ]


def test_a_writer_may_clear_or_rewrite_the_record():
    live = made({"a": "1"})
    cleared: list[list[Any]] = [[], [{}]]
    for empty in cleared:
        assert update(live, config({"a": "2"}), sent=empty) == []
        # … but not through a subresource.
        assert update(live, config({"a": "1"}), sent=empty, subresource="status") == live["metadata"]["managedFields"]
    renamed = [entry("two", {"f:data": {"f:a": {}}}, "Apply")]
    assert update(live, config({"a": "1"}), sent=renamed) == renamed
    assert update(config({"a": "1"}), config({"a": "1"}), sent=renamed) == renamed
    # As it was read: nothing is read again.
    assert (
        update(live, config({"a": "1"}), sent=copy.deepcopy(live["metadata"]["managedFields"]))
        is (live["metadata"]["managedFields"])
    )


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "Bogus"},
        {"operation": 7},
        {"apiVersion": ""},
        {"fieldsType": "FieldsV2"},
        {"manager": "m" * 129},
        {"manager": "a\x01b"},
        {"fieldsV1": {"x": {}}},
    ],
)
def test_a_record_that_cannot_be_read_counts_as_not_sent(change):
    live = made({"a": "1"})
    sent = [entry("fine", {"f:data": {"f:a": {}}}), {**entry("two", {"f:data": {"f:a": {}}}), **change}]
    assert update(live, config({"a": "1"}), sent=sent) == live["metadata"]["managedFields"]


def test_old_updates_become_one_and_who_writes_now_stays():
    live = made({"k": "0"})
    for number in range(1, 13):
        after = config({**live["data"], f"k{number}": "1"})
        after["metadata"]["managedFields"] = update(live, after, f"w{number:02}", T1)
        live = after
    rows = live["metadata"]["managedFields"]
    # As a stock API server has it, for names in this order.
    assert [row["manager"] for row in rows] == ["ancient-changes", *(f"w{number:02}" for number in range(4, 13))]
    assert rows[0] == entry("ancient-changes", {"f:data": {".": {}, "f:k": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}})
    # One whose name is the first of all, in the same second.
    after = config({**live["data"], "k3": "2"})
    names = [row["manager"] for row in update(live, after, "a", T1)]
    assert "a" in names
    assert len(names) == managed_fields.MAX_UPDATERS


def test_appliers_that_a_client_writes_down_are_bounded(monkeypatch):
    monkeypatch.setattr(managed_fields, "MAX_APPLIERS", 3)
    four = [entry(f"m{number}", {"f:data": {f"f:k{number}": {}}}, "Apply") for number in range(4)]
    with pytest.raises(status.StatusError, match=r"too many field managers .*\(4, allowed: 3\)"):
        update(made({"a": "1"}), config({"a": "1"}), sent=four)
    with pytest.raises(status.StatusError, match="too many field managers"):
        create(config({"a": "1"}), four)
    # A record that is longer from before goes on.
    long = config({"a": "1"}, managedFields=four)
    assert len(update(long, config({"a": "2"}))) == 5


def test_a_record_that_nobody_can_have_got_here_is_not_read(monkeypatch):
    """14,000 entries took more than a second."""
    rows = [entry(f"m{number}", {"f:data": {"f:k": {}}}) for number in range(managed_fields.MAX_ROWS + 1)]
    create(config({"a": "1"}), rows[1:])
    monkeypatch.setattr(managed_fields, "read_row", None)
    with pytest.raises(status.StatusError, match=r"metadata.managedFields: too many entries \(267, allowed: 266\)"):
        create(config({"a": "1"}), rows)
    with pytest.raises(status.StatusError, match="too many entries"):
        update(made({"a": "1"}), config({"a": "1"}), sent=rows)


def test_a_change_of_type_is_a_change_of_all_that_was_there():
    live: dict[str, Any] = {"metadata": {"name": "w"}, "spec": {"a": {"b": 1}, "n": 1}}
    live["metadata"]["managedFields"] = create(live, types=None)
    rows = update(live, {"metadata": {"name": "w"}, "spec": {"a": ["b"], "n": True}}, types=None)
    assert rows == [
        entry("maker", {"f:spec": {}}),
        entry("writer", {"f:spec": {"f:a": {}, "f:n": {}}}, time=T2),
    ]


def test_an_empty_frame_that_is_put_in_changes_nothing():
    live: dict[str, Any] = {"metadata": {"name": "d"}, "spec": {"replicas": 1}}
    live["metadata"]["managedFields"] = create(live, types="apps.v1.Deployment")
    after = {"metadata": {"name": "d"}, "spec": {"replicas": 1, "strategy": {}}}
    assert update(live, after, types="apps.v1.Deployment") == live["metadata"]["managedFields"]


def test_many_who_apply_keep_nobody_from_updating():
    rows = [entry(f"a{number}", {"f:data": {f"f:{number}": {}}}, "Apply") for number in range(256)]
    rows += [entry(f"u{number}", {"f:data": {f"f:u{number}": {}}}) for number in range(10)]
    before = config({"a": "1"}, managedFields=rows)
    after = config({"a": "2"}, managedFields=update(before, config({"a": "2"}), "node"))
    assert any(row["manager"] == "node" for row in after["metadata"]["managedFields"])
    assert bounds.items(kinds.row("configmaps"), after) == []
