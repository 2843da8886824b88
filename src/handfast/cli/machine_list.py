# SPDX-License-Identifier: Apache-2.0
"""`handfast machine list` and `delete`: the machines that the operator knows, and forgetting one. It decides nothing.

1. A Machine of a provider is not deleted here: with it the provider would delete the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from handfast import errors
from handfast.cli import candidates, connecting, machine_declare, machine_options, output, tables

if TYPE_CHECKING:
    from handfast.client import api
    from handfast.rules.machines import inventory

_LIST_FORMATS: Final = ("text", "wide", "json", "yaml", "name")


@click.command(name="list", short_help="List the machines that are known.")
@machine_options.namespace_option("Those of one namespace.  [default: of all]")
@connecting.options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(_LIST_FORMATS),
    default="text",
    show_default=True,
    help="How they are written: wide adds hardware, serial number and more, name has the names alone.",
    callback=output.remember_format,
)
@click.pass_context
def list_command(ctx: click.Context, namespace: str, kubeconfig: str | None, directory: str, form: str) -> None:
    """List the machines that are known, and whether each has joined.

    A machine is joined when it is linked with its node, approved when its key was, and waiting before that. The node of one
    that has joined may be gone.
    """
    import asyncio

    from handfast.rules.machines import listing
    from handfast.runtime import clock

    async def work(path: str) -> tuple[list[inventory.Machine], set[str] | None]:
        from handfast.client import machines as client_machines

        async with connecting.connected(path) as reached:
            known = await client_machines.read(reached.client)
            wanted = [machine for machine in known.index if namespace in {"", machine.namespace}]
            return sorted(wanted, key=lambda each: (each.name, each.key)), await _nodes(reached.client)

    machines, nodes = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    if form in {"json", "yaml"}:
        rows = [listing.document(machine, nodes) for machine in machines]
        output.result(output.document({"machines": rows}, form))
        return
    if not machines:
        output.note("there are no Machines" + (f" in the namespace {namespace}" if namespace else ""))
    elif form == "name":
        output.result("\n".join(machine.name for machine in machines))
    else:
        wide, now = form == "wide", clock.SystemClock().now()
        shown = [listing.row(machine, now, nodes, wide=wide) for machine in machines]
        head = listing.WIDE_COLUMNS if wide else listing.COLUMNS
        output.result(tables.table(head, shown, minor=listing.MINOR))


async def _nodes(client: api.Client) -> set[str] | None:
    """The names of the Nodes; None where they may not be read."""
    from handfast.api import resources, status

    try:
        return {each["metadata"]["name"] for each in await client.list(resources.NODES, metadata=True)}
    except status.StatusError as error:
        if error.reason != "Forbidden":
            raise
        output.note(f"whether nodes are there could not be read: {error.message}")
        return None


@click.command(short_help="Delete machines that were declared.")
@click.argument("names", metavar="NAME...", nargs=-1, shell_complete=candidates.machines)
@machine_options.namespace_option()
@connecting.options
@output.format_option
@click.pass_context
def delete(
    ctx: click.Context, names: Sequence[str], namespace: str, kubeconfig: str | None, directory: str, form: str
) -> None:
    """Delete machines that were declared, so that they can join no more.

    The node of a machine that has joined stays, and its certificate stays good: `handfast node revoke` refuses it. A
    Machine that a provider made is not deleted.
    """
    import asyncio

    if not names:
        raise output.Usage(
            "missing argument 'NAME...'", hint="`handfast machine list -o name` shows those that there are"
        )
    path = connecting.chosen(ctx, kubeconfig, directory)
    deleted = asyncio.run(_delete(path, list(dict.fromkeys(names)), namespace))
    if form != "text":
        rows = [{"name": machine.name, "namespace": machine.namespace, "node": machine.node} for machine in deleted]
        output.result(output.document({"deleted": rows}, form))
    else:
        for machine in deleted:
            output.result(f"{machine.title} deleted")
    machine_declare.tell_of_nodes(deleted)


async def _delete(path: str, names: Sequence[str], namespace: str) -> list[inventory.Machine]:
    from handfast.client import machine_import
    from handfast.client import machines as client_machines
    from handfast.rules.machines import linking

    async with connecting.connected(path) as reached:
        known = await client_machines.read(reached.client)
        machines = [known.one(name, namespace) for name in names]
        # 1. a provider's, before any is deleted
        for machine in machines:
            if linking.DECLARED not in machine.annotations:
                raise errors.Refused(
                    f"{machine.title} was not made by `handfast machine`: its provider would delete the machine itself",
                    reason="NotDeclared",
                    hint="if that is meant, delete it with kubectl",
                )
        for machine in machines:
            await machine_import.delete(reached.client, machine)
        return machines
