# SPDX-License-Identifier: Apache-2.0
"""Approves requests of nodes where the requester may have them approved. Of the others it says why they wait.

`rules.certificates.kubelet` says what a node's request is. The API server's authorizers, asked by SubjectAccessReview, say who may
have it approved. `rules.nodes.claim` says who may have a living node's name, and `rules.revocation` who is revoked. What it does not
approve it leaves to people. It signs nothing (`certificates.signer`).

1. It looks at requests for the two kubelet signers that are neither approved nor denied and have no certificate.
2. For each kind that the request is of, in order, the permission of that kind is asked for; the first yes approves, by one
   update that carries the version it was decided of. A lost race is a retry. What other Nodes report is read for a
   serving request only, and only once the permission is there: it is a list of all Nodes.
3. Recognised and refused: the permission is asked for again with back-off. A role may be granted later, and no watch would
   tell. The same for a serving request that only lacks addresses of its Node, or names another's: that may change.
4. Not recognised: it stays so, because a spec never changes.
5. Whatever keeps a request waiting is an Event on it and a metric: once, and again only when the reason is another one.
6. Serving certificates are approved only where somebody was given the permission `selfnodeserver`; by default nobody is.
7. A request is denied if a Revocation refuses its name or its key, with that reason: its certificate could never be used.
   Nothing else is denied. Where Revocations may not be read, every request waits.
8. A request in the name of a living node, by somebody else, waits. It gets a condition beside the Event: the requester can
   read nothing else. It is judged again when the Lease can have ended, and when the Lease is deleted. The Lease is read
   from the server before anything is approved: the watch may be late. Without `protect` this is off.
9. Where Leases may not be read (the rights may be those of an earlier release), a request in somebody else's node name waits if
   there is a Node of that name. An Event names the missing right. All others go on: new names, and what nodes ask for themselves.
   A living node whose Node was deleted is not protected then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import prometheus_client

from handfast import errors
from handfast.api import objects, resources, signer_names, signing_requests, status
from handfast.client import api, certificate_reviews
from handfast.controllers import events, loop, node_leases, revoked
from handfast.controllers.certificates import requests as certificate_requests
from handfast.rules import decision, request_explanation
from handfast.rules.certificates import kubelet
from handfast.rules.nodes import claim, liveness
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

NAME = "certificatesigningrequest-approving-controller"
SIGNERS = frozenset({signer_names.KUBELET_CLIENT, signer_names.KUBELET_SERVING})
AUTO_APPROVED = "AutoApproved"
NOT_RECOGNISED = "NotRecognised"
NOT_ITS_ADDRESS = "NotAnAddressOfTheNode"
RESERVED_NAME = "ReservedName"
# 3. what may change: a right may be granted, and addresses may come
_WAITS_FOR_NODES = {kubelet.ADDRESSES: NOT_ITS_ADDRESS, kubelet.RESERVED: RESERVED_NAME}
_MAY_CHANGE = frozenset({certificate_reviews.NOT_PERMITTED, *_WAITS_FOR_NODES.values()})
# 9. where Leases may not be read
LEASES_FORBIDDEN = "LeasesForbidden"
_FORBIDDEN_SECONDS = 30.0
_LEASES_HINT = (
    "apply what `handfast serve controllers --print-manifest` prints, which has the right to get, list and watch Leases in "
    f"{liveness.NAMESPACE}; or approve the request by hand"
)
# Kubernetes' own.
SCHEDULE = backoff.Schedule(initial=0.2, cap=1000.0, jitter=0.1)
# Each has a connection of its own while it asks.
WORKERS = 8

DECISIONS = prometheus_client.Counter(
    "handfast_csr_approver_decisions", "Requests of nodes, by signer and what became of them.", ["signer", "reason"]
)


@dataclass(slots=True)
class _Findings:
    """What was found out about one request: addresses of its Node and of others, and the authorisers' answers."""

    addresses: tuple[str, ...] | None = None
    reserved: frozenset[str] = kubelet.NONE
    answers: dict[str, decision.Decision] = field(default_factory=dict)
    more: tuple[kubelet.Check, ...] = ()


