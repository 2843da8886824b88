# SPDX-License-Identifier: Apache-2.0
"""The certificates of the mesh that are in force, by whom they name: an index of the ledger's chain `mesh`. It reads no ledger itself.

It is filled an entry at a time, each once, and forgets what has expired. What it costs is in proportion to what is in force, however long
the ledger is. A certificate is found by what a Revocation names: account, node, serial number, key, or Pod.
"""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Iterable
from typing import Final

import msgspec

from handfast.rules import revocation
from handfast.rules.ledger import entries
from handfast.rules.mesh import holders

_DNS: Final = "DNS:"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate: its SHA-256 in hex, and whose it is. `names` are its DNS names."""

    fingerprint: str
    serial: str
    key_fingerprint: str
    names: tuple[str, ...]
    requester: str
    holder: holders.Holder
    not_after: datetime.datetime

    def targets(self) -> tuple[tuple[str, str], ...]:
        """What a Revocation may name of it, in the words of `revocation.Revocation.targets`."""
        holder = self.holder
        named = (
            ("user", self.requester),
            ("serial number", revocation.normal_serial(self.serial)),
            ("key", self.key_fingerprint),
            ("node", holder.node),
            ("pod", holder.revocable),
            ("pod", revocation.pod_text(holder.namespace, holder.pod) if holder.pod else ""),
        )
        return tuple(dict.fromkeys(target for target in named if target[1]))


def read(entry: entries.Entry) -> Certificate:
    """The certificate that an entry of the chain `mesh` tells of."""
    return Certificate(
        fingerprint=entry.certificate,
        serial=entry.serial,
        key_fingerprint=entry.key_fingerprint,
        names=tuple(name.removeprefix(_DNS) for name in entry.names if name.startswith(_DNS)),
        requester=entry.requester,
        holder=holders.read(entry.request),
        not_after=entry.not_after,
    )


class Issued:
    """The certificates in force."""

    __slots__ = ("_by_fingerprint", "_by_target", "_ends")

    def __init__(self) -> None:
        self._by_fingerprint: dict[str, Certificate] = {}
        self._by_target: dict[tuple[str, str], dict[str, Certificate]] = {}
        self._ends: list[tuple[datetime.datetime, str]] = []

    def __len__(self) -> int:
        return len(self._by_fingerprint)

    def add(self, certificate: Certificate, now: datetime.datetime) -> bool:
        """Take one in; whether it is new, and in force."""
        if certificate.not_after <= now or certificate.fingerprint in self._by_fingerprint:
            return False
        self._by_fingerprint[certificate.fingerprint] = certificate
        heapq.heappush(self._ends, (certificate.not_after, certificate.fingerprint))
        for target in certificate.targets():
            self._by_target.setdefault(target, {})[certificate.fingerprint] = certificate
        return True

    def forget(self, now: datetime.datetime) -> None:
        """Drop what has expired."""
        while self._ends and self._ends[0][0] <= now:
            gone = self._by_fingerprint.pop(heapq.heappop(self._ends)[1])
            for target in gone.targets():
                rows = self._by_target[target]
                del rows[gone.fingerprint]
                if not rows:
                    del self._by_target[target]

    def find(self, fingerprint: str) -> Certificate | None:
        """The certificate with this SHA-256."""
        return self._by_fingerprint.get(fingerprint)

    def of(self, targets: Iterable[tuple[str, str]], now: datetime.datetime) -> tuple[Certificate, ...]:
        """Those in force that one of these names, each once, the longest-lived first."""
        matching = {
            row.fingerprint: row
            for target in targets
            for row in self._by_target.get(target, {}).values()
            if row.not_after > now
        }
        return tuple(sorted(matching.values(), key=lambda row: (row.not_after, row.fingerprint), reverse=True))
