# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh check`: is the mesh in order, and what to do where it is not. What is judged is in `rules.mesh.check`.

1. Every check is printed, in order, whatever the others say.
2. The exit code is 0 where nothing fails, and 1 where something does. Warnings, and what could not be read, count with --fail-on-warning.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from handfast.cli import check_output, connecting, mesh_options, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from handfast.rules import check as check_module


@click.command(name="check", short_help="Say whether the mesh is in order, and what to do.")
@mesh_options.control_plane_option
@click.option("--fail-on-warning", is_flag=True, help="Let warnings, and what could not be read, fail the check, too.")
@connecting.options
@output.format_option
@click.pass_context
def check(
    ctx: click.Context, kubeconfig: str | None, directory: str, namespace: str, fail_on_warning: bool, form: str
) -> int:
    """Say whether the mesh is in order: settings, trust anchors, issuer, kinds, rights, webhook, services, clocks, accounts and Pods.

    Each line has a name, a verdict and what was seen; where it is not ok, a reason and the next step follow. Nothing is changed. The exit
    code is 0 where nothing fails, and 1 where something does. A warning does not change it, unless --fail-on-warning says so.
    """
    import asyncio

    from handfast.rules import check as check_module
    from handfast.rules.diagnoses import report

    checks = asyncio.run(_work(connecting.chosen(ctx, kubeconfig, directory), namespace))
    worst = check_module.worst(checks)
    # 1. all of them
    if form == "text":
        check_output.show(checks)
    else:
        output.result(output.document({"verdict": str(worst), "checks": [report.row(each) for each in checks]}, form))
    # 2. what fails, and what counts as that
    good = {check_module.Verdict.OK}
    if not fail_on_warning:
        good |= {check_module.Verdict.WARNING, check_module.Verdict.UNKNOWN}
    return output.Code.DONE if worst in good else output.Code.FAILED


async def _work(path: str, namespace: str) -> Sequence[check_module.Check]:
    from handfast.api import resources, status
    from handfast.client import mesh_check
    from handfast.rules.mesh import control_plane
    from handfast.runtime import clock

    async with connecting.connected(path) as reached:
        # A server that cannot be reached at all is told of as every command does. What it refuses is a row's.
        with contextlib.suppress(status.StatusError):
            await reached.client.find(resources.CONFIG_MAPS, control_plane.CONFIG, namespace=namespace, metadata=True)
        return await mesh_check.look(reached.client, reached.connection.server, namespace, clock.SystemClock())
