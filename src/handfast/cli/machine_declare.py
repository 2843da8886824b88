# SPDX-License-Identifier: Apache-2.0
"""`handfast machine create` and `import`: declare machines without a provider. The work is in `client.machine_import`.

1. Everything that was typed, or is in the file, is judged before the API is asked, and all that is wrong is told.
2. What is planned is judged against the cluster before the first write.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.cli import connecting, machine_options, output
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.client import machine_import
    from handfast.rules.machines import declaration, import_plan, inventory

# The same as in `api.machine_kinds`, which is imported only where it is needed. A test compares them.
NAMESPACE: Final = "openshift-machine-api"
ROLES: Final = ("master", "worker")
_STDIN: Final = "-"
_MAX_BYTES: Final = 16 << 20


@click.command(short_help="Declare one machine.")
@click.argument("name")
@click.option(
    "--dns", metavar="NAME", multiple=True, required=True, help="The name of its node.  May be given several times."
)
@click.option("--ip", metavar="ADDRESS", multiple=True, help="An address of it.  May be given several times.")
@click.option("--mac", metavar="ADDRESS", multiple=True, help="A hardware address of it.  May be given several times.")
@click.option("--serial", default=None, help="Its serial number.")
@click.option("--role", type=click.Choice(ROLES), default="worker", show_default=True, help="What it is for.")
@click.option("--provider-id", metavar="ID", default=None, help="What its node calls itself in spec.providerID.")
@machine_options.namespace_option("The namespace that the Machines are in.", NAMESPACE)
@connecting.options
@output.format_option
@click.pass_context
def create(ctx: click.Context, /, name: str, kubeconfig: str | None, directory: str, form: str, **flags: Any) -> None:
    """Declare one machine: make a Machine with its addresses, so that the machine may join.

    Its node has to be called as one of --dns says. A machine may join for two hours after its Machine was made, unless the
    settings of the machine-approver say otherwise.
    """
    from handfast.rules.machines import declaration, import_plan

    values = {
        declaration.NAME: (name,),
        declaration.ROLE: (flags["role"],),
        declaration.DNS: flags["dns"],
        declaration.IP: flags["ip"],
        declaration.MAC: flags["mac"],
        declaration.SERIAL: () if flags["serial"] is None else (flags["serial"],),
        declaration.PROVIDER_ID: () if flags["provider_id"] is None else (flags["provider_id"],),
    }
    declared = declaration.declare([declaration.Row(0, values)])
    require_good(declared, f'"{name}"', typed=True)
    wanted = import_plan.Wanted(namespace=flags["namespace"], new=True)
    _carry_out(connecting.chosen(ctx, kubeconfig, directory), declared, wanted, f'"{name}"', form, dry_run=False)


@click.command(name="import", short_help="Declare the machines of a file.")
@click.argument("file", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--prune", is_flag=True, help="Delete what an earlier import of this name made and the file no longer has."
)
@click.option(
    "--set", "import_set", metavar="NAME", default=None, help="The name of the import.  [default: the file's own]"
)
@machine_options.namespace_option("The namespace that the Machines are in.", NAMESPACE)
@connecting.options
@output.format_option
@click.pass_context
def import_command(
    ctx: click.Context, /, file: str, kubeconfig: str | None, directory: str, form: str, **flags: Any
) -> None:
    """Declare the machines of a file, which is YAML or CSV; - is standard input.

    Each machine has a name, one or more dns names and, as far as they are known, ip, mac, serial, providerID and role. What is
    there already is made to say what the file says. Nothing is written unless the whole file is good.
    """
    from handfast.rules.machines import import_plan, inventory_file

    import_set = _import_set(file, flags["import_set"], prune=flags["prune"])
    declared = inventory_file.read(_read(file))
    wanted = import_plan.Wanted(namespace=flags["namespace"], import_set=import_set, prune=flags["prune"])
    source = "standard input" if file == _STDIN else file
    require_good(declared, source)
    if flags["prune"] and not declared.entries:
        raise output.Usage(f"{source} has no machines: --prune would delete all of the import {import_set}")
    path = connecting.chosen(ctx, kubeconfig, directory)
    _carry_out(path, declared, wanted, source, form, dry_run=flags["dry_run"])


def _read(file: str) -> bytes:
    if file != _STDIN:
        with files.otherwise("name another file"):
            return files.read_given(pathlib.Path(file), limit=_MAX_BYTES)
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise errors.Refused(f"standard input is larger than {_MAX_BYTES} bytes", reason="FileTooLarge")
    return data


def _import_set(file: str, name: str | None, *, prune: bool) -> str:
    from handfast.api import objects
    from handfast.rules.machines import declaration

    if name is not None:
        if not name or objects.label_value(name) is not None:
            raise output.Usage(f'--set: "{name}" is no value of a label: letters, digits, -, _ and dots, 63 at most')
        return name
    if file == _STDIN:
        if prune:
            raise output.Usage("--prune with standard input needs --set, the name of the import")
        return ""
    return declaration.set_name(file)


def require_good(declared: declaration.Declaration, source: str, *, typed: bool = False) -> None:
    """Return if nothing is wrong with what was typed (1); what is written otherwise than it was typed is told."""
    from handfast.client import machine_import

    if declared.problems:
        raise _told(machine_import.BadInventory(declared.problems, source, from_flag=typed))
    for remark in declared.notes:
        output.note(remark.text)


def _told(refused: machine_import.BadInventory) -> machine_import.BadInventory:
    """The error, when all of its problems are printed."""
    if len(refused.problems) > 1:
        for problem in refused.problems:
            output.progress(problem.text)
    return refused


def _carry_out(
    path: str,
    declared: declaration.Declaration,
    wanted: import_plan.Wanted,
    source: str,
    form: str,
    *,
    dry_run: bool,
) -> None:
    """Plan and do what was declared, and show it."""
    import asyncio

    from handfast.client import machine_import

    try:
        steps = asyncio.run(_work(path, declared, wanted, source, dry_run=dry_run))
    except machine_import.BadInventory as refused:
        raise _told(refused) from None
    _show(steps, form, dry_run=dry_run)


async def _work(
    path: str, declared: declaration.Declaration, wanted: import_plan.Wanted, source: str, *, dry_run: bool
) -> list[import_plan.Step]:
    from handfast.client import machine_import

    async with connecting.connected(path) as reached:
        # 2. against the cluster
        plan = await machine_import.planned(reached.client, declared, wanted, source)
        for number, step in enumerate(plan.steps):
            if dry_run:
                break
            try:
                await machine_import.apply(reached.client, step)
            except (errors.Refused, errors.Unavailable):
                output.note(
                    f"{number} of {len(plan.steps)} were done, up to {step.name}: the same command does the rest"
                )
                raise
        return plan.steps


def _show(steps: Sequence[import_plan.Step], form: str, *, dry_run: bool) -> None:
    from handfast.client import machine_import
    from handfast.rules.machines import import_plan

    if form != "text":
        rows = [
            {"name": step.name, "namespace": step.namespace, "action": step.action, "changes": list(step.changes)}
            for step in steps
        ]
        output.result(output.document({"dryRun": dry_run, "machines": rows}, form))
    else:
        for step in steps:
            done = f"would {step.action}" if dry_run else machine_import.DONE[step.action]
            if step.action == import_plan.UNCHANGED:
                done = step.action
            changes = f" ({'; '.join(step.changes)})" if step.changes else ""
            output.result(f"machine {step.name}: {done}{changes}")
    if not steps:
        output.note("there are no machines in it")
    tell_of_nodes(step.machine for step in steps if step.action == import_plan.PRUNE)


def tell_of_nodes(machines: Iterable[inventory.Machine | None]) -> None:
    """What stays when a Machine goes: the node, and its certificate."""
    for machine in machines:
        if machine is not None and machine.node:
            output.note(
                f"the node {machine.node} of {machine.name} stays, and its certificate is good until it expires: "
                f"`handfast node revoke {output.quoted(machine.node)}` refuses it"
            )
        elif machine is not None and machine.approved_key:
            output.note(
                f"a certificate was approved for {machine.name} before: `handfast ledger list` shows whether it was issued"
            )
