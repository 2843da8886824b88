# SPDX-License-Identifier: Apache-2.0
"""`handfast status`: the whole in ten lines. It is made from the checks of `handfast check`; what a line says is in `rules.diagnoses.standing`.

1. The exit code is 0 where nothing needs anybody, 1 where something does, and 3 where the server cannot be reached, or does not answer in time.
"""

from __future__ import annotations

import click

from handfast.cli import check as check_command
from handfast.cli import connecting, mesh_options, output, tables


@click.command(name="status", short_help="Show the whole control plane in ten lines.")
@mesh_options.control_plane_option
@connecting.options
@output.format_option
@click.pass_context
def command(ctx: click.Context, kubeconfig: str | None, directory: str, namespace: str, form: str) -> int:
    """Show the whole control plane in ten lines: API, controllers, store, CA, tokens, requests, nodes, machines and mesh, and what to do next.

    It is what `handfast check` finds, in short. The exit code is 0 where nothing needs anybody, 1 where something does, and 3 where the server
    cannot be reached, or does not answer in time.
    """
    from handfast.rules.diagnoses import judged, standing

    checks = judged.everything(check_command.looked(ctx, kubeconfig, directory, namespace))
    lines, step = standing.lines(checks), standing.next_step(checks)
    if form == "text":
        rows = [(line.topic, str(line.verdict), output.printable(line.sentence)) for line in lines]
        output.result(tables.table(("TOPIC", "STATE", "SEEN"), rows))
        output.result(f"next: {output.printable(step)}")
    else:
        needs = standing.needs_somebody(checks)
        shown = {"needsSomebody": needs, "next": step, "topics": [standing.document(line) for line in lines]}
        output.result(output.document(shown, form))
    # 1. warnings need somebody, too; what could not be read does not
    code = check_command.code(checks, strict=False)
    return output.Code.FAILED if code == output.Code.DONE and standing.needs_somebody(checks) else code
