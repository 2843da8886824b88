# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from handfast.apiserver.access import policy
from handfast.apiserver.state import envelope, items, replica
from handfast.rules import access, decision
from handfast.rules.rbac import policy_rules

RULES = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]


class NoStore:
    """Nothing is read from the store itself here."""

    epoch_offset = 0


class Fed:
    def __init__(self) -> None:
        self.copy = replica.Replica(NoStore(), envelope.Envelopes())  # type: ignore[arg-type]
        self.feed = policy.PolicyFeed(self.copy)
        self._version = 0

    def item(self, namespace: str, name: str, document: dict[str, Any]) -> items.Item:
        self._version += 1
        whole = {"apiVersion": f"{policy_rules.GROUP}/v1", "kind": "X", "metadata": {"name": name}, **document}
        return items.Item(namespace, name, self._version, envelope.encode_document(whole))

    def put(self, plural: str, namespace: str, name: str, **document: Any) -> None:
        found = self.item(namespace, name, document)
        self.copy.collection(f"{policy_rules.GROUP}/{plural}/").apply(namespace, name, found, found.version)

    def remove(self, plural: str, namespace: str, name: str) -> None:
        self._version += 1
        self.copy.collection(f"{policy_rules.GROUP}/{plural}/").apply(namespace, name, None, self._version)

    def may(self, user: str, namespace: str = "ns") -> bool:
        asked = access.Attributes(
            user=user, groups=(), verb="get", is_resource=True, plural="pods", namespace=namespace, name="x"
        )
        return isinstance(self.feed.policy.decide(asked), decision.Approve)


def bound(kind: str, name: str, user: str) -> dict[str, Any]:
    return {"roleRef": {"kind": kind, "name": name}, "subjects": [{"kind": "User", "name": user}]}


def test_what_is_there_and_what_comes():
    fed = Fed()
    fed.put("clusterroles", "", "reader", rules=RULES)
    fed.put("roles", "ns", "local", rules=RULES)
    fed.put("clusterrolebindings", "", "b", **bound("ClusterRole", "reader", "everywhere"))
    fed.put("rolebindings", "ns", "b", **bound("Role", "local", "here"))
    # Closed until it knows.
    assert not fed.may("everywhere")
    fed.feed.load()
    assert fed.may("everywhere", "other")
    assert fed.may("here")
    assert not fed.may("here", "other")
    fed.put("rolebindings", "other", "b", **bound("ClusterRole", "reader", "here"))
    assert fed.may("here", "other")
    fed.put("clusterroles", "", "reader", rules=[])
    assert not fed.may("everywhere")
    fed.put("clusterroles", "", "reader", rules=RULES)
    fed.remove("clusterrolebindings", "", "b")
    assert not fed.may("everywhere")
    fed.remove("roles", "ns", "local")
    assert not fed.may("here")
    fed.remove("roles", "ns", "local")
    fed.put("roles", "ns", "local", rules=RULES)
    assert fed.may("here")
    fed.remove("rolebindings", "ns", "b")
    assert not fed.may("here")
