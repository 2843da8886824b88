# SPDX-License-Identifier: Apache-2.0
"""Looks up what `rules.request_explanation` explains a certificate request by: permissions, Nodes, Leases, Revocations, Machines.

`handfast csr explain` and `handfast check` ask by it, so that both say the same. It reads only. What the caller may not ask is left out, and told.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

import msgspec

from handfast import errors
from handfast.api import jsonpath, resources, signing_requests, status
from handfast.client import api, certificate_reviews, machine_reviews
from handfast.rules import request_explanation
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval

Note = Callable[[str], None]
# When an Event was last so, its reason and its message.
Said = tuple[str, str, str]
_Reviewed = tuple[dict[str, request_explanation.Answer], tuple[str, ...] | None, frozenset[str]]


class Review(msgspec.Struct, frozen=True):
    """The questions about requests to one API; `note` is told what may not be asked."""

    client: api.Client
    now: datetime.datetime
    note: Note

    async def explain(self, request: signing_requests.Request) -> request_explanation.Explanation:
        """Why a request stands where it stands."""
        answers: dict[str, request_explanation.Answer] = {}
        addresses: tuple[str, ...] | None = None
        reserved = kubelet.NO_NAMES
        other_checks: list[kubelet.Check] = []
        machine: approval.Verdict | None = None
        try:
            facts = kubelet.read(request.document())
        except errors.Refused:
            # The explanation says why it cannot be read.
            facts = None
        if facts is not None:
            machine = await self._machine(request, facts)
            if machine is None:
                answers, addresses, reserved = await self._reviewed(facts)
            other_checks = await self._further(facts)
        return request_explanation.explain(
            request,
            self.now,
            answers=answers,
            node_addresses=addresses,
            reserved=reserved,
            other_checks=other_checks,
            machine=machine,
        )

    async def _machine(self, request: signing_requests.Request, facts: kubelet.Facts) -> approval.Verdict | None:
        """What the machine-approver says of it, where one runs and the request is its own."""
        try:
            known = await machine_reviews.settings(self.client)
            if known is None:
                return None
            if known.trouble:
                self.note(
                    f"the machine-approver's settings cannot be read, and the defaults are assumed: {known.trouble}"
                )
            return await machine_reviews.verdict(self.client, request, facts, known.settings, self.now)
        except status.StatusError as error:
            self._forgive(error)
            return None

    async def _further(self, facts: kubelet.Facts) -> list[kubelet.Check]:
        """Checks of the name that the request asks for."""
        checks = []
        for ask in (certificate_reviews.claim, certificate_reviews.revoked):
            try:
                checks.append(await ask(self.client, facts, self.now))
            except status.StatusError as error:
                self._forgive(error)
        return [check for check in checks if check is not None]

    async def _reviewed(self, facts: kubelet.Facts) -> _Reviewed:
        """What the approver would ask, and the answers."""
        answers: dict[str, request_explanation.Answer] = {}
        addresses: tuple[str, ...] | None = None
        reserved = kubelet.NO_NAMES
        try:
            addresses = await certificate_reviews.node_addresses(self.client, facts)
            for permission in kubelet.permissions(facts.signer_name):
                answers[permission] = await certificate_reviews.ask_permission(self.client, facts, permission)
            reserved = await certificate_reviews.reserved(self.client, facts)
        except status.StatusError as error:
            self._forgive(error)
        return answers, addresses, reserved

    async def events(self, uid: str) -> list[Said]:
        """The Events about a request, oldest first."""
        # Events about objects without a namespace are in the namespace default.
        about = api.Scope(namespace="default", field_selector=f"involvedObject.uid={uid}")
        try:
            events = await self.client.list(resources.EVENTS, about)
        except (errors.Refused, errors.Unavailable) as error:
            self.note(f"its Events could not be read: {error.message}")
            return []
        return sorted(
            (jsonpath.text(each, "lastTimestamp"), jsonpath.text(each, "reason"), jsonpath.text(each, "message"))
            for each in events
        )

    def _forgive(self, error: status.StatusError) -> None:
        """What may not be asked is told; any other error ends the explanation."""
        if error.reason != "Forbidden":
            raise error
        self.note(f"some checks are missing: {error.message}")
