# SPDX-License-Identifier: Apache-2.0
"""What `mesh check` says of a mesh: a verdict, a reason and a next step for each check. It looks nothing up: the facts are handed over.

1. Every check is there each time, in the same order and under the same name. What depends on a check that failed is unknown.
2. What the caller may not read is unknown, with the reason. It is never taken for good.
3. A check that fails means that workloads get no certificate, no proxy or no peers, or that somebody may do too much. What will fail later, or is about
   single workloads, is a warning.
4. Names that are many are shown as a few, and counted.

The checks are in `check_trust` (what is installed, and who signs) and `check_workloads` (what runs).
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from handfast.api import objects
from handfast.bootstrap import first_objects

_SHOWN: Final = 5


class Verdict(enum.StrEnum):
    """How a check ended, the worst last. When a check fails, and when it warns, 3 says."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAILED = "failed"


_WORST: Final = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Check:
    """One line: `reason` is a stable word, empty where all is well, and `hint` is the next step."""

    name: str
    verdict: Verdict
    sentence: str
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """What may not be read, or could not be (2)."""

    why: str


@dataclass(frozen=True, slots=True)
class Door:
    """One door of the control plane: HOST:PORT where it is said to be, how many endpoints are ready, and whether it took a connection."""

    address: str = ""
    ready: int = 0
    connects: bool | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When a Node that is ready was heard last, by its own clock."""

    node: str
    at: datetime.datetime


Stored = objects.Document | None | Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a mesh."""

    namespace: str
    now: datetime.datetime
    config: Stored = None
    anchors: Stored = None
    signing: Stored = None
    webhook: Stored = None
    injector_pair: Stored = None
    missing_kinds: Sequence[str] = ()
    # What the rights are to be, and what they are.
    access: Sequence[tuple[first_objects.FirstObject, Stored]] = ()
    # Accounts of the mesh that read every Secret.
    readers: Sequence[str] | Unread = ()
    doors: Mapping[str, Door] | Unread = field(default_factory=dict)
    # By how much the API server's clock is ahead.
    ahead: datetime.timedelta | Unread = datetime.timedelta()
    heartbeats: Sequence[Heartbeat] | Unread = ()
    namespaces: Sequence[objects.Document] | Unread = ()
    accounts: Sequence[objects.Document] | Unread = ()
    pods: Sequence[objects.Document] | Unread = ()
    workloads: Sequence[objects.Document] | Unread = ()


def worst(checks: Sequence[Check]) -> Verdict:
    """The verdict of all of them."""
    return max((check.verdict for check in checks), key=_WORST.index, default=Verdict.OK)


def unknown(name: str, why: str) -> Check:
    """A check that could not be made (1, 2)."""
    return Check(name, Verdict.UNKNOWN, why, "Unknown", "ask with a credential that may read it: --kubeconfig")


def several(names: Sequence[str]) -> str:
    """Names for a sentence (4)."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def about(
    name: str, rows: Sequence[str], verdict: Verdict, reason: str, sentence: Callable[[str], str], hint: str, well: str
) -> Check:
    """A check that is well unless there are rows to name."""
    if not rows:
        return Check(name, Verdict.OK, well)
    return Check(name, verdict, sentence(several(rows)), reason, hint)
