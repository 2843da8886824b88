# SPDX-License-Identifier: Apache-2.0
"""`handfast node reset`: this machine forgets that it is a node. Which files are the agent's is known in `node.reset`.

1. What would go is shown before anything is asked. A dry run ends there, and so does a machine on which there is nothing. An agent that would
   be in the way of the reset is named.
2. Removing the Node and revoking the certificate are an operator's: a node's own certificate may do neither. Which kubeconfig does
   it is known before anything changes, and it is not guessed: a flag or $KUBECONFIG names it.
3. A person types the node's name. Where nobody can be asked, --yes says it.
4. The cluster is told first, and then the files go: where that fails, the command can be given again.
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.assembly import node_config
from handfast.cli import connecting, node_settings, output

if TYPE_CHECKING:
    from handfast.client import api
    from handfast.node import reset

# What is typed where no node's name is known.
_WORD: Final = "reset"
_VARIABLE: Final = "KUBECONFIG"


@click.command(name="reset", short_help="Have this machine forget that it is a node.")
@node_settings.setting("kubeconfig", "The node's kubeconfig.", node_config.KUBECONFIG)
@node_settings.setting("cert-dir", "Where certificates and keys are kept.", node_config.CERT_DIR)
@node_settings.setting(
    "bootstrap-kubeconfig", "The bootstrap kubeconfig of a join.", node_config.BOOTSTRAP_KUBECONFIG, metavar="FILE"
)
@click.option("--systemd-dir", metavar="DIR", hidden=True, help="Where the unit is.")
@click.option("--remove", is_flag=True, help="Delete its Node, too.")
@click.option("--revoke", is_flag=True, help="Revoke its certificates, too, by their keys.")
@click.option(
    "--admin-kubeconfig",
    metavar="FILE",
    default=None,
    help=f"An operator's kubeconfig, for --remove and --revoke.  [default: ${_VARIABLE}]",
)
@click.option("--dry-run", is_flag=True, help="Show what would go, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal, this is needed.")
@output.format_option
def command(**flags: Any) -> None:
    """Have this machine forget that it is a node: its agent stops, and its certificates, keys, kubeconfig and systemd unit go.

    Only what Handfast wrote goes; anything else is left and named. A second run finds nothing, and succeeds. Afterwards the machine can
    join again, also another cluster.
    """
    from handfast.node import reset, units
    from handfast.runtime import clock as clocks
    from handfast.runtime import files
    from handfast.telemetry import log

    log.configure(level="error")
    clock = clocks.SystemClock()
    configuration = node_settings.resolved(flags, "kubeconfig", "cert-dir")
    bootstrap = node_settings.named(flags, "bootstrap-kubeconfig") or node_config.BOOTSTRAP_KUBECONFIG
    places = reset.Places(
        directory=configuration.cert_dir.absolute(),
        kubeconfig=configuration.kubeconfig,
        bootstrap_kubeconfig=pathlib.Path(bootstrap),
        unit_directory=pathlib.Path(flags["systemd_dir"] or units.DIRECTORY),
    )
    findings = reset.look(places, clock)
    wanted = _wanted(findings, flags)
    # 1. what would go
    if flags["dry_run"] or findings.nothing:
        owner = files.owner_of(places.directory)
        if owner is not None and findings.unit is None:
            output.note(
                f"its agent runs as process {owner}, and no unit of Handfast keeps it: stop it before the reset"
            )
        _print(findings, wanted, flags["form"], done=False)
        return
    if not flags["yes"]:
        _ask(findings, wanted)
    done = reset.carry_out(places, clock, wanted.carry_out)
    _print(done, wanted, flags["form"], done=True)


class _Wanted:
    """What the cluster is to be told, and by whose kubeconfig."""

    def __init__(self, kubeconfig: str, *, remove: bool, revoke: bool) -> None:
        self.kubeconfig, self.remove, self.revoke = kubeconfig, remove, revoke

    def words(self, findings: reset.Findings) -> list[str]:
        """What it is, for people."""
        words = [f"Node {findings.node}"] if self.remove else []
        return words + ([f"the right to log in of {len(findings.pairs)} certificates"] if self.revoke else [])

    def carry_out(self, findings: reset.Findings) -> None:
        """Tell the cluster (4)."""
        if self.remove or self.revoke:
            import asyncio

            asyncio.run(self._tell(findings))

    async def _tell(self, findings: reset.Findings) -> None:
        async with connecting.connected(self.kubeconfig) as reached:
            if self.revoke:
                await _revoke(reached.client, findings)
            if self.remove:
                await _remove(reached.client, findings.node)


async def _revoke(client: api.Client, findings: reset.Findings) -> None:
    from handfast.api import objects
    from handfast.cli import revocation

    for pair in findings.pairs:
        fingerprint = pair.key.public.fingerprint
        # When the certificate has ended, nobody has to be kept from using it.
        end = objects.timestamp(pair.leaf.not_after)
        target = {"keyFingerprint": f"sha256:{fingerprint}"}
        await revocation.put(client, f"key-{fingerprint[:16]}", target, f"reset of node {findings.node}", end)


async def _remove(client: api.Client, node: str) -> None:
    from handfast.api import resources
    from handfast.client import api

    with api.MISSING_OK:
        await client.delete(resources.NODES, node)


def _wanted(findings: reset.Findings, flags: dict[str, Any]) -> _Wanted:
    """What the cluster is to be told, with the kubeconfig for it (2)."""
    remove, revoke = flags["remove"], flags["revoke"]
    kubeconfig = flags["admin_kubeconfig"] or os.environ.get(_VARIABLE, "")
    if (remove or revoke) and not kubeconfig:
        raise output.Usage(
            "--remove and --revoke need an operator's kubeconfig",
            reason="NoKubeconfig",
            hint=f"name it with --admin-kubeconfig, or ${_VARIABLE}; or leave them out here, and run where one is: "
            "kubectl delete node NAME, handfast node revoke NAME",
        )
    if remove and not findings.nothing and not findings.node:
        raise errors.Refused(
            "which node this machine is cannot be told: there is no certificate of one",
            reason="NoCertificate",
            hint="leave --remove out, and delete the Node by its name: kubectl delete node NAME",
        )
    return _Wanted(kubeconfig, remove=remove, revoke=revoke)


def _ask(findings: reset.Findings, wanted: _Wanted) -> None:
    """Have a person type the name (3)."""
    if not _somebody_is_here():
        raise output.Usage(
            "nobody is here to be asked",
            reason="NotConfirmed",
            hint="--yes says that it is meant; --dry-run shows what would go",
        )
    for line in _going(findings, wanted):
        output.progress(f"  {line}")
    word = findings.node or _WORD
    typed = click.prompt(output.printable(f"this machine forgets all of it; type {word} to go on"), err=True)
    if typed != word:
        raise errors.Refused(f'nothing was changed: "{word}" was not typed', reason="NotConfirmed")


def _somebody_is_here() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _going(findings: reset.Findings, wanted: _Wanted) -> list[str]:
    unit = [] if findings.unit is None else [findings.unit]
    return [*wanted.words(findings), *map(str, (*unit, *findings.removed))]


def _print(findings: reset.Findings, wanted: _Wanted, form: str, *, done: bool) -> None:
    if form != "text":
        facts = {
            "node": findings.node or None,
            "done": done,
            "nodeRemoved": done and wanted.remove,
            "certificatesRevoked": len(findings.pairs) if done and wanted.revoke else 0,
            "systemdUnit": None if findings.unit is None else str(findings.unit),
            "removed": [str(path) for path in findings.removed],
            "kept": [{"path": str(each.path), "why": each.why} for each in findings.kept],
        }
        output.result(output.document(facts, form))
        return
    for each in findings.kept:
        output.note(f"{each.path} stays: {each.why}")
    if findings.nothing:
        output.result("nothing to reset: this machine is no node of Handfast")
        return
    name = f"node {findings.node}" if findings.node else "a node"
    head = f"this machine is {name} no more; gone:" if done else f"this machine is {name}; would go:"
    after = "\n\nTo join again: handfast join" if done else ""
    output.result("\n".join([head, "", *(f"  {line}" for line in _going(findings, wanted))]) + after)
