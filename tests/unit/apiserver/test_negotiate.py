# SPDX-License-Identifier: Apache-2.0
"""The Accept header -> the shape of the answer."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.apiserver import negotiate

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
OLD_TABLE = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("header", "kind", "version"),
    [
        ("", negotiate.OBJECT, "v1"),
        ("*/*", negotiate.OBJECT, "v1"),
        ("application/*", negotiate.OBJECT, "v1"),
        ("application/json", negotiate.OBJECT, "v1"),
        ("APPLICATION/JSON", negotiate.OBJECT, "v1"),
        ("application/json; charset=utf-8", negotiate.OBJECT, "v1"),
        ("application/vnd.kubernetes.protobuf,application/json", negotiate.OBJECT, "v1"),
        ("text/html, application/xhtml+xml, */*;q=0.8", negotiate.OBJECT, "v1"),
        (f"{TABLE},{OLD_TABLE},application/json", negotiate.TABLE, "v1"),
        (OLD_TABLE, negotiate.TABLE, "v1beta1"),
        ("application/json; as=Table; v=v1; g=meta.k8s.io", negotiate.TABLE, "v1"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", negotiate.OBJECT, "v1"),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", negotiate.PARTIAL, "v1"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", negotiate.PARTIAL_LIST, "v1"),
        ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", negotiate.DISCOVERY, "v2"),
        (f"application/json;q=0.5,{TABLE}", negotiate.TABLE, "v1"),
        (f"{TABLE};q=0.5,application/json;q=0.9", negotiate.OBJECT, "v1"),
        (f"{TABLE};q=0,application/json", negotiate.OBJECT, "v1"),
        (f"{TABLE};q=nonsense,application/json", negotiate.OBJECT, "v1"),
        (f"{TABLE};q=nan,application/json", negotiate.OBJECT, "v1"),
        (",,;;=,application/json", negotiate.OBJECT, "v1"),
    ],
)
def test_the_most_wanted_shape_that_there_is_is_chosen(header: str, kind: str, version: str) -> None:
    assert negotiate.shape(header) == negotiate.Shape(kind, version)


@pytest.mark.parametrize(
    "header",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/cbor",
        "application/json;q=0",
        "application/json;q=-1",
        "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1",
        "application/json;as=Table;v=v1;g=example.com",
        "json",
        ",",
        "ÿ",
    ],
)
def test_not_acceptable(header: str) -> None:
    with pytest.raises(status.StatusError) as caught:
        negotiate.shape(header)
    assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
    assert "application/json" in caught.value.message


def test_yaml_is_another_name_for_the_same_bytes() -> None:
    assert negotiate.shape("application/yaml, application/json") == negotiate.Shape(
        negotiate.OBJECT, media="application/yaml"
    )
    table = negotiate.shape("application/yaml;as=Table;v=v1;g=meta.k8s.io")
    assert (table.kind, table.media) == (negotiate.TABLE, "application/yaml")


def test_what_is_only_asked_is_no_table() -> None:
    with pytest.raises(status.StatusError, match="media types") as caught:
        negotiate.shape(TABLE, plain=True)
    assert "Table" not in caught.value.message
    assert negotiate.shape(f"{TABLE},application/json", plain=True) == negotiate.PLAIN


def test_the_memory_of_headers_is_bounded() -> None:
    for number in range(1000):
        negotiate.shape(f"application/json;x={number}")
    assert negotiate.shape.cache_info().currsize <= 256
