# SPDX-License-Identifier: Apache-2.0
"""`handfast store`: backs up, restores, copies, verifies and describes a control plane's store.

Each command is in a module of its own. What they have in common (which store is meant, and progress) is in `store_options`.
"""

from __future__ import annotations

import click

from handfast.cli import store_backup, store_copy, store_restore, store_status, store_verify


@click.group(name="store", short_help="Back up, restore, move, verify and describe the store.")
def command() -> None:
    """Back up, restore, move, verify and describe the store, in which a control plane keeps its objects."""


for each in (store_backup, store_restore, store_copy, store_verify, store_status):
    command.add_command(each.command)
