# SPDX-License-Identifier: Apache-2.0
"""Approves requests of nodes where the requester may have them approved. Of the others it says why they wait.

`rules.certificates.kubelet` says what a node's request is. The API server's authorizers, asked by SubjectAccessReview, say who may
have it approved. `rules.nodes.claim` says who may have a living node's name, and `rules.revocation` who is revoked. What it does not
approve it leaves to people. It signs nothing (`certificates.signer`).

1. It looks at requests for the two kubelet signers that are neither approved nor denied and have no certificate. Where the
   machine-approver runs in this process, what that judges is left alone: each request has one judge.
2. It can be read. One that cannot stays as it is, because a spec never changes.
3. A request is denied if a Revocation refuses its name or its key (`verdicts`). Nothing else is denied.
4. For each kind that the request is of, in order, the permission of that kind is asked for. The first yes counts.
5. Recognised and not permitted: the permission is asked for again with back-off. A role may be granted later, and no watch would
   tell.
6. Not recognised: it stays so. Only a serving request that lacks addresses of its Node is looked at again: addresses may come.
7. A serving request names no other Node. One that does is looked at again: that may change. What other Nodes report is read once
   the permission is there, because it is a list of all Nodes.
8. A request in the name of a living node, by somebody else, waits (`living_nodes`). It gets a condition beside the Event: the
   requester can read nothing else. Where Leases may not be read, an Event names the missing right. Without `protect` this is off.
9. It is approved, by one update (`verdicts`).
10. Whatever keeps a request waiting is an Event on it and a metric (`verdicts`).

Serving certificates are approved only where somebody was given the permission `selfnodeserver`. By default nobody is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import prometheus_client

from handfast import errors
from handfast.api import signer_names, signing_requests
from handfast.client import api, certificate_reviews, events, revoked
from handfast.controllers import loop, node_leases
from handfast.controllers.certificates import living_nodes
from handfast.controllers.certificates import requests as certificate_requests
from handfast.controllers.certificates import verdicts as verdicts_module
from handfast.rules import decision, request_explanation
from handfast.rules.certificates import kubelet
from handfast.rules.ledger import entries
from handfast.rules.nodes import claim
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

NAME = "certificatesigningrequest-approving-controller"
NOT_RECOGNISED = "NotRecognised"
NOT_ITS_ADDRESS = "NotAnAddressOfTheNode"
RESERVED_NAME = "ReservedName"
# 5. to 7. what may change: a right may be granted, and what Nodes report may change
_WAITS_FOR_NODES = {kubelet.ADDRESSES: NOT_ITS_ADDRESS, kubelet.RESERVED: RESERVED_NAME}
_MAY_CHANGE = frozenset({certificate_reviews.NOT_PERMITTED, *_WAITS_FOR_NODES.values()})
# Kubernetes' own.
SCHEDULE = backoff.Schedule(initial=0.2, cap=1000.0, jitter=0.1)
# Each has a connection of its own while it asks.
WORKERS = 8

DECISIONS = prometheus_client.Counter(
    "handfast_csr_approver_decisions", "Requests of nodes, by signer and what became of them.", ["signer", "reason"]
)

# 1. which requests another approver judges
IsAnothers = Callable[[signing_requests.Spec], bool]


class OtherApprover(Protocol):
    """Another approver: which requests it judges, who is told when that changes, and when it is known."""

    def judges(self, spec: signing_requests.Spec) -> bool: ...

    def subscribe(self, changed: Callable[[], None]) -> None: ...

    async def wait_answered(self) -> None: ...


class _Findings(msgspec.Struct):
    """What was found out about one request: addresses of its Node and of others, and the authorizers' answers."""

    addresses: tuple[str, ...] | None = None
    reserved: frozenset[str] = kubelet.NO_NAMES
    answers: dict[str, decision.Decision] = msgspec.field(default_factory=dict)
    other_checks: tuple[kubelet.Check, ...] = ()


