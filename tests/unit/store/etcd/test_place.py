# SPDX-License-Identifier: Apache-2.0
"""What a URL of an etcd may say, and where the keys of a store are."""

from __future__ import annotations

import pytest

from handfast.store.etcd import place as places


@pytest.mark.parametrize(
    "text, endpoints, prefix",
    [
        ("etcd://127.0.0.1:2379/hf", ["127.0.0.1:2379"], "hf"),
        ("etcd://a.example,b.example:1/one/two/", ["a.example:2379", "b.example:1"], "one/two"),
        ("etcd://[::1]:2379,[fd00::1]/hf", ["[::1]:2379", "[fd00::1]:2379"], "hf"),
    ],
)
def test_what_is_a_place(text: str, endpoints: list[str], prefix: str) -> None:
    place = places.parse(text)
    assert ([str(endpoint) for endpoint in place.endpoints], place.prefix) == (endpoints, prefix)
    assert places.parse(str(place)) == place


@pytest.mark.parametrize(
    "text, says",
    [
        ("etcd:x", "is no URL of an etcd"),
        ("etcd://127.0.0.1:2379", "has no prefix"),
        ("etcd://127.0.0.1:2379//", "has no prefix"),
        ("etcd://127.0.0.1:2379/a b", "has the prefix 'a b'"),
        ("etcd://127.0.0.1:2379/a//b", "has the prefix"),
        ("etcd://127.0.0.1:2379/" + "a" * 257, "has the prefix"),
        ("etcd://root:secret@127.0.0.1:2379/hf", "has a login in it"),
        ("etcd://root:a/secret@127.0.0.1:2379/hf", "has a login in it"),
        ("etcd://root:a?secret#@127.0.0.1:2379/hf", "has a login in it"),
        ("etcd://127.0.0.1:2379/hf?x=1", "has a query"),
        ("etcd://127.0.0.1:99999/hf", "has the endpoint '127.0.0.1:99999'"),
        ("etcd://,/hf", "has an endpoint without a host"),
        ("etcd://:2379/hf", "has an endpoint without a host"),
    ],
)
def test_what_is_none_is_told_with_an_example(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="as in etcd://10") as refusal:
        places.parse(text)
    assert says in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_keys_of_entries_and_of_the_store_are_apart() -> None:
    place = places.parse("etcd://127.0.0.1/hf")
    assert (place.key("a/é"), place.own("floor")) == ("/hf/objects/a/é".encode(), b"/hf/store/floor")
    assert (place.text(place.key("a/é")), place.text(place.own("floor"))) == ("a/é", None)
    assert place.root_end == b"/hf0"
    assert places.after_all(b"\xff") == b"\0"
