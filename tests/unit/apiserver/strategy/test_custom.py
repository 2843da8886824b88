# SPDX-License-Identifier: Apache-2.0
"""What the server makes of custom objects and definitions on their way to the store."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest
from aiohttp import web

from handfast.api import kinds, status
from handfast.api.cel import engine
from handfast.api.custom import definitions
from handfast.apiserver import calls, request
from handfast.apiserver.state import envelope, items
from handfast.apiserver.strategy import custom
from tests.properties import sample_documents

NOW = "2024-01-01T00:00:00Z"
WIDGET = sample_documents.widget(
    version="v2",
    stored_group="example.com",
    stored_version="v1",
    scale_paths=(".spec.count", ".status.count", ""),
    schema={
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "count": {"type": "integer", "minimum": 1},
                    "colour": {"type": "string", "default": "red"},
                },
            }
        },
    },
)
CONFIG_MAP = next(row for row in kinds.builtin() if row.plural == "configmaps")
NEWER_EVENT = kinds.row("events", "events.k8s.io")
DEFINITION = next(row for row in kinds.builtin() if row.resource == definitions.RESOURCE)


def asked(mode: str = "Warn", subresource: str = "") -> calls.Call:
    info = request.RequestInfo("create", "", subresource=subresource, query={"fieldValidation": mode})
    return calls.Call(cast("web.BaseRequest", None), "id", info)


def widget(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def test_odd_fields_are_dropped_and_told_once() -> None:
    document, request_ = widget(odd=1), asked()
    request_.warnings = ["earlier"]
    custom.conform(request_, WIDGET, document)
    custom.conform(request_, WIDGET, widget(odd=1))
    assert document["spec"] == {"colour": "red"}
    assert request_.warnings == ["earlier", 'unknown field "spec.odd"']


def test_odd_fields_are_ignored_or_refused_on_request() -> None:
    quiet = asked("Ignore")
    custom.conform(quiet, WIDGET, widget(odd=1))
    assert quiet.warnings == []
    with pytest.raises(status.StatusError, match=r'strict decoding error: unknown field "spec\.odd"') as caught:
        custom.conform(asked("Strict"), WIDGET, widget(odd=1))
    assert caught.value.code == 400


def test_metadata_has_the_types_of_every_objects() -> None:
    document = {**widget(), "metadata": {"name": "w", "labels": {"a": 1}}}
    with pytest.raises(
        status.StatusError, match='Widget in version "v2" cannot be handled as a Widget: json'
    ) as caught:
        custom.conform(asked(), WIDGET, document)
    assert caught.value.code == 400


def test_nulls_in_metadata_become_what_go_makes_of_them() -> None:
    document = {**widget(), "metadata": {"name": "w", "labels": {"a": None}}}
    custom.conform(asked(), WIDGET, document)
    assert document["metadata"]["labels"] == {"a": ""}


def test_odd_fields_anywhere_in_metadata_are_dropped() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    document, request_ = widget(), asked()
    document["metadata"] = {"name": "w", "odd": 1, "ownerReferences": [{**owner, "odd": {}}]}
    custom.conform(request_, WIDGET, document)
    assert document["metadata"] == {"name": "w", "ownerReferences": [owner]}
    assert request_.warnings == ['unknown field "metadata.odd"', 'unknown field "metadata.ownerReferences[0].odd"']


def test_built_in_kinds_pass_untouched() -> None:
    document = {"metadata": {"name": "c", "odd": 1}, "odd": 1}
    custom.conform(asked("Strict"), CONFIG_MAP, document)
    assert custom.stored(CONFIG_MAP, document, is_foreign=False) is document
    assert custom.problems(CONFIG_MAP, document) == []
    assert custom.place_replicas(CONFIG_MAP, document, {}) is document
    assert document == {"metadata": {"name": "c", "odd": 1}, "odd": 1}


def test_a_row_without_a_schema_keeps_everything() -> None:
    free = dataclasses.replace(WIDGET, schema=None)
    document = widget(any=[1])
    custom.conform(asked("Strict"), free, document)
    assert document["spec"] == {"any": [1]}
    assert custom.problems(free, document) == []


def test_a_stored_object_is_brought_up_to_date() -> None:
    old = {**widget(count=1, gone=True), "apiVersion": "example.com/v2"}
    assert custom.stored(WIDGET, old, is_foreign=False) == {**widget(count=1), "apiVersion": "example.com/v1"}


def test_what_an_older_server_stored_loses_its_unknown_fields() -> None:
    old = {"metadata": {"name": "c", "odd": 1}, "odd": 1, "data": {"a": "b"}}
    assert custom.stored(CONFIG_MAP, old, is_foreign=True) == {"metadata": {"name": "c"}, "data": {"a": "b"}}
    # Stored as an Event of core, which has fields that the one asked for calls otherwise.
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "count": 1, "message": "m", "odd": 1}
    kept = {key: value for key, value in event.items() if key != "odd"}
    assert custom.stored(NEWER_EVENT, event, is_foreign=True) == kept


def test_what_an_older_server_stored_without_its_empty_status_has_one() -> None:
    jobs = next(kind for kind in kinds.builtin() if kind.plural == "jobs")
    assert custom.stored(jobs, {"metadata": {"name": "j"}}, is_foreign=True)["status"] == {}


def test_what_was_wrong_before_may_stay() -> None:
    assert [cause.field for cause in custom.problems(WIDGET, widget(count=0))] == ["spec.count"]
    assert custom.problems(WIDGET, widget(count=0), widget(count=0, colour="x")) == []
    assert custom.problems(WIDGET, widget(count=0), widget(count=-1))


def test_replicas_go_where_the_definition_says() -> None:
    old = widget(count=1)
    sent = widget(count=1, replicas=5)
    assert custom.place_replicas(WIDGET, sent, old) == widget(count=5)
    assert old == widget(count=1)


def test_a_kind_on_its_way_out_takes_nothing_new() -> None:
    custom.require_creatable(WIDGET)
    with pytest.raises(status.StatusError, match="terminating") as caught:
        custom.require_creatable(dataclasses.replace(WIDGET, verbs=("get",)))
    assert caught.value.code == 405


def test_the_refusal_of_a_blind_put() -> None:
    refusal = custom.version_required(WIDGET, "w")
    assert (refusal.code, refusal.causes[0].field) == (422, "metadata.resourceVersion")
    assert "must be specified for an update" in refusal.message


def definition(plural: str, **names: Any) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": plural, "singular": "widget", "kind": "Widget", "listKind": "WidgetList", **names},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def stored(*documents: dict[str, Any]) -> list[items.Item]:
    return [
        items.Item("", document["metadata"]["name"], 1, envelope.encode_document(document)) for document in documents
    ]


def test_a_definition_is_judged_by_what_is_stored(monkeypatch) -> None:
    monkeypatch.setattr(engine, "_cel", lambda: None)
    first = definition("widgets")
    told = asked()
    custom.prepare_definition(told, first, stored(), NOW)
    assert definitions.is_established(first)
    assert told.warnings == [definitions.RULES_WARNING]
    second, quiet = definition("gadgets"), asked(subresource="status")
    custom.prepare_definition(quiet, second, stored(first, definition("bare")), NOW)
    assert not definitions.is_established(second)
    assert quiet.warnings == []
    assert custom.problems(DEFINITION, first) == []
    first["spec"]["preserveUnknownFields"] = True
    assert [cause.field for cause in custom.problems(DEFINITION, first)] == ["spec.preserveUnknownFields"]
