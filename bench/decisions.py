# SPDX-License-Identifier: Apache-2.0
"""What a decision costs in a small and in a large cluster: RBAC by bindings, the Node authorizer by nodes and Pods.

These are measured within this process, without requests around them. Every question of a batch is another one, so that
no answer is remembered from an earlier one; all sizes take turns within each round.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bench import measure, preload, settings
from handfast.apiserver.access import node_feed
from handfast.apiserver.state import collection, envelope, replica
from handfast.apiserver.state import items as states
from handfast.rules import access
from handfast.rules.nodes import authorizer
from handfast.rules.rbac import defaults
from handfast.rules.rbac import policy as rbac_policy

DECISION_LIMIT_MICROSECONDS = 20.0
EVENT_LIMIT_MICROSECONDS = 200.0
# The work is the same at every size. The smallest fits into the processor's caches and the largest does not, which costs
# some of it twice; a look at every binding or Pod would cost a hundred times as much, or a thousand.
GROWTH_LIMIT_RATIO = 3.0
PODS_PER_NODE = 30
# More than the policy remembers answers.
_QUESTIONS = 6000
_EVENTS = 1500
_READ = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}


@dataclass(slots=True)
class _Series:
    """One thing that is measured at several sizes: a step that does `operations` of it, and the seconds of each round."""

    name: str
    title: str
    limit: float
    unit: str
    steps: dict[int, tuple[Callable[[], None], int]]
    used: dict[int, list[float]] = field(default_factory=dict)

    def round(self, *, warm: bool) -> None:
        for size, (step, operations) in self.steps.items():
            begun = time.thread_time()
            step()
            if not warm:
                self.used.setdefault(size, []).append((time.thread_time() - begun) / operations)

    def figures(self) -> list[measure.Figure]:
        first, *_, last = self.used
        ratios = [large / small for small, large in zip(self.used[first], self.used[last], strict=True)]
        return [
            *(
                measure.Figure(
                    f"decisions.{self.name}.{size}",
                    f"{self.title}, {size:,} {self.unit}",
                    "µs",
                    measure.microseconds(values, 1),
                    self.limit,
                )
                for size, values in self.used.items()
            ),
            measure.Figure(
                f"decisions.{self.name}.growth", f"  {last:,} ÷ {first:,} {self.unit}", "×", ratios, GROWTH_LIMIT_RATIO
            ),
        ]


async def decisions(run: settings.Run) -> list[measure.Figure]:
    sizes = run.sizes
    series = [
        _rbac("rbac", "RBAC decision", sizes.bindings, _spread),
        _rbac("rbac_one", "RBAC decision, one user has all bindings", sizes.bindings, _hoard),
        *_nodes(sizes.nodes),
    ]
    # As the server does after its start.
    gc.collect()
    gc.freeze()
    for number in range(sizes.rounds + 1):
        for one in series:
            one.round(warm=not number)
    gc.unfreeze()
    return [figure for one in series for figure in one.figures()]


def _asking(
    decide: Callable[[access.Attributes], object], questions: Sequence[access.Attributes]
) -> Callable[[], None]:
    def step() -> None:
        for question in questions:
            decide(question)

    return step


def _question(user: str, groups: tuple[str, ...], plural: str, namespace: str, name: str) -> access.Attributes:
    return access.Attributes(
        user, (*groups, "system:authenticated"), "get", True, "", "", "v1", plural, "", namespace, name
    )


_Fill = Callable[[rbac_policy.Policy, int], Callable[[int], access.Attributes]]


def _rbac(name: str, title: str, bindings: Sequence[int], fill: _Fill) -> _Series:
    steps = {}
    for count in bindings:
        policy = rbac_policy.Policy()
        for default in defaults.documents():
            put = policy.set_role if default.plural.endswith("roles") else policy.set_binding
            put(default.namespace, default.name, default.document)
        question = fill(policy, count)
        questions = [question(number) for number in range(_QUESTIONS)]
        steps[count] = (_asking(policy.decide, questions), len(questions))
    return _Series(name, title, DECISION_LIMIT_MICROSECONDS, "bindings", steps)


def _bind(role: tuple[str, str], *subjects: tuple[str, str]) -> Mapping[str, Any]:
    return {
        "roleRef": {"kind": role[0], "name": role[1]},
        "subjects": [{"kind": kind, "name": name} for kind, name in subjects],
    }


def _spread(policy: rbac_policy.Policy, count: int) -> Callable[[int], access.Attributes]:
    """Ten bindings in each namespace, half of them to Roles of it; one question in four is refused."""
    chosen = random.Random(1)
    for number in range(count):
        space = f"team-{number // 10}"
        role = ("Role", f"own-{number}") if number % 2 else ("ClusterRole", "reading")
        subjects = (("User", f"user-{number}"), ("Group", f"group-{number}"), ("ServiceAccount", f"account-{number}"))
        policy.set_binding(space, f"binding-{number}", _bind(role, *subjects))
        if number % 2:
            policy.set_role(space, f"own-{number}", {"rules": [_READ]})
    policy.set_role("", "reading", {"rules": [_READ]})

    def question(number: int) -> access.Attributes:
        whose = chosen.randrange(count)
        space, what = f"team-{whose // 10}", f"object-{number}"
        row = number % 4
        if row == 0:
            return _question(f"user-{whose}", (), "configmaps", space, what)
        if row == 1:
            return _question(f"else-{number}", ("devs", f"group-{whose}"), "configmaps", space, what)
        if row == 2:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{space}")
            return _question(f"system:serviceaccount:{space}:account-{whose}", groups, "configmaps", space, what)
        return _question(f"user-{whose}", (), "secrets", space, what)

    return question


def _hoard(policy: rbac_policy.Policy, count: int) -> Callable[[int], access.Attributes]:
    """One user has every binding, each to a Role of its own for one object; one question in four is refused."""
    for number in range(count):
        rule = {**_READ, "resourceNames": [f"object-{number}"]}
        policy.set_role("team", f"role-{number}", {"rules": [rule]})
        policy.set_binding("team", f"binding-{number}", _bind(("Role", f"role-{number}"), ("User", "hoarder")))
    # The group makes every question another one: those on a small policy would be answered from memory.
    return lambda number: _question(
        "hoarder",
        (f"group-{number}",),
        "configmaps",
        "team",
        f"object-{number % count}" if number % 4 else "another",
    )


class _Collection:
    """Stands for the server's copy of one resource, without keeping it: a hundred thousand Pods would be in the way."""

    def __init__(self, items: Iterator[states.Item]) -> None:
        self._items = items
        self.listener: collection.Listener = lambda _: None

    def snapshot(self) -> Iterator[states.Item]:
        return self._items

    def listen(self, _owner: object, listener: collection.Listener) -> None:
        self.listener = listener


