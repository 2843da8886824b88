# SPDX-License-Identifier: Apache-2.0
"""Makes the Machines of a cluster those that an operator declared: the one engine of `machine create`, `machine import` and `init`.

It prints nothing. What is declared is `rules.machines.declaration`, what is to be done `rules.machines.import_plan`.

1. Everything is judged before the first write: the file, and the file against the cluster.
2. A write carries the version that it was planned from. Where somebody else was faster it ends there, and says what was done: the same
   command again does the rest.
3. A new Machine is made first and its addresses are written at once: between the two it has none, and nobody can join as it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from handfast import errors
from handfast.api import machine_kinds, objects, status
from handfast.client import api, ignition_secrets
from handfast.client import machines as client_machines
from handfast.rules.machines import declaration, import_plan, inventory

KIND: Final = machine_kinds.MACHINE


class BadInventory(errors.Refused):
    """What was declared cannot be done; every problem is named."""

    reason = "BadInventory"

    def __init__(self, problems: Sequence[declaration.Remark], source: str, *, from_flag: bool = False) -> None:
        self.problems = tuple(problems)
        # Typed at a command line: wrong usage.
        self.from_flag = from_flag
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        super().__init__(f"{source} has {count}, and nothing was written: {problems[0].text}")


async def listed(client: api.Client) -> Sequence[objects.Document]:
    """Every Machine of machine.openshift.io, whole."""
    try:
        return await client.list(KIND)
    except status.StatusError as error:
        if error.code != 404:
            raise
        raise client_machines.no_kind() from None


async def planned(
    client: api.Client, declared: declaration.Declaration, wanted: import_plan.Wanted, source: str
) -> import_plan.Plan:
    """What would be done; BadInventory where something is wrong (1)."""
    if declared.problems:
        raise BadInventory(declared.problems, source)
    plan = import_plan.plan(declared.entries, await listed(client), wanted)
    if plan.problems:
        raise BadInventory(plan.problems, source)
    return plan


async def apply(client: api.Client, step: import_plan.Step) -> None:
    """Do one step."""
    if step.action == import_plan.CREATE:
        await _create(client, step)
    elif step.action == import_plan.UPDATE:
        await _update(client, step)
    elif step.action == import_plan.PRUNE and step.machine is not None:
        await delete(client, step.machine)


async def _create(client: api.Client, step: import_plan.Step) -> None:
    try:
        document = await client.create(KIND, step.document, namespace=step.namespace)
    except status.StatusError as error:
        if error.reason == "NotFound":
            error.hint = (
                f"is there a namespace {step.namespace}? `handfast init --machines` makes {machine_kinds.NAMESPACE}"
            )
        raise
    # 3. its addresses, at once
    await _write_status(client, step, document["metadata"]["resourceVersion"])


async def _update(client: api.Client, step: import_plan.Step) -> None:
    version = "" if step.machine is None else step.machine.version
    if step.document:
        metadata = {**step.document.get("metadata", {}), "resourceVersion": version}
        patch = {**step.document, "metadata": metadata}
        answer = await client.patch(KIND, step.name, patch, namespace=step.namespace, metadata=True)
        version = answer["metadata"]["resourceVersion"]
    if step.status:
        await _write_status(client, step, version)


async def _write_status(client: api.Client, step: import_plan.Step, version: str) -> None:
    patch = {"metadata": {"resourceVersion": version}, "status": step.status}
    await client.patch(KIND, step.name, patch, namespace=step.namespace, subresource="status", metadata=True)


async def delete(client: api.Client, machine: inventory.Machine) -> None:
    """Delete the very Machine that was read; one that is gone is no error."""
    # Its secret counts for nobody without it. That goes first: who was cut short here deletes the Machine again.
    await ignition_secrets.forget(client, machine)
    with api.MISSING_OK:
        await client.delete(KIND, machine.name, namespace=machine.namespace, uid=machine.uid)


async def add(client: api.Client, declared: declaration.Declaration, source: str) -> list[tuple[str, str]]:
    """Create or update what is declared, as `init` and `up` do; what was done with each, and with which object."""
    wanted = import_plan.Wanted(import_set=declaration.set_name(source))
    plan = await planned(client, declared, wanted, source)
    done = []
    for step in plan.steps:
        await apply(client, step)
        done.append((DONE[step.action], f"Machine {step.namespace}/{step.name}"))
    return done


DONE: Final = {
    import_plan.CREATE: "created",
    import_plan.UPDATE: "updated",
    import_plan.UNCHANGED: "kept",
    import_plan.PRUNE: "deleted",
}
