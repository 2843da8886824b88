# SPDX-License-Identifier: Apache-2.0
"""Admission: nodes write what is their own. What that is, is decided by `rules.node_restriction`; here it is only asked."""

from __future__ import annotations

from handfast.apiserver import admission
from handfast.rules import node_restriction, node_write


def admit(asked: admission.Attributes, context: admission.Context) -> None:
    """Refuse what a node may not write."""
    user = asked.user
    if not node_restriction.concerns(user.groups):
        return
    write = node_write.Write(
        operation=asked.operation,
        resource=asked.kind.resource,
        subresource=asked.subresource,
        namespace=asked.namespace,
        name=asked.name,
        document=asked.document,
        old=asked.old,
        user=user.name,
        groups=user.groups,
    )
    verdict = node_restriction.decide(write, node_write.Known(context.find, context.decide))
    admission.require(asked, verdict)


# Every resource: a caller that may be a node but has no node's name writes nothing at all.
ROW = admission.Row("NodeRestriction", frozenset({admission.CREATE, admission.UPDATE, admission.DELETE}), admit)
