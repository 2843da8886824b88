# SPDX-License-Identifier: Apache-2.0
"""Who may call whom in the mesh: MeshPolicies judged for one client, and compiled for whoever enforces them.

It enforces nothing: proxies do. `judge` answers for one client, with every check, for people; `compiled` is what agents and stock proxies
get. A property test holds the two together. What a policy says, and whom it is about, is `policy_documents`.

1. Without a policy that says so, nobody is refused. A policy in audit refuses nobody: what would be refused if all those in audit were
   enforced is told.
2. Where an enforcing policy has `requireIdentity.inbound`, a client without an identity is refused, whatever any policy says about clients. It
   is a condition, and no permission.
3. Where enforcing policies have `clients`, one row of one of them has to fit. An empty list has no row that fits.
4. An identity is the name in the client's certificate, verified by whoever enforces. It is compared in the mesh's own name scheme. An
   account is its one name. Where names have UIDs, that is the name of the account that is there now, and a deleted account is nobody. A
   namespace is what all of its names end in, from the dot before it on. A name that is written out is compared whole.
5. `unauthenticated` is everybody: who has an identity could leave it at home.
6. `requireIdentity.outbound` is about the workload as a client: it talks to servers that have an identity. Ports do not limit it.

Not judged here: certificates, revocations and discovery.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_policy.py |
|---|---|---|---|---|
| a workload | an identity that no row names | call all the same | 3 | test_who_is_in_no_row_is_refused |
| a client without a certificate | a row `unauthenticated` in another policy | get past requireIdentity | 2 | test_an_identity_that_is_required_is_required_whatever_the_rows_say |
| a tenant | an account in `evil-team`, or a namespace called as a part of a name | be taken for one of `team` | 4 | test_a_namespace_ends_at_its_dots |
| who may make accounts | the certificate of a deleted account, where names have UIDs | be taken for the account made anew | 4 | test_where_names_have_uids_a_row_is_the_account_that_is_there |
| a workload | a policy in audit that lets it in | be let in by it | 1 | test_audit_lets_in_nobody_and_refuses_nobody |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.rules import decision
from handfast.rules.mesh import names
from handfast.rules.mesh import policy_documents as documents

NO_POLICY: Final = "NoPolicy"
ALLOWED: Final = "PolicyAllows"
IDENTITY_REQUIRED: Final = "IdentityRequired"
NOT_ALLOWED: Final = "NotAllowed"
PEER_WITHOUT_IDENTITY: Final = "PeerWithoutIdentity"
_RULE: Final = "MeshPolicy"
# Of ports: every one that has no rules of its own.
OTHER_PORTS: Final = 0


class Naming(msgspec.Struct, frozen=True):
    """How accounts are called now; `uid` is asked where names have UIDs, and is empty of an account that is not there."""

    mesh: names.Mesh
    uid: Callable[[str, str], str] = lambda _namespace, _name: ""

    def account(self, namespace: str, name: str) -> str:
        """The identity of an account; empty where it has none."""
        uid = self.uid(namespace, name) if self.mesh.scheme is names.Scheme.UID else ""
        try:
            return self.mesh.name(names.Account(namespace=namespace, name=name, uid=uid))
        except errors.Refused:
            return ""

    def namespace(self, namespace: str) -> str:
        """What all identities of a namespace end in, from a dot on."""
        return f".{namespace}.{self.mesh.ending}"


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """A row as it is enforced: an identity, what identities end in, or everybody. `policy` and `row` say where it is from."""

    policy: str
    row: int
    identity: str = ""
    suffix: str = ""
    anyone: bool = False

    def admits(self, identity: str) -> bool:
        """Whether a client of this identity fits; an empty one is a client without."""
        # 5. everybody
        if self.anyone:
            return True
        # 4. the one name, or what all names of a namespace end in
        named = bool(self.identity) and identity == self.identity
        return named or (bool(self.suffix) and identity.endswith(self.suffix))


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with clients of one port. Not `restricted`: whoever has what `needs_identity` asks for is let in."""

    restricted: bool = False
    needs_identity: bool = False
    permits: tuple[Permit, ...] = ()
    # The policies that have clients.
    saying: tuple[str, ...] = ()

    def permit(self, identity: str) -> Permit | None:
        """The first row that fits."""
        return next((permit for permit in self.permits if permit.admits(identity)), None)

    def decide(self, identity: str) -> decision.Approve | decision.Deny:
        """The verdict on a client of this identity, or without one."""
        # 2. an identity where one is required
        if self.needs_identity and not identity:
            return _deny(IDENTITY_REQUIRED, "clients need an identity here, and this one has none")
        # 1. nobody is refused without a policy that says who
        if not self.restricted:
            return _approve(NO_POLICY, "no enforcing policy says which clients are let in")
        # 3. one row of one of them
        permit = self.permit(identity)
        if permit is None:
            return _deny(
                NOT_ALLOWED, f"no row of {', '.join(self.saying)} fits {identity or 'a client without identity'}"
            )
        return _approve(ALLOWED, f"clients[{permit.row}] of {permit.policy} fits")


class PortRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one port; `audited` are those that would hold if what is in audit were enforced, None where nothing is."""

    port: int
    enforced: Rules
    audited: Rules | None = None
    # All that are about the port.
    policies: tuple[str, ...] = ()

    def would_refuse(self, identity: str) -> bool:
        """Whether a client that is let in would be refused if what is in audit were enforced (1)."""
        return (
            self.audited is not None
            and isinstance(self.enforced.decide(identity), decision.Approve)
            and isinstance(self.audited.decide(identity), decision.Deny)
        )


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that policies say of one workload: what its agent or proxy enforces. `ports` begins with OTHER_PORTS."""

    ports: tuple[PortRules, ...]
    needs_outbound: bool = False
    would_need_outbound: bool = False

    def inbound(self, port: int) -> PortRules:
        """The rules of a port."""
        return next((rules for rules in self.ports if rules.port == port), self.ports[0])


# What holds where it cannot be known what holds: nobody is let in.
CLOSED: Final = Compiled(ports=(PortRules(port=OTHER_PORTS, enforced=Rules(restricted=True, needs_identity=True)),))


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a judgement. `passed` is None where it decides nothing."""

    name: str
    passed: bool | None
    sentence: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one client, the checks in order, and what would be refused if all that is in audit were enforced."""

    verdict: decision.Approve | decision.Deny
    checks: tuple[Check, ...]
    audit: decision.Deny | None = None


def judge(
    policies: Iterable[documents.Policy], target: documents.Target, identity: str, port: int, naming: Naming
) -> Judgement:
    """May a client of this identity, or without one, call this port of a workload: the verdict, with each check."""
    about = [policy for policy in _about(policies, target) if policy.is_about_port(target, port)]
    enforcing = [policy for policy in about if policy.enforced]
    rules = _rules(enforcing, naming)
    verdict = rules.decide(identity)
    later = _rules(about, naming).decide(identity)
    audit = later if isinstance(verdict, decision.Approve) and isinstance(later, decision.Deny) else None
    checks = (
        _applying(about),
        _condition(enforcing, identity),
        _rows_check(rules, identity),
        _audit_check(about, audit),
    )
    return Judgement(verdict=verdict, checks=checks, audit=audit)


def judge_outbound(
    policies: Iterable[documents.Policy], source: documents.Target, identity: str
) -> decision.Approve | decision.Deny:
    """May a workload talk to a server of this identity, or to one without (6)."""
    needing = [policy for policy in _about(policies, source) if policy.needs_outbound and policy.enforced]
    if needing and not identity:
        return _deny(PEER_WITHOUT_IDENTITY, f"{_titles(needing)} lets it talk to servers with an identity only")
    return _approve(ALLOWED if needing else NO_POLICY, "the server has an identity" if identity else "none is required")


def _applying(about: Sequence[documents.Policy]) -> Check:
    titles = [policy.title if policy.enforced else f"{policy.title} (audit)" for policy in about]
    broken = [f"{policy.title} cannot be read: {policy.problem}" for policy in about if policy.problem]
    return Check(
        name="policies", passed=None, sentence="; ".join([", ".join(titles) or "none is about this port", *broken])
    )


