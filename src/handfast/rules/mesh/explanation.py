# SPDX-License-Identifier: Apache-2.0
"""May this workload call that one: each check in order, the verdict, and the smallest change that turns it. The caller brings what it looked up.

It decides nothing of its own: names, discovery, revocation and policy are judged by the rules that the services have.

1. Names: who has a name in the mesh, and which. A Pod without a proxy has none, and calls without an identity.
2. Certificates: the last one in the ledger is in force. An account without Pods has none, and is judged as if one ran.
3. Discovery: an endpoint that should have an identity and has none is withheld. Where all are, nobody gets there.
4. Revocation of either side: agents refuse it at once. Stock proxies go on until its certificate ends.
5. Policy of the client: where it may talk to servers with an identity only.
6. Policy of the server: who is let in. A server without a proxy has nobody who would enforce one.
7. Of several endpoints the one that refuses is explained; where none does, the first.
8. What was seen between the two is told beside: it decides nothing.

A check that could not be made, because something may not be read, neither passes nor fails, and says so.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.rules import decision
from handfast.rules.mesh import edges, endpoints, issued, meshed, names, policy, policy_documents, views
from handfast.rules.mesh import policy_changes as changes_module
from handfast.rules.mesh.policy import Check

REACHABLE: Final = "Reachable"
UNREACHABLE: Final = "Unreachable"
_RULE: Final = "MeshExplain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One side. `pod` is None where no Pod is meant, or none is known; `revoked` is why it is refused, in words."""

    account: names.Account
    account_exists: bool = True
    pod: views.Pod | None = None
    certificate: issued.Certificate | None = None
    revoked: str = ""
    revoked_by: str = ""

    @property
    def title(self) -> str:
        if self.pod is not None:
            return f"Pod {self.pod.metadata.namespace}/{self.pod.metadata.name} (account {self.account.name})"
        return f"account {self.account.namespace}/{self.account.name}"

    @property
    def target(self) -> policy_documents.Target:
        """As policies know it."""
        labels = {} if self.pod is None else self.pod.metadata.labels or {}
        return policy_documents.Target(namespace=self.account.namespace, account=self.account.name, labels=labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One endpoint: what discovery says of it, and whose it is; None where that is not known. `assumed`: no Pod runs, as if one did."""

    outcome: endpoints.Endpoint | endpoints.Withheld
    workload: Workload | None = None
    assumed: bool = False

    @property
    def identity(self) -> str:
        return self.outcome.standing.identity if isinstance(self.outcome, endpoints.Endpoint) else ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was looked up. `client` is None for one that is not in the cluster. `missing` is why there is no endpoint."""

    naming: policy.Naming
    now: datetime.datetime
    client: Workload | None
    client_facts: meshed.Facts
    servers: Sequence[Server]
    policies: Sequence[policy_documents.Policy]
    missing: str = ""
    # What may not be read: `ledger`, `revocations`, `meshworkloads`.
    unread: frozenset[str] = frozenset()
    # What agents of both namespaces have reported.
    observed: Sequence[edges.Edge] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, every check, and what would turn the verdict, one step each."""

    verdict: decision.Approve | decision.Deny
    checks: tuple[Check, ...]
    changes: tuple[str, ...] = ()
    # Edges between the two that were seen; they decide nothing.
    observed: tuple[edges.Edge, ...] = ()


class _Walk(msgspec.Struct):
    """The checks so far, and what would turn those that failed."""

    facts: Facts
    checks: list[Check] = msgspec.field(default_factory=list)
    changes: list[str] = msgspec.field(default_factory=list)

    def add(self, name: str, sentence: str, *, passed: bool | None = None, change: str = "") -> None:
        self.checks.append(Check(name=name, passed=passed, sentence=sentence))
        if passed is False and change:
            self.changes.append(change)


def explain(facts: Facts) -> Explanation:
    """The whole of it."""
    walks = [_walked(facts, server) for server in _handed_out(facts)] or [_walked(facts, None)]
    # 7. the one that refuses
    walk = next((each for each in walks if _failed(each)), walks[0])
    failed = _failed(walk)
    if failed is not None:
        verdict: decision.Approve | decision.Deny = decision.Deny(
            UNREACHABLE, f"refused: {failed.name}: {failed.sentence}", _RULE
        )
    else:
        verdict = decision.Approve(REACHABLE, "allowed", _RULE)
    return Explanation(
        verdict=verdict,
        checks=tuple(walk.checks),
        changes=tuple(dict.fromkeys(walk.changes)),
        observed=tuple(_observed(facts)),
    )


def _observed(facts: Facts) -> Iterator[edges.Edge]:
    # 8. between these two
    client = "" if facts.client is None else _name_of(facts, facts.client)
    servers = {_name_of(facts, server.workload) for server in facts.servers if server.workload is not None}
    ports = {server.outcome.address.port for server in facts.servers}
    for edge in facts.observed:
        if edge.server and edge.client == client and edge.server in servers and edge.port in ports:
            yield edge


def _name_of(facts: Facts, workload: Workload) -> str:
    return facts.naming.account(workload.account.namespace, workload.account.name)


def _failed(walk: _Walk) -> Check | None:
    return next((check for check in walk.checks if check.passed is False), None)


def _handed_out(facts: Facts) -> list[Server]:
    return [server for server in facts.servers if isinstance(server.outcome, endpoints.Endpoint)]


def _walked(facts: Facts, server: Server | None) -> _Walk:
    walk = _Walk(facts)
    # Whose endpoint is withheld is told, too.
    workload = next((each.workload for each in ([server] if server is not None else facts.servers)), None)
    # 1. names
    identity = _client_name(walk, facts.client, facts.client_facts)
    if server is not None:
        _server_name(walk, server)
    # 2. certificates
    _certificate(walk, "client certificate", facts.client if identity else None)
    _certificate(walk, "server certificate", workload if server is not None and server.identity else None)
    # 3. discovery
    _discovery(walk)
    # 4. revocation
    _revocation(walk, "client revocation", facts.client)
    _revocation(walk, "server revocation", workload)
    if server is not None:
        _policies(walk, server, identity)
    return walk


def _client_name(walk: _Walk, client: Workload | None, facts: meshed.Facts) -> str:
    """The identity that the client calls with; empty for none."""
    if client is None:
        walk.add("client", "it is not in the mesh, and calls without an identity")
        return ""
    if not client.account_exists:
        create = f"kubectl -n {client.account.namespace} create serviceaccount {client.account.name}"
        walk.add("client", f"{client.title} does not exist", passed=False, change=create)
        return ""
    try:
        identity = facts.mesh.name(client.account) if client.pod is None else _standing(client.pod, facts)
    except (meshed.Withheld, *_NO_NAME) as refused:
        walk.add("client", refused.message, passed=False, change=refused.hint or "have its Pod made anew")
        return ""
    if not identity:
        walk.add("client", f"{client.title} has no proxy with an identity, and calls without one")
        return ""
    walk.add("client", f"{client.title} is {identity}", passed=True)
    return identity


_NO_NAME: Final = (names.NotALabel, names.TooLong, names.NoUid)


def _standing(pod: views.Pod, facts: meshed.Facts) -> str:
    # As a client it has no port that could be skipped.
    return meshed.standing(pod, 0, facts).identity


def _server_name(walk: _Walk, server: Server) -> None:
    whose = str(server.outcome.address) if server.workload is None else server.workload.title
    if server.identity:
        walk.add("server", f"{whose} is {server.identity}", passed=True)
    else:
        walk.add("server", f"{whose} has no identity on this port: it is called in plaintext")


def _certificate(walk: _Walk, name: str, workload: Workload | None) -> None:
    if workload is None:
        return
    if "ledger" in walk.facts.unread:
        walk.add(name, "the ledger may not be read")
        return
    certificate = workload.certificate
    if certificate is not None and certificate.not_after > walk.facts.now:
        walk.add(name, f"serial number {certificate.serial}, until {_instant(certificate.not_after)}", passed=True)
        return
    was = "none was issued" if certificate is None else f"the last one ended at {_instant(certificate.not_after)}"
    if workload.pod is None:
        walk.add(name, f"{was}: it gets one when a Pod of it runs")
        return
    again = f"look at the log of its proxy: kubectl -n {workload.account.namespace} logs {workload.pod.metadata.name}"
    walk.add(name, was, passed=False, change=f"{again} -c linkerd-proxy")


def _discovery(walk: _Walk) -> None:
    facts = walk.facts
    if facts.missing:
        walk.add("discovery", facts.missing, passed=False, change="name a Service, a Pod or an account that is there")
        return
    known = _handed_out(facts)
    if any(server.assumed for server in known):
        walk.add("discovery", "no Pod runs as this account: it is judged as if one did")
        return
    withheld = [server.outcome for server in facts.servers if isinstance(server.outcome, endpoints.Withheld)]
    counts = f"{len(known)} handed out, {sum(bool(each.identity) for each in known)} of them with an identity"
    texts = [counts, *(f"{each.address} is withheld ({each.why}): {each.text}" for each in withheld[:3])]
    passed = bool(known)
    walk.add("discovery", "; ".join(texts), passed=passed, change=_shown(withheld))


def _shown(withheld: Sequence[endpoints.Withheld]) -> str:
    if not withheld:
        return "start a Pod that is ready, and that the Service selects"
    # That is a check of its own.
    if withheld[0].why is meshed.Reason.REVOKED:
        return ""
    return f"have what is withheld set right: {withheld[0].text}"


def _revocation(walk: _Walk, name: str, workload: Workload | None) -> None:
    if workload is None:
        return
    if "revocations" in walk.facts.unread:
        walk.add(name, "Revocations may not be read")
    elif workload.revoked:
        walk.add(
            name, workload.revoked, passed=False, change=f"kubectl delete revocation {shlex.quote(workload.revoked_by)}"
        )
    else:
        walk.add(name, "no Revocation names it", passed=True)


def _policies(walk: _Walk, server: Server, identity: str) -> None:
    facts = walk.facts
    # 5. policy of the client
    if facts.client is not None:
        out = policy.judge_outbound(facts.policies, facts.client.target, server.identity)
        denied = isinstance(out, decision.Deny)
        change = "" if not denied else changes_module.without_outbound(facts.policies, facts.client.target)
        walk.add("outbound policy", out.sentence, passed=False if denied else None, change=change)
    # 6. nobody would enforce one
    if server.workload is None or not server.identity:
        walk.add("policies", "none is enforced: the server has no proxy on this port")
        if not walk.changes:
            walk.changes.append("to have policies enforced, have the server injected: linkerd.io/inject: enabled")
        return
    attempt = changes_module.Attempt(
        target=server.workload.target,
        port=server.outcome.address.port,
        identity=identity,
        account=None if facts.client is None else facts.client.account,
    )
    judgement = policy.judge(facts.policies, attempt.target, identity, attempt.port, facts.naming)
    walk.checks += judgement.checks
    refused = isinstance(judgement.verdict, decision.Deny)
    if refused or not walk.changes:
        walk.changes += _turning(facts, attempt, judgement)


def _turning(facts: Facts, attempt: changes_module.Attempt, judgement: policy.Judgement) -> Iterator[str]:
    if isinstance(judgement.verdict, decision.Deny):
        yield from changes_module.opening(facts.policies, attempt, judgement, facts.naming)
    else:
        yield from changes_module.closing(facts.policies, attempt, judgement, facts.naming)


def _instant(instant: datetime.datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
