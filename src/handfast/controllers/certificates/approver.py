# SPDX-License-Identifier: Apache-2.0
"""Approves the requests of nodes whose requester may have them approved; tells why the others of nodes wait.

`rules.certificates.kubelet` says what is a node's request, and the API server's authorisers, by SubjectAccessReview, who may have
it approved. Who may have a living node's name is `rules.nodes.claim`'s, and who is revoked `rules.revocation`'s. What else it
does not approve it leaves to people. It signs nothing (`certificates.signer`).

1. It looks at requests for the two kubelet signers that are neither approved nor denied and have no certificate.
2. For each kind that the request is of, in order, the permission of that kind is asked for; the first yes approves, by one
   update that carries the version it was decided of. A lost race is a retry. What other Nodes report is read for a
   serving request only, and only once the permission is there: it is a list of all Nodes.
3. Recognised and refused: asked again with back-off, since a role may be granted later, and nobody would tell. So is a
   serving request that only lacks addresses of its Node, or names another's: that may change.
4. Not recognised: it stays so, because a spec never changes.
5. Whatever keeps a request waiting is an Event on it and a metric: once, and again only when the reason is another one.
6. Serving certificates are approved only where somebody was given the permission `selfnodeserver`; by default nobody is.
7. A request in the name, or of the key, of whom a Revocation refuses is denied, with that reason: nothing that comes later
   would make its certificate of use. It is the one thing that is denied. Where Revocations may not be read, every request waits.
8. One in the name of a node that is alive, by somebody else, waits: with a condition on it, which is what the requester can
   read, beside the Event. It is judged again when the Lease can have ended, and when the Lease is deleted. The Lease is read
   from the server before anything is approved: the watch may be late. Off where `protect` is.
9. Where Leases may not be read, as with rights that were granted for an earlier release, a request that 8 is about waits if there is
   a Node of its name, with an Event that names the right. All others go on: new names, and what nodes ask for themselves. A
   living node whose Node was deleted is not protected then.
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
# 3.
_WAITS_FOR_NODES = {kubelet.ADDRESSES: NOT_ITS_ADDRESS, kubelet.RESERVED: RESERVED_NAME}
_MAY_CHANGE = frozenset({certificate_reviews.NOT_PERMITTED, *_WAITS_FOR_NODES.values()})
# 9.
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
class _Asked:
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
        self._told: dict[str, tuple[str, str]] = {}
        # Which requests wait for the Lease of which node (8.).
        self._waiting: dict[str, set[str]] = {}
        # And which nodes were found silent, since when.
        self._silences: dict[str, liveness.Silence] = {}

    async def reconcile(self, name: str) -> float | None:
        item = self._requests.get(name)
        # 1.
        if item is None or not concerns(item):
            self.gone(name)
            return None
        asked = _Asked()
        try:
            facts = self._requests.facts(item)
        except errors.Refused as refused:
            await self._tell(item, asked, refused.reason)
            return None
        # 7. before anything is asked for it
        if await self._is_revoked(item, facts):
            return None
        asked.addresses = await certificate_reviews.node_addresses(self._client, facts)
        # 2.
        recognised = kubelet.candidates(facts, asked.addresses)
        for kind in recognised:
            answer = await self._permissions.ask(facts, kind.permission)
            asked.answers[kind.permission] = answer
            if isinstance(answer, decision.Approve):
                if not await self._is_its_own(facts, asked, kind.permission):
                    recognised = ()
                    break
                # 8. as late as can be
                again = await self._wait_for_node(item, facts, asked)
                if again is None:
                    await self._approve(item, kind.message)
                return again
        # 3. 4.
        reason = certificate_reviews.NOT_PERMITTED if recognised else _failed(facts, asked)
        await self._tell(item, asked, reason)
        if reason in _MAY_CHANGE:
            raise loop.NotYet(f'"{name}" cannot be approved now: {reason}')
        return None

    def gone(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        self._told.pop(name, None)
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

    async def _wait_for_node(self, item: signing_requests.Request, facts: kubelet.Facts, asked: _Asked) -> float | None:
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
        asked.more = (check,)
        await self._say_it_waits(item, check.compared)
        await self._tell(item, asked, claim.NODE_IS_ALIVE, once=True)
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

    async def _is_its_own(self, facts: kubelet.Facts, asked: _Asked, permission: str) -> bool:
        # 2.
        if permission != kubelet.SELF_NODE_SERVER:
            return True
        asked.reserved = await certificate_reviews.reserved(self._client, facts)
        return bool(kubelet.candidates(facts, asked.addresses, asked.reserved))

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

    async def _tell(self, item: signing_requests.Request, asked: _Asked, reason: str, *, once: bool = False) -> None:
        """5. What changes with every look is told `once`."""
        explanation = request_explanation.explain(
            item,
            self._clock.now(),
            asked=asked.answers,
            node_addresses=asked.addresses,
            reserved=asked.reserved,
            more=asked.more,
        )
        text = f"{explanation.sentence}; to change that: {explanation.flip}"
        await self._say(item, reason, text, once=once)

    async def _say(self, item: signing_requests.Request, reason: str, text: str, *, once: bool = False) -> None:
        said = (item.metadata.uid, reason if once else text)
        if self._told.get(item.metadata.name) == said:
            return
        self._told[item.metadata.name] = said
        DECISIONS.labels(item.spec.signer_name, reason).inc()
        await self._recorder.record(certificate_requests.regarding(item), reason, text, severity=events.WARNING)


def concerns(item: signing_requests.Request) -> bool:
    """1."""
    return item.is_open and item.spec.signer_name in SIGNERS and item.condition(signing_requests.APPROVED) is None


def _failed(facts: kubelet.Facts, asked: _Asked) -> str:
    """Why a request is not recognised."""
    permission = kubelet.closest(facts.signer_name) or kubelet.NODE_CLIENT
    made = kubelet.checks(facts, permission, asked.addresses, asked.reserved)
    failed = [check.name for check in made if not check.passed]
    return _WAITS_FOR_NODES[failed[0]] if set(failed) <= _WAITS_FOR_NODES.keys() else NOT_RECOGNISED


def build(context: loop.Context, *, feed: certificate_requests.Feed, protect: bool = True) -> loop.Controller[str]:
    requests = feed.of(context)
    recorder = events.Recorder(context.client, context.clock, NAME)

    def of_lease(node: str) -> None:
        names = handler.waiting_for(node)
        # 8. Of one that is renewed nothing has to be looked at.
        if names and leases is not None and leases.pulse(node) is None:
            for name in names:
                controller.queue.add(name)

    leases = node_leases.follow(context, of_lease) if protect else None
    revocations = revoked.follow(context)
    handler = CsrApprover(context.client, context.clock, requests, recorder, leases, revocations)
    controller: loop.Controller[str] = loop.Controller(
        NAME, handler.reconcile, clock=context.clock, workers=WORKERS, schedule=SCHEDULE
    )

    def told(item: signing_requests.Request) -> None:
        if concerns(item):
            controller.queue.add(item.metadata.name)
        else:
            handler.gone(item.metadata.name)

    requests.subscribe(told, handler.gone)
    controller.needs(requests)
    controller.uses(revocations)
    if leases is not None:
        controller.uses(leases)
    return controller
