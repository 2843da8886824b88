# SPDX-License-Identifier: Apache-2.0
"""Reads what the API has about nodes, for `rules.nodes.overview`. It judges nothing.

1. Without the right to read Nodes there is nothing to show. Of the rest, what may not be read, or is not served, is left out and told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from handfast.api import handfast_kinds, objects, resources, signer_names, status
from handfast.client import api, issued_certificates
from handfast.rules import revocation
from handfast.rules.ledger import entries
from handfast.rules.nodes import liveness, overview

_T = TypeVar("_T")
_UNREAD = frozenset({"Forbidden", "NotFound"})
_SIGNERS = (signer_names.KUBELET_CLIENT, signer_names.KUBELET_SERVING)


class Read(msgspec.Struct, frozen=True):
    """What was read, and what could not be, in sentences."""

    objects: overview.Objects
    unread: tuple[str, ...]


async def _recorded(client: api.Client, unread: list[str]) -> list[entries.Entry] | None:
    issued = await issued_certificates.entries(client, *_SIGNERS)
    if issued is None:
        unread.append(overview.NO_LEDGER)
    return issued


def _of(signer: str, issued: list[entries.Entry] | None) -> list[entries.Entry] | None:
    return None if issued is None else [entry for entry in issued if entry.signer == signer]


async def _revocations(client: api.Client) -> Sequence[objects.Document]:
    """An empty list where the API does not have the kind: nobody can be revoked by one there."""
    try:
        return await client.list(handfast_kinds.REVOCATION)
    except status.StatusError as error:
        if error.reason == "NotFound":
            return []
        raise


async def read(client: api.Client) -> Read:
    """Everything about nodes that the caller may read."""
    unread: list[str] = []

    async def optional(what: str, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        try:
            return await ask()
        except status.StatusError as error:
            if error.reason not in _UNREAD:
                raise
            unread.append(f"{what} could not be read: {error.message}")
            return None

    nodes = await client.list(resources.NODES, metadata=True)
    leases = await optional("Leases", lambda: client.list(resources.LEASES, api.Scope(namespace=liveness.NAMESPACE)))
    issued = await optional("the ledger", lambda: _recorded(client, unread))
    requests = await optional("certificate requests", lambda: client.list(resources.SIGNING_REQUESTS))
    revoked = await optional("Revocations", lambda: _revocations(client))
    index = revocation.Index()
    for document in revoked or ():
        index.add(revocation.read(document))
    there = overview.Objects(
        nodes=nodes,
        leases=leases,
        issued=_of(signer_names.KUBELET_CLIENT, issued),
        serving=_of(signer_names.KUBELET_SERVING, issued),
        requests=requests or (),
        revocations=index,
    )
    return Read(there, tuple(unread))
