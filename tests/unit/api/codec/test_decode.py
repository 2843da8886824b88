# SPDX-License-Identifier: Apache-2.0
"""Bodies become documents by their content type, or a 400 (415) that says why and quotes nothing."""

from __future__ import annotations

import msgspec
import pytest

from handfast.api import status
from handfast.api.codec import decode, nesting, yaml_document
from tests.properties import protobuf_wire

CONFIG_MAP = bytes.fromhex("6b3873000a0f0a0276311209436f6e6669674d617012050a030a0161")


@pytest.mark.parametrize("content_type", ["", "application/json", "Application/JSON; charset=utf-8"])
def test_a_json_body_becomes_its_document_whatever_the_case_of_its_type(content_type):
    body = b'{"kind": "A", "n": 123456789012345678901234567890, "f": 1.5, "l": [null, true]}'
    assert decode.document(body, content_type) == {
        "kind": "A",
        "n": 123456789012345678901234567890,
        "f": 1.5,
        "l": [None, True],
    }


@pytest.mark.parametrize("body", [b'{"a": 1}', b"a: 1\n", b"{a: 1}", b' \n{"a":1}'])
def test_yaml_and_json_said_to_be_yaml(body):
    assert decode.document(body, "application/yaml") == {"a": 1}


def test_a_protobuf_body_becomes_the_document_of_its_envelope():
    assert decode.document(CONFIG_MAP, decode.PROTOBUF) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
    }


def test_other_types_are_refused_with_a_list():
    with pytest.raises(status.StatusError, match="accepted media types include: ") as caught:
        decode.document(b"{}", "application/cbor")
    assert caught.value.code == 415
    assert caught.value.message.endswith(f": {decode.JSON}, {decode.YAML}, {decode.PROTOBUF}")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "json parse error"),
        (b"{", "json parse error"),
        (b"a: 1", "json parse error"),
        (b'{"a": 1} x', "trailing characters"),
        (b'{"a": NaN}', "json parse error"),
        (b'{"a": Infinity}', "json parse error"),
        (b'{"a": 1e999}', "out of range"),
        (b'{"a": "\xff"}', "not valid UTF-8"),
        (b'{"a": "\\ud800 and more text"}', "surrogate"),
        (b"[]", "must be an object, it is of type array"),
        (b'"a"', "of type string"),
        (b"true", "of type bool"),
        (b"null", "of type null"),
        (b"12", "of type number"),
    ],
)
def test_bad_json(body, why):
    with pytest.raises(status.StatusError, match=why) as caught:
        decode.document(body)
    assert caught.value.code == 400


@pytest.mark.parametrize("body", [b"- a", b"", b"{a: 1"])
def test_bad_yaml(body):
    with pytest.raises(status.StatusError, match="yaml parse error") as caught:
        decode.document(body, decode.YAML)
    assert caught.value.code == 400


@pytest.mark.parametrize("body", [b"[]", b'"a"', b"12", b"null"])
def test_yaml_that_could_be_json_is_told_of_as_yaml(body):
    with pytest.raises(status.StatusError, match="yaml parse error: the body must be an object"):
        decode.document(body, decode.YAML)


def deep(levels: int) -> bytes:
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


@pytest.mark.parametrize("content_type", [decode.JSON, decode.YAML])
def test_a_body_is_refused_above_the_deepest_level_allowed(content_type):
    assert decode.document(deep(nesting.MAX_DEPTH), content_type)
    for levels in (nesting.MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(status.StatusError, match=r"^the body is nested too deeply: at most 128 levels"):
            decode.document(deep(levels), content_type)


def test_many_brackets_are_not_depth():
    body = b'{"a":[' + b",".join([b"[]"] * 1000) + b"]}"
    assert len(decode.document(body)["a"]) == 1000


def test_depth_of_raw_json_within_protobuf():
    content = b"[" * 200 + b"]" * 200
    # spec.versions[].schema.openAPIV3Schema.default, which is raw JSON in field 1
    for number in (1, 8, 1, 4, 7, 2):
        content = protobuf_wire.delimited(number, content)
    body = protobuf_wire.enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", content)
    with pytest.raises(status.StatusError, match="nested too deeply"):
        decode.document(body, decode.PROTOBUF)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1, "b": {"a": 1}}', []),
        (b'{"a": 1, "a": 2}', ["a"]),
        (b'{"a": {"b": 1, "b": 2}, "l": [{}, {"c": 1, "c": 1, "c": 1}]}', ["a.b", "l[1].c"]),
        (b'{"a": "x:y", "b": ":"}', []),
        (b'{"a": "\\u003a", "b": {"c": 1, "c": 1}}', ["b.c"]),
        (b'{"a": "\\u003a"}', []),
        (b'{"a": [{"b": 1}], "a": [1, {"x": 1, "x": 2}]}', ["a", "a[1].x"]),
    ],
)
@pytest.mark.parametrize("content_type", [decode.JSON, decode.YAML])
def test_duplicate_fields(body, expected, content_type):
    assert decode.duplicate_fields(body, content_type, decode.document(body, content_type)) == expected


def test_duplicate_fields_of_yaml_and_protobuf():
    assert decode.duplicate_fields(b"a: 1\na: 2\n", decode.YAML, {"a": 2}) == ["a"]
    assert decode.duplicate_fields(CONFIG_MAP, decode.PROTOBUF, decode.document(CONFIG_MAP, decode.PROTOBUF)) == []


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"a":1,"a":2}', decode.JSON, ({"a": 2}, ["a"])),
        (b'{"a":1,"a":2}', decode.YAML, ({"a": 2}, ["a"])),
        (b"a: 1\na: 2\n", decode.YAML, ({"a": 2}, ["a"])),
        (b"a: 1\n", decode.YAML, ({"a": 1}, [])),
    ],
)
def test_the_document_with_its_duplicates(body, content_type, expected):
    document, repeats = decode.document_and_duplicates(body, content_type)
    assert (document, list(repeats)) == expected


def test_a_small_body_names_a_small_number_of_duplicates():
    body = b"{" + b",".join(b'"%d":1,"%d":1' % (number, number) for number in range(1000)) + b"}"
    found = decode.duplicate_fields(body, decode.JSON, msgspec.json.decode(body))
    assert len(found) == yaml_document.MAX_DUPLICATES
