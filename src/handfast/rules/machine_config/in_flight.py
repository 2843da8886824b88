# SPDX-License-Identifier: Apache-2.0
"""Which machines are on their way in with a bootstrap credential that is about to be revoked. It stops none of them.

1. A machine is in flight if it has no Node, and one of these holds: its key was approved, a request in its name waits, or it has a pointer
   configuration whose secret is still good.
2. Masters come in with the masters' credential while that counts, and else with the workers'.
3. A machine that has only its pool's secret cannot be named: nobody knows of it before it asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from handfast.rules.machine_config import credential
from handfast.rules.machines import explanation, inventory, revocation

_APPROVED: Final = "its key was approved, and it has no Node yet"
_POINTER: Final = "it has a pointer configuration, and has not asked for a certificate yet"


@dataclass(frozen=True, slots=True)
class InFlight:
    """One machine, and how far it is."""

    machine: str
    sentence: str


def among(
    machines: Iterable[inventory.Machine],
    nodes: Collection[str],
    requests: Mapping[str, str],
    secrets: Collection[str],
) -> tuple[InFlight, ...]:
    """Those in flight, by name. `requests` are open ones by the node's name, `secrets` the UIDs of Machines with one of their own."""
    rows = [InFlight(machine.title, _why(machine, nodes, requests, secrets)) for machine in machines]
    return tuple(sorted((row for row in rows if row.sentence), key=lambda row: row.machine))


def of_kind(machine: inventory.Machine, kind: str, seen: credential.Seen) -> bool:
    """Whether a machine comes in with the credential of this kind (2)."""
    certified = machine.role in credential.CERTIFICATE_POOLS and seen.trusted
    return certified == (kind == revocation.MASTER)


def _why(
    machine: inventory.Machine, nodes: Collection[str], requests: Mapping[str, str], secrets: Collection[str]
) -> str:
    # 1. without a Node, and on its way
    name = explanation.node_name(machine)
    if machine.node or name in nodes:
        return ""
    if name in requests:
        return f"its request {requests[name]} waits"
    if machine.approved_key:
        return _APPROVED
    return _POINTER if machine.uid in secrets else ""
