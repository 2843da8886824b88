# SPDX-License-Identifier: Apache-2.0
"""Keeps the RBAC policy in step with the server's copy of the store: every role and binding, as soon as it is applied.

What they mean is decided in `rules.rbac.policy`; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.rules.rbac import policy, policy_rules

ROLES = tuple(f"{policy_rules.GROUP}/{plural}/" for plural in ("clusterroles", "roles"))
BINDINGS = tuple(f"{policy_rules.GROUP}/{plural}/" for plural in ("clusterrolebindings", "rolebindings"))

_Set = Callable[[str, str, Any], None]
_Remove = Callable[[str, str], None]


class PolicyFeed:
    """The policy of one server; empty until `load`, so that until then RBAC allows nothing."""

    def __init__(self, replica: replica_module.Replica) -> None:
        self._replica = replica
        self.policy = policy.Policy()

    def load(self) -> None:
        """Read what is there, and follow it from now on; the replica must have been loaded."""
        for prefix in ROLES:
            self._follow(prefix, self.policy.set_role, self.policy.remove_role)
        for prefix in BINDINGS:
            self._follow(prefix, self.policy.set_binding, self.policy.remove_binding)

    def _follow(self, prefix: str, put: _Set, remove: _Remove) -> None:
        def changed(change: items.Change) -> None:
            if change.after is not None:
                put(change.after.namespace, change.after.name, change.after.document())
            elif change.before is not None:
                remove(change.before.namespace, change.before.name)

        collection = self._replica.collection(prefix)
        collection.listen(self, changed)
        for item in collection.snapshot():
            put(item.namespace, item.name, item.document())
