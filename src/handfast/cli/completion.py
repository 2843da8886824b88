# SPDX-License-Identifier: Apache-2.0
"""`handfast completion SHELL`: the script that lets a shell complete this command. It installs nothing."""

from __future__ import annotations

import click
from click import shell_completion

from handfast import errors
from handfast.cli import output

_SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, flags and reasons. It also asks the API server for the ids of tokens, and for the names of certificate
    requests and nodes.
    """
    kind = shell_completion.get_completion_class(shell)
    if kind is None:
        raise errors.Misuse(f"no completion for {shell}")
    output.result(kind(ctx.find_root().command, {}, "handfast", "_HANDFAST_COMPLETE").source())
