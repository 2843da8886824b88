# SPDX-License-Identifier: Apache-2.0
"""Revokes a bootstrap credential over the API, and tells what that cuts. `rules.machines.revocation` says what has to go.

It prints nothing. It works on any API server; only Handfast's own tells what a credential has open.

1. What a credential has open is read before anything is deleted: afterwards its watches are gone. What stays good is told.
2. The trust goes first, then what is useless without it: the account before the Secrets of its tokens. An object that is not there
   is gone already. What is deleted is what is told.
3. Open requests that came by the credential are denied. One that changes meanwhile is looked at again.
4. Calling it twice is harmless: what was done stays done, and what was left is done.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects, resources, signing_requests, status
from handfast.client import api, machine_requests, machine_tokens
from handfast.rules.machines import revocation
from handfast.runtime import clock as clocks

_RESOURCES: Final = {
    "ConfigMap": resources.CONFIG_MAPS,
    "Secret": resources.SECRETS,
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
}
_METRICS: Final = {"connections": "handfast_bootstrap_connections", "watches": "handfast_bootstrap_watches"}
_REQUESTS: Final = msgspec.json.Decoder(api.Listing[signing_requests.Request])
_TRIES: Final = 5
_MESSAGE: Final = "the bootstrap credential that this request came by was revoked; join again with the new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """What a credential has open; connections and watches are None where the server does not tell. `staying` goes on."""

    objects: tuple[str, ...]
    requests: tuple[str, ...]
    connections: int | None
    watches: int | None
    staying: tuple[str, ...] = ()


async def look(client: api.Client, kind: str, *, everything: bool = False) -> Open:
    """What revoking the credential of this kind would cut (1)."""
    return await _open(client, kind, await _targets(client, kind, everything=everything), everything=everything)


async def revoke(client: api.Client, kind: str, clock: clocks.Clock, *, everything: bool = False) -> Open:
    """Revoke the credential of this kind; what was cut."""
    targets = await _targets(client, kind, everything=everything)
    # 1. what it has open, while it has
    before = await _open(client, kind, targets, everything=everything)
    # 2. the trust first
    for target in targets:
        with api.MISSING_OK:
            await client.delete(_RESOURCES[target[0]], target[2], namespace=target[1])
    # 3. requests that came by it, also those of this very moment
    kinds = revocation.kinds(kind, everything=everything)
    return dataclasses.replace(before, requests=await deny(client, kinds, clock))


async def deny(
    client: api.Client, kinds: Collection[str], clock: clocks.Clock, older_than: datetime.datetime | None = None
) -> tuple[str, ...]:
    """Deny the open requests that came by credentials of these kinds, perhaps only the older ones; their names (3)."""
    pending = await _pending(client, kinds)
    if older_than is not None:
        pending = [request for request in pending if machine_requests.created(request) < older_than]
    denied = [await _deny(client, each, clock) for each in pending]
    return tuple(name for name in denied if name)


async def _open(client: api.Client, kind: str, targets: Sequence[revocation.Target], *, everything: bool) -> Open:
    kinds = revocation.kinds(kind, everything=everything)
    pending = [request.metadata.name for request in await _pending(client, kinds)]
    staying = await _own(client) if kind == revocation.WORKER and not everything else ()
    return Open(
        objects=tuple(map(_title, targets)),
        requests=tuple(pending),
        staying=tuple(map(_title, staying)),
        **await _counts(client, kinds),
    )


async def _targets(client: api.Client, kind: str, *, everything: bool) -> list[revocation.Target]:
    """What has to go and is there, in order (2)."""
    if kind == revocation.MASTER:
        return [target for target in revocation.MASTERS if await _is_there(client, target)]
    shared = [revocation.secret(objects.metadata(each)) for each in await machine_tokens.shared_secrets(client)]
    if not everything:
        return shared
    account = [revocation.THE_ACCOUNT] if await _is_there(client, revocation.THE_ACCOUNT) else []
    return [*account, *shared, *await _own(client)]


async def _own(client: api.Client) -> list[revocation.Target]:
    return [revocation.secret(objects.metadata(each)) for each in await machine_tokens.own_secrets(client)]


def _title(target: revocation.Target) -> str:
    return f"{target[0]} {target[1]}/{target[2]}"


async def _is_there(client: api.Client, target: revocation.Target) -> bool:
    return await client.find(_RESOURCES[target[0]], target[2], namespace=target[1], metadata=True) is not None


async def _pending(client: api.Client, kinds: Collection[str]) -> Sequence[signing_requests.Request]:
    pages = client.pages(resources.SIGNING_REQUESTS, api.EVERYTHING, _REQUESTS)
    return [
        request
        async for page in pages
        for request in page.items
        if revocation.is_pending(request) and revocation.kind_of(request) in kinds
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


async def _counts(client: api.Client, kinds: Collection[str]) -> dict[str, int | None]:
    try:
        text = (await client.transport.request("GET", "/metrics", accept="text/plain")).decode("utf-8", "replace")
    except errors.HandfastError:
        # Counts are for the operator's information: revoking does not wait for them.
        text = ""
    return {word: _gauge(text, metric, kinds) for word, metric in _METRICS.items()}


def _gauge(text: str, metric: str, kinds: Collection[str]) -> int | None:
    """The sum of a gauge over these kinds; None where it is not told."""
    begins = tuple(f'{metric}{{kind="{kind}"}} ' for kind in kinds)
    values = [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(begins)]
    return int(sum(values)) if values else None
