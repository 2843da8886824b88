# SPDX-License-Identifier: Apache-2.0
"""`handfast help COMMAND…`: what `handfast COMMAND… --help` shows. It runs no command."""

from __future__ import annotations

import click

from handfast.cli import output


def _followed(root: click.Context, words: tuple[str, ...]) -> click.Context:
    """The context of the command that the words name."""
    context = root
    for word in words:
        if not isinstance(context.command, click.Group):
            raise output.Usage(
                f"{context.command_path} has no command '{word}'",
                hint=f"`handfast help {' '.join(context.command_path.split()[1:])}` shows what it takes",
            )
        _, command, _ = context.command.resolve_command(context, [word])
        if command is None:
            # Only where a shell completes: else click has refused the word.
            raise output.Usage(f"no such command '{word}'")
        context = click.Context(command, info_name=word, parent=context)
    return context


def _commands(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """What a shell may offer after the words that are there."""
    try:
        context = _followed(ctx.find_root(), ctx.params.get("words") or ())
    except (output.Usage, click.UsageError):
        return []
    if not isinstance(context.command, click.Group):
        return []
    return [name for name in context.command.list_commands(context) if name.startswith(incomplete)]


@click.command(name="help", short_help="Show the help of a command.")
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=_commands)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as --help does after it. Without a command, show which commands there are."""
    output.result(_followed(ctx.find_root(), words).get_help())
