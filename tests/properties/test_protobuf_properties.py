# SPDX-License-Identifier: Apache-2.0
"""Whatever the schema can say survives protobuf; whatever else arrives is a 400 and never another error."""

from __future__ import annotations

import base64
import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handfast.api import status
from handfast.api.codec import nesting, protobuf
from handfast.api.schema import schema, structs
from tests.properties import protobuf_wire

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_JSON = st.recursive(
    st.booleans() | st.integers(-1000, 1000) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_INSTANTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
_ROWS = [row for row in schema.kind_rows() if row["message"] != "autoscaling.v1.Scale"]


def _zulu(instant: datetime, timespec: str) -> str:
    return instant.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "bool": st.just(True),
    "int32": st.integers(-(2**31), 2**31 - 1).filter(bool),
    "int64": st.integers(-(2**63), 2**63 - 1).filter(bool),
    "double": st.floats(allow_nan=False, allow_infinity=False).filter(bool),
    "bytes": st.binary(min_size=1, max_size=5).map(lambda value: base64.b64encode(value).decode()),
}
_FORMS: dict[str, st.SearchStrategy[Any]] = {
    "rfc3339-seconds|null": _INSTANTS.map(lambda instant: _zulu(instant, "seconds")),
    "rfc3339-micros|null": _INSTANTS.map(lambda instant: _zulu(instant, "microseconds")),
    "int|string": st.integers(1, 2**31 - 1) | _TEXT,
    "string": st.sampled_from(["250m", "1Gi", "0", "1e3"]),
    "array": st.lists(_TEXT, min_size=1, max_size=2),
    "raw": _JSON,
}


@st.composite
def values(draw: st.DrawFn, type_name: str, depth: int) -> Any:
    if schema.is_scalar(type_name):
        return draw(_SCALARS[type_name])
    message = schema.message(type_name)
    if message.json_form in _FORMS:
        return draw(_FORMS[message.json_form])
    if message.json_form == "bool|object" and draw(st.booleans()):
        return draw(st.booleans())
    if message.json_form and draw(st.booleans()) and "allows" not in message.fields:
        item = message.wire[2].type
        return [draw(values(item, depth - 1)) for _ in range(draw(st.integers(1, 2)))]
    return draw(documents("apiextensions.v1.JSONSchemaProps" if message.json_form else type_name, depth - 1))


@st.composite
def documents(draw: st.DrawFn, name: str, depth: int) -> dict[str, Any]:
    """A document of a message as Go writes it in JSON: nothing that `omitempty` would drop."""
    fields = [f for f in schema.message(name).fields.values() if depth > 0 or schema.is_scalar(f.type)]
    document: dict[str, Any] = {}
    chosen = draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda f: f.name)) if fields else []
    for field in chosen:
        if field.is_map:
            keys = draw(st.lists(_TEXT, min_size=1, max_size=2, unique=True))
            document[field.name] = {key: draw(values(field.type, depth)) for key in keys}
        elif field.repeated:
            document[field.name] = [draw(values(field.type, depth)) for _ in range(draw(st.integers(1, 2)))]
        else:
            value = draw(values(field.type, depth))
            if value != {} or field.pointer or field.required or schema.message(field.type).json_form == "raw":
                document[field.name] = value
    return document


@st.composite
def objects(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    row = draw(st.sampled_from(_ROWS))
    return row, draw(documents(row["message"], 4))


def _api_version(row: dict[str, Any]) -> str:
    return f"{row['group']}/{row['version']}" if row["group"] else str(row["version"])


def _body(row: dict[str, Any], document: dict[str, Any], *, zeros: bool) -> bytes:
    content = protobuf_wire.encode(schema.message(row["message"]), document, zeros=zeros)
    return protobuf_wire.enveloped(_api_version(row), row["kind"], content)


@given(objects(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_what_goes_in_comes_out(drawn, zeros):
    row, document = drawn
    decoded = protobuf.decode(_body(row, document, zeros=zeros))
    assert decoded.pop("kind") == row["kind"]
    assert decoded.pop("apiVersion") == _api_version(row)
    assert decoded == document


@given(objects())
@settings(max_examples=60, deadline=None)
def test_what_comes_out_has_the_types_of_its_kind(drawn):
    row, document = drawn
    decoded = protobuf.decode(_body(row, document, zeros=True))
    assert structs.check(row["message"], decoded) == structs.Findings()


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_refused_or_read(body, with_prefix):
    with contextlib.suppress(status.StatusError):
        assert isinstance(protobuf.decode((protobuf.PREFIX if with_prefix else b"") + body), dict)


@given(objects(), st.data())
@settings(max_examples=80, deadline=None)
def test_damaged_bodies_are_refused_or_read(drawn, data):
    body = bytearray(_body(*drawn, zeros=True))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(4, len(body))) :]
    with contextlib.suppress(status.StatusError):
        assert isinstance(protobuf.decode(bytes(body)), dict)


@given(st.integers(nesting.MAX_DEPTH // 2, 400))
@example(nesting.MAX_DEPTH - 4)
@example(nesting.MAX_DEPTH - 3)
@settings(max_examples=20, deadline=None)
def test_what_is_too_deep_is_refused_and_what_is_not_is_read(depth):
    content = b""
    for _ in range(depth):
        content = protobuf_wire.delimited(28, content)
    for number in (1, 4, 7, 2):
        content = protobuf_wire.delimited(number, content)
    body = protobuf_wire.enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", content)
    # Four messages lead to the first schema.
    if depth + 4 <= nesting.MAX_DEPTH:
        assert protobuf.decode(body)["kind"] == "CustomResourceDefinition"
        return
    with pytest.raises(status.StatusError, match="nested too deeply"):
        protobuf.decode(body)
