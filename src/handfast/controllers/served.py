# SPDX-License-Identifier: Apache-2.0
"""Which resources there are to look after: the built-in kinds, Handfast's own, and what CustomResourceDefinitions add.

Built-in kinds come from the table, so no discovery document is needed. It follows nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from handfast.api import handfast_kinds, kinds
from handfast.client import partial


class Served(msgspec.Struct, frozen=True):
    """A resource, with the name of its kind."""

    group: str
    version: str
    plural: str
    namespaced: bool
    kind: str


class _Names(msgspec.Struct, frozen=True, gc=False):
    plural: str = ""
    kind: str = ""


class _Version(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    served: bool = False
    storage: bool = False


class _Spec(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    scope: str = ""
    names: _Names = _Names()
    versions: tuple[_Version, ...] = ()


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[_Condition, ...] | None = None


class Definition(msgspec.Struct, frozen=True, gc=False):
    """The part of a CustomResourceDefinition that says what it serves."""

    metadata: partial.Meta = partial.Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def served(self) -> Served | None:
        """Its resource in the version it is stored as, else in any served one; None if it serves nothing (yet)."""
        established = any(row.type == "Established" and row.status == "True" for row in self.status.conditions or ())
        versions = sorted((row for row in self.spec.versions if row.served), key=lambda row: not row.storage)
        if not established or not versions:
            return None
        names = self.spec.names
        return Served(self.spec.group, versions[0].name, names.plural, self.spec.scope == "Namespaced", names.kind)


def builtin() -> Sequence[Served]:
    """The built-in kinds that can be listed, watched and deleted, each kind of stored object once."""
    return [
        Served(row.group, row.version, row.plural, row.namespaced, row.kind)
        for row in kinds.builtin()
        # events.k8s.io shows the core Events a second time.
        if not row.stored_version and {"list", "watch", "delete"} <= set(row.verbs)
    ]


def own() -> Sequence[Served]:
    """Handfast's own kinds that lie in namespaces. A Handfast server has them without a definition; another may have none of them."""
    return [
        Served(row.group, row.version, row.plural, row.namespaced, row.kind)
        for row in handfast_kinds.rows()
        if row.namespaced
    ]
