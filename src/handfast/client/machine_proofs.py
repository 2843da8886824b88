# SPDX-License-Identifier: Apache-2.0
"""Reads what the proofs that an operator asks for are decided by. `rules.machines.proofs` decides.

The machine-approver and `handfast csr explain` ask by it, so that both ask the same. It approves nothing.

1. Only the proofs that the settings ask for are made, in the order of `rules.machines.proofs`.
2. The Secret of a machine's token is read on the server at that instant, of it the metadata alone: it holds nothing else, and who
   deletes it takes back the requests that are pending.
3. Where it may not be read, the proof fails, and says which right is missing.
"""

from __future__ import annotations

import functools

from handfast.api import resources, status
from handfast.client import api
from handfast.rules.certificates import kubelet
from handfast.rules.machines import (
    approval,
    bootstrapper,
    inventory,
    machine_tokens,
    proofs,
    settings,
    source_address,
)


async def gathered(
    client: api.Client,
    machines: inventory.Index,
    facts: kubelet.Facts,
    machine: inventory.Machine,
    chosen: settings.Settings,
) -> tuple[approval.Further, ...]:
    """The checks that the settings ask for, each with what it needs at hand (1.)."""
    further: list[approval.Further] = []
    if chosen.source_address:
        sharing = machines.by_address(source_address.of(facts.extra))
        further.append(functools.partial(proofs.came_from, sharing=sharing))
    if chosen.credential == settings.PER_MACHINE:
        further.append(await _credential(client, machine))
    return tuple(further)


async def _credential(client: api.Client, machine: inventory.Machine) -> approval.Further:
    # 2. as it is now
    name = machine_tokens.secret_name(machine.name)
    try:
        secret = await client.find(resources.SECRETS, name, namespace=bootstrapper.NAMESPACE, metadata=True)
    except status.StatusError as error:
        if error.code != 403:
            raise
        # 3. what may not be read proves nothing
        return functools.partial(proofs.unreadable, why=error.message)
    return functools.partial(proofs.came_with, credential=machine_tokens.read(secret))
