# SPDX-License-Identifier: Apache-2.0
"""A value for each object, as the object changes."""

from __future__ import annotations

from handfast.api import metadata, resources
from handfast.client import cache, partial, watch
from handfast.console import derived, unread


def thing(name: str, version: str = "1") -> partial.Partial:
    return partial.Partial(metadata.Meta(name, "ns", "", version))


def test_values_follow_their_objects() -> None:
    informer = cache.Informer(watch.Source(resource=resources.SECRETS, view=partial.Partial))
    informer.put(thing("before"))
    made: list[str] = []

    def make(each: partial.Partial) -> str | None:
        made.append(each.metadata.name)
        return None if each.metadata.resource_version == "9" else each.metadata.name.upper()

    values = derived.Derived(informer, make)
    informer.put(thing("after"))
    assert set(values.all()) == {"BEFORE", "AFTER"}
    informer.put(thing("after", "9"))
    informer.put(thing("never", "9"))
    assert set(values.all()) == {"BEFORE"}
    informer.remove(thing("before"))
    assert not set(values.all())
    # Made when they changed, and not when somebody looked.
    assert made == ["before", "after", "after", "never"]


def test_an_object_that_cannot_be_read_is_left_out_and_ends_nothing() -> None:
    left_out = unread.Unread()
    informer = cache.Informer(watch.Source(resource=resources.SECRETS, view=partial.Partial), guard=left_out)
    for name in ("a", "b", "c"):
        informer.put(thing(name))

    def make(each: partial.Partial) -> str:
        if each.metadata.resource_version == "9" or each.metadata.name == "b":
            raise KeyError(each.metadata.name)
        return each.metadata.name

    values = derived.Derived(informer, make)
    assert (set(values.all()), len(left_out)) == ({"a", "c"}, 1)
    # What was made of it before is not kept.
    informer.put(thing("c", "9"))
    assert (set(values.all()), len(left_out)) == ({"a"}, 2)
    informer.put(thing("c", "10"))
    informer.remove(thing("b"))
    assert (set(values.all()), len(left_out)) == ({"a", "c"}, 0)
