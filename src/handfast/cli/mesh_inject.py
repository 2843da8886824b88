# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh inject` and `handfast mesh uninject`: manifests in, manifests out. What is done with each is in `rules.mesh.manifests`.

1. A source is a file, a directory with files in it, an https URL, or - for standard input.
2. All of it is read and changed before anything is printed. Where something is refused, nothing is.
3. The settings of the mesh are the cluster's, or with --trust-anchors those that were typed, and then no cluster is asked.
4. What was done goes to stderr, a line for every object.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast import errors
from handfast.cli import connecting, mesh_install, mesh_options, output
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.rules.mesh import manifests, sidecar

_F = TypeVar("_F", bound=Callable[..., Any])

_MAX_BYTES: Final = 16 << 20
_STDIN: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
# Flag -> the key of the setting.
_FLAGS: Final = {
    "trust_domain": "trustDomain",
    "identity_addr": "identity.address",
    "destination_addr": "destination.address",
    "policy_addr": "policy.address",
    "proxy_image": "proxy.image",
    "init_image": "proxy.initImage",
}


def _format(function: _F) -> _F:
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(("yaml", "json")),
        default="yaml",
        show_default=True,
        help="How the manifests are written.",
        callback=output.remember_format,
    )(function)


@click.command(name="inject", short_help="Add the mesh's proxy to manifests.")
@click.argument("sources", metavar="FILE...", nargs=-1, required=True)
@click.option("-n", "--namespace", metavar="NAME", default="", help="For objects that do not say theirs.")
@click.option(
    "--control-plane-namespace",
    "control_plane",
    metavar="NAME",
    default=mesh_options.NAMESPACE,
    show_default=True,
    help="Where the control plane is.",
)
@click.option(
    "--trust-anchors", type=click.Path(), default=None, help="Root certificates, PEM or DER.  Then no cluster is asked."
)
@click.option("--trust-domain", metavar="NAME", default=None, help="What every identity ends in.")
@click.option("--identity-addr", metavar="HOST:PORT", default=None, help="Where the identity service is.")
@click.option("--destination-addr", metavar="HOST:PORT", default=None, help="Where the destination service is.")
@click.option("--policy-addr", metavar="HOST:PORT", default=None, help="Where the policy service is.")
@click.option("--proxy-image", metavar="IMAGE", default=None, help="Of the proxy.")
@click.option("--init-image", metavar="IMAGE", default=None, help="Of the container that redirects to it.")
@click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of the mesh.  May be given several times.",
)
@connecting.options
@_format
@click.pass_context
def inject(ctx: click.Context, /, kubeconfig: str | None, directory: str, form: str, **flags: Any) -> None:
    """Add the mesh's proxy to every Pod and pod template of manifests, and print them.

    Each FILE is a file, a directory, an https URL, or - for standard input. Other objects stay as they are written. The settings are those of
    the cluster's mesh; with --trust-anchors they are those of the flags, and no cluster is asked.
    """
    from handfast.rules.mesh import manifests

    texts = mesh_install.texts(flags["assignments"], {key: flags[name] for name, key in _FLAGS.items()})
    if flags["trust_anchors"] is not None:
        plan = _offline(flags, texts)
    elif texts:
        raise output.Usage(
            f"{next(iter(texts))} goes with --trust-anchors: without it, the settings of the cluster's mesh count",
            hint="give --trust-anchors too, or change the mesh with handfast mesh install",
        )
    else:
        import asyncio

        plan = asyncio.run(_online(connecting.chosen(ctx, kubeconfig, directory), flags["control_plane"]))
    _print(flags["sources"], manifests.injecting(plan, flags["namespace"]), form)


@click.command(name="uninject", short_help="Take the mesh's proxy out of manifests.")
@click.argument("sources", metavar="FILE...", nargs=-1, required=True)
@_format
def uninject(sources: Sequence[str], form: str) -> None:
    """Take out of manifests what `handfast mesh inject` has added, exactly, and print them.

    Each FILE is a file, a directory, an https URL, or - for standard input. Everything else stays as it is written.
    """
    from handfast.rules.mesh import manifests

    _print(sources, manifests.uninjecting, form)


