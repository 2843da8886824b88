# SPDX-License-Identifier: Apache-2.0
"""`handfast machine`: the machines that the operator knows, and the credentials by which they come in. A tree of commands only."""

from __future__ import annotations

import click

from handfast.cli import (
    machine_credentials,
    machine_declare,
    machine_explain,
    machine_ignition,
    machine_list,
    machine_pools,
)


@click.group(name="machine", short_help="Know machines, let them in, and see how far each has come.")
def command() -> None:
    """Know machines, let them in by inventory, see how far each has come, and revoke what lets them in."""


command.add_command(machine_declare.create)
command.add_command(machine_declare.import_command)
command.add_command(machine_list.list_command)
command.add_command(machine_list.delete)
command.add_command(machine_explain.explain)
command.add_command(machine_explain.readmit)
command.add_command(machine_ignition.ignition)
command.add_command(machine_pools.pools)
command.add_command(machine_credentials.command)
