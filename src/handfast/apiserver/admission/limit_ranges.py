# SPDX-License-Identifier: Apache-2.0
"""Admission: new Pods get the defaults of the namespace's LimitRanges, and Pods and claims keep to them. `rules.limit_ranges` decides.

It looks the ranges up. A namespace without any costs one look.
"""

from __future__ import annotations

from collections.abc import Iterable

from handfast.api import objects
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import items
from handfast.rules import decision, limit_ranges, quotas

_RANGES = "core/limitranges/"


def _ranges(write: plugin.Write, context: plugin.Context) -> Iterable[items.Item]:
    bucket = context.replica.collection(_RANGES).buckets.get(write.namespace)
    return () if bucket is None else [bucket.items[name] for name in bucket.names]


def fill_in(write: plugin.Write, context: plugin.Context) -> None:
    """Give a new Pod the defaults."""
    pod = write.document
    if write.subresource or pod is None:
        return
    for item in _ranges(write, context):
        limit_ranges.fill_in(item.document(), pod)


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Refuse what is outside the ranges; of Pods only new ones, since their containers do not change."""
    document = write.document
    if write.subresource or document is None:
        return
    for item in _ranges(write, context):
        plugin.require(write, _verdict(write, item.document(), document))


def _verdict(write: plugin.Write, limit_range: objects.Document, document: objects.Document) -> decision.Deny | None:
    if write.kind.resource == quotas.PODS:
        return limit_ranges.decide_pod(limit_range, document) if write.operation == plugin.CREATE else None
    return limit_ranges.decide_claim(limit_range, document)


_NAME = "LimitRanger"
DEFAULTS = plugin.Row(_NAME, frozenset({plugin.CREATE}), fill_in, frozenset({quotas.PODS}), changes=True)
BOUNDS = plugin.Row(_NAME, frozenset({plugin.CREATE, plugin.UPDATE}), admit, frozenset({quotas.PODS, quotas.CLAIMS}))
