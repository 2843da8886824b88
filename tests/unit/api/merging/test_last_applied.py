# SPDX-License-Identifier: Apache-2.0
"""kubectl's own record of what it applied: what it may change without a conflict, and how the record follows."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from handfast.api import status
from handfast.api.merging import apply, last_applied, shapes, updates

T1 = "2026-01-01T00:00:01Z"


def config(data: Any, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}, "data": data}


def client_applied(data: Any, text: str | None = None) -> dict[str, Any]:
    """As `kubectl apply` leaves an object."""
    said = json.dumps(config(data)) if text is None else text
    document = config(data, annotations={last_applied.ANNOTATION: said})
    document["metadata"]["managedFields"] = updates.created(
        document,
        None,
        manager="kubectl-client-side-apply",
        types="core.v1.ConfigMap",
        api_version="v1",
        now_text=T1,
        ignored={},
    )
    return document


def do_apply(live: Any, applied: Any, manager: str = "kubectl", **rest: Any) -> dict[str, Any]:
    untouched = copy.deepcopy((live, applied))
    document, _ = apply.server_side_apply(
        live, applied, manager=manager, force=False, types="core.v1.ConfigMap", api_version="v1", now_text=T1, **rest
    )
    assert (live, applied) == untouched
    return document


def test_kubectl_goes_on_from_its_own_apply():
    document = do_apply(client_applied({"x": "1", "y": "1"}), config({"x": "2", "y": "1"}))
    assert document["data"] == {"x": "2", "y": "1"}
    said = document["metadata"]["annotations"][last_applied.ANNOTATION]
    assert said == ('{"apiVersion":"v1","data":{"x":"2","y":"1"},"kind":"ConfigMap","metadata":{"name":"c"}}\n')
    assert [(row["manager"], row["fieldsV1"]["f:data"]) for row in document["metadata"]["managedFields"]] == [
        ("kubectl", {"f:x": {}, "f:y": {}}),
        ("kubectl-client-side-apply", {".": {}, "f:y": {}}),
    ]
    assert do_apply(document, config({"x": "2", "y": "1"})) == document


def test_others_conflict_with_it():
    with pytest.raises(status.StatusError) as refused:
        do_apply(client_applied({"x": "1"}), config({"x": "2"}), "argo")
    assert refused.value.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.x'
    )


def test_what_somebody_else_has_changed_since_is_a_conflict():
    live = client_applied({"x": "1", "y": "1"})
    live["data"]["x"] = "9"
    with pytest.raises(status.StatusError) as refused:
        do_apply(live, config({"x": "2", "y": "2"}))
    assert [cause.field for cause in refused.value.causes] == [".data.x"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"apiVersion":"v2","data":{"x":"1"}}', "[" * 5000, '{"a":' * 200 + "1" + "}" * 200]
)
def test_an_annotation_that_says_nothing_allows_nothing(text):
    with pytest.raises(status.StatusError, match="1 conflict"):
        do_apply(client_applied({"x": "1"}, text), config({"x": "2"}))


def test_the_annotation_follows_only_where_there_is_one():
    document = config({"x": "1"})
    assert last_applied.in_step(document, config({"x": "2"})) is document
    assert last_applied.in_step({"metadata": 7}, config({})) == {"metadata": 7}


def test_the_annotation_does_not_say_itself_and_is_written_as_kubectl_does():
    document = config({}, annotations={last_applied.ANNOTATION: "{}", "m": "n"})
    applied = config({"b": "<&>\u2028"}, annotations={last_applied.ANNOTATION: "x", "m": "n"})
    said = last_applied.in_step(document, applied)["metadata"]["annotations"]
    assert said == {
        "m": "n",
        last_applied.ANNOTATION: (
            '{"apiVersion":"v1","data":{"b":"\\u003c\\u0026\\u003e\\u2028"},"kind":"ConfigMap",'
            '"metadata":{"annotations":{"m":"n"},"name":"c"}}\n'
        ),
    }


def test_an_annotation_that_would_be_too_long_goes():
    document = config({}, annotations={last_applied.ANNOTATION: "{}"})
    assert last_applied.in_step(document, config({"x": "y" * (256 << 10)}))["metadata"]["annotations"] == {}


def test_what_is_still_there():
    live = config({"x": "1", "y": "2"}, annotations={last_applied.ANNOTATION: json.dumps(config({"x": "1", "z": "1"}))})
    shape = shapes.shape_of("core.v1.ConfigMap")
    assert ("f:data", "f:x") in set(last_applied.still_there(live, shape, "v1").paths())
    assert ("f:data", "f:z") not in set(last_applied.still_there(live, shape, "v1").paths())
