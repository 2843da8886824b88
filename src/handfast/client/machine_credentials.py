# SPDX-License-Identifier: Apache-2.0
"""Revokes a bootstrap credential over the API, and tells what that cuts. `rules.machines.revocation` says what has to go.

It prints nothing. It works on any API server; only Handfast's own tells what a credential has open.

1. What a credential has open is read before anything is deleted: afterwards its watches are gone.
2. The trust goes first, then what is useless without it. An object that is not there is gone already.
3. Open requests that came by the credential are denied. One that changes meanwhile is looked at again.
4. Calling it twice is harmless: what was done stays done, and what was left is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects, resources, signing_requests, status
from handfast.client import api
from handfast.rules.machines import revocation
from handfast.runtime import clock as clocks

_RESOURCES: Final = {"ConfigMap": resources.CONFIG_MAPS, "Secret": resources.SECRETS}
_METRICS: Final = {"connections": "handfast_bootstrap_connections", "watches": "handfast_bootstrap_watches"}
_REQUESTS: Final = msgspec.json.Decoder(api.Listing[signing_requests.Request])
_TRIES: Final = 5
_MESSAGE: Final = "the bootstrap credential that this request came by was revoked; join again with the new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """What a credential has open; connections and watches are None where the server does not tell."""

    objects: tuple[str, ...]
    requests: tuple[str, ...]
    connections: int | None
    watches: int | None


async def look(client: api.Client, kind: str) -> Open:
    """What revoking the credential of this kind would cut (1)."""
    present = [_title(target) for target in revocation.TARGETS[kind] if await _is_there(client, target)]
    pending = [request.metadata.name for request in await _pending(client, kind)]
    counts = await _counts(client, kind)
    return Open(objects=tuple(present), requests=tuple(pending), **counts)


async def revoke(client: api.Client, kind: str, clock: clocks.Clock) -> Open:
    """Revoke the credential of this kind; what was cut."""
    before = await look(client, kind)
    # 2. the trust first
    for target in revocation.TARGETS[kind]:
        with api.MISSING_OK:
            await client.delete(_RESOURCES[target[0]], target[2], namespace=target[1])
    # 3. requests that came by it, also those of this very moment
    denied = [await _deny(client, each, clock) for each in await _pending(client, kind)]
    requests = tuple(name for name in denied if name)
    return Open(objects=before.objects, requests=requests, connections=before.connections, watches=before.watches)


def _title(target: revocation.Target) -> str:
    return f"{target[0]} {target[1]}/{target[2]}"


async def _is_there(client: api.Client, target: revocation.Target) -> bool:
    return await client.find(_RESOURCES[target[0]], target[2], namespace=target[1], metadata=True) is not None


async def _pending(client: api.Client, kind: str) -> Sequence[signing_requests.Request]:
    pages = client.pages(resources.SIGNING_REQUESTS, api.EVERYTHING, _REQUESTS)
    return [
        request
        async for page in pages
        for request in page.items
        if revocation.is_pending(request) and revocation.kind_of(request) == kind
    ]


async def _deny(client: api.Client, request: signing_requests.Request, clock: clocks.Clock) -> str:
    """Deny a request; its name, or nothing where it has gone or was decided meanwhile."""
    name = request.metadata.name
    for _ in range(_TRIES):
        if not revocation.is_pending(request):
            return ""
        now = objects.timestamp(clock.now())
        row = signing_requests.condition(signing_requests.DENIED, revocation.REASON, _MESSAGE, now)
        try:
            await client.replace(
                *(resources.SIGNING_REQUESTS, name, request.updated(added=row), signing_requests.DECODER),
                subresource="approval",
            )
        except status.StatusError as error:
            if error.reason == "NotFound":
                return ""
            if error.reason != "Conflict":
                raise
            request = await client.view(resources.SIGNING_REQUESTS, name, signing_requests.DECODER)
        else:
            return name
    raise errors.Unavailable(f'others keep writing certificate request "{name}"', reason="Conflict")


async def _counts(client: api.Client, kind: str) -> dict[str, int | None]:
    try:
        text = (await client.transport.request("GET", "/metrics", accept="text/plain")).decode("utf-8", "replace")
    except errors.HandfastError:
        # Counts are for the operator's information: revoking does not wait for them.
        text = ""
    return {word: _gauge(text, metric, kind) for word, metric in _METRICS.items()}


def _gauge(text: str, metric: str, kind: str) -> int | None:
    begins = f'{metric}{{kind="{kind}"}} '
    line = next((line for line in text.splitlines() if line.startswith(begins)), None)
    return None if line is None else int(float(line.removeprefix(begins)))
