# SPDX-License-Identifier: Apache-2.0
"""Items -> the bytes of answers, in the shape the client asked for: objects, Tables, metadata only.

A shape knows how one object looks alone, in a list and in a watch event. The plain shape copies stored bytes and parses
nothing. It decides nothing about who may see what.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from handfast.api import conversion, kinds, objects, status
from handfast.api.custom import structural
from handfast.api.printing import columns as print_columns
from handfast.api.printing import printers, workloads
from handfast.apiserver import negotiate
from handfast.apiserver.state import items as items_module
from handfast.serving import answers

_encode = msgspec.json.Encoder().encode
CLOSE = b"]}\n"
_YAML: Mapping[str, str] = {**answers.JSON, "Content-Type": negotiate.YAML}


class _RawMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_metadata_of = msgspec.json.Decoder(_RawMetadata).decode


class Shape(Protocol):
    """One way to show objects of one kind; `key` tells shapes with equal output apart in caches."""

    key: object
    headers: Mapping[str, str]

    def open(self, metadata: dict[str, Any]) -> bytes:
        """The beginning of a list, up to and with the bracket that opens its items."""
        ...

    def item(self, item: items_module.Item) -> bytes:
        """One element of a list."""
        ...

    def whole(self, item: items_module.Item, *, first: bool = True) -> bytes:
        """An object alone; `first` tells a Table in a watch to carry its columns."""
        ...


def _list_head(kind: str, api_version: str, metadata: dict[str, Any], items: bytes) -> bytes:
    return b'{"kind":"%s","apiVersion":"%s","metadata":%s,%s[' % (
        kind.encode(),
        api_version.encode(),
        _encode(metadata),
        items,
    )


class Plain:
    """As stored."""

    headers: Mapping[str, str] = answers.JSON

    def __init__(self, kind: kinds.Kind) -> None:
        self.key: object = "plain"
        self._kind = kind

    def open(self, metadata: dict[str, Any]) -> bytes:
        return _list_head(self._kind.list_kind, self._kind.api_version, metadata, b'"items":')

    def item(self, item: items_module.Item) -> bytes:
        return item.listed

    def whole(self, item: items_module.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        return item.body


class Custom(Plain):
    """Items of custom resources keep apiVersion and kind in lists, as unstructured lists do in Kubernetes.

    Versions differ in their apiVersion only, so that it is written anew, whichever one the object was stored in. Defaults that the
    schema got later are filled in, as Kubernetes does on reading; what an item lacks is looked for once for each schema.
    """

    def __init__(self, kind: kinds.Kind) -> None:
        super().__init__(kind)
        # The definition of the kind may change while a watch is open.
        self.key = ("custom", kind.api_version, id(kind))
        self._schema = kind.schema if kind.schema is not None and structural.has_defaults(kind.schema) else None
        self._head = b'{"apiVersion":"%s","kind":"%s",' % (kind.api_version.encode(), kind.kind.encode())

    def item(self, item: items_module.Item) -> bytes:
        return self.whole(item)

    def whole(self, item: items_module.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        if self._schema is not None and item.complete_by is not self._schema:
            document = item.document()
            structural.fill(self._schema, document)
            if document != item.document():
                return self._head + _encode(document)[item.at :]
            item.complete_by = self._schema
        return self._head + item.body[item.at :]


class Converted(Plain):
    """Served in another group-version than stored."""

    def __init__(self, kind: kinds.Kind) -> None:
        super().__init__(kind)
        self.key = ("converted", kind.api_version)

    def item(self, item: items_module.Item) -> bytes:
        return self.whole(item)

    def whole(self, item: items_module.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        return _encode(conversion.to_served(self._kind, item.document()))


class Partial:
    """Metadata only."""

    headers: Mapping[str, str] = answers.JSON

    def __init__(self, *, typeless: bool = False) -> None:
        self.key: object = "partial"
        self._typeless = typeless

    def open(self, metadata: dict[str, Any]) -> bytes:
        return _list_head(negotiate.PARTIAL_LIST, "meta.k8s.io/v1", metadata, b'"items":')

    def item(self, item: items_module.Item) -> bytes:
        # Go's metadata client compares what it lists with what it watches, of which it drops the type.
        return b'{"metadata":%s}' % bytes(_metadata_of(item.body).metadata) if self._typeless else self.whole(item)

    def whole(self, item: items_module.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        raw = _metadata_of(item.body).metadata
        return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}' % bytes(raw)


class Tabular:
    """Rows with the columns kubectl shows; `include` says what of the object comes along."""

    headers: Mapping[str, str] = answers.JSON

    def __init__(self, kind: kinds.Kind, version: str, include: str, now: Callable[[], datetime.datetime]) -> None:
        self.key: object = ("table", kind.api_version, version, include)
        self._kind = kind
        self._version = f"meta.k8s.io/{version}"
        self._include = include
        self._now = now
        self._partial = Partial()

    def open(self, metadata: dict[str, Any]) -> bytes:
        columns = _encode(printers.columns(self._kind))
        return _list_head(negotiate.TABLE, self._version, metadata, b'"columnDefinitions":%s,"rows":' % columns)

    def item(self, item: items_module.Item) -> bytes:
        document = conversion.to_served(self._kind, item.document())
        if self._kind.schema is not None:
            structural.fill(self._kind.schema, document)
        if self._include == "Metadata":
            return self._row(document, self._partial.whole(item))
        return self._row(document, b"null" if self._include == "None" else _encode(document))

    def _row(self, document: objects.Document, shown: bytes) -> bytes:
        cells = _encode(printers.cells(self._kind, document, self._now()))
        return b'{"cells":%s,"object":%s}' % (cells, shown)

    def bookmark(self, metadata: dict[str, Any], *, first: bool) -> bytes:
        """A bookmark: an object of which there is nothing but this metadata, as a Table with one row."""
        document = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        shown = document if self._include == "Object" else {**document, **_PARTIAL}
        # The one that ends the initial events is told by its annotation, whatever the client wants of objects.
        hidden = self._include == "None" and "annotations" not in metadata
        row = self._row(document, b"null" if hidden else _encode(shown))
        return self._start({"resourceVersion": metadata["resourceVersion"]}, first=first) + row + b"]}"

    def whole(self, item: items_module.Item, *, first: bool = True) -> bytes:
        # No newline inside: watch events are lines.
        return self._start({"resourceVersion": str(item.version)}, first=first) + self.item(item) + b"]}"

    def _start(self, metadata: dict[str, Any], *, first: bool) -> bytes:
        if first:
            return self.open(metadata)
        return _list_head(negotiate.TABLE, self._version, metadata, b'"columnDefinitions":null,"rows":')


_PARTIAL = {"kind": negotiate.PARTIAL, "apiVersion": "meta.k8s.io/v1"}


def scale(document: objects.Document, accept: str, include: str, now: Callable[[], datetime.datetime]) -> bytes:
    """A Scale in the shape that was asked for."""
    wanted = negotiate.shape(accept)
    if wanted.kind == negotiate.OBJECT:
        return _encode(document)
    partial = {**_PARTIAL, "metadata": document["metadata"]}
    if wanted.kind != negotiate.TABLE:
        return _encode(partial)
    shown = {"": partial, "Metadata": partial, "None": None}.get(include, document)
    rows = [{"cells": workloads.scale_cells(document, now()), "object": shown}]
    table = {"kind": negotiate.TABLE, "apiVersion": f"meta.k8s.io/{wanted.version}"}
    metadata = {"resourceVersion": document["metadata"].get("resourceVersion", "")}
    columns = [row.document() for row in print_columns.SCALE]
    return _encode({**table, "metadata": metadata, "columnDefinitions": columns, "rows": rows})


def shape_for(kind: kinds.Kind, accept: str, include: str, now: Callable[[], datetime.datetime]) -> Shape:
    """The shape for a request's Accept header and includeObject parameter."""
    # What is only ever asked, such as a review, is no object with metadata of its own.
    wanted = negotiate.shape(accept, plain="get" not in kind.verbs)
    shape = _shape(kind, wanted, include, now)
    if wanted.media == negotiate.YAML:
        shape.headers = _YAML
    return shape


def _shape(
    kind: kinds.Kind, wanted: negotiate.Shape, include: str, now: Callable[[], datetime.datetime]
) -> Plain | Partial | Tabular:
    if wanted.kind == negotiate.TABLE:
        include = include or "Metadata"
        if include not in {"None", "Metadata", "Object"}:
            raise status.bad_request(
                f'unrecognized includeObject value: "{include}": allowed are None, Metadata and Object'
            )
        return Tabular(kind, wanted.version, include, now)
    if wanted.kind in {negotiate.PARTIAL, negotiate.PARTIAL_LIST}:
        return Partial(typeless=wanted.typeless)
    if not kind.message:
        return Custom(kind)
    return Plain(kind) if kind.storage_api_version == kind.api_version else Converted(kind)
