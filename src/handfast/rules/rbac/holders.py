# SPDX-License-Identifier: Apache-2.0
"""What one user or group holds in one scope: its roles, each with the bindings that give it.

Whether the roles that allow something are among them is a question of two sets, and costs as much as the smaller one
is large. That is nothing for nearly everyone; who holds very many roles has a table of their own permissions instead.
It does not know whose roles these are: `rbac.policy` does.
"""

from __future__ import annotations

from collections.abc import Collection

from handfast.rules import decision
from handfast.rules.rbac import grants

# Up to so many roles, comparing takes about a microsecond; above, a table of one's own is worth its memory.
CROWD = 64
# Permissions in all such tables together. Above, holders do without: whoever may write roles and bindings could otherwise have
# a table of thousands made for each of thousands. It takes some 25 ms to fill.
BUDGET = 50_000


class Held:
    """Roles by name -> bindings by name -> the answer that names the binding."""

    __slots__ = ("own", "roles")

    def __init__(self) -> None:
        self.roles: dict[str, dict[str, decision.Approve]] = {}
        self.own: grants.Grants | None = None

    def give(self, role: str, binding: str, verdict: decision.Approve) -> bool:
        """Whether the role is new here."""
        bindings = self.roles.get(role)
        if bindings is not None:
            bindings[binding] = verdict
            return False
        self.roles[role] = {binding: verdict}
        return True

    def take(self, role: str, binding: str) -> bool:
        """Whether the role has gone with its last binding."""
        bindings = self.roles[role]
        del bindings[binding]
        if bindings:
            return False
        del self.roles[role]
        return True

    def answer(self, granting: Collection[str]) -> decision.Approve:
        """The answer of a binding to one of these roles; at least one of them is held."""
        few, many = (self.roles, granting) if len(self.roles) <= len(granting) else (granting, self.roles)
        role = next(role for role in few if role in many)
        return next(iter(self.roles[role].values()))
