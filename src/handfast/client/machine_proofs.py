# SPDX-License-Identifier: Apache-2.0
"""Reads what the proofs that an operator asks for are decided by. `rules.machines.proofs` decides.

The machine-approver and `handfast csr explain` ask by it, so that both ask the same. It approves nothing.

1. Only the proofs that the settings ask for are made, in the order of `rules.machines.proofs`; and nothing is read for a request that
   fails without them.
2. The Secret of a machine's token is read on the server at that instant, of it the metadata alone: it holds nothing else, and who
   deletes it takes back the requests that are pending.
3. Where it may not be read, the proof fails, and says which right is missing.
"""

from __future__ import annotations

from typing import Final

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

# How soon a right that is missing is looked for again.
_FORBIDDEN_SECONDS: Final = 30.0


async def proven(
    client: api.Client,
    machines: inventory.Index,
    facts: kubelet.Facts,
    chosen: settings.Settings,
    verdict: approval.Verdict,
) -> approval.Verdict:
    """The verdict with the proofs that the settings ask for; as it is, where it fails without them (1)."""
    machine = verdict.machine
    if machine is None or verdict.failed is not None:
        return verdict
    if chosen.source_address:
        sharing = machines.by_address(source_address.of(facts.extra))
        verdict = verdict.with_step(proofs.came_from(facts, machine, sharing))
    if chosen.per_machine:
        step = await _credential(client, facts, machine)
        verdict = verdict.with_step(step, _FORBIDDEN_SECONDS if step.reason == proofs.FORBIDDEN else None)
    return verdict


async def _credential(client: api.Client, facts: kubelet.Facts, machine: inventory.Machine) -> approval.Step:
    # 2. as it is now
    name = machine_tokens.secret_name(machine.name)
    try:
        secret = await client.find(resources.SECRETS, name, namespace=bootstrapper.NAMESPACE, metadata=True)
    except status.StatusError as error:
        if error.code != 403:
            raise
        # 3. what may not be read proves nothing
        return proofs.unreadable(facts, machine, error.message)
    return proofs.came_with(facts, machine, machine_tokens.read(secret))
