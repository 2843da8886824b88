# SPDX-License-Identifier: Apache-2.0
"""Machines as a list shows them: which have joined, which wait, and what stands in the way. It reads nothing.

Whether a certain request would be approved is `approval`'s matter, and how far one machine has come `explanation`'s.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any, Final

from handfast.api import objects
from handfast.api.printing import ages
from handfast.rules.machines import inventory

JOINED: Final = "joined"
NODE_GONE: Final = "node gone"
APPROVED: Final = "approved"
WAITING: Final = "waiting"
NO_NAME: Final = "no name"
FAILED: Final = "failed"
DELETING: Final = "deleting"


def state(machine: inventory.Machine, nodes: Collection[str] | None = None) -> str:
    """In one or two words; `nodes` are the names of the Nodes that there are, None where they could not be read."""
    if machine.deleting:
        return DELETING
    if machine.node:
        return JOINED if nodes is None or machine.node in nodes else NODE_GONE
    if machine.phase == inventory.FAILED:
        return FAILED
    if machine.approved_key:
        return APPROVED
    return WAITING if machine.texts(inventory.INTERNAL_DNS) else NO_NAME


def document(machine: inventory.Machine, nodes: Collection[str] | None = None) -> dict[str, Any]:
    """One Machine, for machines to read."""
    return {
        "name": machine.name,
        "namespace": machine.namespace,
        "group": machine.group,
        "role": machine.role,
        "state": state(machine, nodes),
        "phase": machine.phase,
        "dns": list(machine.texts(*inventory.NAME_TYPES)),
        "ip": list(machine.texts(*inventory.IP_TYPES)),
        "node": machine.node,
        "providerID": machine.provider_id,
        "mac": list(machine.macs),
        "serial": machine.serial,
        "created": objects.timestamp(machine.created),
    }


COLUMNS: Final = ("NAME", "ROLE", "STATE", "NODE", "ADDRESSES", "AGE")
WIDE_COLUMNS: Final = (*COLUMNS, "PHASE", "NAMESPACE", "MAC", "SERIAL", "PROVIDER ID")
# Those that may be shortened, the least important first.
MINOR: Final = ("PROVIDER ID", "SERIAL", "MAC", "NAMESPACE", "PHASE", "ADDRESSES", "NODE")


def row(
    machine: inventory.Machine, now: datetime.datetime, nodes: Collection[str] | None = None, *, wide: bool = False
) -> tuple[str, ...]:
    """One Machine, for people to read."""
    shown = document(machine, nodes)
    age = ages.human_duration(now - machine.created)
    cells = (shown["name"], shown["role"], shown["state"], shown["node"], " ".join((*shown["dns"], *shown["ip"])), age)
    more = (shown["phase"], shown["namespace"], " ".join(shown["mac"]), shown["serial"], shown["providerID"])
    return tuple(text or "-" for text in ((*cells, *more) if wide else cells))