class CsrApprover:
    """Handles one request, by name."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        requests: certificate_requests.Requests,
        verdicts: verdicts_module.Verdicts,
        living: living_nodes.LivingNodes,
        is_anothers: IsAnothers,
    ) -> None:
        self._client = client
        self._clock = clock
        self._requests = requests
        self._verdicts = verdicts
        self._living = living
        self._is_anothers = is_anothers
        self._permissions = certificate_reviews.Permissions(client)

    def concerns(self, item: signing_requests.Request) -> bool:
        """Whether a request is one to approve.

        It is open, for one of the two signers, not approved yet, and no other approver's (1).
        """
        return (
            item.is_open
            and item.spec.signer_name in signer_names.KUBELET_SIGNERS
            and item.condition(signing_requests.APPROVED) is None
            and not self._is_anothers(item.spec)
        )

    async def reconcile(self, name: str) -> float | None:
        item = self._requests.get(name)
        # 1. open, and for one of the two signers
        if item is None or not self.concerns(item):
            self.forget(name)
            return None
        findings = _Findings()
        try:
            facts = self._requests.facts(item)
        except errors.Refused as refused:
            # 2. it cannot be read, and stays so
            await self._explain_in_event(item, findings, refused.reason)
            return None
        # 3. denied before anything is asked for it
        if await self._verdicts.deny_if_revoked(item, facts):
            self.forget(name)
            return None
        # 4. each kind that it is of, in order; a serving request is compared with its Node's addresses
        findings.addresses = await certificate_reviews.node_addresses(self._client, facts)
        candidates = kubelet.candidates(facts, findings.addresses)
        permitted = await self._first_permitted(facts, candidates, findings)
        if permitted is None:
            # 5. recognised and not permitted, or 6. not recognised
            reason = certificate_reviews.NOT_PERMITTED if candidates else _why_not_recognised(facts, findings)
            await self._leave_waiting(item, findings, reason)
            return None
        # 7. names of other Nodes
        if not await self._names_only_itself(facts, findings, permitted.permission):
            await self._leave_waiting(item, findings, _why_not_recognised(facts, findings))
            return None
        # 8. a living node keeps its name: looked at as late as can be
        wait_seconds = await self._seconds_for_living_node(item, facts, findings)
        if wait_seconds is None:
            # 9. approved
            await self._approve(item, permitted.message)
        return wait_seconds

    async def _first_permitted(
        self, facts: kubelet.Facts, candidates: Sequence[kubelet.Recognised], findings: _Findings
    ) -> kubelet.Recognised | None:
        """The first kind for which the requester has the permission (4)."""
        for candidate in candidates:
            answer = await self._permissions.ask(facts, candidate.permission)
            findings.answers[candidate.permission] = answer
            if isinstance(answer, decision.Approve):
                return candidate
        return None

    async def _leave_waiting(self, item: signing_requests.Request, findings: _Findings, reason: str) -> None:
        """Say why it waits; NotYet if that may change (5 to 7)."""
        await self._explain_in_event(item, findings, reason)
        if reason in _MAY_CHANGE:
            raise loop.NotYet(f'"{item.metadata.name}" cannot be approved now: {reason}')

    async def _names_only_itself(self, facts: kubelet.Facts, findings: _Findings, permission: str) -> bool:
        # 7. what other Nodes report is read for a serving request only
        if permission != kubelet.SELF_NODE_SERVER:
            return True
        findings.reserved = await certificate_reviews.reserved(self._client, facts)
        return bool(kubelet.candidates(facts, findings.addresses, findings.reserved))

    async def _seconds_for_living_node(
        self, item: signing_requests.Request, facts: kubelet.Facts, findings: _Findings
    ) -> float | None:
        """For how many seconds to wait for the node that has this name (8); None: for none."""
        wait = await self._living.judge(item.metadata.name, facts)
        if wait is None:
            return None
        if wait.text:
            await self._verdicts.record_event_once(item, living_nodes.LEASES_FORBIDDEN, wait.text)
        elif wait.check is not None:
            findings.other_checks = (wait.check,)
            await self._verdicts.write_waiting_condition(item, wait.check.compared)
            await self._explain_in_event(item, findings, claim.NODE_IS_ALIVE, by_reason=True)
        return wait.seconds

    async def _approve(self, item: signing_requests.Request, message: str) -> None:
        await self._verdicts.write_decision(item, signing_requests.APPROVED, entries.AUTO_APPROVED, message)
        self.forget(item.metadata.name)

    async def _explain_in_event(
        self, item: signing_requests.Request, findings: _Findings, reason: str, *, by_reason: bool = False
    ) -> None:
        """Write the Event that says why a request waits (10)."""
        explanation = request_explanation.explain(
            item,
            self._clock.now(),
            answers=findings.answers,
            node_addresses=findings.addresses,
            reserved=findings.reserved,
            other_checks=findings.other_checks,
        )
        text = f"{explanation.sentence}; to change that: {explanation.remedy}"
        await self._verdicts.record_event_once(item, reason, text, by_reason=by_reason)

    def forget(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        self._verdicts.forget(name)
        self._living.forget(name)


def _why_not_recognised(facts: kubelet.Facts, findings: _Findings) -> str:
    """Why a request is not recognised."""
    permission = kubelet.widest_permission(facts.signer_name) or kubelet.NODE_CLIENT
    checks = kubelet.checks(facts, permission, findings.addresses, findings.reserved)
    failed = [check.name for check in checks if not check.passed]
    return _WAITS_FOR_NODES[failed[0]] if set(failed) <= _WAITS_FOR_NODES.keys() else NOT_RECOGNISED


def build(
    context: loop.Context,
    *,
    feed: certificate_requests.Feed,
    protect: bool = True,
    build_other: Callable[[loop.Context], OtherApprover] | None = None,
) -> loop.Controller[str]:
    """`build_other` gives the other approver of this process (1)."""
    requests = feed.of(context)
    recorder = events.Recorder(context.client, context.clock, NAME)

    def of_lease(node: str) -> None:
        for name in living.freed_by(node):
            controller.queue.add(name)

    def look_at_all() -> None:
        for item in requests:
            changed(item)

    leases = node_leases.follow(context, of_lease) if protect else None
    revocations = revoked.follow(context.informers)
    living = living_nodes.LivingNodes(context.client, context.clock, leases)
    verdicts = verdicts_module.Verdicts(context.client, context.clock, requests, recorder, DECISIONS, revocations)
    other_approver = None if build_other is None else build_other(context)
    is_anothers = _is_never_anothers if other_approver is None else other_approver.judges
    handler = CsrApprover(context.client, context.clock, requests, verdicts, living, is_anothers)
    controller: loop.Controller[str] = loop.Controller(
        NAME, handler.reconcile, clock=context.clock, workers=WORKERS, schedule=SCHEDULE
    )

    def changed(item: signing_requests.Request) -> None:
        if handler.concerns(item):
            controller.queue.add(item.metadata.name)
        else:
            handler.forget(item.metadata.name)

    requests.subscribe(changed, handler.forget)
    controller.needs(requests)
    controller.uses(revocations)
    if leases is not None:
        controller.uses(leases)
    if other_approver is not None:
        other_approver.subscribe(look_at_all)
        controller.uses(other_approver)
    return controller


def _is_never_anothers(_: signing_requests.Spec) -> bool:
    return False