class CsrApprover:
    """Handles one request, by name."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        requests: certificate_requests.Requests,
        recorder: events.Recorder,
        leases: node_leases.NodeLeases | None = None,
        revocations: revoked.Revoked | None = None,
    ) -> None:
        self._client = client
        # None: the names of living nodes are not protected (8.); nobody is known to be revoked (7.).
        self._leases = leases
        self._revocations = revocations
        self._permissions = certificate_reviews.Permissions(client)
        self._clock = clock
        self._requests = requests
        self._recorder = recorder
        # What was told of each waiting request: its UID and the text.
        self._reported: dict[str, tuple[str, str]] = {}
        # Which requests wait for the Lease of which node (8.).
        self._waiting: dict[str, set[str]] = {}
        # And which nodes were found silent, since when.
        self._silences: dict[str, liveness.Silence] = {}

    async def reconcile(self, name: str) -> float | None:
        item = self._requests.get(name)
        # 1. open, and for one of the two signers
        if item is None or not concerns(item):
            self.gone(name)
            return None
        findings = _Findings()
        try:
            facts = self._requests.facts(item)
        except errors.Refused as refused:
            await self._tell(item, findings, refused.reason)
            return None
        # 7. before anything is asked for it
        if await self._is_revoked(item, facts):
            return None
        findings.addresses = await certificate_reviews.node_addresses(self._client, facts)
        # 2. each kind that it is of, in order
        recognised = kubelet.candidates(facts, findings.addresses)
        for kind in recognised:
            answer = await self._permissions.ask(facts, kind.permission)
            findings.answers[kind.permission] = answer
            if isinstance(answer, decision.Approve):
                if not await self._is_its_own(facts, findings, kind.permission):
                    recognised = ()
                    break
                # 8. as late as can be
                again = await self._wait_for_node(item, facts, findings)
                if again is None:
                    await self._approve(item, kind.message)
                return again
        # 3. recognised and refused: asked again; 4. not recognised: it stays so
        reason = certificate_reviews.NOT_PERMITTED if recognised else _failed(facts, findings)
        await self._tell(item, findings, reason)
        if reason in _MAY_CHANGE:
            raise loop.NotYet(f'"{name}" cannot be approved now: {reason}')
        return None

    def gone(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        self._reported.pop(name, None)
        for node in [node for node, names in self._waiting.items() if name in names]:
            self._wait_no_more(node, name)

    def waiting_for(self, node: str) -> tuple[str, ...]:
        """The requests that wait for the Lease of this node (8.)."""
        return tuple(self._waiting.get(node, ()))

    def _wait_no_more(self, node: str, name: str) -> None:
        names = self._waiting.get(node, set())
        names.discard(name)
        # Whatever is judged next begins anew: this one's approval may fail.
        self._silences.pop(node, None)
        if not names:
            self._waiting.pop(node, None)

    async def _is_revoked(self, item: signing_requests.Request, facts: kubelet.Facts) -> bool:
        # 7. nothing for whom a Revocation refuses
        if self._revocations is None:
            return False
        try:
            verdict = self._revocations.judge_request(facts, self._clock.now())
        except revoked.RevocationsForbidden as error:
            await self._say(item, error.reason, f"{error.message}; to change that: {error.hint}")
            raise loop.NotYet(f'"{item.metadata.name}" cannot be approved now: {error.message}') from None
        if not isinstance(verdict, decision.Deny):
            return False
        await self._settle(item, signing_requests.DENIED, verdict.reason, verdict.sentence)
        return True

    async def _wait_for_node(
        self, item: signing_requests.Request, facts: kubelet.Facts, findings: _Findings
    ) -> float | None:
        """For how many seconds to wait for the node that has this name; None: for none (8.)."""
        if self._leases is None or not claim.concerns(facts):
            return None
        name, node = item.metadata.name, facts.node_name
        # From here on a Lease that is deleted is told of.
        self._waiting.setdefault(node, set()).add(name)
        try:
            pulse = await self._leases.read(self._client, node)
        except status.StatusError as error:
            if error.code != 403:
                raise
            return await self._without_leases(item, node, error)
        now, monotonic = self._clock.now(), self._clock.monotonic()
        check = claim.check(facts, pulse, now, monotonic)
        if pulse is not None and check.passed:
            silence = liveness.found_silent(pulse, self._silences.get(node), monotonic)
            if silence.left() > 0:
                self._silences[node] = silence
                return liveness.LOOK_AGAIN_SECONDS
        if pulse is None or check.passed:
            self._wait_no_more(node, name)
            return None
        findings.more = (check,)
        await self._say_it_waits(item, check.compared)
        await self._tell(item, findings, claim.NODE_IS_ALIVE, once=True)
        return pulse.left(now, monotonic)

    async def _without_leases(
        self, item: signing_requests.Request, node: str, error: status.StatusError
    ) -> float | None:
        """As `_wait_for_node`, where the Lease may not be read (9.)."""
        name = item.metadata.name
        if await self._client.find(resources.NODES, node) is None:
            self._wait_no_more(node, name)
            return None
        text = f'there is a Node "{node}", and whether it is alive cannot be read: {error.message}'
        await self._say(item, LEASES_FORBIDDEN, f"{text}; to change that: {_LEASES_HINT}")
        return _FORBIDDEN_SECONDS

    async def _say_it_waits(self, item: signing_requests.Request, message: str) -> None:
        """On the request itself, once: a requester can read nothing else (8.)."""
        if item.condition(claim.WAITING) is not None:
            return
        row = signing_requests.condition(
            claim.WAITING, claim.NODE_IS_ALIVE, message, objects.timestamp(self._clock.now())
        )
        with api.MISSING_OK:
            self._requests.wrote(await certificate_requests.write(self._client, item.updated(added=row), "approval"))

    async def _is_its_own(self, facts: kubelet.Facts, findings: _Findings, permission: str) -> bool:
        # 2. what other Nodes report is read for a serving request only
        if permission != kubelet.SELF_NODE_SERVER:
            return True
        findings.reserved = await certificate_reviews.reserved(self._client, facts)
        return bool(kubelet.candidates(facts, findings.addresses, findings.reserved))

    async def _approve(self, item: signing_requests.Request, message: str) -> None:
        await self._settle(item, signing_requests.APPROVED, AUTO_APPROVED, message)

    async def _settle(self, item: signing_requests.Request, kind: str, reason: str, message: str) -> None:
        added = signing_requests.condition(kind, reason, message, objects.timestamp(self._clock.now()))
        with api.MISSING_OK:
            # It waits no more.
            update = item.updated(added=added, without=claim.WAITING)
            self._requests.wrote(await certificate_requests.write(self._client, update, "approval"))
            DECISIONS.labels(item.spec.signer_name, reason).inc()
        self.gone(item.metadata.name)

    async def _tell(
        self, item: signing_requests.Request, findings: _Findings, reason: str, *, once: bool = False
    ) -> None:
        """Write the Event that says why a request waits (5.). With `once`, a text that changes with every look is written once."""
        explanation = request_explanation.explain(
            item,
            self._clock.now(),
            answers=findings.answers,
            node_addresses=findings.addresses,
            reserved=findings.reserved,
            more=findings.more,
        )
        text = f"{explanation.sentence}; to change that: {explanation.flip}"
        await self._say(item, reason, text, once=once)

    async def _say(self, item: signing_requests.Request, reason: str, text: str, *, once: bool = False) -> None:
        said = (item.metadata.uid, reason if once else text)
        if self._reported.get(item.metadata.name) == said:
            return
        self._reported[item.metadata.name] = said
        DECISIONS.labels(item.spec.signer_name, reason).inc()
        await self._recorder.record(certificate_requests.regarding(item), reason, text, severity=events.WARNING)


def concerns(item: signing_requests.Request) -> bool:
    """Whether a request is one to approve: open, for one of the two signers, and not approved yet (1.)."""
    return item.is_open and item.spec.signer_name in SIGNERS and item.condition(signing_requests.APPROVED) is None


def _failed(facts: kubelet.Facts, findings: _Findings) -> str:
    """Why a request is not recognised."""
    permission = kubelet.closest(facts.signer_name) or kubelet.NODE_CLIENT
    checks = kubelet.checks(facts, permission, findings.addresses, findings.reserved)
    failed = [check.name for check in checks if not check.passed]
    return _WAITS_FOR_NODES[failed[0]] if set(failed) <= _WAITS_FOR_NODES.keys() else NOT_RECOGNISED


def build(context: loop.Context, *, feed: certificate_requests.Feed, protect: bool = True) -> loop.Controller[str]:
    requests = feed.of(context)
    recorder = events.Recorder(context.client, context.clock, NAME)

    def of_lease(node: str) -> None:
        names = handler.waiting_for(node)
        # 8. only a Lease that has gone matters: a renewal changes nothing
        if names and leases is not None and leases.pulse(node) is None:
            for name in names:
                controller.queue.add(name)

    leases = node_leases.follow(context, of_lease) if protect else None
    revocations = revoked.follow(context)
    handler = CsrApprover(context.client, context.clock, requests, recorder, leases, revocations)
    controller: loop.Controller[str] = loop.Controller(
        NAME, handler.reconcile, clock=context.clock, workers=WORKERS, schedule=SCHEDULE
    )

    def changed(item: signing_requests.Request) -> None:
        if concerns(item):
            controller.queue.add(item.metadata.name)
        else:
            handler.gone(item.metadata.name)

    requests.subscribe(changed, handler.gone)
    controller.needs(requests)
    controller.uses(revocations)
    if leases is not None:
        controller.uses(leases)
    return controller
