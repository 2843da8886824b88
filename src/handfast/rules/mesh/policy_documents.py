# SPDX-License-Identifier: Apache-2.0
"""A MeshPolicy as rules see it: whom it is about, whom it lets in, and how it is read from a document. It judges nobody: see `policy`.

1. A policy is about workloads of its own namespace, and about no others. Of accounts, labels and ports that it gives, each has to fit. What
   counts is the port of the Pod.
2. A policy that cannot be read in part lets in fewer, never more. A row that cannot be read fits nobody. Where it cannot be read whom
   the policy is about, that is everybody, and none of its rows fits: they were meant for others. A mode that nobody knows is enforced.

3. What all policies of a workload come to is rows for each port. Policies that come to more than `MOST_ROWS` are closed, all of them: each is about
   every port, and has no row. So nobody's policies take the memory of the service that compiles everybody's.

The schema lets hardly any of what cannot be read be stored: see `api.mesh_schemas`.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_policy_documents.py |
|---|---|---|---|---|
| a tenant | the right to write policies in its namespace | let itself in elsewhere | 1 | test_a_policy_is_about_its_own_namespace_alone |
| a careless operator | a policy with a typing error | open a workload | 2 | test_what_cannot_be_read_lets_in_nobody |
| a tenant | the right to write policies in its namespace | many rows for many ports, to use up memory | 3 | test_more_rows_than_can_be_kept_let_in_nobody |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, mesh_schemas, objects, selectors, status

MOST_ROWS: Final = 1 << 16


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A workload, by what policies know it by."""

    namespace: str
    account: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `clients`: one of these. With none of them it fits nobody."""

    account: tuple[str, str] | None = None
    namespace: str = ""
    identity: str = ""
    anyone: bool = False

    @property
    def title(self) -> str:
        """As messages name it."""
        if self.account is not None:
            return f"serviceAccount {'/'.join(self.account)}"
        words = (("namespace", self.namespace), ("identity", self.identity))
        named = [f"{word} {value}" for word, value in words if value]
        return named[0] if named else "unauthenticated" if self.anyone else "(unreadable)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One MeshPolicy. Accounts and ports: none is all of them. `rows` is None where it does not say who. `problem`: what could not be read."""

    namespace: str
    name: str
    accounts: frozenset[str] = frozenset()
    selector: selectors.LabelSelector = selectors.EVERYTHING
    ports: frozenset[int] = frozenset()
    rows: tuple[Row, ...] | None = None
    enforced: bool = True
    needs_inbound: bool = False
    needs_outbound: bool = False
    problem: str = ""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    def is_about(self, target: Target) -> bool:
        """Whether it is about a workload, on one port at least."""
        # 1. its own namespace, and everything that it gives
        return (
            self.namespace == target.namespace
            and (not self.accounts or target.account in self.accounts)
            and self.selector.match(target.labels)
        )

    def is_about_port(self, target: Target, port: int) -> bool:
        return self.is_about(target) and (not self.ports or port in self.ports)


def bounded(policies: Iterable[Policy]) -> list[Policy]:
    """The policies of one workload, in the order of their names; closed where they come to too much (3)."""
    rows = sorted(policies, key=lambda policy: policy.title)
    ports = {port for policy in rows for port in policy.ports}
    many = (1 + len(ports)) * sum(1 + len(policy.rows or ()) for policy in rows)
    return rows if many <= MOST_ROWS else [_closed(policy) for policy in rows]


def _closed(policy: Policy) -> Policy:
    # 3. every port, and no row
    return replace(
        policy,
        ports=frozenset(),
        rows=None if policy.rows is None else (),
        problem=f"spec, which with the others comes to more than {MOST_ROWS} rows for all ports together",
    )


def parse(document: objects.Document) -> Policy:
    """What a MeshPolicy says. It never fails: what cannot be read lets in nobody more (2)."""
    spec = jsonpath.mapping(document, "spec")
    problems: list[str] = []
    targets = spec.get("targets")
    if not isinstance(targets, dict | None):
        problems.append("spec.targets")
    namespace = jsonpath.text(document, "metadata", "namespace")
    return Policy(
        namespace=namespace,
        name=jsonpath.text(document, "metadata", "name"),
        accounts=_members(targets, "serviceAccounts", str, problems),
        selector=_selector(jsonpath.at(targets, "podSelector"), problems),
        ports=_members(targets, "ports", int, problems),
        rows=_rows(spec, namespace, problems),
        # 2. a mode that nobody knows is enforced
        enforced=spec.get("mode") != mesh_schemas.AUDIT,
        needs_inbound=_needs(spec, "inbound"),
        needs_outbound=_needs(spec, "outbound"),
        problem=", ".join(problems),
    )


def _members(targets: Any, key: str, kind: type, problems: list[str]) -> frozenset[Any]:
    value = jsonpath.at(targets, key)
    if value is None:
        return frozenset()
    if isinstance(value, list) and value and all(type(each) is kind for each in value):
        return frozenset(value)
    # 2. all of them
    problems.append(f"spec.targets.{key}")
    return frozenset()


def _selector(value: Any, problems: list[str]) -> selectors.LabelSelector:
    try:
        return selectors.EVERYTHING if value is None else selectors.from_label_selector(value)
    except status.StatusError:
        # 2. all labels
        problems.append("spec.targets.podSelector")
        return selectors.EVERYTHING


def _rows(spec: Mapping[str, Any], namespace: str, problems: list[str]) -> tuple[Row, ...] | None:
    value = spec.get("clients")
    if value is None and "requireIdentity" in spec and not problems:
        return None
    if not isinstance(value, list):
        problems.append("spec.clients")
        return ()
    # 2. nobody, where they were meant for others
    if problems:
        return ()
    rows = tuple(_row(each, namespace) for each in value)
    problems += [f"spec.clients[{index}]" for index, row in enumerate(rows) if row == Row()]
    return rows


def _row(value: Any, namespace: str) -> Row:
    match value:
        case {"serviceAccount": {"name": str(name), **where}, **rest} if name and not rest:
            # 2. a namespace that is no text is none that was meant
            home = where.get("namespace", namespace)
            return Row(account=(home, name)) if isinstance(home, str) else Row()
        case {"namespace": str(name), **rest} if name and not rest:
            return Row(namespace=name)
        case {"identity": str(name), **rest} if name and not rest:
            return Row(identity=name)
        case {"unauthenticated": True, **rest} if not rest:
            return Row(anyone=True)
    # 2. fits nobody
    return Row()


def _needs(spec: Mapping[str, Any], key: str) -> bool:
    value = spec.get("requireIdentity")
    if isinstance(value, dict):
        value = value.get(key)
    # 2. whatever is there and is not false
    return value is not None and value is not False
