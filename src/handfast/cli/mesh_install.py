# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh install`: the objects that a mesh begins with, or their manifests. The work is in `client.mesh_installation`.

1. Everything that was typed is read and judged before anything is written.
2. The three files go together (`issuer_files`).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from handfast.cli import connecting, issuer_files, mesh_options, output, supervised

if TYPE_CHECKING:
    from handfast.client import mesh_installation
    from handfast.rules.mesh import install_plan, issuer


@click.command(name="install", short_help="Install the mesh's control plane, or bring it up to date.")
@mesh_options.control_plane_option
@click.option(
    "--trust-domain",
    metavar="NAME",
    default=None,
    help="What every identity ends in.  [default: cluster.local, or the one in use]",
)
@click.option("--trust-anchors", type=click.Path(), default=None, help="Root certificates to trust, PEM or DER.")
@click.option(
    "--issuer-cert", type=click.Path(), default=None, help="The certificate that signs identities, PEM or DER."
)
@click.option(
    "--issuer-key", type=click.Path(), default=None, help="Its private key, PEM or DER, without a passphrase."
)
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting, as in identity.lifetime=12h.  May be given several times.",
)
@click.option(
    "--endpoint",
    "endpoints",
    metavar="DOOR=IP:PORT",
    multiple=True,
    help="Where a service runs outside the cluster: identity, destination, policy, agents or injector.  May be given several times.",
)
@click.option("--force", is_flag=True, help="Change names or trust of a mesh that is in use.")
@click.option("--tls", is_flag=False, flag_value="", default=None, hidden=True, help="Was removed.")
@connecting.options
@output.format_option
@supervised.option
@click.pass_context
def install(
    ctx: click.Context, /, kubeconfig: str | None, directory: str, form: str, tie: int | None, **flags: Any
) -> None:
    """Install the mesh's control plane: its accounts and their rights, the trust anchors, an issuer, the settings.

    Without files of your own, trust anchors and an intermediate issuer are made; the key of the root is not kept. A second call
    changes nothing, unless it says something else. With -o yaml or -o json the manifests are printed, and nothing is done: with
    them come the Deployments of the control plane, each with its proxy. With --endpoint the control plane runs elsewhere, and Services lead there.
    """
    if flags["tls"] is not None:
        raise output.Usage("--tls was removed: workloads have identities without it", hint="leave it out")
    typed = _typed(flags)
    if form != "text":
        _print_manifests(typed, form)
        return
    import asyncio

    path = connecting.chosen(ctx, kubeconfig, directory)
    with supervised.tied(tie):
        _show(asyncio.run(_work(path, typed)), typed)


def _typed(flags: dict[str, Any]) -> install_plan.Typed:
    """What was typed, read (1)."""
    from handfast.rules.mesh import install_plan, services, settings

    typed = texts(flags["assignments"], {"trustDomain": flags["trust_domain"]})
    # Judged before anybody is asked; what is in use may still refuse it.
    settings.changed(settings.Settings(), typed).mesh(flags["namespace"])
    endpoints = _endpoints(flags["endpoints"])
    # What loopback means is for the API server to say.
    services.require(endpoints, loopback=True)
    return install_plan.Typed(
        namespace=flags["namespace"],
        texts=typed,
        material=issuer_files.read(flags),
        endpoints=endpoints,
        force=flags["force"],
    )


def _endpoints(assignments: Iterable[str]) -> dict[str, str]:
    typed: dict[str, str] = {}
    for assignment in assignments:
        door, equals, address = assignment.partition("=")
        if not equals:
            raise output.Usage(
                f'--endpoint: "{assignment}" has no =', hint="write it as in --endpoint injector=192.0.2.1:8443"
            )
        if door in typed:
            raise output.Usage(f"--endpoint: {door} is given twice")
        typed[door] = address
    return typed


def texts(assignments: Iterable[str], flags: Mapping[str, str | None]) -> dict[str, str]:
    """The settings that were typed: those with a flag of their own, and those of --set."""
    typed = {key: value for key, value in flags.items() if value is not None}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise output.Usage(f'--set: "{assignment}" has no =', hint="write it as in --set identity.lifetime=12h")
        if key in typed:
            raise output.Usage(f"{key} is given twice")
        typed[key] = value
    return typed


async def _work(path: str, typed: install_plan.Typed) -> mesh_installation.Outcome:
    from handfast.client import mesh_installation
    from handfast.runtime import clock

    async with connecting.connected(path) as reached:
        return await mesh_installation.install(reached.client, typed, clock.SystemClock().now())


def _print_manifests(typed: install_plan.Typed, form: str) -> None:
    from handfast.cli import manifest_text
    from handfast.client import mesh_installation
    from handfast.runtime import clock

    now = clock.SystemClock().now()
    documents, mesh_issuer = mesh_installation.manifests(typed, created_by(), now)
    if form == "json":
        output.result(output.document({"apiVersion": "v1", "kind": "List", "items": list(documents)}, form))
    else:
        output.result("---\n".join(map(manifest_text.dump, documents)).rstrip("\n"))
    output.warn("the manifests hold the private key of the issuer")
    _warn(mesh_issuer)


def created_by() -> str:
    """How what was injected by a command says so."""
    return f"handfast/cli {importlib.metadata.version('handfast')}"


def _show(outcome: mesh_installation.Outcome, typed: install_plan.Typed) -> None:
    for step in outcome.changed:
        output.progress(f"{step.action} {step.wanted.title}")
    if outcome.changed:
        output.result(f"the mesh is installed in namespace {typed.namespace}")
    else:
        output.result(f"the mesh in namespace {typed.namespace} is as it should be: nothing was changed")
    _warn(outcome.issuer)


def _warn(mesh_issuer: issuer.Issuer) -> None:
    from handfast.rules.mesh import issuer
    from handfast.runtime import clock

    for sentence in issuer.warnings(mesh_issuer, clock.SystemClock().now()):
        output.warn(sentence)
