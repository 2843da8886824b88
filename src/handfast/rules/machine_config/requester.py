# SPDX-License-Identifier: Apache-2.0
"""Who asks for a configuration, and may they have it? The answer holds a bootstrap credential: nobody gets it for being on the network.

It decides by what was shown and what is known. TLS, rate limits and the choice of a rendering are not here.

1. A certificate, if one was shown: a chain to the cluster's client CA, in force now, whose user is `system:node:NAME` in
   `system:nodes`, and which no Revocation names. While Revocations are not known, nobody passes by certificate.
2. Its Node is there, and is in the pool that is asked for.
3. Else a secret, if one was shown: its SHA-256 is that of a secret that is kept (`ignition_secrets`). The digests are compared in
   constant time.
4. The secret of a machine: the very Machine that it was made for is there, by UID, and has no certificate yet: no key was approved,
   and no Node is linked. It is for the pool that it was made for.
5. The secret of a pool: it is for the pool that is asked for. It is the current one, or the one before whose overlap is not over.
6. Else the address, if the operator named its network. A proof that was shown and is not good is not made good by an address. The address
   of a balancer that does not say whose connection it passes on (PROXY UNKNOWN) proves nothing, whatever network it is in.
7. `mac` and `serial` choose a Machine, and prove nothing. It has to be one Machine alone, the same one that the secret or the certificate
   proved, and of the pool's role.

Nothing was shown, and no network is named: 401. What was shown is not good: 401. It is good for something else: 403. It cannot be judged
now: 503. Whether the pool is there is not looked at: only those who are let in learn that.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_requester.py |
|---|---|---|---|---|
| anyone on the network | nothing | ask | 6 | test_nothing_shown_is_401 |
| … | a connection that a balancer passes on without a name | pass for the balancer's network | 6 | test_a_balancer_that_does_not_say_who_asks_proves_nothing |
| a thief | a machine's secret, after its first certificate | ask | 4 | test_a_machines_secret_ends_with_its_first_certificate |
| … | a machine's secret | another pool | 4 | test_a_machines_secret_is_for_its_pool_only |
| … | the secret of a Machine that was made anew | ask as the new one | 4 | test_a_machine_that_was_made_anew_is_another |
| … | a pool's secret | another pool | 5 | test_a_pools_secret_is_for_that_pool_only |
| … | a rotated secret | ask after the overlap | 5 | test_the_secret_before_ends_after_the_overlap |
| who guesses | any number of secrets | find one | 3 | test_a_secret_that_nobody_has_is_401 |
| a reader of Secrets | the digests | ask with them | 3 | test_a_digest_is_no_secret |
| a node | its certificate | another pool | 2 | test_a_nodes_certificate_is_for_its_pool_only |
| who took over a node | its certificate, revoked | ask | 1 | test_a_revoked_node_is_refused |
| … | … | ask while Revocations are not known | 1 | test_while_revocations_are_not_known_no_certificate_counts |
| a stranger | a certificate that TLS or the CA refused | ask | 1, 6 | test_a_certificate_that_was_refused_is_401 |
| a user | a certificate that is no node's | ask | 1 | test_only_nodes_ask_by_certificate |
| a machine | its secret, `?mac=` of another | that one's name | 7 | test_hardware_of_another_machine_is_403 |
"""

from __future__ import annotations

import datetime
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from handfast.api import machine_config_kinds, objects
from handfast.pki import chains
from handfast.rules import decision, networks, revocation, user_names
from handfast.rules.machine_config import ignition_secrets
from handfast.rules.machines import inventory

# By what somebody was let in.
NODE_CERTIFICATE: Final = "node-certificate"
MACHINE_SECRET: Final = "machine-secret"  # noqa: S105 - a word, not a secret
POOL_SECRET: Final = "pool-secret"  # noqa: S105 - a word, not a secret
NETWORK: Final = "network"

