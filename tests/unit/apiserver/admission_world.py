# SPDX-License-Identifier: Apache-2.0
"""A copy of a store that holds what a test puts in, for asking admission plugins. Nothing is tested here."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, cast

from handfast.api import kinds, objects
from handfast.apiserver import identity
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import envelope, items, replica
from handfast.rules import access, decision

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
KINDS = {row.resource: row for row in kinds.builtin()}
NODE = identity.User("system:node:mynode", ("system:nodes", "system:authenticated"))
JANE = identity.User("jane", ("developers", "system:authenticated"))


def refuses(attributes: access.Attributes) -> decision.Decision:
    return decision.NotMine("Test", "no", "test")


def item(resource: tuple[str, str], name: str, namespace: str = "", **fields: Any) -> items.Item:
    kind = KINDS[resource]
    metadata = {"name": name, "namespace": namespace, "uid": f"{name}-uid", **fields.pop("metadata", {})}
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
    return items.Item(namespace, name, 1, envelope.encode_document(document))


class World:
    """Objects, an authorizer, and the plugin's view of both."""

    def __init__(self, decide: Callable[[access.Attributes], decision.Decision] = refuses) -> None:
        # No store: nothing here is read from one.
        self.replica = replica.Replica(cast("Any", None), envelope.Envelopes())
        self.context = plugin.Context(self.replica, decide, lambda: NOW)
        self._version = 1

    def put(self, resource: tuple[str, str], name: str, namespace: str = "", **fields: Any) -> None:
        """Write an object, as the watch of the store does: whoever listens hears of it."""
        self._version += 1
        found = item(resource, name, namespace, **fields)
        self.replica.collection(KINDS[resource].prefix).apply(namespace, name, found, self._version)


def write_of(
    operation: str,
    resource: tuple[str, str],
    *,
    document: objects.Document | None = None,
    old: objects.Document | None = None,
    user: identity.User = NODE,
    **where: str,
) -> plugin.Write:
    return plugin.Write(
        operation=operation,
        kind=KINDS[resource],
        subresource=where.get("subresource", ""),
        namespace=where.get("namespace", ""),
        name=where.get("name", ""),
        document=document,
        old=old,
        user=user,
        dry_run=False,
    )
