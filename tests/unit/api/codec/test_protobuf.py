# SPDX-License-Identifier: Apache-2.0
"""Protobuf bodies: vectors seen from kubectl, what Go's JSON leaves out, and each refusal."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import status
from handfast.api.codec import protobuf
from tests.properties.protobuf_wire import delimited, enveloped, integer, varint

# Captured from kubectl 1.32.4 (secret) and 1.36.4 (config map), and by hand from the wire format (the last).
SECRET = "6b3873000a0c0a0276311206536563726574121e0a120a02733112001a0022002a0032003800420012060a01611201621a001a002200"
CONFIG_MAP = (
    "6b3873000a0f0a0276311209436f6e6669674d617012220a180a016112001a0764656661756c7422002a003200380042"
    "0012060a016b1201761a002200"
)
MINIMAL = "6b3873000a0f0a0276311209436f6e6669674d6170120d0a030a016112060a016b120176"


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s1"}, "data": {"a": "Yg=="}}),
        (
            CONFIG_MAP,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "default"},
                "data": {"k": "v"},
            },
        ),
        (MINIMAL, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}),
    ],
)
def test_bodies_of_real_clients_become_the_documents_they_stand_for(body, document):
    assert protobuf.decode(bytes.fromhex(body)) == document


def read(kind: str, content: bytes, api_version: str = "v1") -> dict[str, Any]:
    document = protobuf.decode(enveloped(api_version, kind, content))
    assert document.pop("apiVersion") == api_version
    assert document.pop("kind") == kind
    return document


def refusal(body: bytes) -> str:
    with pytest.raises(status.StatusError) as caught:
        protobuf.decode(body)
    assert caught.value.code == 400
    return caught.value.message


def metadata(content: bytes) -> dict[str, Any]:
    return read("ConfigMap", delimited(1, content))


def test_delete_options_of_any_group():
    content = integer(1, 0) + delimited(2, delimited(1, b"u")) + delimited(4, b"Background") + delimited(5, b"All")
    for api_version in ("v1", "meta.k8s.io/v1", "apps/v1"):
        assert read("DeleteOptions", content, api_version) == {
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u"},
            "propagationPolicy": "Background",
            "dryRun": ["All"],
        }


def test_zero_values_stay_where_go_keeps_them():
    # immutable is a pointer, generation is not; a container's name is required, its image is not
    assert read("ConfigMap", delimited(1, integer(7, 0)) + integer(4, 0)) == {"immutable": False}
    container = delimited(1, b"") + delimited(2, b"")
    assert read("Pod", delimited(2, delimited(2, container))) == {"spec": {"containers": [{"name": ""}]}}
    volume = delimited(1, b"v") + delimited(2, delimited(2, b""))
    assert read("Pod", delimited(2, delimited(1, volume))) == {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}


def test_the_last_occurrence_counts():
    assert metadata(delimited(1, b"a") + delimited(1, b"b")) == {"metadata": {"name": "b"}}
    assert metadata(delimited(1, b"a") + delimited(1, b"")) == {}


def test_times_become_the_texts_that_go_writes():
    assert metadata(delimited(8, integer(1, 0) + integer(2, 0))) == {
        "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}
    }
    assert metadata(delimited(8, integer(1, 1_700_000_000) + integer(2, 999_999_999))) == {
        "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"}
    }
    lease = delimited(2, delimited(4, integer(1, -1) + integer(2, 1999)))
    assert read("Lease", lease, "coordination.k8s.io/v1") == {"spec": {"renewTime": "1969-12-31T23:59:59.000001Z"}}


@pytest.mark.parametrize("seconds", [2**63 - 1, 253_402_300_800, -(2**63)])
def test_times_out_of_range(seconds):
    body = enveloped("v1", "ConfigMap", delimited(1, delimited(8, integer(1, seconds))))
    assert "outside the years 1 to 9999" in refusal(body)


def service_port(target: bytes) -> dict[str, Any]:
    found: dict[str, Any] = read("Service", delimited(2, delimited(1, delimited(4, target))))["spec"]["ports"][0]
    return found


def test_int_or_string():
    assert service_port(integer(1, 0) + integer(2, 80)) == {"targetPort": 80}
    assert service_port(integer(1, 1) + delimited(3, b"http")) == {"targetPort": "http"}
    assert service_port(b"") == {}
    body = enveloped("v1", "Service", delimited(2, delimited(1, delimited(4, integer(1, 2)))))
    assert "impossible IntOrString.Type" in refusal(body)


def test_the_last_of_equal_keys_counts_and_missing_parts_of_an_entry_are_zero():
    # a repeated key, an entry without a value, one without a key, a quantity without text
    content = b"".join(
        delimited(2, entry)
        for entry in (
            delimited(1, b"a") + delimited(2, b"1"),
            delimited(1, b"a") + delimited(2, b"2"),
            delimited(1, b"b"),
            delimited(2, b"3") + integer(9, 1),
        )
    )
    assert read("ConfigMap", content) == {"data": {"a": "2", "b": "", "": "3"}}
    node = delimited(3, delimited(1, delimited(1, b"cpu")))
    assert read("Node", node) == {"status": {"capacity": {"cpu": "0"}}}


def test_extra_values_and_bytes():
    extra = delimited(6, delimited(1, b"k") + delimited(2, delimited(1, b"a") + delimited(1, b"b")))
    content = delimited(2, delimited(1, b"\xff\x00") + extra)
    assert read("CertificateSigningRequest", content, "certificates.k8s.io/v1")["spec"] == {
        "request": "/wA=",
        "extra": {"k": ["a", "b"]},
    }


def test_repeated_numbers_packed_or_not():
    context = delimited(2, delimited(14, integer(4, 1) + delimited(4, varint(2) + varint(-3)) + integer(4, 0)))
    assert read("Pod", context)["spec"]["securityContext"] == {"supplementalGroups": [1, 2, -3, 0]}


def test_numbers_are_truncated_as_go_does():
    assert read("Pod", delimited(2, integer(25, 2**32 + 5))) == {"spec": {"priority": 5}}
    assert read("Pod", delimited(2, integer(25, -5))) == {"spec": {"priority": -5}}
    assert read("ConfigMap", integer(4, 7)) == {"immutable": True}


def schema_of(content: bytes) -> dict[str, Any]:
    for number in (1, 4, 7, 2):
        content = delimited(number, content)
    document = read("CustomResourceDefinition", content, "apiextensions.k8s.io/v1")
    found: dict[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.parametrize(
    ("content", "document"),
    [
        (delimited(8, delimited(1, b'{"a":[0]}')), {"default": {"a": [0]}}),
        (delimited(8, delimited(1, b"false")), {"default": False}),
        (delimited(8, delimited(1, b"null")), {}),
        (delimited(8, b""), {}),
        (delimited(20, delimited(1, b"null")) + delimited(20, delimited(1, b"0")), {"enum": [None, 0]}),
        (delimited(24, delimited(1, b"")), {"items": {}}),
        (delimited(24, delimited(2, b"") + delimited(2, delimited(5, b"x"))), {"items": [{}, {"type": "x"}]}),
        (delimited(24, b""), {}),
        (delimited(30, integer(1, 1)), {"additionalProperties": True}),
        (delimited(30, integer(1, 0)), {"additionalProperties": False}),
        (delimited(30, integer(1, 1) + delimited(2, b"")), {"additionalProperties": {}}),
        (
            delimited(32, delimited(1, b"a") + delimited(2, delimited(2, b"b"))),
            {"dependencies": {"a": ["b"]}},
        ),
        (varint(9 << 3 | 1) + bytes(6) + b"\xf8\x3f", {"maximum": 1.5}),
    ],
)
def test_forms_of_schemas(content, document):
    assert schema_of(delimited(1, b"x") + content) == {"id": "x", **document}


def test_managed_fields_are_raw_json():
    entry = delimited(7, delimited(1, b'{"f:data":{}}') + integer(9, 9)) + integer(99, 3)
    assert metadata(delimited(17, entry)) == {"metadata": {"managedFields": [{"fieldsV1": {"f:data": {}}}]}}


def test_values_of_raw_json_count_like_fields():
    """In one entry or in many: they are read in one step."""
    entry = delimited(17, delimited(7, delimited(1, b"[" + b"{}," * 20_000 + b"{}]")))
    with pytest.raises(status.StatusError, match="more than 50000 fields"):
        metadata(entry * 2)
    assert len(metadata(entry)["metadata"]["managedFields"][0]["fieldsV1"]) == 20_001


def test_unknown_fields_of_every_wire_type_are_skipped():
    unknown = integer(900, 1) + delimited(901, b"x") + varint(902 << 3 | 1) + bytes(8) + varint(903 << 3 | 5) + bytes(4)
    assert read("ConfigMap", unknown + delimited(1, delimited(1, b"a") + unknown)) == {"metadata": {"name": "a"}}


def broken(content: bytes) -> bytes:
    return enveloped("v1", "ConfigMap", content)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "prefix"),
        (b"{}", "prefix"),
        (b"k8s\x00", 'no kind "" is registered for version ""'),
        (enveloped("v2", "ConfigMap", b""), 'no kind "ConfigMap" is registered for version "v2"'),
        (b"k8s\x00" + integer(1, 5), 'no kind ""'),
        (b"k8s\x00" + delimited(3, b"gzip"), "content encoding"),
        (b"k8s\x00\x0a", "unexpected EOF"),
        (b"k8s\x00\x0a\x05", "unexpected EOF"),
        (broken(b"\x0a"), "unexpected EOF"),
        (broken(b"\x0a\xff\xff\xff\xff\x0f"), "unexpected EOF"),
        (broken(b"\x80"), "unexpected EOF"),
        (broken(b"\x20" + b"\xff" * 10 + b"\x01"), "more than 64 bits"),
        (broken(varint(7 << 3 | 1) + bytes(7)), "unexpected EOF"),
        (broken(b"\x00\x01"), "0 is not a field number"),
        (broken(varint(1 << 32) + b"\x01"), "is not a field number"),
        (broken(b"\x0b\x0c"), "wire type 3"),
        (broken(b"\x0f"), "wire type 7"),
        (broken(integer(1, 5)), "wrong wireType = 0 for field metadata"),
        (broken(delimited(4, b"")), "wrong wireType = 2 for field immutable"),
        (broken(varint(1 << 3 | 5) + bytes(4)), "wrong wireType = 5 for field metadata"),
        (broken(delimited(2, integer(1, 1))), "wrong wireType = 0 for field data"),
        (broken(delimited(2, delimited(2, b"\xff"))), "field data is not valid UTF-8"),
        (broken(delimited(1, delimited(17, delimited(7, delimited(1, b"k8s\x00"))))), "does not hold JSON"),
        (broken(delimited(1, delimited(17, delimited(7, delimited(1, b"[" * 5000))))), "does not hold JSON"),
        (broken(delimited(1, b"") * 50_001), "more than 50000 fields"),
        (
            enveloped("v1", "Pod", delimited(2, delimited(14, delimited(4, bytes(50_001))))),
            "more than 50000 fields",
        ),
        (
            enveloped("v1", "Pod", delimited(2, delimited(14, varint(4 << 3 | 1) + bytes(8)))),
            "wrong wireType = 1 for field supplementalGroups",
        ),
    ],
)
def test_a_malformed_body_is_refused_with_the_reason(body, why):
    assert why in refusal(body)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (varint(9 << 3 | 1) + b"\x00\x00\x00\x00\x00\x00\xf0\x7f", "field maximum is not a finite number"),
        (integer(9, 1), "wrong wireType = 0 for field maximum"),
        (delimited(9, bytes(8)), "wrong wireType = 2 for field maximum"),
    ],
)
def test_bad_doubles(content, why):
    for number in (1, 4, 7, 2):
        content = delimited(number, content)
    assert why in refusal(enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", content))


def test_messages_nested_too_deeply_are_refused():
    content = b""
    for _ in range(200):
        content = delimited(28, content)
    for number in (1, 4, 7, 2):
        content = delimited(number, content)
    assert "nested too deeply" in refusal(enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", content))


def test_refusals_do_not_repeat_long_names():
    assert len(refusal(enveloped("v1", "x" * 10_000, b""))) < 300
