# SPDX-License-Identifier: Apache-2.0
"""Admission: nodes write what is their own. What that is, is decided by `rules.nodes.restriction`; here it is only asked."""

from __future__ import annotations

from handfast.apiserver.admission import plugin
from handfast.rules.nodes import restricted_write, restriction


def admit(attributes: plugin.Attributes, context: plugin.Context) -> None:
    """Refuse what a node may not write."""
    user = attributes.user
    if not restriction.concerns(user.groups):
        return
    write = restricted_write.Write(
        operation=attributes.operation,
        resource=attributes.kind.resource,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
        document=attributes.document,
        old=attributes.old,
        user=user.name,
        groups=user.groups,
    )
    verdict = restriction.decide(write, restricted_write.Known(context.find, context.decide))
    plugin.require(attributes, verdict)


# Every resource: a caller that may be a node but has no node's name writes nothing at all.
ROW = plugin.Row("NodeRestriction", frozenset({plugin.CREATE, plugin.UPDATE, plugin.DELETE}), admit)
