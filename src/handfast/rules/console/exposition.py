# SPDX-License-Identifier: Apache-2.0
"""Reads the metrics of a server, in Prometheus' text format, as far as somebody shows them. It asks no server, and keeps none.

1. Only the metrics that are wanted are read: a busy kube-apiserver has a hundred thousand lines of others.
2. What is not a line of that format is left out, and so is what is beyond `MOST` characters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MOST: Final = 16 << 20
_LINE: Final = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? +(\S+)(?: +-?\d+)?")
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)",?')
_ESCAPES: Final = {r"\n": "\n", r"\"": '"', r"\\": "\\"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One number with its labels."""

    labels: Mapping[str, str]
    value: float


Samples = Mapping[str, Sequence[Sample]]


def read(text: str, wanted: Collection[str]) -> Samples:
    """The samples of the metrics that are wanted, by name; one without samples is not in it."""
    samples: dict[str, list[Sample]] = {}
    names = tuple(wanted)
    for line in text[:MOST].splitlines():
        # 1. the cheap question first
        if not line.startswith(names) or (fields := _LINE.fullmatch(line)) is None or fields[1] not in wanted:
            continue
        try:
            value = float(fields[3])
        except ValueError:
            continue
        samples.setdefault(fields[1], []).append(Sample(_labels(fields[2] or ""), value))
    return samples


def number(samples: Samples, name: str) -> float | None:
    """The metric that has no labels; None where it is not there."""
    return next((each.value for each in samples.get(name, ()) if not each.labels), None)


def _labels(text: str) -> dict[str, str]:
    return {
        name: re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), value)
        for name, value in _LABEL.findall(text)
    }
