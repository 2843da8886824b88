# SPDX-License-Identifier: Apache-2.0
"""The messages of the channel between the mesh's control plane and its agents, by their field numbers. It gives no meaning to them.

What many agents are sent is encoded once: an Update is its parts, one behind the other, which is how protobuf merges messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from handfast.rules.mesh import reports
from handfast.wire import descriptors
from handfast.wire.descriptors import TIMESTAMP, many, one

AGENT: Final = "handfast.mesh.v1"
SERVICE: Final = f"{AGENT}.Agent"

_MESSAGES: Final[descriptors.Messages] = {
    "Update": (
        one("version", 1, "uint64"),
        # PEM.
        one("anchors", 2, "string"),
        one("deny", 3, f"{AGENT}.Deny"),
        one("policy", 4, f"{AGENT}.Policy"),
        # Who is to have signed the agent's certificate, while the root is replaced; empty otherwise.
        one("signer", 5, "string"),
    ),
    # Certificates by the SHA-256 of their DER.
    "Deny": (many("names", 1, "string"), many("certificates", 2, "bytes")),
    "Policy": (
        many("ports", 1, f"{AGENT}.PortRules"),
        one("needs_outbound", 2, "bool"),
        one("would_need_outbound", 3, "bool"),
    ),
    # Port 0 stands for every port that has no rules of its own. Audited: what would hold if policies in audit were enforced.
    "PortRules": (
        one("port", 1, "uint32"),
        one("enforced", 2, f"{AGENT}.Rules"),
        one("audited", 3, f"{AGENT}.Rules"),
    ),
    "Rules": (one("restricted", 1, "bool"), one("needs_identity", 2, "bool"), many("permits", 3, f"{AGENT}.Permit")),
    "Permit": (
        one("identity", 1, "string", oneof="client"),
        one("suffix", 2, "string", oneof="client"),
        one("anyone", 3, "bool", oneof="client"),
        one("policy", 4, "string"),
        one("row", 5, "uint32"),
    ),
    "Report": (
        one("acknowledged", 1, "uint64"),
        one("certificate", 2, f"{AGENT}.Certificate"),
        many("edges", 3, f"{AGENT}.Edge"),
        one("pod", 4, f"{AGENT}.Pod"),
    ),
    "Certificate": (one("serial", 1, "string"), one("not_after", 2, TIMESTAMP), one("sha256", 3, "bytes")),
    "Edge": (
        one("direction", 1, "string"),
        one("peer", 2, "string"),
        one("port", 3, "uint32"),
        one("secured", 4, "bool"),
        one("count", 5, "uint64"),
        one("destination", 6, "string"),
        # Reasons, empty where it is not so.
        one("unsecured", 7, "string"),
        one("refused", 8, "string"),
        one("would_be_refused", 9, "string"),
        # Seconds of an instant.
        one("first", 10, "uint64"),
        one("last", 11, "uint64"),
    ),
    "Pod": (one("namespace", 1, "string"), one("name", 2, "string")),
}


def _pool() -> descriptors.Pool:
    pool = descriptors.Pool()
    pool.add(AGENT, _MESSAGES)
    return pool


_POOL: Final = _pool()

Update: Final[Any] = _POOL.message(f"{AGENT}.Update")
Report: Final[Any] = _POOL.message(f"{AGENT}.Report")


def edge_document(edge: reports.Edge) -> dict[str, Any]:
    """An edge, as a Report has it."""
    return dataclasses.asdict(edge)


def read_edge(message: Any) -> reports.Edge:
    """An edge that somebody reported."""
    return reports.Edge(**{field.name: getattr(message, field.name) for field in dataclasses.fields(reports.Edge)})


class Parts:
    """An Update in parts that are encoded already."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = tuple(parts)

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that the library has for it
        """The octets of the whole."""
        return b"".join(self._parts)
