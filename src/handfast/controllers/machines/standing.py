# SPDX-License-Identifier: Apache-2.0
"""The objects that make bootstrap credentials count, followed by their metadata alone, each by its name.

`rules.machines.standing` decides by them. It reads no token and no bundle, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from handfast.api import resources
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop
from handfast.rules.machines import standing

_RESOURCES: Final = {"ConfigMap": resources.CONFIG_MAPS, "Secret": resources.SECRETS}


class _Meta(partial.Meta, frozen=True, gc=False):
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class View(msgspec.Struct, frozen=True, gc=False):
    """An object of which it matters since when it is there."""

    metadata: _Meta = _Meta()


def source(place: standing.Place) -> watch.Source[View]:
    """One object, by its name."""
    kind, namespace, name = place
    scope = api.Scope(namespace=namespace, field_selector=f"metadata.name={name}")
    return watch.Source(resource=_RESOURCES[kind], view=View, scope=scope, metadata=True)


class Standing:
    """What is known of these objects now."""

    def __init__(self, informers: Mapping[standing.Place, cache.Informer[View]]) -> None:
        self._informers = informers

    def objects(self) -> standing.Objects:
        created = {}
        for place, informer in self._informers.items():
            item = informer.get(*place[1:])
            at = (
                None
                if item is None or not standing.counts(place, item.metadata.annotations or {})
                else standing.instant(item.metadata.creation_timestamp, item.metadata.deletion_timestamp)
            )
            if at is not None and not informer.refusal:
                created[place] = at
        refusals = {place: informer.refusal for place, informer in self._informers.items() if informer.refusal}
        return standing.Objects(created, refusals)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` when one of them comes, changes or goes."""
        for informer in self._informers.values():
            informer.subscribe(lambda _old, _new: changed())

    async def wait_answered(self) -> None:
        for informer in self._informers.values():
            await informer.wait_answered()


def follow(context: loop.Context) -> Standing:
    """Those of this server. The informers are its own: other controllers follow other fields of the same objects."""
    informers = {}
    for place in standing.PLACES:
        one = source(place)
        informers[place] = cache.Informer(one)
        context.informers.follow(one, informers[place], informers[place].refused)
    return Standing(informers)