NO_PROOF: Final = "NoProof"
CERTIFICATE_REFUSED: Final = "CertificateRefused"
NOT_A_NODE: Final = "NotANode"
NO_NODE: Final = "NoNode"
REVOKED: Final = revocation.REVOKED
REVOCATIONS_UNKNOWN: Final = "RevocationsUnknown"
UNKNOWN_SECRET: Final = "UnknownSecret"  # noqa: S105 - a reason
SECRET_ENDED: Final = "SecretEnded"  # noqa: S105 - a reason
NO_MACHINE: Final = "NoMachine"
MACHINE_HAS_JOINED: Final = "MachineHasJoined"
MACHINES_UNKNOWN: Final = "MachinesUnknown"
OTHER_POOL: Final = "OtherPool"
OTHER_MACHINE: Final = "OtherMachine"
_LONGEST: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, and what was shown. The secret does not print."""

    pool: str
    address: str
    # The address is a balancer's, which did not say whose connection it is.
    of_balancer: bool = False
    secret: str = field(default="", repr=False)
    certificate: chains.Verified | None = None
    # Why a certificate that was shown is not believed; empty: it is, or none was shown.
    refused: str = ""
    # In the forms of `declaration`; empty: not said.
    mac: str = ""
    serial: str = ""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known in the cluster. None: not known now."""

    # By their digests.
    secrets: Mapping[str, ignition_secrets.Entry]
    machines: inventory.Index | None
    revocations: revocation.Index | None
    networks: networks.Networks
    # The pool that a Node is in: empty where it is in none, None where there is no such Node.
    pool_of: Callable[[str], str | None]


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """Let in: by which proof, as whom, and as which Machine, if that is known."""

    proof: str
    who: str
    # The Node that asked as itself.
    node: str = ""
    machine: inventory.Machine | None = None

    @property
    def hostname(self) -> str:
        """What a new machine is to call itself, where that is known: a node knows it already."""
        if self.node or self.machine is None:
            return ""
        return next(
            (name for name in self.machine.texts(inventory.INTERNAL_DNS) if not objects.dns_subdomain(name)), ""
        )


class Refusal(msgspec.Struct, frozen=True):
    """Turned away: an HTTP status, a reason for programs, and a sentence for the log."""

    status: int
    reason: str
    sentence: str


Verdict = Allowed | Refusal


def judge(request: Request, known: Known, now: datetime.datetime) -> Verdict:
    """The verdict on one request."""
    verdict = _proof(request, known, now)
    return verdict if isinstance(verdict, Refusal) else _with_hardware(request, known, verdict)


def _proof(request: Request, known: Known, now: datetime.datetime) -> Verdict:
    if request.refused:
        return Refusal(401, CERTIFICATE_REFUSED, request.refused)
    if request.certificate is not None:
        return _node(request, request.certificate, known, now)
    if request.secret:
        return _secret(request, known, now)
    # 6. a network that the operator named, and an address that is the caller's own
    if request.of_balancer:
        passed_on = f"the balancer {request.address} does not say whose connection it is"
        return Refusal(401, NO_PROOF, f"no secret and no certificate was shown, and {passed_on}")
    verdict = known.networks.holds(request.address)
    if isinstance(verdict, decision.Approve):
        return Allowed(proof=NETWORK, who=request.address)
    outside = verdict.sentence if known.networks.members else "no networks are named"
    return Refusal(401, NO_PROOF, f"no secret and no certificate was shown, and {outside}")


def _node(request: Request, certificate: chains.Verified, known: Known, now: datetime.datetime) -> Verdict:
    # 1. a node's certificate, in force, and not revoked
    subject = certificate.subject
    node = user_names.node(subject.common_name, subject.organizations)
    if not node:
        return Refusal(401, NOT_A_NODE, f"the certificate of {subject.common_name!r} is no node's")
    if not certificate.valid_from <= now <= certificate.valid_until:
        return Refusal(401, CERTIFICATE_REFUSED, f"the certificate of {node} is not in force at this instant")
    if known.revocations is None:
        return Refusal(503, REVOCATIONS_UNKNOWN, "whether the node is revoked is not known now")
    user, serial, key = subject.common_name, certificate.serial, certificate.key_fingerprint
    verdict = known.revocations.judge(user, serial, key, "", now)
    if isinstance(verdict, decision.Deny):
        return Refusal(401, REVOKED, verdict.sentence)
    # 2. its Node is in the pool
    pool = known.pool_of(node)
    if pool is None:
        return Refusal(401, NO_NODE, f"there is no Node {node}")
    if pool != request.pool:
        return Refusal(403, OTHER_POOL, f"the Node {node} is in {f'the pool {pool}' if pool else 'no pool'}")
    return Allowed(proof=NODE_CERTIFICATE, who=user, node=node)


