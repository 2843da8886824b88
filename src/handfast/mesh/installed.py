# SPDX-License-Identifier: Apache-2.0
"""The objects of a mesh's installation, followed by name: the settings, the trust anchors, and the Secret of the issuer where it is asked for.

It judges none of them: whoever follows does, with `rules.mesh`. Each is followed by its name alone, so that an account needs no right
to list others.

Who must not miss a change reads them anew now and then (`reread`): a watch that has gone silent says nothing. What came last counts, from the
watch or by reading. An answer that was under way while the watch brought something is let go: it may be the older one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import resources
from handfast.client import api, cache, partial, watch
from handfast.rules.mesh import control_plane


class Meta(partial.Meta, rename="camel", frozen=True, gc=False):
    """The metadata, with annotations."""

    annotations: dict[str, str] | None = None


class Document(msgspec.Struct, frozen=True):
    """A ConfigMap or a Secret, as far as it counts. Its data do not print: a Secret's are keys."""

    metadata: Meta = Meta()
    data: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"<{self.metadata.namespace}/{self.metadata.name} at {self.metadata.resource_version}>"

    @property
    def document(self) -> dict[str, Any]:
        """As `rules.mesh` reads it."""
        return {"metadata": {"name": self.metadata.name}, "data": self.data or {}}


def source(resource: api.Addressable, namespace: str, name: str) -> watch.Source[Document]:
    scope = api.Scope(namespace=namespace, field_selector=f"metadata.name={name}")
    return watch.Source(resource=resource, view=Document, scope=scope)


class Installed:
    """What is stored of the installation now; `notify` is called when one of them has changed."""

    def __init__(
        self, informers: cache.Informers, namespace: str, notify: Callable[[], None], *, with_signing: bool = False
    ) -> None:
        self.namespace = namespace
        self._notify = notify
        self._sources: Final[dict[str, api.Addressable]] = {
            control_plane.CONFIG: resources.CONFIG_MAPS,
            control_plane.TRUST_ANCHOR: resources.CONFIG_MAPS,
            **({control_plane.SIGNING: resources.SECRETS} if with_signing else {}),
        }
        # How often the watch has brought each, and what was read since.
        self._brought = dict.fromkeys(self._sources, 0)
        self._read: dict[str, Document | None] = {}
        self._informers: Final = {
            name: informers.get(source(resource, namespace, name)) for name, resource in self._sources.items()
        }
        for name, informer in self._informers.items():
            informer.subscribe(self._bringing(name))

    def _bringing(self, name: str) -> cache.Handler[Document]:
        def bring(_old: Document | None, _new: Document | None) -> None:
            self._brought[name] += 1
            self._read.pop(name, None)
            self._notify()

        return bring

    async def reread(self, client: api.Client) -> None:
        """Read each of them, whatever the watch has said."""
        for name, resource in self._sources.items():
            brought = self._brought[name]
            stored = await client.find(resource, name, namespace=self.namespace)
            document = None if stored is None else msgspec.convert(stored, Document)
            if brought == self._brought[name] and document != self.find(name):
                self._read[name] = document
                self._notify()

    @property
    def answered(self) -> bool:
        """Whether each is known, or known to be forbidden."""
        return all(informer.synced or informer.refusal for informer in self._informers.values())

    async def wait_answered(self) -> None:
        """Until each is known, or known to be forbidden."""
        for informer in self._informers.values():
            await informer.wait_answered()

    def find(self, name: str) -> Document | None:
        """The object of this name; None where it is not there, or may not be read."""
        return self._read[name] if name in self._read else self._informers[name].get(self.namespace, name)

    def need(self, name: str) -> Document:
        """The same; refused where it is not there."""
        document = self.find(name)
        if document is None:
            raise errors.Refused(
                self.refusal() or f"there is no {name} in namespace {self.namespace}",
                reason="NotInstalled",
                hint="handfast mesh install makes it",
            )
        return document

    def refusal(self) -> str:
        """Why the server forbids to read one of them; empty where it does not."""
        return next((informer.refusal for informer in self._informers.values() if informer.refusal), "")
