# SPDX-License-Identifier: Apache-2.0
"""Admission: new Pods get the defaults of the namespace's LimitRanges, and Pods and claims keep to them. `rules.limit_ranges` decides.

It looks the ranges up. A namespace without any costs one look. Judging costs in proportion to the containers: of a heavy Pod it is
done aside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from handfast.api import objects
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import items
from handfast.rules import limit_ranges, quotas

_RANGES = "core/limitranges/"


def _ranges(write: plugin.Write, context: plugin.Context) -> Sequence[items.Item]:
    bucket = context.replica.collection(_RANGES).buckets.get(write.namespace)
    return () if bucket is None else [bucket.items[name] for name in bucket.names]


def fill_in(write: plugin.Write, context: plugin.Context) -> Awaitable[None] | None:
    """Give a new Pod the defaults."""
    ranges = () if write.subresource or write.document is None else _ranges(write, context)
    return write.work(_fill_in, ranges, write.document) if ranges else None


def _fill_in(ranges: Sequence[items.Item], pod: objects.Document) -> None:
    for item in ranges:
        limit_ranges.fill_in(item.document(), pod)


def admit(write: plugin.Write, context: plugin.Context) -> Awaitable[None] | None:
    """Refuse what is outside the ranges; of Pods only new ones, since their containers do not change."""
    ranges = () if write.subresource or write.document is None else _ranges(write, context)
    if not ranges or (write.kind.resource == quotas.PODS and write.operation != plugin.CREATE):
        return None
    return write.work(_admit, ranges, write)


def _admit(ranges: Sequence[items.Item], write: plugin.Write) -> None:
    decide = limit_ranges.decide_pod if write.kind.resource == quotas.PODS else limit_ranges.decide_claim
    for item in ranges:
        plugin.require(write, decide(item.document(), write.document or {}))


_NAME = "LimitRanger"
DEFAULTS = plugin.Row(_NAME, frozenset({plugin.CREATE}), fill_in, frozenset({quotas.PODS}), changes=True)
BOUNDS = plugin.Row(_NAME, frozenset({plugin.CREATE, plugin.UPDATE}), admit, frozenset({quotas.PODS, quotas.CLAIMS}))
