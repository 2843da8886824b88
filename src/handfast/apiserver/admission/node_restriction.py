# SPDX-License-Identifier: Apache-2.0
"""Admission: nodes write what is their own. What that is, is decided by `rules.nodes.restriction`; here it is only asked."""

from __future__ import annotations

from handfast.apiserver.admission import plugin
from handfast.rules.nodes import restricted_write, restriction


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Refuse what a node may not write."""
    user = write.user
    if not restriction.concerns(user.groups):
        return
    restricted = restricted_write.Write(
        operation=write.operation,
        resource=write.kind.resource,
        subresource=write.subresource,
        namespace=write.namespace,
        name=write.name,
        document=write.document,
        old=write.old,
        user=user.name,
        groups=user.groups,
    )
    verdict = restriction.decide(restricted, restricted_write.Known(context.find, context.decide))
    plugin.require(write, verdict)


# Every resource: a caller that may be a node but has no node's name writes nothing at all.
ROW = plugin.Row("NodeRestriction", frozenset({plugin.CREATE, plugin.UPDATE, plugin.DELETE}), admit)
