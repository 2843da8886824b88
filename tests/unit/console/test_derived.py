# SPDX-License-Identifier: Apache-2.0
"""A value for each object, as the object changes."""

from __future__ import annotations

from handfast.api import metadata, resources
from handfast.client import cache, partial, watch
from handfast.console import derived


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
