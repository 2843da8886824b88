# SPDX-License-Identifier: Apache-2.0
"""Why a certificate request stands where it stands: each check that was made, and the smallest change to turn it.

It decides nothing: it runs the rules of the approver, the signer and the cleaner once more and reports what they say.

1. A request that has its certificate, was denied or has failed is settled; only a new request helps. One that has its
   certificate is explained by the checks of a pending one, as they would come out now: an administrator may have approved
   what the rules would not, and permissions may have changed since.
2. An approved one waits for its signer; the signer's rules say what it will do.
3. A pending one is compared with every kind of node request that its signer has. The kind with the fewest failed checks
   is the one explained, since the sum of its failed checks is the smallest change.
4. The answer of the authorizers is a check like the others. One that was not asked for has not passed; but a permission
   that was not asked for is not advised while the request has other faults.
5. What other rules say of it, as of a living node's name or of a revoked one, is given as checks, and counts as the others do.
   A living node's name is no matter once somebody has approved.
6. Each request has one judge. One of the machine-approver's is explained by its verdict, and not by permissions.
7. Nobody is ever told to grant `nodeclient` to a bootstrap identity: that would let in everybody who has the credential, without any
   Machine. The advice is a Machine, and a machine-approver that knows it.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.api import signer_names, signing_requests
from handfast.rules import decision, revocation, user_names
from handfast.rules.certificates import kubelet, request_age, signers
from handfast.rules.machines import approval, bootstrapper, ownership
from handfast.rules.nodes import claim

ISSUED = "Issued"
DENIED = signing_requests.DENIED
FAILED = signing_requests.FAILED
# Approved, and the signer will sign it, or will fail it.
SIGNING = "WaitingForSigner"
FAILING = "WillFail"
# Pending, and the approver will approve it, or will leave it to a person.
APPROVING = "WillBeApproved"
PENDING = "Pending"

PERMISSION = "permission"
READABLE = "readable"

# Whether a permission is there: the authorizers' answer, or only yes or no.
Answer = decision.Decision | bool
# A verdict, the checks behind it, and what would turn it.
_Outcome = tuple[str, tuple[kubelet.Check, ...], str]


class Explanation(msgspec.Struct, frozen=True):
    """The verdict, the checks behind it in order, what would turn it, and when the request is deleted as it is.

    `judge` is whose the request is; empty where no approver judges it.
    """

    verdict: str
    checks: tuple[kubelet.Check, ...]
    remedy: str
    due: request_age.Due
    judge: str = ""

    @property
    def sentence(self) -> str:
        """The verdict with the first check that failed: what conditions and events say."""
        failed = next((check for check in self.checks if not check.passed and self.verdict != ISSUED), None)
        return self.verdict if failed is None else f"{self.verdict}: {failed.name}: {failed.compared}"


def explain(
    item: signing_requests.Request,
    now: datetime.datetime,
    *,
    answers: Mapping[str, Answer],
    node_addresses: Sequence[str] | None,
    reserved: frozenset[str] = kubelet.NO_NAMES,
    other_checks: Sequence[kubelet.Check] = (),
    machine: approval.Verdict | None = None,
) -> Explanation:
    """Explain one request; `answers` has what the authorizers said of each permission that they were asked for.

    `other_checks` are those by `nodes.claim` and `revocation`, `machine` is the machine-approver's verdict where the request is its own.
    """
    due = request_age.due(item, now)
    verdict, checks, remedy = _settled(item) or _open(item, answers, node_addresses, reserved, other_checks, machine)
    if verdict == ISSUED:
        checks = (
            _as_pending(item, answers, node_addresses, reserved, other_checks) if machine is None else machine.checks
        )
    own = ownership.MACHINE_APPROVER if machine is not None else ownership.CSRAPPROVING
    return Explanation(
        verdict, checks, remedy, due, own if item.spec.signer_name in signer_names.KUBELET_SIGNERS else ""
    )


def _settled(item: signing_requests.Request) -> _Outcome | None:
    # 1. only a new request helps
    if item.status.certificate:
        return ISSUED, (), "the certificate is issued; revoke it by its serial number or key to take it back"
    for verdict, word in ((DENIED, "a denial"), (FAILED, "a failure")):
        if (condition := item.condition(verdict)) is not None:
            said = condition.message or condition.reason or "no reason was given"
            check = kubelet.Check(verdict.lower(), False, said)
            return verdict, (check,), f"{word} is final; create a new request under another name"
    return None


def _as_pending(
    item: signing_requests.Request,
    answers: Mapping[str, Answer],
    addresses: Sequence[str] | None,
    reserved: frozenset[str],
    other_checks: Sequence[kubelet.Check],
) -> tuple[kubelet.Check, ...]:
    """The checks of an issued request, where it is of a kind that has any (1)."""
    try:
        facts = kubelet.read(item.document())
    except errors.Refused:
        return ()
    # 5. its own node may be the one that lives
    others = [check for check in other_checks if check.name != claim.CHECK]
    closest = _closest(facts, answers, addresses, reserved, others)
    return () if closest is None else closest[1]


def _open(
    item: signing_requests.Request,
    answers: Mapping[str, Answer],
    addresses: Sequence[str] | None,
    reserved: frozenset[str],
    other_checks: Sequence[kubelet.Check],
    machine: approval.Verdict | None,
) -> _Outcome:
    try:
        facts = kubelet.read(item.document())
    except errors.Refused as refused:
        check = kubelet.Check(READABLE, False, refused.message)
        return PENDING, (check,), "create a new request that can be read"
    if item.condition(signing_requests.APPROVED) is not None:
        return _approved(facts, other_checks)
    if machine is not None:
        return _machines(facts, machine, other_checks)
    closest = _closest(facts, answers, addresses, reserved, other_checks)
    if closest is None:
        compared = f"no approver decides requests for the signer {facts.signer_name}"
        check = kubelet.Check(kubelet.SIGNER, False, compared)
        return PENDING, (check,), f"approve or deny it by hand: handfast csr approve {shlex.quote(facts.name)}"
    permission, checks = closest
    failed = [check.name for check in checks if not check.passed]
    if not failed:
        lost = f"it would stay pending if {facts.username} lost the permission {_words(permission)}"
        return APPROVING, checks, f"{lost}; if it does all the same, see whether the approving controller runs"
    # 4. nobody is told to grant what may long be granted
    if permission not in answers and len(failed) > 1:
        failed.remove(PERMISSION)
    return PENDING, checks, "; and ".join(_change(name, facts, permission) for name in failed)


def _approved(facts: kubelet.Facts, other_checks: Sequence[kubelet.Check]) -> _Outcome:
    # 2. the signer's rules, and 5. what other rules say but for a living node's name, which is no matter now
    revoked = tuple(check for check in other_checks if check.name == revocation.CHECK and not check.passed)
    if revoked:
        return FAILING, revoked, _CHANGES[revocation.CHECK]
    if facts.signer_name not in signer_names.SIGNERS:
        compared = f"{facts.signer_name} is no signer of this control plane"
        check = kubelet.Check(kubelet.SIGNER, False, compared)
        return SIGNING, (check,), f"run the signer {facts.signer_name}"
    verdict = signers.judge(facts)
    check = kubelet.Check(kubelet.SIGNER, isinstance(verdict, decision.Approve), verdict.sentence)
    if isinstance(verdict, decision.Deny):
        return FAILING, (check,), "create a new request without this fault"
    return SIGNING, (check,), "nothing is missing; if it stays so, see whether the signing controller runs"


def _closest(
    facts: kubelet.Facts,
    answers: Mapping[str, Answer],
    addresses: Sequence[str] | None,
    reserved: frozenset[str],
    other_checks: Sequence[kubelet.Check],
) -> tuple[str, tuple[kubelet.Check, ...]] | None:
    """The permission of the kind with the fewest failed checks, and these (3); None: no approver decides such requests."""
    runs = [
        (name, (*kubelet.checks(facts, name, addresses, reserved), _permission(name, answers), *other_checks))
        for name in kubelet.permissions(facts.signer_name)
    ]
    return min(runs, key=lambda run: sum(not check.passed for check in run[1]), default=None)


def _permission(permission: str, answers: Mapping[str, Answer]) -> kubelet.Check:
    # 4. a check like the others
    answer = answers.get(permission)
    if answer is None:
        return kubelet.Check(PERMISSION, False, f"{_words(permission)}: not asked")
    if isinstance(answer, bool):
        return kubelet.Check(PERMISSION, answer, f"{_words(permission)}: {'allowed' if answer else 'not allowed'}")
    said = f"{_words(permission)}: {answer.sentence or answer.reason}"
    return kubelet.Check(PERMISSION, isinstance(answer, decision.Approve), said)


def _words(permission: str) -> str:
    return f"create certificatesigningrequests/{permission}"


def _machines(facts: kubelet.Facts, machine: approval.Verdict, other_checks: Sequence[kubelet.Check]) -> _Outcome:
    # 6. the machine-approver's own checks, and what other rules say
    checks = (*machine.checks, *other_checks)
    if all(check.passed for check in checks):
        hint = "if it stays so, see whether the machine-approver runs, and whether it follows this Machine's API group"
        return APPROVING, checks, f"nothing is missing; {hint}"
    others = [_change(check.name, facts, kubelet.NODE_CLIENT) for check in other_checks if not check.passed]
    return PENDING, checks, "; and ".join([*([machine.change] if machine.change else []), *others])


def _change(check: str, facts: kubelet.Facts, permission: str) -> str:
    # 7. never a grant to a bootstrap identity
    if check == PERMISSION and bootstrapper.named(facts.username):
        return _MACHINE.format(node=facts.node_name, by_hand=approval.by_hand(facts))
    subject, sans = facts.request.subject, facts.request.sans
    wanted = kubelet.SERVING_USAGES if permission == kubelet.SELF_NODE_SERVER else kubelet.CLIENT_USAGES
    return _CHANGES[check].format(
        user=facts.username,
        groups=", ".join(facts.groups) or "none",
        common_name=subject.common_name,
        sans=", ".join(sans.texts()),
        usages=", ".join(sorted(wanted)),
        node=facts.node_name,
        name=shlex.quote(facts.name),
        permission=_words(permission),
        role=f"system:certificates.k8s.io:certificatesigningrequests:{permission}",
    )


_MACHINE: Final = "run the machine-approver (the controller machineapprover) and make a Machine with the InternalDNS name {node}; or {by_hand}"
# What would make a failed check pass. The signer's is not here: the kinds compared are those of the request's signer.
_CHANGES: Mapping[str, str] = {
    kubelet.ORGANIZATION: (
        f"create a new request with {user_names.NODES} as its only organization, and no other attribute but the "
        "common name"
    ),
    kubelet.COMMON_NAME: f"create a new request with the common name {user_names.NODE_PREFIX}<name of the node>",
    kubelet.NO_SANS: "create a new request without the alternative names {sans}",
    kubelet.HAS_SANS: "create a new request with at least one DNS name or address, and no e-mail address or URI",
    kubelet.USAGES: "create a new request with exactly the usages {usages}",
    kubelet.REQUESTER: "send the request as {common_name}, not as {user}",
    kubelet.ADDRESSES: "have the Node {node} report every name and address of the request, or leave the others out",
    kubelet.RESERVED: "create a new request without them, or have the other Node deleted that reports them",
    claim.CHECK: "stop the node that has this name, and wait; or ask under another name; or approve it all the same: handfast csr approve {name}",
    revocation.CHECK: "delete the Revocation, and create a new request",
    PERMISSION: "let {user} (groups: {groups}) {permission}, for instance by the ClusterRole {role}",
}
