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

from collections.abc import Sequence
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


async def wanted(
    client: api.Client, machines: inventory.Index, machine: inventory.Machine, chosen: settings.Settings
) -> tuple[approval.Further, ...]:
    """The proofs that the settings ask for, of any request for this Machine."""
    checks: list[approval.Further] = []
    if chosen.source_address:
        checks.append(
            lambda facts, of: proofs.came_from(facts, of, machines.by_address(source_address.of(facts.extra)))
        )
    if chosen.per_machine:
        checks.append(await _credential(client, machine))
    return tuple(checks)


def proven(verdict: approval.Verdict, facts: kubelet.Facts, checks: Sequence[approval.Further]) -> approval.Verdict:
    """The verdict with these proofs; as it is, where it fails without them (1)."""
    machine = verdict.machine
    if machine is None or verdict.failed is not None:
        return verdict
    for check in checks:
        step = check(facts, machine)
        verdict = verdict.with_step(step, _FORBIDDEN_SECONDS if step.reason == proofs.FORBIDDEN else None)
    return verdict


async def _credential(client: api.Client, machine: inventory.Machine) -> approval.Further:
    # 2. as it is now
    name = machine_tokens.secret_name(machine.name)
    try:
        secret = await client.find(resources.SECRETS, name, namespace=bootstrapper.NAMESPACE, metadata=True)
    except status.StatusError as error:
        if error.code != 403:
            raise
        message = error.message
        # 3. what may not be read proves nothing
        return lambda facts, of: proofs.unreadable(facts, of, message)
    credential = machine_tokens.read(secret)
    return lambda facts, of: proofs.came_with(facts, of, credential)
