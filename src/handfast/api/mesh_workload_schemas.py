# SPDX-License-Identifier: Apache-2.0
"""The schema of MeshWorkload and its columns. What is written there is `rules.mesh.observed`'s; who reports it, an agent of the mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handfast.api import kind_schemas as parts

MOST_ANCHORS: Final = 64
_EDGE: Final = parts.structure(
    "One edge.",
    {
        "direction": parts.text(
            "Who connects: inbound, the peer does; outbound, the workload.", enum=["inbound", "outbound"]
        ),
        "peer": parts.text("Identity of the peer; absent where it showed none.", maxLength=253),
        "port": parts.whole("Port that is connected to.", format="int32", minimum=1, maximum=65535),
        "secured": parts.truth("Whether both ends showed their identity."),
        "count": parts.whole("Requests so far, or connections that are not HTTP.", format="int64", minimum=0),
        "destination": parts.text("What the workload called; absent for inbound.", maxLength=253),
        "unsecured": parts.text("Why it is not secured; absent where it is.", maxLength=40),
        "refused": parts.text("Why such requests are refused; absent where they are not.", maxLength=40),
        "wouldBeRefused": parts.text(
            "Why such requests would be refused if policies in audit were enforced; absent where they would not.",
            maxLength=40,
        ),
        "firstSeen": parts.instant("When it was seen first, since the agent was started."),
        "lastSeen": parts.instant("When it was seen last, to the minute."),
    },
    required=["direction", "port", "secured", "count"],
)
_STATUS: Final = parts.structure(
    "What the agent reported, as far as the ledger does not know better.",
    {
        "identity": parts.text("Name of the workload in the mesh, by its certificate.", maxLength=253),
        "certificate": parts.structure(
            "The certificate that it has, by the ledger.",
            {
                "serial": parts.text("Serial number in hex."),
                "notAfter": parts.instant("When it ends."),
                "sha256": parts.text("SHA-256 of the certificate in hex."),
            },
        ),
        "acknowledged": parts.whole(
            "Version of anchors, deny list and policy that the agent says it works by.", format="int64", minimum=0
        ),
        "current": parts.whole("Newest version that was sent to it.", format="int64", minimum=0),
        "anchors": parts.atomic(
            "SHA-256 in hex of each trust anchor that the agent has acknowledged.",
            parts.text("One trust anchor.", maxLength=64),
            maxItems=MOST_ANCHORS,
        ),
        "edges": parts.atomic("Whom it talks to.", _EDGE, maxItems=256),
        "lastReport": parts.instant("When it was last heard of."),
    },
)
SCHEMA: Final[Mapping[str, Any]] = parts.structure(
    "MeshWorkload is what the agent of a Pod reports to the mesh: its certificate, the version it works by, its edges. It is "
    "written by the control plane of the mesh, and goes with the Pod.",
    {
        "apiVersion": parts.text("Version of this form of the object."),
        "kind": parts.text("MeshWorkload."),
        "metadata": {"type": "object"},
        "status": _STATUS,
    },
)
COLUMNS: Final = (
    parts.column("Identity", ".status.identity", "Name in the mesh."),
    parts.column("Expires", ".status.certificate.notAfter", "When its certificate ends."),
    parts.column("Acknowledged", ".status.acknowledged", "Version that it works by.", kind="integer"),
    parts.column("Age", ".metadata.creationTimestamp", "Time since the first report.", kind="date"),
)
