# SPDX-License-Identifier: Apache-2.0
"""What is kept of an agent's reports: the MeshWorkload of its Pod, and when it is written. It writes nothing itself.

1. It is called as the Pod is, and owned by it: with the Pod it goes. One of an earlier Pod of that name is not this one's.
2. A certificate that lives longer than the one before is written at once. That other anchors are acknowledged is written once in `ANCHORS_SECONDS` at most: each stream begins without any, and an
   agent may open as many as it likes, one after the other. Anything else is written once in `SECONDS` at most, so that agents that chatter cost nobody but themselves.
3. What says the same is not written, but for `lastReport` once in `SILENT_SECONDS`.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast.api import handfast_kinds, jsonpath, mesh_workload_schemas, objects
from handfast.rules.mesh import holders, reports
from handfast.rules.mesh import issued as issued_module

KIND: Final = handfast_kinds.MESH_WORKLOAD
SECONDS: Final = 10.0
ANCHORS_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 300.0
MOST_ANCHORS: Final = mesh_workload_schemas.MOST_ANCHORS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known of one workload now."""

    identity: str
    certificate: issued_module.Certificate
    acknowledged: int = 0
    current: int = 0
    edges: tuple[reports.Edge, ...] = ()
    # SHA-256 of each trust anchor in the newest version that it has acknowledged; none where that is not known.
    anchors: tuple[str, ...] = ()


class Written(msgspec.Struct, frozen=True):
    """What was written last, and when, on a clock that only goes forward."""

    observed: Observed
    at: float


def due(observed: Observed, written: Written | None, now: float) -> float:
    """In how many seconds it is to be written; 0: now."""
    # 2. the next certificate at once, other anchors soon
    if written is None or written.observed.certificate.not_after < observed.certificate.not_after:
        return 0.0
    if written.observed.anchors != observed.anchors:
        wait = ANCHORS_SECONDS
    else:
        # 3. what says the same is in no hurry
        wait = SILENT_SECONDS if written.observed == observed else SECONDS
    return max(0.0, written.at + wait - now)


def document(holder: holders.Holder) -> dict[str, Any]:
    """The object without its status."""
    # 1. owned by the Pod
    owner = {"apiVersion": "v1", "kind": "Pod", "name": holder.pod, "uid": holder.uid}
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {"name": holder.pod, "namespace": holder.namespace, "ownerReferences": [owner]},
    }


def is_of(there: objects.Document, holder: holders.Holder) -> bool:
    """Whether an object is this Pod's, not that of an earlier one (1)."""
    owners = jsonpath.mappings(there, "metadata", "ownerReferences")
    return any(owner.get("uid") == holder.uid for owner in owners)


def status(observed: Observed, now: datetime.datetime) -> dict[str, Any]:
    """The status of the object."""
    certificate = observed.certificate
    return {
        "identity": observed.identity,
        "certificate": {
            "serial": certificate.serial,
            "notAfter": objects.timestamp(certificate.not_after),
            "sha256": certificate.fingerprint,
        },
        "acknowledged": observed.acknowledged,
        "current": observed.current,
        "anchors": list(observed.anchors[:MOST_ANCHORS]),
        "edges": [_edge(edge) for edge in observed.edges],
        "lastReport": objects.timestamp(now),
    }


def _edge(edge: reports.Edge) -> dict[str, Any]:
    first, last = (objects.timestamp(at) if at else "" for at in map(_instant, (edge.first, edge.last)))
    texts = {
        "peer": edge.peer,
        "destination": edge.destination,
        "unsecured": edge.unsecured,
        "refused": edge.refused,
        "wouldBeRefused": edge.would_be_refused,
        "firstSeen": first,
        "lastSeen": last,
    }
    row = {"direction": edge.direction, "port": edge.port, "secured": edge.secured, "count": edge.count}
    return row | {name: text for name, text in texts.items() if text}


def _instant(seconds: int) -> datetime.datetime | None:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC) if seconds else None