def _secret(request: Request, known: Known, now: datetime.datetime) -> Verdict:
    # 3. a secret that is kept; a look-up by the digest of what was shown tells nothing about another secret
    wanted = ignition_secrets.digest(request.secret)
    entry = known.secrets.get(wanted) if len(request.secret) <= _LONGEST else None
    if entry is None or not hmac.compare_digest(entry.digest, wanted):
        return Refusal(401, UNKNOWN_SECRET, "a secret was shown that nobody has")
    if entry.machine_uid:
        return _machine(request, entry, known)
    # 5. for this pool, and its overlap is not over
    if entry.until is not None and now >= entry.until:
        return Refusal(
            401, SECRET_ENDED, f"the secret before the current one of {entry.pool} was good until {entry.until}"
        )
    if entry.pool != request.pool:
        return Refusal(403, OTHER_POOL, f"the secret is that of the pool {entry.pool}")
    return Allowed(proof=POOL_SECRET, who=f"pool {entry.pool}")


def _machine(request: Request, entry: ignition_secrets.Entry, known: Known) -> Verdict:
    # 4. the very Machine, which has no certificate yet
    if known.machines is None:
        return Refusal(503, MACHINES_UNKNOWN, "the Machines are not known now")
    named = known.machines.named(entry.machine.rpartition("/")[2])
    machine = next((each for each in named if each.uid == entry.machine_uid and not each.deleting), None)
    if machine is None:
        return Refusal(401, NO_MACHINE, f"the Machine {entry.machine} that the secret was made for is gone")
    if machine.approved_key or machine.node:
        return Refusal(401, MACHINE_HAS_JOINED, f"{machine.title} has a certificate of its own: its secret has ended")
    if entry.pool != request.pool:
        return Refusal(403, OTHER_POOL, f"the secret of {machine.title} is for the pool {entry.pool}")
    return Allowed(proof=MACHINE_SECRET, who=machine.title, machine=machine)


def _with_hardware(request: Request, known: Known, allowed: Allowed) -> Verdict:
    """The same, with the Machine that `mac` and `serial` choose (7)."""
    if not request.mac and not request.serial:
        return allowed
    if known.machines is None:
        return Refusal(503, MACHINES_UNKNOWN, "the Machines are not known now")
    chosen = {
        machine.key: machine
        for machine in (*known.machines.by_mac(request.mac), *known.machines.by_serial(request.serial))
    }
    if len(chosen) > 1:
        titles = ", ".join(machine.title for machine in chosen.values())
        return Refusal(403, OTHER_MACHINE, f"mac and serial are those of several Machines: {titles}")
    machine = next(iter(chosen.values()), None)
    if machine is None:
        return allowed
    # 7. no other than the one that was proved, nor one of another role
    if allowed.machine is not None and allowed.machine.uid != machine.uid:
        return Refusal(403, OTHER_MACHINE, f"mac and serial are those of {machine.title}, and {allowed.who} asks")
    if allowed.node and machine.node and machine.node != allowed.node:
        return Refusal(403, OTHER_MACHINE, f"{machine.title} is the node {machine.node}, and {allowed.node} asks")
    if _is_master(machine.role) != _is_master(request.pool):
        return Refusal(403, OTHER_MACHINE, f"{machine.title} has the role {machine.role or 'none'}")
    return Allowed(proof=allowed.proof, who=allowed.who, node=allowed.node, machine=machine)


def _is_master(word: str) -> bool:
    return word == machine_config_kinds.MASTER
