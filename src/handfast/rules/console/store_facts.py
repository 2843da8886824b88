# SPDX-License-Identifier: Apache-2.0
"""How the store is, row by row as `handfast store status` says it, from the metrics of the API server that answered. It asks nobody.

1. What the server tells has a value. What it does not tell is a row, too, with the reason: a page that leaves it out would look complete.
2. Of several servers one compacts: the newest instant counts, of the metrics and of all Leases.
3. Another API server than Handfast's tells the size and the objects of its store. Of the rest is said who knows it.
4. There is no key and no path of a file in it: a seal key is named by its id.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.api import objects
from handfast.rules import server_leases
from handfast.rules.console import exposition

_OWN: Final = "handfast_store_"
_INFO: Final = "handfast_store_info"
_VERSION: Final = "handfast_resource_version"
_SEALED: Final = "handfast_store_sealed_values"
_UP: Final = "handfast_store_member_up"
_LEADS: Final = "handfast_store_member_leads"
_EPOCHS: Final = "handfast_store_epoch_timestamp_seconds"
# Of kube-apiserver, by the names of several versions, the newest first.
_SIZES: Final = ("apiserver_storage_size_bytes", "apiserver_storage_db_total_size_in_bytes")
_OBJECTS: Final = ("apiserver_resource_objects", "apiserver_storage_objects")
METRICS: Final = frozenset(
    {
        *(f"{_OWN}{name}" for name in ("size_bytes", "objects", "revision", "floor_revision", "epoch_offset", "form")),
        *(f"{_OWN}{name}_timestamp_seconds" for name in ("compacted", "backup")),
        *(_INFO, _VERSION, _SEALED, _UP, _LEADS, _EPOCHS, *_SIZES, *_OBJECTS),
    }
)
_NOT_YET: Final = "the server has not asked its store yet, or the store does not answer"
_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# What another API server does not tell (3), and who knows it.
_ELSEWHERE: Final = (
    ("revision", "etcd tells it: etcdctl endpoint status"),
    ("seal keys", "they are in the encryption configuration of kube-apiserver, which its API does not show"),
    ("last compaction", "kube-apiserver compacts every 5 minutes, and does not tell when it did"),
    ("last backup", "whoever runs etcdctl snapshot save knows it"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One row. Without a value and an instant it is not known, and `about` says why."""

    name: str
    value: str = ""
    about: str = ""
    at: datetime.datetime | None = None

    @property
    def is_known(self) -> bool:
        return bool(self.value) or self.at is not None


@dataclass(frozen=True, slots=True)
class Member:
    """One of the machines that keep an etcd."""

    address: str
    answers: bool
    leads: bool


def is_own(samples: exposition.Samples) -> bool:
    """Whether the server that answered is one of Handfast."""
    return _INFO in samples or _VERSION in samples


def facts(samples: exposition.Samples, servers: Sequence[server_leases.Server]) -> tuple[Fact, ...]:
    """The rows, in the order of the command; none where nothing was read."""
    if not samples:
        return ()
    return tuple(_own(samples, servers) if is_own(samples) else _foreign(samples))


def members(samples: exposition.Samples) -> tuple[Member, ...]:
    """Who keeps the etcd, by address; none for a file."""
    leading = {each.labels.get("address") for each in samples.get(_LEADS, ()) if each.value}
    there = {each.labels.get("address", ""): bool(each.value) for each in samples.get(_UP, ())}
    return tuple(Member(address, answers, address in leading) for address, answers in sorted(there.items()))


def size(count: float) -> str:
    """Octets for a person."""
    unit, word = next(((unit, word) for unit, word in _UNITS if count >= unit), (1, "B"))
    return f"{count / unit:.1f} {word}" if unit > 1 else f"{count:.0f} B"


