# SPDX-License-Identifier: Apache-2.0
"""What is known of a mesh when `mesh check` judges it. It looks nothing up: `client.mesh_check` does.

A check that fails means that workloads get no certificate, no proxy or no peers, or that somebody may do too much. What will fail later, or
is about single workloads, is a warning.

The checks are in `check_trust` (what is installed, and who signs) and `check_workloads` (what runs).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from handfast.api import objects
from handfast.bootstrap import first_objects
from handfast.rules import check


class Door(msgspec.Struct, frozen=True):
    """One door of the control plane: HOST:PORT where it is said to be, how many endpoints are ready, and whether it took a connection."""

    address: str = ""
    ready: int = 0
    connects: bool | None = None


class Heartbeat(msgspec.Struct, frozen=True):
    """When a Node that is ready was heard last, by its own clock."""

    node: str
    at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a mesh."""

    namespace: str
    now: datetime.datetime
    config: check.Stored = None
    anchors: check.Stored = None
    signing: check.Stored = None
    webhook: check.Stored = None
    injector_pair: check.Stored = None
    missing_kinds: Sequence[str] = ()
    # What the rights are to be, and what they are.
    access: Sequence[tuple[first_objects.FirstObject, check.Stored]] = ()
    # Accounts of the mesh that read every Secret.
    readers: Sequence[str] | check.Unread = ()
    doors: Mapping[str, Door] | check.Unread = field(default_factory=dict)
    # By how much the API server's clock is ahead.
    ahead: datetime.timedelta | check.Unread = datetime.timedelta()
    heartbeats: Sequence[Heartbeat] | check.Unread = ()
    namespaces: Sequence[objects.Document] | check.Unread = ()
    accounts: Sequence[objects.Document] | check.Unread = ()
    pods: Sequence[objects.Document] | check.Unread = ()
    workloads: Sequence[objects.Document] | check.Unread = ()