def _offline(flags: dict[str, Any], texts: dict[str, str]) -> sidecar.Plan:
    """The plan from what was typed (3)."""
    from handfast.rules.mesh import issuer, settings

    with files.otherwise("name another file with --trust-anchors"):
        data = files.read_given(pathlib.Path(flags["trust_anchors"]), limit=_MAX_BYTES)
    anchors = issuer.read_anchors(data).to_pem()
    return _plan(settings.changed(settings.Settings(), texts), anchors, flags["control_plane"])


async def _online(path: str, namespace: str) -> sidecar.Plan:
    """The plan from the mesh of a cluster (3)."""
    from handfast.api import resources
    from handfast.rules.mesh import control_plane, installation, issuer, settings

    async with connecting.connected(path) as reached:
        config, anchors = [
            await reached.client.find(resources.CONFIG_MAPS, name, namespace=namespace)
            for name in (control_plane.CONFIG, control_plane.TRUST_ANCHOR)
        ]
    if config is None or anchors is None:
        raise errors.Refused(
            f"there is no mesh in namespace {namespace}",
            reason="NoMesh",
            hint="run handfast mesh install, or name its namespace with --control-plane-namespace",
        )
    bundle = issuer.read_anchors(installation.read_anchors(anchors)).to_pem()
    return _plan(settings.parse(config.get("data") or {}), bundle, namespace)


def _plan(chosen: Any, anchors: bytes, namespace: str) -> sidecar.Plan:
    from handfast.rules.mesh import sidecar

    # A namespace that is no label is refused before a manifest is read.
    return sidecar.Plan(
        settings=chosen,
        anchors=anchors.decode(),
        created_by=mesh_install.created_by(),
        namespace=namespace,
    )


def _print(sources: Sequence[str], change: manifests.Change, form: str) -> None:
    # 2. everything before anything
    printed: list[str] = []
    reports: list[manifests.Report] = []
    for label, data in _inputs(sources):
        text, rows = _stream(label, data, change, form)
        printed.append(text)
        reports += rows
    output.passed_on(_joined(printed, form))
    # 4. what was done
    for report in reports:
        output.progress(str(report))


def _stream(label: str, data: bytes, change: manifests.Change, form: str) -> tuple[str, list[manifests.Report]]:
    """One source, changed; a refusal names the source."""
    from handfast.cli import manifest_text
    from handfast.rules.mesh import manifests

    try:
        parts = manifests.read(data)
        if form == "json":
            values = [manifests.rewrite(part.value, change) for part in parts]
            rows = [(f"{json.dumps(value)}\n" if value is not None else "", said) for value, said in values]
        else:
            rows = list(manifests.texts(parts, change, manifest_text.dump))
    except errors.Refused as error:
        raise errors.Refused(f"{label}: {error.message}", reason=error.reason, hint=error.hint) from None
    return "".join(text for text, _ in rows), [report for _, said in rows for report in said]


def _joined(streams: Sequence[str], form: str) -> str:
    """All sources as one stream. What separates them is added, and nothing else."""
    whole = ""
    for stream in filter(None, streams):
        if whole and not whole.endswith("\n"):
            whole += "\n"
        if whole and form == "yaml" and not stream.startswith("---"):
            whole += "---\n"
        whole += stream
    return whole


def _inputs(sources: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """What every source holds, and what it is called (1)."""
    if sources.count(_STDIN) > 1:
        raise output.Usage("standard input can be read once", hint="name - once")
    for source in sources:
        if source == _STDIN:
            yield "stdin", _stdin()
        elif source.startswith("https://"):
            import asyncio

            from handfast.client import manifests

            yield source.partition("?")[0], asyncio.run(manifests.fetch(source))
        elif source.startswith("http://"):
            raise output.Usage(f"{source.partition('?')[0]}: manifests come over https only", hint="write https://")
        else:
            yield from _files(pathlib.Path(source))


def _files(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    paths = [path]
    if path.is_dir():
        paths = sorted(each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
        if not paths:
            raise errors.Refused(
                f"{path} has no manifests", reason="NoManifest", hint="their names end in .yaml, .yml or .json"
            )
    for each in paths:
        with files.otherwise("name another file, a directory, an https URL, or - for standard input"):
            yield str(each), files.read_given(each, limit=_MAX_BYTES)


def _stdin() -> bytes:
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise errors.Refused(f"cannot read stdin: larger than {_MAX_BYTES} bytes", reason="FileTooLarge")
    return data
