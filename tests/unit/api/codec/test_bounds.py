# SPDX-License-Identifier: Apache-2.0
"""How much a body may hold: what is counted, what is not, and what each kind may have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast.api import kinds, status
from handfast.api.codec import bounds
from tests.properties import sample_documents

CSR = kinds.row("certificatesigningrequests", "certificates.k8s.io")
PODS = kinds.row("pods")


def counted(value: Any) -> int:
    """By hand: every container, and a comma between any two of its children."""
    if isinstance(value, dict):
        children = list(value.values())
    elif isinstance(value, list):
        children = value
    else:
        return 0
    return 1 + max(0, len(children) - 1) + sum(map(counted, children))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(st.sampled_from('a,{["\\\n é:'), max_size=12),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(st.sampled_from('a,{["\\'), max_size=4), inner),
    max_leaves=60,
)


@given(JSON)
def test_texts_are_no_values(value: Any) -> None:
    body = msgspec.json.encode(value)
    exact = counted(value)
    assert bounds.values(body, 10_000) == 10_000
    assert bounds.values(body, exact) == exact
    if exact:
        assert bounds.values(body, exact - 1) >= exact


@pytest.mark.parametrize("filler", [b"x", b"\\\\", b'\\"', b"\\u00e9", b",", b"{"])
def test_parts_do_not_cut_escapes_in_two(filler: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(3, 24):
        monkeypatch.setattr(bounds, "_PART", size)
        body = b'{"a":"' + filler * 9 + b'","b":["' + filler * 4 + b'",1,2,3]}'
        assert bounds.values(body, 5) == 6, size


def test_a_body_of_empty_objects_is_counted() -> None:
    body = b'{"spec":[' + b"{}," * 100_000 + b"{}]}"
    assert bounds.values(body, bounds.USUAL) > bounds.USUAL
    with pytest.raises(status.StatusError) as refused:
        bounds.require(bounds.values(body, bounds.USUAL), bounds.USUAL, "Pod")
    assert refused.value.code == 413
    assert "the Pod has more than 30000 values" in refused.value.message
    bounds.require(bounds.USUAL, bounds.USUAL, "Pod")


def test_counting_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_PART", 100)
    assert 10 < bounds.values(b"[" + b"1," * 100_000 + b"1]", 10) < 100


def test_a_certificate_request_is_small() -> None:
    assert bounds.limit(CSR) == bounds.FEW
    within = {"metadata": {}, "spec": {"usages": ["client auth"] * 64}}
    assert bounds.items(CSR, within) == []
    (cause,) = bounds.items(CSR, {"metadata": {}, "spec": {"usages": ["client auth"] * 1000}})
    assert cause.field == "spec.usages"
    assert cause.message == "Too many: 1000: must have at most 64 items"


@pytest.mark.parametrize(
    ("group", "plural", "most"),
    [
        ("", "events", bounds.FEW),
        ("events.k8s.io", "events", bounds.FEW),
        ("coordination.k8s.io", "leases", bounds.FEW),
        ("authorization.k8s.io", "subjectaccessreviews", bounds.QUESTION),
        ("authentication.k8s.io", "tokenreviews", bounds.QUESTION),
        ("", "pods", bounds.USUAL),
        ("", "configmaps", bounds.USUAL),
        ("discovery.k8s.io", "endpointslices", bounds.MANY),
        ("apiextensions.k8s.io", "customresourcedefinitions", bounds.MANY),
    ],
)
def test_limits_by_kind(group: str, plural: str, most: int) -> None:
    assert bounds.limit(kinds.row(plural, group)) == most


def test_a_custom_object_may_have_many() -> None:
    assert bounds.limit(sample_documents.widget()) == bounds.MANY


def test_long_lists_are_named() -> None:
    metadata = {"ownerReferences": [{}] * 257, "finalizers": ["a/b"] * 256, "managedFields": None}
    spec: dict[str, Any] = {"containers": [{}] * 1001, "volumes": {}}
    found = [(cause.field, cause.message) for cause in bounds.items(PODS, {"metadata": metadata, "spec": spec})]
    assert found == [
        ("metadata.ownerReferences", "Too many: 257: must have at most 256 items"),
        ("spec.containers", "Too many: 1001: must have at most 1000 items"),
    ]
    (cause,) = bounds.items(kinds.row("roles", "rbac.authorization.k8s.io"), {"rules": [{}] * 2001})
    assert cause.field == "rules"
    assert bounds.items(PODS, {"metadata": None, "spec": []}) == []


def test_light_bodies() -> None:
    assert bounds.is_light(b"[" * bounds.LIGHT_BYTES)
    assert bounds.is_light(b'{"data":"' + b"x" * 60_000 + b'"}')
    # Few values, and expressions may look at all of it a hundred times.
    assert not bounds.is_light(b'{"data":"' + b"x" * 1_000_000 + b'"}')
    assert bounds.is_light(b"[" + b"1," * (bounds.LIGHT - 1) + b"1]" + b" " * bounds.LIGHT_BYTES)
    assert not bounds.is_light(b"[" + b"1," * bounds.LIGHT + b"1]" + b" " * bounds.LIGHT_BYTES)


def test_an_object_is_counted_as_it_is_stored() -> None:
    # `storage` asks this of every object that is not light, however it came to be: tests/scenarios/test_heavy_objects.py.
    most = bounds.limit(kinds.row("configmaps"))

    def require(keys: int) -> None:
        stored = {"metadata": {"name": "a"}, "data": {f"k{index}": "" for index in range(keys)}}
        bounds.require(bounds.values(msgspec.json.encode(stored), most), most, "ConfigMap to be stored")

    # Three objects and the comma between two of them: with so many keys it is as large as it may be.
    require(most - 3)
    with pytest.raises(status.StatusError, match="the ConfigMap to be stored has more than 30000 values") as refused:
        require(most - 2)
    assert refused.value.code == 413
