# SPDX-License-Identifier: Apache-2.0
"""`handfast check`: what is wrong with a control plane, and what to do. What is judged is in `rules.diagnoses`.

1. Every check is printed, in order, whatever the others say.
2. The exit code is 0 where nothing fails, 1 where something does, and 3 where the server cannot be reached, or does not answer in time. Warnings, and what could not be
   read, count with --fail-on-warning.
3. With --node: a node can have this name. Else nothing is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from handfast.cli import candidates, check_output, connecting, mesh_options, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from handfast.rules import check as checks_module
    from handfast.rules.diagnoses import facts

_FORMATS: Final = ("text", "json", "junit")
# Where these fail, nobody was there to ask; and where those fail for these reasons, nobody answered.
_NOBODY: Final = frozenset({"dns", "tcp"})
_ASKING: Final = frozenset({"tls", "api"})
_SILENCE: Final = frozenset({"Timeout", "Unreachable", "ConnectionRefused"})


@click.command(name="check", short_help="Say what is wrong with a control plane, and what to do.")
@click.option("--node", metavar="NAME", shell_complete=candidates.nodes, help="How far this node has come, instead.")
@click.option("--fail-on-warning", is_flag=True, help="Let warnings, and what could not be read, fail the check, too.")
@mesh_options.control_plane_option
@connecting.options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How the result is written.",
    callback=output.remember_format,
)
@click.pass_context
def command(
    ctx: click.Context,
    kubeconfig: str | None,
    directory: str,
    namespace: str,
    fail_on_warning: bool,
    node: str | None,
    form: str,
) -> int:
    """Say what is wrong with a control plane, and what to do: the way to it, its store, controllers and their rights, webhooks, CAs, what
    machines join by, requests, nodes, machines, and the mesh.

    Each line has a name, a verdict and what was seen; where it is not ok, a reason, the next step and a page follow. With --node it says which of
    a node's steps fails: its request was created, approved, signed, and its certificate is used. Nothing is changed. The exit code is 0 where nothing
    fails, 1 where something does, and 3 where the server cannot be reached, or does not answer in time.
    """
    from handfast.rules import check
    from handfast.rules.diagnoses import judged, report

    # 3. a name that there can be
    if node is not None:
        from handfast.cli import revocation

        revocation.require_node_name(node)
    known = looked(ctx, kubeconfig, directory, namespace, node=node)
    checks = judged.everything(known) if node is None else judged.of_node(node, known)
    # 1. all of them
    if form == "junit":
        output.result(report.junit(checks))
    elif form == "json":
        worst = str(check.worst(checks))
        output.result(output.document({"verdict": worst, "checks": [report.row(each) for each in checks]}, form))
    else:
        check_output.show(checks)
    return code(checks, strict=fail_on_warning)


def code(checks: Sequence[checks_module.Check], *, strict: bool) -> int:
    """The exit code (2)."""
    from handfast.rules import check

    failed = [each for each in checks if each.verdict is check.Verdict.FAILED]
    if any(each.name in _NOBODY or (each.name in _ASKING and each.reason in _SILENCE) for each in failed):
        return output.Code.UNAVAILABLE
    good = {check.Verdict.OK} | (set() if strict else {check.Verdict.WARNING, check.Verdict.UNKNOWN})
    return output.Code.DONE if check.worst(checks) in good else output.Code.FAILED


def looked(
    ctx: click.Context, kubeconfig: str | None, directory: str, namespace: str, *, node: str | None = None
) -> facts.Facts:
    """What there is, or only what one node is judged by, with progress on a terminal."""
    import asyncio
    import pathlib

    path = connecting.chosen(ctx, kubeconfig, directory)

    async def work() -> facts.Facts:
        async with connecting.connected(path) as reached:
            from handfast.check import look
            from handfast.runtime import clock

            target = look.Target(
                client=reached.client,
                used=reached.connection,
                kubeconfig=path,
                directory=pathlib.Path(directory),
                mesh_namespace=namespace,
                node=node or "",
            )
            wanted = look.OF_NODE if node is not None else frozenset()
            return await look.look(target, clock.SystemClock(), check_output.Bar().progress, wanted)

    return asyncio.run(work())
