# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh anchors`: whom the mesh trusts and who depends on it, and a new root in place of the old one, step by step.

The work is in `client.mesh_anchor_rotation`, what counts in `rules.mesh.anchor_rotation`. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from handfast.cli import connecting, issuer_files, mesh_options, output, rotation_report, tables

if TYPE_CHECKING:
    from handfast.rules import trust_rotation
    from handfast.rules.mesh import trust_view

_ABOUT: Final[Mapping[str, str]] = {
    "add": "trust the new root beside the old one",
    "switch": "sign with the other issuer",
    "retire": "stop trusting the root that signs no more; this cannot be undone",
    "drop": "stop trusting the new root, which has signed nothing",
}


@click.group(name="anchors", short_help="Show or replace the roots that workloads trust.")
def command() -> None:
    """Show whom the workloads of the mesh trust, or replace the root without restarting them."""


@command.command(short_help="Show the roots of the mesh, and who depends on which.")
@mesh_options.control_plane_option
@connecting.options
@output.format_option
@click.pass_context
def show(ctx: click.Context, namespace: str, kubeconfig: str | None, directory: str, form: str) -> None:
    """Show the roots of the mesh: which one signs, when each ends, who believes it, and who has a certificate below it.

    Agents say which roots they believe. Pods without an agent believe those that their variables have, until they are started again.
    """
    import asyncio

    seen = asyncio.run(_look(connecting.chosen(ctx, kubeconfig, directory), namespace))
    if form != "text":
        output.result(output.document(_document(seen), form))
        return
    output.result(_text(seen))
    if seen.problem:
        output.warn(f"nothing can be signed: {output.printable(seen.problem)}")


async def _look(path: str, namespace: str) -> trust_view.View:
    from handfast.client import mesh_trust
    from handfast.rules.mesh import trust_view
    from handfast.runtime import clock

    now = clock.SystemClock().now()
    async with connecting.connected(path) as reached:
        stored = await mesh_trust.read(reached.client, namespace)
        known = await mesh_trust.known(reached.client, namespace, now)
    return trust_view.view(stored.material, stored.record, known, stored.mesh, now)


def _document(seen: trust_view.View) -> dict[str, Any]:
    from handfast.api import objects

    return {
        "roots": [
            {
                "sha256": root.fingerprint,
                "subject": root.subject,
                "notAfter": objects.timestamp(root.until),
                "signs": root.signs,
                "believedByAgents": list(root.agents),
                "believedByOthers": list(root.stock),
                "holders": root.holders,
            }
            for root in seen.roots
        ],
        "issuer": {"sha256": seen.signer, "notAfter": objects.timestamp(seen.signs_until), "problem": seen.problem},
        "agents": list(seen.agents),
        "withoutAgent": list(seen.stock),
        "holdersOfOtherIssuers": seen.unknown,
        "rotation": None if seen.rotation is None else _state(seen.rotation.state),
    }


def _state(state: trust_rotation.State) -> dict[str, Any]:
    return {
        "next": str(state.next),
        "begun": state.doing is not None,
        "staying": state.staying,
        "leaving": state.leaving,
        "undone": state.undoing,
    }


def _text(seen: trust_view.View) -> str:
    from handfast.api import objects

    rows = [
        (
            root.fingerprint[:16],
            output.printable(root.subject),
            objects.timestamp(root.until),
            "yes" if root.signs else "no",
            f"{len(root.agents)} of {len(seen.agents)}",
            f"{len(root.stock)} of {len(seen.stock)}",
            str(root.holders),
        )
        for root in seen.roots
    ]
    heads = ("ROOT", "NAME", "UNTIL", "SIGNS", "AGENTS", "OTHER PODS", "CERTIFICATES")
    parts = [tables.table(heads, rows, minor=("NAME",))]
    parts.append(f"Issuer {seen.signer[:16]} signs until {objects.timestamp(seen.signs_until)}")
    if seen.unknown:
        parts.append(f"Certificates of issuers that are not known here: {seen.unknown}")
    if seen.rotation is not None:
        state = seen.rotation.state
        way = "being undone" if state.undoing else "under way"
        parts.append(f"A rotation is {way}; next is {state.next}: {_ABOUT[state.next]}")
    return "\n\n".join(parts)


@command.command(short_help="Replace the root of the mesh, one step at a time.")
@click.option("--trust-anchors", type=click.Path(), default=None, help="The new root, PEM or DER.")
@click.option("--issuer-cert", type=click.Path(), default=None, help="The issuer below it, PEM or DER.")
@click.option(
    "--issuer-key", type=click.Path(), default=None, help="Its private key, PEM or DER, without a passphrase."
)
@click.option("--all", "everything", is_flag=True, help="Do all steps, until one has to wait.")
@click.option("--undo", is_flag=True, help="Go back to the old root; possible until the last step begins.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--unsafe-skip-wait",
    is_flag=True,
    help="Do not wait for agents and certificates; workloads may be locked out.",
)
@mesh_options.control_plane_option
@connecting.options
@output.format_option
@click.pass_context
def rotate(
    ctx: click.Context, /, namespace: str, kubeconfig: str | None, directory: str, form: str, **flags: Any
) -> None:
    """Replace the root of the mesh, one step at a time, while workloads go on.

    Each call does one step, and says which one is next and what it waits for. The steps are: add the new root, switch to an issuer below it, retire
    the old root. No connection is refused meanwhile, and no workload is started again, but for those without an agent. A step that was interrupted is done again by the next
    call. Without files of your own, the new root and its issuer are made; the key of the root is not kept.
    """
    import asyncio

    if flags["dry_run"] and flags["everything"]:
        raise output.Usage("--dry-run and --all do not go together", hint="--dry-run tells of one step")
    typed = issuer_files.read(flags)
    path = connecting.chosen(ctx, kubeconfig, directory)
    reports = asyncio.run(_rotate(path, namespace, typed, flags, form))
    if form != "text":
        output.result(output.document(rotation_report.document("mesh-anchors", reports), form))


async def _rotate(
    path: str, namespace: str, typed: Any, flags: Mapping[str, Any], form: str
) -> list[trust_rotation.Report]:
    from handfast.client import mesh_anchor_rotation
    from handfast.runtime import clock

    reports: list[trust_rotation.Report] = []
    skip, dry_run = flags["unsafe_skip_wait"], flags["dry_run"]
    async with connecting.connected(path) as reached:
        rotation = mesh_anchor_rotation.Rotation(reached.client, namespace, clock.SystemClock(), typed)
        while True:
            if flags["undo"] and not reports:
                report = await rotation.undo(dry_run=dry_run)
            else:
                report = await rotation.advance(skip_waits=skip, dry_run=dry_run)
            reports.append(report)
            if form == "text":
                output.result(rotation_report.text(report, _ABOUT))
            if not flags["everything"] or report.next is None or (report.waits and not skip):
                return reports
