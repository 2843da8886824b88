# SPDX-License-Identifier: Apache-2.0
"""Approves the requests of nodes whose requester may have them approved; tells why the others of nodes wait.

`rules.kubelet_csr` says what is a node's request, and the API server's authorisers, by SubjectAccessReview, who may have
it approved. It never denies: what it does not approve is left to people. It signs nothing (`csr_signer`).

1. It looks at requests for the two kubelet signers that are neither approved nor denied and have no certificate.
2. For each kind that the request is of, in order, the permission of that kind is asked for; the first yes approves, by one
   update that carries the version it was decided of. A lost race is a retry. What other Nodes report is read for a
   serving request only, and only once the permission is there: it is a list of all Nodes.
3. Recognised and refused: asked again with back-off, since a role may be granted later, and nobody would tell. So is a
   serving request that only lacks addresses of its Node, or names another's: that may change.
4. Not recognised: it stays so, because a spec never changes.
5. Whatever keeps a request waiting is an Event on it and a metric: once, and again only when the reason is another one.
6. Serving certificates are approved only where somebody was given the permission `selfnodeserver`; by default nobody is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import prometheus_client

from handfast import errors
from handfast.api import objects
from handfast.client import api, certificate_reviews
from handfast.controllers import certificate_requests, events, loop
from handfast.rules import certificate_admission, decision, kubelet_csr, request_explanation
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

NAME = "certificatesigningrequest-approving-controller"
SIGNERS = frozenset({certificate_admission.KUBELET_CLIENT, certificate_admission.KUBELET_SERVING})
AUTO_APPROVED = "AutoApproved"
NOT_RECOGNISED = "NotRecognised"
NOT_ITS_ADDRESS = "NotAnAddressOfTheNode"
RESERVED_NAME = "ReservedName"
# 3.
_WAITS_FOR_NODES = {kubelet_csr.ADDRESSES: NOT_ITS_ADDRESS, kubelet_csr.RESERVED: RESERVED_NAME}
_MAY_CHANGE = frozenset({certificate_reviews.NOT_PERMITTED, *_WAITS_FOR_NODES.values()})
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
    reserved: frozenset[str] = kubelet_csr.NONE
    answers: dict[str, decision.Decision] = field(default_factory=dict)


class CsrApprover:
    """Handles one request, by name."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        requests: certificate_requests.Requests,
        recorder: events.Recorder,
    ) -> None:
        self._client = client
        self._permissions = certificate_reviews.Permissions(client)
        self._clock = clock
        self._requests = requests
        self._recorder = recorder
        # What was told of each waiting request: its UID and the text.
        self._told: dict[str, tuple[str, str]] = {}

    async def reconcile(self, name: str) -> float | None:
        item = self._requests.get(name)
        # 1.
        if item is None or not concerns(item):
            self._told.pop(name, None)
            return None
        asked = _Asked()
        try:
            facts = self._requests.facts(item)
        except errors.Refused as refused:
            await self._tell(item, asked, refused.reason)
            return None
        asked.addresses = await certificate_reviews.node_addresses(self._client, facts)
        # 2.
        recognised = kubelet_csr.candidates(facts, asked.addresses)
        for kind in recognised:
            answer = await self._permissions.ask(facts, kind.permission)
            asked.answers[kind.permission] = answer
            if isinstance(answer, decision.Approve):
                if not await self._is_its_own(facts, asked, kind.permission):
                    recognised = ()
                    break
                await self._approve(item, kind.message)
                return None
        # 3. 4.
        reason = certificate_reviews.NOT_PERMITTED if recognised else _failed(facts, asked)
        await self._tell(item, asked, reason)
        if reason in _MAY_CHANGE:
            raise loop.NotYet(f'"{name}" cannot be approved now: {reason}')
        return None

    def gone(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        self._told.pop(name, None)

    async def _is_its_own(self, facts: kubelet_csr.Facts, asked: _Asked, permission: str) -> bool:
        # 2.
        if permission != kubelet_csr.SELF_NODE_SERVER:
            return True
        asked.reserved = await certificate_reviews.reserved(self._client, facts)
        return bool(kubelet_csr.candidates(facts, asked.addresses, asked.reserved))

    async def _approve(self, item: certificate_requests.Request, message: str) -> None:
        added = certificate_requests.condition(
            certificate_requests.APPROVED, AUTO_APPROVED, message, objects.timestamp(self._clock.now())
        )
        with api.MISSING_OK:
            update = item.updated(added=added)
            self._requests.wrote(await certificate_requests.write(self._client, update, "approval"))
            DECISIONS.labels(item.spec.signer_name, AUTO_APPROVED).inc()
        self._told.pop(item.metadata.name, None)

    async def _tell(self, item: certificate_requests.Request, asked: _Asked, reason: str) -> None:
        # 5.
        explanation = request_explanation.explain(
            item.document(),
            self._clock.now(),
            asked=asked.answers,
            node_addresses=asked.addresses,
            reserved=asked.reserved,
        )
        said = (item.metadata.uid, f"{explanation.sentence}; to change that: {explanation.flip}")
        if self._told.get(item.metadata.name) == said:
            return
        self._told[item.metadata.name] = said
        DECISIONS.labels(item.spec.signer_name, reason).inc()
        await self._recorder.record(item.regarding(), reason, said[1], severity=events.WARNING)


def concerns(item: certificate_requests.Request) -> bool:
    """1."""
    return item.is_open and item.spec.signer_name in SIGNERS and not item.has(certificate_requests.APPROVED)


def _failed(facts: kubelet_csr.Facts, asked: _Asked) -> str:
    """Why a request is not recognised."""
    permission = kubelet_csr.closest(facts.signer_name) or kubelet_csr.NODE_CLIENT
    made = kubelet_csr.checks(facts, permission, asked.addresses, asked.reserved)
    failed = [check.name for check in made if not check.passed]
    return _WAITS_FOR_NODES[failed[0]] if set(failed) <= _WAITS_FOR_NODES.keys() else NOT_RECOGNISED


def build(context: loop.Context, *, feed: certificate_requests.Feed) -> loop.Controller[str]:
    requests = feed.of(context)
    recorder = events.Recorder(context.client, context.clock, NAME)
    handler = CsrApprover(context.client, context.clock, requests, recorder)
    controller: loop.Controller[str] = loop.Controller(
        NAME, handler.reconcile, clock=context.clock, workers=WORKERS, schedule=SCHEDULE
    )

    def told(item: certificate_requests.Request) -> None:
        if concerns(item):
            controller.queue.add(item.metadata.name)
        else:
            handler.gone(item.metadata.name)

    requests.subscribe(told, handler.gone)
    controller.needs(requests)
    return controller
