# SPDX-License-Identifier: Apache-2.0
"""What the console says of a mesh: its workloads with the ends of their certificates, who talks to whom, and its policies. It looks nothing up.

1. Who counts as a workload, and what it believes, is read as the rotation of the root reads it (`rules.mesh.believers`); edges are those of `handfast mesh edges`.
2. The most urgent comes first: what fails, then what will fail, then what nobody knows, then what is well. Within that, the nearest end.
3. Of a workload the first of these is said: its certificate is over; little of its life is left, and it should have been renewed; it does not believe every root;
   its agent is silent; nothing is known of its certificate.
4. Of an edge the first of these is said: it is refused; it would be, if policies in audit were enforced; it is not secured.

Names are those that strangers chose, and reports are an agent's own word: whoever shows them escapes and marks them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handfast.api import jsonpath, objects
from handfast.rules.ledger import entries
from handfast.rules.mesh import (
    believers,
    edges,
    holders,
    injection,
    names,
    observed,
    policy_documents,
    proxy_environment,
)

# 3. Agents and proxies renew after 70 to 90 % of a life at most.
_LATE: Final = 0.9
# An agent is heard of once in this time, whatever happens.
_SILENT: Final = datetime.timedelta(seconds=3 * observed.SILENT_SECONDS)
GOOD: Final = "good"
SECURED: Final = "secured"
# 2. the worst first
WORKLOAD_STATES: Final = ("expired", "late", "old roots", "silent", "unknown", GOOD)
EDGE_STATES: Final = ("refused", "would be refused", "not secured", SECURED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Pod with an identity. `why` is a sentence for a state that is not good; what is not known is empty, or None."""

    namespace: str
    pod: str
    account: str
    identity: str
    proxy: str
    state: str
    why: str = ""
    issued: datetime.datetime | None = None
    ends: datetime.datetime | None = None
    serial: str = ""
    heard: datetime.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge, and its ends as people write them; `client` is empty for who showed no identity."""

    client: str
    server: str
    state: str
    security: str
    judgement: str
    seen_by: str
    edge: edges.Edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A MeshPolicy in words."""

    title: str
    mode: str
    about: str
    lets_in: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is there: Pods and MeshWorkloads as documents, and the certificates of the mesh in the ledger."""

    mesh: names.Mesh
    now: datetime.datetime
    lifetime: datetime.timedelta
    pods: Sequence[objects.Document] = ()
    workloads: Sequence[objects.Document] = ()
    ledger: Sequence[entries.Entry] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A Pod, as far as it is followed; `anchors` is the digest of the trust anchors that it was injected with."""

    namespace: str
    name: str
    uid: str
    account: str = ""
    phase: str = ""
    control_plane: str = ""
    anchors: str = ""


def document(pod: Pod, variables: Mapping[str, str]) -> objects.Document:
    """As rules read it; `variables` has the anchors of each digest that is known (`mesh_trust.variables`)."""
    env = [{"name": proxy_environment.ANCHORS, "value": variables.get(pod.anchors, "")}] if pod.anchors else []
    return {
        "metadata": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "labels": {injection.CONTROL_PLANE: pod.control_plane},
            "annotations": {injection.ANCHORS: pod.anchors},
        },
        "spec": {"serviceAccountName": pod.account, "containers": [{"env": env}]},
        "status": {"phase": pod.phase},
    }


def known(facts: Facts) -> believers.Known:
    """Who believes whom (1)."""
    return believers.read(
        believers.Facts(
            pods=facts.pods,
            workloads=facts.workloads,
            ledger=facts.ledger,
            namespace=facts.mesh.control_plane_namespace,
        ),
        facts.now,
    )


def workloads(facts: Facts, there: believers.Known, roots: frozenset[str]) -> tuple[Workload, ...]:
    """Every workload, the most urgent first; `roots` are those that are to be believed, none: nobody knows."""
    pods = {_title(pod): pod for pod in facts.pods}
    reported = {_title(row): row for row in facts.workloads}
    newest = _newest(facts.ledger)
    rows = []
    for each in there.believers:
        pod, report = pods[each.pod], reported.get(each.pod, {}) if each.kind is believers.Kind.AGENT else {}
        rows.append(_workload(facts, each, pod, report, newest, roots))
    # 2. the most urgent first
    return tuple(sorted(rows, key=_urgency))


def _urgency(row: Workload) -> tuple[int, float, str, str]:
    end = row.ends.timestamp() if row.ends else float("inf")
    return WORKLOAD_STATES.index(row.state), end, row.namespace, row.pod


def _newest(ledger: Iterable[entries.Entry]) -> dict[tuple[str, str], entries.Entry]:
    """The last certificate of each Pod, by namespace and name."""
    rows: dict[tuple[str, str], entries.Entry] = {}
    for entry in ledger:
        holder = holders.read(entry.request)
        key = (holder.namespace, holder.pod)
        if key not in rows or rows[key].issued_at <= entry.issued_at:
            rows[key] = entry
    return rows


