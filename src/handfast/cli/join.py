# SPDX-License-Identifier: Apache-2.0
"""`handfast join`: find a cluster, prove that it is the right one, log in, and get this machine a certificate of its own.

The walk, from the command to the POST of a CertificateSigningRequest. `command` calls 1 to 4; 5 is where 4 leads to:

1. `join_flags.read`: what was typed, read once.
2. `join_plan.choose`: what is going to be done. What must hold is in `bootstrap.discovery`.
3. `join_cluster.find`: the cluster, proven to be the right one. Then: this machine is in no other cluster
   (`join_node.require_same_cluster`), a dry run ends here, and the bootstrap kubeconfig is written.
4. `join_node.ask_for_certificate`: a certificate for this node, by way of `assembly.node` (`obtain`), `node.identity`
   (`ensure`), `client.keeping` (`ensure`), `client.issuance` (`next_pair`) and `node.certificates` (`_request`).
5. `client.requests.file_and_wait`: the POST, and the watch for the answer.

Here is their order, and what is printed or written between them.

`handfast join failures` is another command, in `join_failures`: where that word comes first, it is no endpoint.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import click

from handfast.cli import join_failures, join_flags, join_node, output

if TYPE_CHECKING:
    from handfast.cli import join_cluster


class Join(click.Group):
    """A command that takes endpoints. One word is none of them, where it comes first: that of the command in it."""

    # As a command, and unlike a group: flags may come after endpoints.
    allow_interspersed_args = True

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command in it, where its word comes first; else its own."""
        within = self.commands.get(args[0]) if args else None
        if within is None:
            return super().make_context(info_name, args, parent, **extra)
        own = click.Context(self, info_name=info_name, parent=parent)
        return within.make_context(args[0], args[1:], own, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        return click.Command.invoke(self, ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        # Click asks for those of a command around another one, too, to name its path: endpoints have no place in that.
        return super().get_params(ctx) if ctx.command is self else []

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)


@click.command(cls=Join, name="join", short_help="Make this machine a node of a cluster.")
@join_flags.options
def command(**parsed: Any) -> None:
    """Make this machine a node: find the cluster, prove that it is the right one, and get a certificate from it.

    Each ENDPOINT is host, host:port, [v6]:port or https://host:port; the port is 6443 by default. The first that
    answers is used; those named first are preferred. Servers that are not up yet are waited for.

    `handfast node run --rotate-certificates` renews the certificate. With --systemd it runs as a service.

    The word failures, where it comes first, is a command and no endpoint; a host of that name is failures:6443.
    """
    # 1. what was typed
    flags = join_flags.read(parsed)

    import asyncio

    from handfast.cli import join_cluster, join_plan

    # 2. what is going to be done
    plan = join_plan.choose(flags)
    # 3. the cluster
    discovered = asyncio.run(join_cluster.find(plan, flags.seconds))
    if flags.node_plan is None:
        _end_early(discovered, flags)
        return
    join_node.require_same_cluster(flags.node_plan, discovered.cluster)
    if flags.dry_run:
        rehearsed = asyncio.run(join_node.rehearse(flags.node_plan, discovered))
        _print(rehearsed.document(), rehearsed.story(flags.bootstrap_file), flags.form)
        return
    bootstrap_kubeconfig = _write(discovered, flags.bootstrap_file).absolute()
    # 4. a certificate, for which 5. one request is posted
    obtained = asyncio.run(join_node.ask_for_certificate(flags.node_plan, bootstrap_kubeconfig, flags.seconds))
    # Whoever has joined has no use for the token, and others should not find it here.
    bootstrap_kubeconfig.unlink(missing_ok=True)
    joined = join_node.Joined(discovered, flags.node_plan, obtained, join_node.install(flags.node_plan))
    _print(joined.document(), joined.story(), flags.form)


command.add_command(join_failures.command)


def _end_early(discovered: join_cluster.Discovered, flags: join_flags.Flags) -> None:
    """Write or print the bootstrap kubeconfig. Printed, it is written only where its place was named."""
    path = flags.bootstrap_file
    written = not flags.dry_run and not (flags.print_kubeconfig and flags.bootstrap_kubeconfig is None)
    if written:
        _write(discovered, path)
    if flags.print_kubeconfig:
        output.result(discovered.kubeconfig().rstrip("\n"))
        return
    document = discovered.document(path if written else None)
    _print(document, discovered.story() + _next(path, dry_run=flags.dry_run), flags.form)


def _write(discovered: join_cluster.Discovered, path: pathlib.Path) -> pathlib.Path:
    from handfast.runtime import files

    with files.otherwise("name another file with --bootstrap-kubeconfig"):
        files.create_directory(path.parent, mode=0o755)
        files.write_atomically(path, discovered.kubeconfig().encode("utf-8"))
    return path


def _print(document: dict[str, Any], text: str, form: str) -> None:
    output.result(text if form == "text" else output.document(document, form))


def _next(path: pathlib.Path, *, dry_run: bool) -> str:
    wrote = f"would write {path}" if dry_run else f"wrote {path}, mode 0600"
    return (
        f"{wrote}\n"
        "This machine has not joined yet: no certificate was requested. A kubelet that is started with\n"
        "--bootstrap-kubeconfig and that file requests its own."
    )
