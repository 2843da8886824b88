# SPDX-License-Identifier: Apache-2.0
"""Looks up what `rules.machines.explanation` tells of a machine. It reads only, and works on any API server.

What may not be read is left out, and named in `unread`, so that nobody takes "not seen" for "not there".
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from handfast import errors
from handfast.api import handfast_kinds, jsonpath, objects, resources, signer_names, signing_requests, status
from handfast.client import api, machine_requests, machine_reviews, machines
from handfast.pki import pem
from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.ledger import entries, segments
from handfast.rules.machines import approval, bootstrapper, credential_end, explanation, inventory, revocation

_T = TypeVar("_T")


class Look(msgspec.Struct):
    """One machine's facts, and what could not be read."""

    client: api.Client
    now: datetime.datetime
    unread: list[str] = msgspec.field(default_factory=list)

    async def facts(self, machine: inventory.Machine, index: inventory.Index) -> explanation.Facts:
        """Everything about one machine."""
        node = explanation.node_name(machine)
        document = await self._try(lambda: self.client.find(resources.NODES, node), None) if node else None
        requests: list[signing_requests.Request] = []
        if node:
            requests = await self._try(lambda: self._requests(node), requests)
        return explanation.Facts(
            machine=machine,
            rivals=[each for each in index.by_dns(node) if each.key != machine.key],
            credentials=await self._credentials(),
            requests=requests,
            verdict=await self._verdict(requests),
            issued=await self._try(lambda: self._issued(node), None),
            node_exists=document is not None,
            node_created=jsonpath.text(document, "metadata", "creationTimestamp"),
        )

    async def _try(self, ask: Callable[[], Awaitable[_T]], otherwise: _T) -> _T:
        try:
            return await ask()
        except status.StatusError as error:
            if error.reason != "Forbidden":
                raise
            self.unread.append(error.message)
            return otherwise

    async def _requests(self, node: str) -> list[signing_requests.Request]:
        """The requests for the client certificate of this node, the newest first."""
        found: list[signing_requests.Request] = []
        async for page in self.client.pages(resources.SIGNING_REQUESTS, api.EVERYTHING, machine_requests.REQUESTS):
            found += [each for each in page.items if _is_for(each, node)]
        # Of two in one second the one that waits comes first: it is what an operator looks for.
        return sorted(
            found, key=lambda each: (each.metadata.creation_timestamp or "", revocation.is_pending(each)), reverse=True
        )

    async def _verdict(self, requests: Sequence[signing_requests.Request]) -> approval.Verdict | None:
        """What the machine-approver says of the newest; None where none runs, or the request is not its own."""
        known = await self._try(lambda: machine_reviews.settings(self.client), None) if requests else None
        if known is None:
            return None
        if known.trouble:
            self.unread.append(known.trouble)
        newest, chosen = requests[0], known.settings
        facts = kubelet.read(newest.document())
        return await self._try(
            lambda: machine_reviews.verdict(self.client, newest, facts, chosen, self.now),
            None,
        )

    async def _credentials(self) -> tuple[str, ...]:
        """Which bootstrap credentials count, in words."""
        words = []
        for namespace, name in bootstrapper.CONFIG_MAPS:
            document = await self._config_map(namespace, name)
            signers = _certificates(jsonpath.text(document, "data", bootstrapper.BUNDLE_KEY))
            end = credential_end.of(document or {})
            # What has ended counts no more, whoever deletes it; nor does what has an end that cannot be read.
            if signers and not credential_end.is_over(end, self.now):
                until = "" if end is None else f", until {objects.timestamp(end)}"
                words.append(f"the masters' certificate ({signers} in ConfigMap {namespace}/{name}{until})")
        there = [name for name in bootstrapper.TOKEN_SECRETS if await self._secret(name) is not None]
        words += [f"the workers' token (Secret {bootstrapper.NAMESPACE}/{name})" for name in there]
        return tuple(words)

    async def _secret(self, name: str) -> objects.Document | None:
        return await self._try(
            lambda: self.client.find(resources.SECRETS, name, namespace=bootstrapper.NAMESPACE, metadata=True), None
        )

    async def _config_map(self, namespace: str, name: str) -> objects.Document | None:
        return await self._try(lambda: self.client.find(resources.CONFIG_MAPS, name, namespace=namespace), None)

    async def _issued(self, node: str) -> entries.Entry | None:
        """The newest certificate of this node in the ledger."""
        wanted = f"CN={user_names.node_user(node)}"
        newest: entries.Entry | None = None
        with api.MISSING_OK:
            for document in await self.client.list(handfast_kinds.ISSUANCE_LOG):
                for line in segments.read(document).entries:
                    entry = _entry(line, wanted)
                    if entry is not None and (newest is None or entry.issued_at >= newest.issued_at):
                        newest = entry
        return newest


async def look(
    client: api.Client, name: str, namespace: str, now: datetime.datetime
) -> tuple[explanation.Facts, list[str]]:
    """The facts of the Machine of this name, and what could not be read."""
    known = await machines.read(client)
    view = Look(client, now)
    return await view.facts(known.one(name, namespace), known.index), view.unread


def _is_for(request: signing_requests.Request, node: str) -> bool:
    if request.spec.signer_name != signer_names.KUBELET_CLIENT:
        return False
    try:
        facts = kubelet.read(request.document())
    except errors.Refused:
        return False
    # Renewals are not on the way to being a node.
    return facts.node_name == node and facts.username != user_names.node_user(node)


def _entry(line: str, wanted: str) -> entries.Entry | None:
    # Cheap test first: most lines are about others.
    if wanted not in line:
        return None
    try:
        entry = entries.decode_stored(line)
    except errors.Refused:
        return None
    return entry if wanted in entry.names and entry.signer == signer_names.KUBELET_CLIENT else None


def _certificates(text: str) -> int:
    try:
        return len(pem.certificates_from_pem(text.encode("utf-8", "replace"))) if text else 0
    except errors.Refused:
        return 0


def as_row(stage: explanation.Stage) -> dict[str, Any]:
    """A stage for machines."""
    change = {"change": stage.change} if stage.change else {}
    return {"stage": stage.name, "state": stage.state, "seen": stage.sentence, **change}
