# SPDX-License-Identifier: Apache-2.0
"""In which Pod a certificate of the mesh is: how the ledger says it, and how it is read back. It looks nothing up.

An entry's `request` is `NAMESPACE/POD/UID/NODE`. None of the four has a slash in it. Entries from before UIDs were written have the first
two only. Of a token that is bound to no Pod it is empty. One that was too long for its entry is a digest, which names no Pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from handfast.rules import revocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A Pod and the node it is on; what is not known is empty."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    node: str = ""

    @property
    def text(self) -> str:
        """As the ledger has it."""
        return f"{self.namespace}/{self.pod}/{self.uid}/{self.node}" if self.pod else ""

    @property
    def revocable(self) -> str:
        """As a Revocation is found by; empty where there is no Pod."""
        return revocation.pod_text(self.namespace, self.pod, self.uid) if self.pod else ""


def read(text: str) -> Holder:
    """The Pod that an entry's `request` names; nobody where it names none."""
    parts = text.split("/")
    if len(parts) not in {2, 4} or not all(parts[:2]):
        return Holder()
    namespace, pod, uid, node = (*parts, "", "")[:4]
    return Holder(namespace=namespace, pod=pod, uid=uid, node=node)
