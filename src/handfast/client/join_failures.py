# SPDX-License-Identifier: Apache-2.0
"""Reads what the API has about joins that failed, for `rules.nodes.join_failures`. It judges nothing.

1. Events and certificate requests are read each for itself: what may not be read is left out and told. Where neither may be, that is an
   error.
"""

from __future__ import annotations

import msgspec

from handfast.api import kinds, objects, resources, status
from handfast.bootstrap import tokens
from handfast.client import api
from handfast.rules.machines import bootstrapper
from handfast.rules.nodes import join_failures
from handfast.rules.tokens import failed_joins

_EVENTS = api.Scope(namespace=tokens.NAMESPACE, field_selector=f"reason={failed_joins.REASON}")


class Read(msgspec.Struct, frozen=True):
    """What was read, and what could not be, in sentences."""

    failures: tuple[join_failures.Failed, ...]
    unread: tuple[str, ...]


async def read(client: api.Client) -> Read:
    """Everything about failed joins that the caller may read (1)."""
    refused: list[status.StatusError] = []

    async def listed(kind: kinds.Kind, scope: api.Scope) -> list[objects.Document]:
        try:
            return list(await client.list(kind, scope))
        except status.StatusError as error:
            if error.reason != "Forbidden":
                raise
            refused.append(error)
            return []

    events = await listed(resources.EVENTS, _EVENTS)
    requests = await listed(resources.SIGNING_REQUESTS, api.Scope())
    if len(refused) > 1:
        raise refused[0]
    failures = (*join_failures.of_events(events), *join_failures.of_requests(requests, (bootstrapper.USER,)))
    return Read(failures, tuple(f"not everything could be read: {error.message}" for error in refused))
