# SPDX-License-Identifier: Apache-2.0
"""Makes a cluster ready for machines that the operator knows, over its API, whichever server that is.

It prints nothing and makes no credential. What is applied is in `rules.machines.installation`.

1. Where the marker is, nothing is done but what it does not tell of: what was deleted since, a revoked credential above all,
   stays deleted. What a later release added is made once, and then told by the marker, too.
2. What is missing is created, and what is there stays as it is. A run that was cut short is completed by the next one.
3. A kind that was just defined is waited for: an API server needs a moment until it serves it.
4. The master's credential counts when everything else is there, and the marker comes last.
5. Before the credential counts for the first time the caller is told, and writes it down on its own side. A credential that
   counted once is never made to count again here: somebody may have revoked it, and taken the marker away.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects, resources
from handfast.bootstrap import first_objects
from handfast.client import api, introduction
from handfast.rules.machine_config import server_rights
from handfast.rules.machines import installation
from handfast.runtime import clock as clocks

_PATIENCE: Final = 30.0
_POLL: Final = 0.1

# Makes Machines, and says what was done with each.
AddMachines = Callable[[api.Client], Awaitable[Sequence[tuple[str, str]]]]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to apply; without a credential, everything else."""

    credential: Credential | None
    add_machines: AddMachines | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The masters' credential: its bundle, its kubeconfig, which does not print, its end, and who is told before it counts (5)."""

    bundle: bytes
    kubeconfig: bytes = field(repr=False)
    before_it_counts: Callable[[], None]
    revoke_at: datetime.datetime | None = None


async def is_installed(client: api.Client) -> bool:
    """Whether it was done before (1)."""
    marker = await client.find(
        resources.CONFIG_MAPS, installation.MARKER, namespace=installation.MARKER_NAMESPACE, metadata=True
    )
    return marker is not None


async def add_later_parts(client: api.Client, clock: clocks.Clock) -> list[tuple[str, str]]:
    """In a cluster that was made ready by an earlier release: what has come since (1); what was done with each object."""
    place = installation.MARKER_NAMESPACE
    marker = await client.find(resources.CONFIG_MAPS, installation.MARKER, namespace=place)
    if marker is None or installation.CONFIGURATIONS in (marker.get("data") or {}):
        return []
    done = [(await introduction.create(client, each), each.title) for each in server_rights.first()]
    change = {
        "metadata": {"resourceVersion": objects.metadata(marker)["resourceVersion"]},
        "data": {installation.CONFIGURATIONS: objects.timestamp(clock.now())},
    }
    await client.patch(resources.CONFIG_MAPS, installation.MARKER, change, namespace=place)
    return done


async def ensure(client: api.Client, wanted: Wanted, clock: clocks.Clock) -> list[tuple[str, str]]:
    """Apply what is missing; what was done with each object, in order."""
    done: list[tuple[str, str]] = []

    async def apply(each: first_objects.FirstObject) -> None:
        # 2. what is there stays
        done.append((await introduction.create(client, each), each.title))

    for each in (*installation.before_machines(), *server_rights.first()):
        await apply(each)
    for each in installation.pools():
        await _wait_served(client, each, clock)
        await apply(each)
    if wanted.add_machines is not None:
        done += await wanted.add_machines(client)
    # 4. the credential counts when everything else is there, and 5. only once
    if (credential := wanted.credential) is not None:
        credential.before_it_counts()
        await apply(installation.kubeconfig(credential.kubeconfig))
        await apply(installation.trust(credential.bundle, credential.revoke_at))
    await apply(installation.marker(clock.now()))
    return done


async def _wait_served(client: api.Client, each: first_objects.FirstObject, clock: clocks.Clock) -> None:
    # 3. until the server has the kind
    end = clock.monotonic() + _PATIENCE
    while not await client.serves(each):
        if clock.monotonic() >= end:
            raise errors.Unavailable(
                f"the API server does not serve {each.plural}.{each.group}, {_PATIENCE:.0f} s after it was defined",
                hint="look at the conditions of that CustomResourceDefinition, and run this again",
            )
        await clock.sleep(_POLL)
