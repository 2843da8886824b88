# SPDX-License-Identifier: Apache-2.0
"""What is measured: CPU time and memory of processes, figures of several rounds, and the facts of the machine.

It does not decide what is good enough: a figure's limit is given by the case that measures it.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import pathlib
import platform
import ssl
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

MIB = 1 << 20
# A process clock of Linux is (~pid << 3) | CPUCLOCK_SCHED: nanoseconds of all its threads, those that ended included.
_CPUCLOCK_SCHED = 2
_PACKAGES = ("handfast", "aiohttp", "uvloop", "msgspec", "cryptography", "apsw")


def cpu_seconds(pid: int) -> float:
    """The CPU time a process has used so far."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def cpu_total(pids: Iterable[int]) -> float:
    return sum(map(cpu_seconds, pids))


async def settle(pids: Sequence[int], *, window: float = 0.1, share: float = 0.03, longest: float = 10.0) -> None:
    """Wait until the processes have nothing left to do, so that late reactions count to the round that caused them."""
    until = time.monotonic() + longest
    before = cpu_total(pids)
    while time.monotonic() < until:
        await asyncio.sleep(window)
        now = cpu_total(pids)
        if now - before < window * share:
            return
        before = now


class Meter:
    """The CPU time of some processes, by name, over a block: `async with meter: …`, then `meter.used`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._before: dict[str, float] = {}
        self.used: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        await settle(tuple(self._pids.values()))
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        return self

    async def __aexit__(self, *_: object) -> None:
        await settle(tuple(self._pids.values()))
        self.used = {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}

    @property
    def total(self) -> float:
        return sum(self.used.values())


def _kibibytes(path: str, field: str) -> int:
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise LookupError(f"{path}: no {field}")


def rss(pid: int) -> int:
    """Resident bytes."""
    return _kibibytes(f"/proc/{pid}/status", "VmRSS") * 1024


def pss(pid: int) -> int:
    """Resident bytes, shared pages divided among those that share them."""
    return _kibibytes(f"/proc/{pid}/smaps_rollup", "Pss") * 1024


def private(pid: int) -> int:
    """Resident bytes that no other process has."""
    rollup = f"/proc/{pid}/smaps_rollup"
    return (_kibibytes(rollup, "Private_Clean") + _kibibytes(rollup, "Private_Dirty")) * 1024


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report: a value for each round, and the limit its median may not exceed, if it has one."""

    name: str
    title: str
    unit: str
    values: Sequence[float]
    limit: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def passed(self) -> bool:
        return self.limit is None or self.median <= self.limit

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "median": round(self.median, 3),
            "min": round(min(self.values), 3),
            "max": round(max(self.values), 3),
            "rounds": [round(value, 3) for value in self.values],
        }
        if self.limit is not None:
            document |= {"limit": self.limit, "passed": self.passed}
        return document


def microseconds(seconds: Iterable[float], operations: int) -> list[float]:
    """Seconds per round as microseconds per operation."""
    return [value / operations * 1e6 for value in seconds]


def ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Round by round."""
    return [mine / theirs for mine, theirs in zip(ours, others, strict=True)]


def _cpu_model() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "memoryMiB": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "kernel": platform.release(),
        "loadAverage": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }
