# SPDX-License-Identifier: Apache-2.0
"""Items -> the bytes of answers, in the shape the client asked for: objects, Tables, metadata only.

A shape knows how one object looks alone, in a list and in a watch event. The plain shape copies stored bytes and parses
nothing. It decides nothing about who may see what.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from handfast.api import conversion, kinds, status
from handfast.api.printing import printers
from handfast.apiserver import negotiate
from handfast.apiserver.state import items as states

_encode = msgspec.json.Encoder().encode
CLOSE = b"]}\n"


class _RawMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_metadata_of = msgspec.json.Decoder(_RawMetadata).decode


class Shape(Protocol):
    """One way to show objects of one kind; `key` tells shapes with equal output apart in caches."""

    key: object

    def open(self, metadata: dict[str, Any]) -> bytes:
        """The beginning of a list, up to and with the bracket that opens its items."""
        ...

    def item(self, item: states.Item) -> bytes:
        """One element of a list."""
        ...

    def whole(self, item: states.Item, *, first: bool = True) -> bytes:
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

    def __init__(self, kind: kinds.Kind) -> None:
        self.key: object = "plain"
        self._kind = kind

    def open(self, metadata: dict[str, Any]) -> bytes:
        return _list_head(self._kind.list_kind, self._kind.api_version, metadata, b'"items":')

    def item(self, item: states.Item) -> bytes:
        return item.listed

    def whole(self, item: states.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        return item.body


class Custom(Plain):
    """Items of custom resources keep apiVersion and kind in lists, as unstructured lists do in Kubernetes.

    Versions differ in their apiVersion only, so that it is written anew, whichever one the object was stored in.
    """

    def __init__(self, kind: kinds.Kind) -> None:
        super().__init__(kind)
        self.key = ("custom", kind.api_version)
        self._head = b'{"apiVersion":"%s","kind":"%s",' % (kind.api_version.encode(), kind.kind.encode())

    def item(self, item: states.Item) -> bytes:
        return self.whole(item)

    def whole(self, item: states.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        return self._head + item.body[item.at :]


class Converted(Plain):
    """Served in another group-version than stored."""

    def __init__(self, kind: kinds.Kind) -> None:
        super().__init__(kind)
        self.key = ("converted", kind.api_version)

    def item(self, item: states.Item) -> bytes:
        return self.whole(item)

    def whole(self, item: states.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        return _encode(conversion.to_served(self._kind, item.document()))


class Partial:
    """Metadata only."""

    def __init__(self) -> None:
        self.key: object = "partial"

    def open(self, metadata: dict[str, Any]) -> bytes:
        return _list_head(negotiate.PARTIAL_LIST, "meta.k8s.io/v1", metadata, b'"items":')

    def item(self, item: states.Item) -> bytes:
        return self.whole(item)

    def whole(self, item: states.Item, *, first: bool = True) -> bytes:  # noqa: ARG002  only Tables have a first
        raw = _metadata_of(item.body).metadata
        return b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}' % bytes(raw)


class Tabular:
    """Rows with the columns kubectl shows; `include` says what of the object comes along."""

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

    def item(self, item: states.Item) -> bytes:
        document = conversion.to_served(self._kind, item.document())
        cells = _encode(printers.cells(self._kind, document, self._now()))
        if self._include == "Metadata":
            shown = self._partial.whole(item)
        else:
            shown = b"null" if self._include == "None" else _encode(document)
        return b'{"cells":%s,"object":%s}' % (cells, shown)

    def whole(self, item: states.Item, *, first: bool = True) -> bytes:
        # No newline inside: watch events are lines.
        metadata = {"resourceVersion": str(item.version)}
        if first:
            return self.open(metadata) + self.item(item) + b"]}"
        head = _list_head(negotiate.TABLE, self._version, metadata, b'"columnDefinitions":null,"rows":')
        return head + self.item(item) + b"]}"


def shape_for(kind: kinds.Kind, accept: str, include: str, now: Callable[[], datetime.datetime]) -> Shape:
    """The shape for a request's Accept header and includeObject parameter."""
    wanted = negotiate.shape(accept)
    if wanted.kind == negotiate.TABLE:
        include = include or "Metadata"
        if include not in {"None", "Metadata", "Object"}:
            raise status.bad_request(
                f'unrecognized includeObject value: "{include}": allowed are None, Metadata and Object'
            )
        return Tabular(kind, wanted.version, include, now)
    if wanted.kind in {negotiate.PARTIAL, negotiate.PARTIAL_LIST}:
        return Partial()
    if not kind.message:
        return Custom(kind)
    return Plain(kind) if kind.storage_api_version == kind.api_version else Converted(kind)
