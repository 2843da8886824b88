# SPDX-License-Identifier: Apache-2.0
"""Writes on requests what was decided of them, and says of those that wait why they do. It decides nothing.

Shared by the two approvers, csrapproving and the machine-approver, so that both do these in one way:

1. A decision is one update that carries the version that was judged. A lost race is a retry. The condition `Waiting` goes with it.
2. Whatever keeps a request waiting is an Event on it and a metric: once, and again only when the reason is another one.
3. A request is denied if a Revocation refuses its name or its key, with that reason: its certificate could never be used. Where
   Revocations may not be read, every request waits.
"""

from __future__ import annotations

import prometheus_client

from handfast.api import objects, signing_requests
from handfast.client import api, events, revoked
from handfast.controllers import loop
from handfast.controllers.certificates import requests as certificate_requests
from handfast.rules import decision
from handfast.rules.certificates import kubelet
from handfast.rules.nodes import claim
from handfast.runtime import clock as clocks


class Verdicts:
    """What one approver writes and says. `decisions` counts by signer and reason."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        requests: certificate_requests.Requests,
        recorder: events.Recorder,
        decisions: prometheus_client.Counter,
        revocations: revoked.Revoked | None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._requests = requests
        self._recorder = recorder
        self._decisions = decisions
        # None: nobody is known to be revoked (3).
        self._revocations = revocations
        # What was told of each waiting request: its UID, and the hash of the text, which a requester can make long.
        self._reported: dict[str, tuple[str, int]] = {}

    def forget(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        self._reported.pop(name, None)

    async def write_decision(
        self,
        item: signing_requests.Request,
        condition_type: str,
        reason: str,
        message: str,
        *other_conditions: signing_requests.Condition,
    ) -> None:
        """Approve or deny it; `other_conditions` go with that (1)."""
        added = signing_requests.condition(condition_type, reason, message, self.now_text())
        with api.MISSING_OK:
            # It waits no more.
            update = item.updated(added=added, without=claim.WAITING, other_conditions=other_conditions)
            self._requests.wrote(await certificate_requests.write(self._client, update, "approval"))
            self._decisions.labels(item.spec.signer_name, reason).inc()
        self.forget(item.metadata.name)

    async def deny_if_revoked(self, item: signing_requests.Request, facts: kubelet.Facts) -> bool:
        """Deny it if a Revocation refuses it (3); whether that was so."""
        if self._revocations is None:
            return False
        try:
            verdict = self._revocations.judge_request(facts, self._clock.now())
        except revoked.RevocationsForbidden as error:
            await self.record_event_once(item, error.reason, f"{error.message}; to change that: {error.hint}")
            raise loop.NotYet(f'"{item.metadata.name}" cannot be approved now: {error.message}') from None
        if not isinstance(verdict, decision.Deny):
            return False
        await self.write_decision(item, signing_requests.DENIED, verdict.reason, verdict.sentence)
        return True

    async def write_waiting_condition(self, item: signing_requests.Request, message: str) -> None:
        """Say on the request itself that a living node has its name, once: a requester can read nothing else."""
        if item.condition(claim.WAITING) is not None:
            return
        row = signing_requests.condition(claim.WAITING, claim.NODE_IS_ALIVE, message, self.now_text())
        with api.MISSING_OK:
            self._requests.wrote(await certificate_requests.write(self._client, item.updated(added=row), "approval"))

    async def record_event_once(
        self, item: signing_requests.Request, reason: str, text: str, *, by_reason: bool = False
    ) -> None:
        """Write the Event that says why a request waits, if that is news (2).

        `by_reason`: another text is no news. That is for a text that changes with every look.
        """
        if self.note_if_news(item, reason, text, by_reason=by_reason):
            await self._recorder.record(certificate_requests.regarding(item), reason, text, severity=events.WARNING)

    def note_if_news(self, item: signing_requests.Request, reason: str, text: str, *, by_reason: bool = False) -> bool:
        """Count and remember what is said of a request, unless it was said before; whether it is news."""
        said = (item.metadata.uid, hash(reason if by_reason else text))
        if self._reported.get(item.metadata.name) == said:
            return False
        self._reported[item.metadata.name] = said
        self._decisions.labels(item.spec.signer_name, reason).inc()
        return True

    def now_text(self) -> str:
        return objects.timestamp(self._clock.now())
