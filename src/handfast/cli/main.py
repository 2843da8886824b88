# SPDX-License-Identifier: Apache-2.0
"""The command tree, nothing else: which words there are, and which module each one loads when it is used.

A module is imported only when its command runs, so that `handfast --help` answers at once. It does not print: see
`output`.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Final

import click

from handfast.cli import examples, output, words
from handfast.runtime import collector

# word -> (module with `command`, the line that --help shows)
COMMANDS: Final = {
    "demo": ("handfast.cli.demo", "Show what it does, on this machine, in a minute."),
    "up": ("handfast.cli.up", "Start a control plane here and keep it running."),
    "init": ("handfast.cli.init", "Prepare a control plane to be joined, without starting it."),
    "serve": ("handfast.cli.serve", "Run one role in the foreground."),
    "token": ("handfast.cli.token", "Create, list, delete and explain bootstrap tokens."),
    "node": ("handfast.cli.node", "Run this machine's node agent, show its state, or refuse a node."),
    "machine": ("handfast.cli.machine", "Know machines, let them in, and see how far each has come."),
    "mesh": ("handfast.cli.mesh", "Give workloads an identity that their peers verify."),
    "ca": ("handfast.cli.ca", "Show or replace the CA and the key of service account tokens."),
    "store": ("handfast.cli.store", "Back up, restore, move, verify and describe the store."),
    "ledger": ("handfast.cli.ledger", "List, show and verify the certificates that were issued."),
    "status": ("handfast.cli.status", "Show the whole control plane in ten lines."),
    "check": ("handfast.cli.check", "Say what is wrong with a control plane, and what to do."),
    "console": ("handfast.cli.console", "Show the control plane in a browser."),
    "csr": ("handfast.cli.csr", "List, approve, deny and explain certificate requests."),
    "join": ("handfast.cli.join", "Make this machine a node of a cluster."),
    "kubeconfig": ("handfast.cli.kubeconfig", "Update or show the cluster in a kubeconfig."),
    "config": ("handfast.cli.config", "Show or check the configuration."),
    "explain": ("handfast.cli.explain", "Say what a reason means, and what to do."),
    "version": ("handfast.cli.version", "Show the version."),
    "help": ("handfast.cli.help", "Show the help of a command."),
    "completion": ("handfast.cli.completion", "Print the completion script of a shell."),
}
# A shell that completes a command line sets this variable. It has its answer within so many seconds, whatever the server
# does.
_COMPLETING: Final = "_HANDFAST_COMPLETE"
_PATIENCE: Final = 4


class _Lazy(click.Group):
    """A group whose commands are imported when they are asked for by name, not when they are listed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            words.require_good(args, os.environ)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        examples.attach(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; but it could suggest only commands that are imported already."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            close = " or ".join(repr(each) for each in difflib.get_close_matches(name, COMMANDS))
            raise click.UsageError(f"No such command {name!r}.{f' Did you mean {close}?' if close else ''}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_module, about) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="handfast", message="%(prog)s %(version)s")
def command() -> None:
    """First trust and workload identity, over the Kubernetes API.

    See it with `handfast demo`. Start with `handfast up`.
    """


examples.attach(command, "")


def main() -> None:
    """The entry point of the `handfast` script."""
    if _COMPLETING in os.environ:
        signal.signal(signal.SIGALRM, lambda *_: os._exit(output.Code.DONE))
        signal.alarm(_PATIENCE)
    collector.patient()
    code = output.run(command, sys.argv[1:])
    output.finish()
    sys.exit(code)