def _condition(enforcing: Sequence[documents.Policy], identity: str) -> Check:
    needing = [policy for policy in enforcing if policy.needs_inbound]
    if not needing:
        return Check(name="requireIdentity", passed=None, sentence="no enforcing policy requires an identity")
    has = "the client has one" if identity else "the client has none"
    return Check(name="requireIdentity", passed=bool(identity), sentence=f"{_titles(needing)} requires one: {has}")


def _rows_check(rules: Rules, identity: str) -> Check:
    if not rules.restricted:
        return Check(name="clients", passed=None, sentence="no enforcing policy says who")
    permit = rules.permit(identity)
    if permit is None:
        return Check(name="clients", passed=False, sentence=f"no row of {', '.join(rules.saying)} fits")
    return Check(name="clients", passed=True, sentence=f"clients[{permit.row}] of {permit.policy} fits")


def _audit_check(about: Sequence[documents.Policy], audit: decision.Deny | None) -> Check:
    told = [policy for policy in about if not policy.enforced]
    if not told:
        return Check(name="audit", passed=None, sentence="no policy is in audit")
    if audit is None:
        return Check(name="audit", passed=None, sentence=f"{_titles(told)} would change nothing")
    return Check(
        name="audit", passed=None, sentence=f"if {_titles(told)} were enforced, it would be refused: {audit.sentence}"
    )


def _titles(policies: Iterable[documents.Policy]) -> str:
    return ", ".join(policy.title for policy in policies)


def compiled(policies: Iterable[documents.Policy], target: documents.Target, naming: Naming) -> Compiled:
    """What is enforced for a workload."""
    about = _about(policies, target)
    numbers = sorted({port for policy in about for port in policy.ports})
    outbound = [policy for policy in about if policy.needs_outbound]
    return Compiled(
        ports=tuple(_port_rules(about, port, naming) for port in (OTHER_PORTS, *numbers)),
        # 6. ports do not limit it
        needs_outbound=any(policy.enforced for policy in outbound),
        would_need_outbound=bool(outbound),
    )


def _about(policies: Iterable[documents.Policy], target: documents.Target) -> list[documents.Policy]:
    return documents.bounded(policy for policy in policies if policy.is_about(target))


def _port_rules(about: Sequence[documents.Policy], port: int, naming: Naming) -> PortRules:
    there = [policy for policy in about if not policy.ports or port in policy.ports]
    audits = not all(policy.enforced for policy in there)
    return PortRules(
        port=port,
        enforced=_rules([policy for policy in there if policy.enforced], naming),
        # 1. as if all were enforced
        audited=_rules(there, naming) if audits else None,
        policies=tuple(policy.title for policy in there),
    )


def _rules(policies: Sequence[documents.Policy], naming: Naming) -> Rules:
    return Rules(
        restricted=any(policy.rows is not None for policy in policies),
        needs_identity=any(policy.needs_inbound for policy in policies),
        permits=tuple(
            permit
            for policy in policies
            for index, row in enumerate(policy.rows or ())
            for permit in _permits(policy, index, row, naming)
        ),
        saying=tuple(policy.title for policy in policies if policy.rows is not None),
    )


def _permits(policy: documents.Policy, index: int, row: documents.Row, naming: Naming) -> tuple[Permit, ...]:
    """The permit of a row; none where it fits nobody."""
    # 4. in the mesh's own name scheme
    identity = naming.account(*row.account) if row.account is not None else row.identity
    suffix = naming.namespace(row.namespace) if row.namespace else ""
    if not (identity or suffix or row.anyone):
        return ()
    return (Permit(policy=policy.title, row=index, identity=identity, suffix=suffix, anyone=row.anyone),)


def _approve(reason: str, sentence: str) -> decision.Approve:
    return decision.Approve(reason, sentence, _RULE)


def _deny(reason: str, sentence: str) -> decision.Deny:
    return decision.Deny(reason, sentence, _RULE)
