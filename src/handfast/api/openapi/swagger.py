# SPDX-License-Identifier: Apache-2.0
"""The same description in OpenAPI 2: one document for all kinds, in JSON or in protobuf.

It is made from what OpenAPI 3 says (`openapi`, `paths`), kind by kind, in pieces that are encoded already: a definition that changes
changes one of them, and the rest is put together again as it is. What OpenAPI 2 cannot say of a custom resource is left out by
`custom_schemas`. It keeps nothing, and decides nothing about what is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from handfast.api import kinds
from handfast.api.openapi import custom_schemas, gnostic, names, openapi

_VERSION: Final = "2.0"
_INFO: Final = {"title": "Handfast", "version": "v1"}
_METHODS: Final = ("get", "put", "post", "delete", "patch")
_JSON: Final = "application/json"
_encode = msgspec.json.Encoder().encode


class Pieces(NamedTuple):
    """What some kinds bring, by path and by name of the schema; each is encoded."""

    paths: Mapping[str, bytes]
    definitions: Mapping[str, bytes]


class Form(NamedTuple):
    """How a document is written."""

    content_type: str
    path_item: Callable[[Mapping[str, Any]], bytes]
    schema: Callable[[Mapping[str, Any]], bytes]
    joined: Callable[[Mapping[str, bytes], Mapping[str, bytes]], bytes]


def builtin_pieces(rows: Iterable[kinds.Kind], form: Form) -> Pieces:
    """What kinds with a message bring, and all that these and every other kind refer to."""
    rows = tuple(rows)
    definitions = {name: form.schema(_schema(value)) for name, value in openapi.components_of(rows).items()}
    return Pieces(_paths(rows, form), definitions)


def custom_pieces(row: kinds.Kind, form: Form) -> Pieces:
    """What one custom resource brings: itself and its list. What it refers to is among the built-in pieces."""
    own = {names.of_kind(row): custom_schemas.kind_v2(row), names.of_list(row): _schema(custom_schemas.listed(row))}
    for name, kind in zip(own, (row.kind, row.list_kind), strict=True):
        openapi.mark(own, name, row.group, row.version, kind)
    return Pieces(_paths((row,), form), {name: form.schema(value) for name, value in own.items()})


def document(parts: Iterable[Pieces], form: Form) -> bytes:
    """The whole document. Of two schemas of one name the first counts: the built-in pieces come first."""
    paths: dict[str, bytes] = {}
    definitions: dict[str, bytes] = {}
    for part in parts:
        paths.update(part.paths)
        for name, value in part.definitions.items():
            definitions.setdefault(name, value)
    return form.joined(paths, definitions)


# --- OpenAPI 3 to OpenAPI 2 -------------------------------------------------------------------------------------------


def _schema(value: Mapping[str, Any]) -> dict[str, Any]:
    """A component that `openapi` made, as a definition: references are bare, and what is one of several types is a text."""
    definition = {key: child for key, child in value.items() if key not in {"allOf", "oneOf"}}
    if "allOf" in value:
        definition["$ref"] = value["allOf"][0]["$ref"].replace("#/components/schemas/", "#/definitions/")
    if "oneOf" in value:
        definition["type"] = "string"
    for key in ("items", "additionalProperties"):
        if key in definition:
            definition[key] = _schema(definition[key])
    if "properties" in definition:
        definition["properties"] = {name: _schema(child) for name, child in definition["properties"].items()}
    return definition


def _paths(rows: Iterable[kinds.Kind], form: Form) -> dict[str, bytes]:
    return {path: form.path_item(_path_item(item)) for path, item in openapi.paths_of(rows).items()}


def _path_item(item: Mapping[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = {method: _operation(item[method]) for method in _METHODS if method in item}
    if "parameters" in item:
        converted["parameters"] = [_parameter(each) for each in item["parameters"]]
    return converted


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {})
    accepted: Mapping[str, Any] = body.get("content", {})
    parameters = [_parameter(each) for each in operation["parameters"]]
    for media in list(accepted)[:1]:
        sent = {"in": "body", "name": "body", "schema": _schema(accepted[media]["schema"])}
        parameters.insert(0, {**sent, "required": True} if body.get("required") else sent)
    extensions = {key: value for key, value in operation.items() if key.startswith("x-") or key == "description"}
    return {
        "operationId": operation["operationId"],
        "consumes": list(accepted) or ["*/*"],
        "produces": [_JSON],
        "schemes": ["https"],
        "parameters": parameters,
        "responses": {code: _response(response) for code, response in operation["responses"].items()},
        **extensions,
    }


def _response(response: Mapping[str, Any]) -> dict[str, Any]:
    answered = {"description": response["description"]}
    content = response.get("content")
    return {**answered, "schema": _schema(content[_JSON]["schema"])} if content else answered


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter of a path or a query: what was in its schema stands beside its name."""
    return {**{key: value for key, value in parameter.items() if key != "schema"}, **parameter["schema"]}


# --- encodings --------------------------------------------------------------------------------------------------------


def _members(values: Mapping[str, bytes]) -> Iterator[bytes]:
    """The members of an object, and what stands between them."""
    for place, (name, value) in enumerate(values.items()):
        yield b"," if place else b""
        yield _encode(name)
        yield b":"
        yield value


def _joined_json(paths: Mapping[str, bytes], definitions: Mapping[str, bytes]) -> bytes:
    # In one piece: each copy of a document of 10 MB holds the interpreter for 10 ms.
    head = _encode({"swagger": _VERSION, "info": _INFO})[:-1]
    return b"".join((head, b',"paths":{', *_members(paths), b'},"definitions":{', *_members(definitions), b"}}"))


def _joined_protobuf(paths: Mapping[str, bytes], definitions: Mapping[str, bytes]) -> bytes:
    return gnostic.document(_VERSION, _INFO, paths, definitions)


JSON: Final = Form(_JSON, _encode, _encode, _joined_json)
# A media type may hold no "@", and Go's parser insists: clients ask for one with, and are told one without.
PROTOBUF: Final = Form(
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", gnostic.path_item, gnostic.schema, _joined_protobuf
)
_ASKED_FOR: Final = ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF.content_type)


def form_for(accept: str) -> Form:
    """The form that an Accept header asks for: protobuf where it is named, else JSON."""
    return PROTOBUF if any(name in accept for name in _ASKED_FOR) else JSON