def _own(samples: exposition.Samples, servers: Sequence[server_leases.Server]) -> Iterable[Fact]:
    info = next((each.labels for each in samples.get(_INFO, ())), {})
    revision, offset = _finite(samples, "revision"), _finite(samples, "epoch_offset")
    floor, form = _finite(samples, "floor_revision"), _finite(samples, "form")
    for name, about in (("engine", ""), ("identity", "copies and restores of it keep it")):
        yield Fact(name, info[name], about) if info.get(name) else Fact(name, "", _NOT_YET)
    yield _number("size", _finite(samples, "size_bytes"), "what it occupies", in_bytes=True)
    yield _number("objects", _finite(samples, "objects"))
    yield _number("revision", revision, "" if floor is None else f"the oldest that can be read is {floor:,.0f}")
    version = revision + offset if revision is not None and offset is not None else _plain(samples, _VERSION)
    yield _number("resource version", version, "" if not offset else f"a revision plus {offset:,.0f}")
    yield _number("stored form", form, "in which the server that answered writes values")
    yield from _sealed(samples)
    # 2. whoever compacted last
    yield _instant("last compaction", _compacted(samples, servers), "none since the servers started")
    backup = _moment(_finite(samples, "backup_timestamp_seconds"))
    none = "none is noted here: handfast store backup FILE takes one and notes it"
    yield _instant("last backup", backup, none) if _INFO in samples else Fact("last backup", "", _NOT_YET)
    for each in samples.get(_EPOCHS, ()):
        raised, why = _moment(each.value), each.labels.get("why", "")
        yield Fact("versions raised", f"to {each.labels.get('offset', '')}", why, raised)


def _foreign(samples: exposition.Samples) -> Iterable[Fact]:
    # 3. what it tells, and who knows the rest
    sizes = _values(samples, _SIZES)
    why = "this API server does not tell it; etcdctl endpoint status does"
    yield Fact("engine", "", "another API server than Handfast's does not tell it; most use etcd")
    yield Fact("size", size(max(sizes)), "of its database, as it tells itself") if sizes else Fact("size", "", why)
    counts = _values(samples, _OBJECTS)
    yield Fact("objects", f"{sum(counts):,.0f}", "as it counts them") if counts else Fact("objects", "", why)
    yield from (Fact(name, "", who) for name, who in _ELSEWHERE)


def _values(samples: exposition.Samples, names: Iterable[str]) -> list[float]:
    """Those of the first of these metrics that is there; -1 stands for what could not be counted."""
    there = next((samples[name] for name in names if name in samples), ())
    return [each.value for each in there if math.isfinite(each.value) and each.value >= 0]


def _sealed(samples: exposition.Samples) -> Iterable[Fact]:
    keys = [(each.labels.get("key", ""), each.value) for each in samples.get(_SEALED, ())]
    if not keys:
        # None, once the store was asked, is an answer.
        yield Fact(
            "seal keys", "none" if _INFO in samples else "", "nothing is sealed" if _INFO in samples else _NOT_YET
        )
    for key, count in sorted(keys):
        yield Fact("seal key", key, f"sealed {count:,.0f} value{'' if count == 1 else 's'}")


def _compacted(samples: exposition.Samples, servers: Sequence[server_leases.Server]) -> datetime.datetime | None:
    instants = [_moment(_finite(samples, "compacted_timestamp_seconds")), *(_read(each.compacted) for each in servers)]
    return max((each for each in instants if each is not None), default=None)


def _read(timestamp: str) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(timestamp)
    except ValueError:
        return None


def _moment(seconds: float | None) -> datetime.datetime | None:
    """0 is none."""
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC) if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


def _plain(samples: exposition.Samples, name: str) -> float | None:
    value = exposition.number(samples, name)
    return value if value is not None and math.isfinite(value) else None


def _finite(samples: exposition.Samples, name: str) -> float | None:
    return _plain(samples, f"{_OWN}{name}")


def _number(name: str, value: float | None, about: str = "", *, in_bytes: bool = False) -> Fact:
    if value is None:
        return Fact(name, "", _NOT_YET)
    return Fact(name, size(value) if in_bytes else f"{value:,.0f}", about)


def _instant(name: str, at: datetime.datetime | None, otherwise: str) -> Fact:
    return Fact(name, "", "", at) if at is not None else Fact(name, "none", otherwise)