class _Cluster:
    """Pods on nodes, known to the node graph by what the server knows of them: encoded bytes."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._pods = _Collection(self._items())
        rest = _Collection(iter(()))
        copies = {node_feed.PODS: self._pods}
        holder = type("Copies", (), {"collection": lambda _self, prefix: copies.get(prefix, rest)})()
        feed = node_feed.NodeFeed(cast("replica.Replica", holder))
        feed.load()
        self.authorizer = authorizer.NodeAuthorizer(feed.graph)

    def _items(self) -> Iterator[states.Item]:
        for number in range(self.nodes * PODS_PER_NODE):
            yield _pod(number, number % self.nodes)

    def tell(self, before: states.Item | None, after: states.Item | None) -> None:
        self._pods.listener(states.Change(1, before, after))

    def question(self, number: int) -> access.Attributes:
        """Secrets and ConfigMaps of one's own Pods, shared ones, those of others, and one's own Pods."""
        which = number * 7919 % (self.nodes * PODS_PER_NODE)
        node, space = which % self.nodes, preload.pod_namespace(which)
        row = number % 4
        if row == 0:
            return _as_node(node, "secrets", space, f"secret-{which}")
        if row == 1:
            return _as_node(node, "configmaps", space, "kube-root-ca.crt")
        if row == 2:
            return _as_node(node + 1, "secrets", space, f"secret-{which}")
        return _as_node(node, "pods", space, f"pod-{which}")


def _as_node(node: int, plural: str, namespace: str, name: str) -> access.Attributes:
    return _question(f"system:node:node-{node}", ("system:nodes",), plural, namespace, name)


def _pod(number: int, node: int, phase: str = "Pending") -> states.Item:
    document = preload.pod(number, node, phase)
    place = document["metadata"]
    return states.Item(place["namespace"], place["name"], 1, envelope.encode_document(document))


def _nodes(sizes: Sequence[int]) -> list[_Series]:
    title = "Pods"
    decides = _Series("node", "Node authorizer decision", DECISION_LIMIT_MICROSECONDS, title, {})
    created = _Series("graph_new", "node graph, a new Pod", EVENT_LIMIT_MICROSECONDS, title, {})
    reported = _Series("graph_status", "node graph, a report on a Pod", EVENT_LIMIT_MICROSECONDS, title, {})
    gone = _Series("graph_gone", "node graph, a deleted Pod", EVENT_LIMIT_MICROSECONDS, title, {})
    for nodes in sizes:
        cluster, pods = _Cluster(nodes), nodes * PODS_PER_NODE
        questions = [cluster.question(number) for number in range(_QUESTIONS)]
        decides.steps[pods] = (_asking(cluster.authorizer.decide, questions), len(questions))
        fresh = [_pod(pods + number, number % nodes) for number in range(_EVENTS)]
        running = [_pod(pods + number, number % nodes, "Running") for number in range(_EVENTS)]
        nothing: Sequence[None] = [None] * _EVENTS
        # In this order, so that every round begins and ends with the cluster as it was.
        created.steps[pods] = (_telling(cluster, nothing, fresh), _EVENTS)
        reported.steps[pods] = (_telling(cluster, fresh, running), _EVENTS)
        gone.steps[pods] = (_telling(cluster, running, nothing), _EVENTS)
    return [decides, created, reported, gone]


def _telling(
    cluster: _Cluster, before: Sequence[states.Item | None], after: Sequence[states.Item | None]
) -> Callable[[], None]:
    def step() -> None:
        for old, new in zip(before, after, strict=True):
            cluster.tell(old, new)

    return step