def _workload(
    facts: Facts,
    believer: believers.Believer,
    pod: objects.Document,
    report: objects.Document,
    newest: Mapping[tuple[str, str], entries.Entry],
    roots: frozenset[str],
) -> Workload:
    namespace, name = _key(pod)
    entry = newest.get((namespace, name))
    account = jsonpath.text(pod, "spec", "serviceAccountName") or "default"
    ends = believer.until or _instant(jsonpath.text(report, "status", "certificate", "notAfter"))
    if ends is None and entry is not None:
        ends = entry.not_after
    issued = entry.issued_at if entry is not None and entry.not_after == ends else None
    heard = _instant(jsonpath.text(report, "status", "lastReport"))
    digest = jsonpath.text(pod, "metadata", "annotations", injection.ANCHORS)
    state, why = _state(facts, believer, (issued, ends), heard, (roots, digest))
    return Workload(
        namespace=namespace,
        pod=name,
        account=account,
        identity=jsonpath.text(report, "status", "identity") or _identity(facts.mesh, namespace, account),
        proxy=str(believer.kind),
        state=state,
        why=why,
        issued=issued,
        ends=ends,
        serial=jsonpath.text(report, "status", "certificate", "serial") or (entry.serial if entry else ""),
        heard=heard,
    )


def _state(
    facts: Facts,
    believer: believers.Believer,
    life: tuple[datetime.datetime | None, datetime.datetime | None],
    heard: datetime.datetime | None,
    anchors: tuple[frozenset[str], str],
) -> tuple[str, str]:
    """The state, and why (3)."""
    issued, ends = life
    if ends is not None and ends <= facts.now:
        return (
            "expired",
            "its certificate is over: peers refuse it. See the log of its proxy, and handfast mesh explain",
        )
    if ends is not None and ends - facts.now < (1 - _LATE) * (ends - issued if issued else facts.lifetime):
        return "late", "its certificate should have been renewed by now. See the log of its proxy"
    if said := _lacks(believer, *anchors):
        return "old roots", said
    if heard is not None and facts.now - heard > _SILENT:
        return "silent", "its agent was not heard of for a quarter of an hour"
    if ends is None:
        return "unknown", "no certificate of it is in the ledger, and no agent reports one"
    return GOOD, ""


def _lacks(believer: believers.Believer, roots: frozenset[str], digest: str) -> str:
    """Why it does not believe every root; empty where it does, or nobody knows."""
    lacking = len(roots - believer.roots)
    if not lacking:
        return ""
    if believer.kind is believers.Kind.AGENT:
        return f"its agent has not acknowledged {lacking} of {len(roots)} trust anchors"
    if believer.kind is believers.Kind.STOCK:
        return f"its variables lack {lacking} of {len(roots)} trust anchors: start it again"
    return "it was injected with other trust anchors than those of today: start it again" if digest else ""


def _identity(mesh: names.Mesh, namespace: str, account: str) -> str:
    # With names that have a UID, nobody here knows it.
    try:
        return mesh.name(names.Account(namespace=namespace, name=account))
    except (names.NotALabel, names.TooLong, names.NoUid):
        return ""


def talk(facts: Facts) -> tuple[Edge, ...]:
    """Every edge, the most urgent first (2)."""
    reporting = [each for each in map(edges.read, facts.workloads) if each is not None]
    rows = [_edge(edge, facts.mesh) for edge in edges.joined(reporting)]
    return tuple(sorted(rows, key=lambda row: (EDGE_STATES.index(row.state), row.client, row.server, row.edge.port)))


def _edge(edge: edges.Edge, mesh: names.Mesh) -> Edge:
    sides = {"client": edge.client_side, "server": edge.server_side}
    others = [f"{name} {side}" for name, side in sides.items() if side is not edges.Side.REPORTED]
    seen = [name for name, side in sides.items() if side is edges.Side.REPORTED]
    return Edge(
        client=edges.title(edge.client, mesh),
        server=edges.title(edge.server, mesh) or edge.destination,
        state=_edge_state(edge),
        security=edges.security(edge),
        judgement=edges.judgement(edge),
        seen_by=", ".join([*seen, *others]) if others else "both ends",
        edge=edge,
    )


def _edge_state(edge: edges.Edge) -> str:
    # 4. the first that is so
    states = ((edge.refused, "refused"), (edge.would_be_refused, "would be refused"), (not edge.secured, "not secured"))
    return next((state for so, state in states if so), SECURED)


def policies(documents: Iterable[objects.Document]) -> tuple[Policy, ...]:
    """Every policy, by name."""
    return tuple(_policy(each) for each in sorted(map(policy_documents.parse, documents), key=lambda row: row.title))


def _policy(read: policy_documents.Policy) -> Policy:
    accounts = ", ".join(sorted(read.accounts)) or "every account"
    ports = f", port {', '.join(map(str, sorted(read.ports)))}" if read.ports else ""
    clients = "" if read.rows is None else ", ".join(row.title for row in read.rows) or "nobody"
    needs = [
        word
        for word, needed in (
            ("callers with an identity", read.needs_inbound),
            ("servers with one", read.needs_outbound),
        )
        if needed
    ]
    return Policy(
        title=read.title,
        mode="enforced" if read.enforced else "audit",
        about=f"{accounts} in {read.namespace}{ports}",
        lets_in="; ".join(filter(None, [clients, f"only {' and '.join(needs)}" if needs else ""])) or "everybody",
        problem=f"cannot be read: {read.problem}" if read.problem else "",
    )


def counted(states: Iterable[str], words: Sequence[str]) -> dict[str, int]:
    """How many there are of each state, in the order of the words; those of which there are none are left out."""
    counts = dict.fromkeys(words, 0)
    for state in states:
        counts[state] += 1
    return {word: count for word, count in counts.items() if count}


def _instant(text: str) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(text)
    except ValueError:
        return None


def _key(document: objects.Document) -> tuple[str, str]:
    return jsonpath.text(document, "metadata", "namespace"), jsonpath.text(document, "metadata", "name")


def _title(document: objects.Document) -> str:
    return "/".join(_key(document))
