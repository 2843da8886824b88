# SPDX-License-Identifier: Apache-2.0
"""The metrics of how the store is: what `handfast store status` shows of it. Who asks the store is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client import core


class StoreMember(msgspec.Struct, frozen=True):
    """One of the machines that keep a store together, by where it is reached."""

    address: str
    answers: bool
    leads: bool


class StoreEpoch(msgspec.Struct, frozen=True):
    """When resource versions were made to jump, to which offset and why; `at` is 0 where nobody noted it."""

    offset: int
    why: str
    at: float = 0.0


class StoreFigures(msgspec.Struct, frozen=True):
    """How the store was when it was last asked; what is not known is not a number."""

    engine: str = ""
    identity: str = ""
    size_bytes: float = math.nan
    objects: float = math.nan
    revision: float = math.nan
    floor: float = math.nan
    lag: float = math.nan
    epoch_offset: float = math.nan
    backup_at: float = 0.0
    sealed: Mapping[str, int] = msgspec.field(default_factory=dict)
    members: Sequence[StoreMember] = ()
    epochs: Sequence[StoreEpoch] = ()


_NUMBERS: Final[Sequence[tuple[str, str, Callable[[StoreFigures], float]]]] = (
    ("size_bytes", "What the store occupies.", lambda figures: figures.size_bytes),
    ("objects", "Objects in this server's copy of the store.", lambda figures: figures.objects),
    ("revision", "The store's newest revision.", lambda figures: figures.revision),
    ("floor_revision", "The oldest revision that can be read.", lambda figures: figures.floor),
    ("lag_revisions", "Revisions that this server's copy is behind the store.", lambda figures: figures.lag),
    ("epoch_offset", "What is added to a revision to get a resource version.", lambda figures: figures.epoch_offset),
    ("backup_timestamp_seconds", "When the store was last backed up; 0: not known.", lambda figures: figures.backup_at),
)


class StoreMetrics:
    """For a registry; `read` is called when somebody scrapes."""

    def __init__(self, read: Callable[[], StoreFigures]) -> None:
        self._read = read

    def collect(self) -> Iterator[core.Metric]:
        figures = self._read()
        for name, text, number in _NUMBERS:
            yield core.GaugeMetricFamily(f"handfast_store_{name}", text, value=number(figures))
        info = [((figures.engine, figures.identity), 1.0)] if figures.engine else []
        yield _labelled("info", "1 for the engine and the identity of the store.", ("engine", "identity"), info)
        sealed = [((key,), float(count)) for key, count in figures.sealed.items()]
        yield _labelled("sealed_values", "Values that a key sealed, by its id.", ("key",), sealed)
        answering = [((member.address,), float(member.answers)) for member in figures.members]
        yield _labelled("member_up", "1 if a member of the etcd answers, by its address.", ("address",), answering)
        leading = [((member.address,), float(member.leads)) for member in figures.members]
        yield _labelled("member_leads", "1 if a member leads the etcd, by its address.", ("address",), leading)
        raised = [((str(epoch.offset), epoch.why), epoch.at) for epoch in figures.epochs]
        text = "When resource versions jumped, by the offset from then on and why; 0: not known."
        yield _labelled("epoch_timestamp_seconds", text, ("offset", "why"), raised)


def _labelled(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> core.Metric:
    family = core.GaugeMetricFamily(f"handfast_store_{name}", text, labels=labels)
    for texts, number in values:
        family.add_metric(texts, number)
    return family
