# SPDX-License-Identifier: Apache-2.0
"""Gives every aggregated ClusterRole the rules of the ClusterRoles that its selectors match.

Which rules these are is decided in `rules.rbac.policy_rules`; a ClusterRole without an aggregation rule is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from handfast.api import objects, resources
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop
from handfast.rules.rbac import policy_rules

NAME = "clusterrole-aggregation-controller"
_AGGREGATED = "aggregated"


class ClusterRole(msgspec.Struct, rename="camel", frozen=True):
    """A ClusterRole: what it says, and what it gathers."""

    metadata: partial.LabelledMeta = partial.LabelledMeta()
    rules: list[dict[str, Any]] | None = None
    aggregation_rule: dict[str, Any] | None = None

    def document(self) -> objects.Document:
        return {
            "metadata": {"name": self.metadata.name, "labels": self.metadata.labels or {}},
            "rules": self.rules,
            "aggregationRule": self.aggregation_rule,
        }


SOURCE = watch.Source(resource=resources.CLUSTER_ROLES, view=ClusterRole)
# The few that any change may concern are found without looking at all the others.
INDEXES = {_AGGREGATED: lambda item: [_AGGREGATED] if item.aggregation_rule else []}


class RoleAggregation:
    """Handles one ClusterRole, by name."""

    def __init__(self, client: api.Client, roles: cache.Informer[ClusterRole]) -> None:
        self._client = client
        self._roles = roles

    def aggregated(self, _: ClusterRole) -> Iterable[str]:
        """Who may have to change when a ClusterRole does."""
        return [role.metadata.name for role in self._roles.by_index(_AGGREGATED, _AGGREGATED)]

    async def reconcile(self, name: str) -> None:
        role = self._roles.get("", name)
        if role is None or not role.aggregation_rule or role.metadata.deletion_timestamp is not None:
            return
        if self._complete(role.document()):
            return
        document = await self._client.find(resources.CLUSTER_ROLES, name)
        # The watch may be behind: whoever took the aggregation rule away meant the rules to stay as they are.
        if document is None or not document.get("aggregationRule") or self._complete(document):
            return
        document["rules"] = self._wanted(document)
        await self._client.update(resources.CLUSTER_ROLES, document)

    def _wanted(self, role: objects.Document) -> list[dict[str, Any]]:
        return policy_rules.aggregate(role, (other.document() for other in self._roles))

    def _complete(self, role: objects.Document) -> bool:
        return policy_rules.parse(role.get("rules")) == policy_rules.parse(self._wanted(role))


def build(context: loop.Context) -> loop.Controller[str]:
    roles = context.informers.get(SOURCE, INDEXES)
    handler = RoleAggregation(context.client, roles)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    # The role itself is named too: one that has just lost its aggregation rule costs nothing, a new one must be seen.
    controller.watches(roles, lambda item: {item.metadata.name, *handler.aggregated(item)})
    return controller
