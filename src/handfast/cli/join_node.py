# SPDX-License-Identifier: Apache-2.0
"""The second half of `handfast join`: from the bootstrap kubeconfig to a certificate, a kubeconfig and an agent.

How the cluster was found is in `join_cluster`. How a certificate is obtained is in `node.identity`.

1. A kubeconfig of another cluster is not touched, and nothing is requested or written: a machine is in one cluster.
2. Where this machine has a certificate in force for this cluster already, no other is requested. The one that is here is used
   once, to see that the cluster accepts it.
3. What fails can be tried again: it goes on with the same key and the same request.
4. The name of a node that is alive is not taken without --replace-node. With it, the name is taken once the node's Lease has
   ended or an administrator approves. Where the Node can be seen, this is known before anything is requested;
   else the approver says it.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from handfast import errors
from handfast.assembly import node_config
from handfast.cli import output
from handfast.node import units

if TYPE_CHECKING:
    from handfast.assembly import node
    from handfast.cli import join_cluster
    from handfast.client import discovery, requests


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine is to become; `unit_directory` is where its systemd unit goes, None for no unit."""

    name: str
    kubeconfig: pathlib.Path
    certificate_directory: pathlib.Path
    unit_directory: pathlib.Path | None
    replace: bool = False

    def command(self) -> list[str]:
        """How its agent is started: what is not the default is named."""
        words = [*units.program(), "node", "run", "--node-name", self.name]
        for flag, value, default in (
            ("--kubeconfig", self.kubeconfig, node_config.KUBECONFIG),
            ("--cert-dir", self.certificate_directory, node_config.CERT_DIR),
        ):
            if str(value) != default:
                words += [flag, str(value)]
        return [*words, "--rotate-certificates"]


@dataclass(frozen=True, slots=True)
class Service:
    """The unit that was written, None where none was wanted; `next_command` is what a person still has to run."""

    unit: pathlib.Path | None = None
    next_command: str | None = None


class Joined(msgspec.Struct, frozen=True):
    """A machine that has joined."""

    discovered: join_cluster.Discovered
    node_plan: NodePlan
    obtained: node.Obtained
    service: Service

    def document(self) -> dict[str, Any]:
        """For machines."""
        return {
            **self.discovered.document(),
            "joined": True,
            "node": self.node_plan.name,
            "nodeExisted": self.obtained.node_existed,
            "kubeconfig": str(self.node_plan.kubeconfig),
            "certificateDirectory": str(self.node_plan.certificate_directory),
            "certificate": self._certificate(),
            "agentCommand": self.node_plan.command(),
            "systemdUnit": None if self.service.unit is None else str(self.service.unit),
            "left": self.service.next_command,
        }

    def _certificate(self) -> dict[str, Any]:
        from handfast.api import objects

        leaf = self.obtained.pair.leaf
        return {
            "subject": str(leaf.subject),
            "serial": leaf.serial,
            "notAfter": objects.timestamp(leaf.not_after),
            "new": self.obtained.is_new,
        }

    def story(self) -> str:
        """For people."""
        certificate = self._certificate()
        word = "" if self.obtained.is_new else ", which was here already"
        known = " (a Node of this name is there already, and is taken over)" if self.obtained.node_existed else ""
        return (
            f"this machine has joined the cluster as node {self.node_plan.name}{known}\n\n{self.discovered.table()}"
            f"  certificate {certificate['subject']}, until {certificate['notAfter']}{word}\n"
            f"  kept in     {self.node_plan.certificate_directory}\n"
            f"  kubeconfig  {self.node_plan.kubeconfig}\n\n{self._next()}"
        )

    def _next(self) -> str:
        unit, next_command = self.service.unit, self.service.next_command
        if unit is None:
            command = " ".join(output.quoted(part) for part in self.node_plan.command())
            return f"The certificate is renewed only while the node's agent runs. To start it:\n\n  {command}"
        if next_command:
            return f"wrote {unit}; it was not started. To start the agent:\n\n  {next_command}"
        return f"wrote {unit}: the agent runs now, and after every start of this machine"


class Rehearsed(msgspec.Struct, frozen=True):
    """A dry run; not `asks`: no certificate would be requested, since there is one in force."""

    discovered: join_cluster.Discovered
    node_plan: NodePlan
    asks: bool

    def document(self) -> dict[str, Any]:
        """For machines."""
        return {**self.discovered.document(), "requestAccepted": self.asks or None}

    def story(self, bootstrap_kubeconfig: pathlib.Path) -> str:
        """For people: what was left out."""
        if self.asks:
            lines = [
                f"would write {bootstrap_kubeconfig}, ask for a certificate as node {self.node_plan.name},",
                f"keep it in {self.node_plan.certificate_directory} and write {self.node_plan.kubeconfig}",
                "The cluster would take the request; who approves it is not asked here.",
            ]
        else:
            lines = [
                f"would ask for nothing: a certificate of node {self.node_plan.name} is in {self.node_plan.certificate_directory} already"
            ]
        if self.node_plan.unit_directory is not None:
            lines.append(f"would write {self.node_plan.unit_directory / units.NAME}")
        return self.discovered.story() + "\n".join(lines)


def require_same_cluster(node_plan: NodePlan, cluster: discovery.Cluster) -> None:
    """Refuses where the kubeconfig is another cluster's (1)."""
    from handfast.client import connection
    from handfast.runtime import files

    try:
        with files.otherwise("name another file with --kubeconfig"):
            known = connection.load(str(node_plan.kubeconfig)).server
    except errors.Refused as refused:
        if refused.reason in {"PermissionDenied", "NotAFile", "NotADirectory"}:
            raise
        # It is not there, or cannot be used, and is written anew.
        return
    if known.rstrip("/") not in {server.rstrip("/") for server in (cluster.server, *cluster.info.servers)}:
        raise errors.Refused(
            f"this machine is in a cluster already: {node_plan.kubeconfig} names {known}",
            reason="AlreadyJoined",
            hint="to leave it: handfast node reset; or name other places with --kubeconfig and --cert-dir",
        )


async def ask_for_certificate(node_plan: NodePlan, bootstrap_kubeconfig: pathlib.Path, seconds: float) -> node.Obtained:
    """A certificate for this node (2 to 4)."""
    from handfast.assembly import node
    from handfast.client import keeping
    from handfast.node import identity
    from handfast.runtime import clock

    output.note(f"asking for a certificate as node {node_plan.name}")
    places = identity.Places(
        node=node_plan.name,
        kubeconfig=node_plan.kubeconfig,
        bootstrap_kubeconfig=bootstrap_kubeconfig,
        directory=node_plan.certificate_directory,
    )
    try:
        return await node.obtain(
            places, seconds, clock=clock.SystemClock(), on_waiting=_on_waiting(node_plan, "waiting")
        )
    except errors.HandfastError as error:
        if error.reason == keeping.TIMEOUT:
            again = "run the same command again, which goes on with the same request"
            error.hint = f"{error.hint}; or {again}" if error.hint else again
        raise


async def rehearse(node_plan: NodePlan, discovered: join_cluster.Discovered) -> Rehearsed:
    """Of a dry run: would the cluster take this machine's request?"""
    from handfast.assembly import node
    from handfast.bootstrap import kubeconfig
    from handfast.client import connection
    from handfast.node import identity
    from handfast.runtime import clock

    places = identity.Places(
        node=node_plan.name, kubeconfig=node_plan.kubeconfig, directory=node_plan.certificate_directory
    )
    described = connection.resolve(kubeconfig.parse(discovered.kubeconfig()), pathlib.Path())
    on_waiting = _on_waiting(node_plan, "a join would wait")
    asks = await node.rehearse(places, described, clock=clock.SystemClock(), on_waiting=on_waiting)
    return Rehearsed(discovered, node_plan, asks)


def _on_waiting(node_plan: NodePlan, what: str) -> requests.OnWaiting:
    """Called when a living node has this name (4). Without --replace-node it refuses.

    With it, it notes that `what` lasts until that node's Lease has ended.
    """
    from handfast.client import requests

    def on_waiting(reason: str, message: str) -> None:
        if not node_plan.replace:
            raise requests.NotWaitedFor(
                message,
                reason=reason,
                hint="name this machine otherwise with --node-name; or, if it is to be that node, stop the one that runs and "
                "add --replace-node, which waits until its Lease has ended",
            )
        output.note(f"{message}: {what} until its Lease has ended, or an administrator approves the request")

    return on_waiting


def install(node_plan: NodePlan) -> Service:
    """Install the systemd unit, if --systemd was given."""
    if node_plan.unit_directory is None:
        return Service()
    command = node_plan.command()
    if place := units.exposed(command):
        output.warn(
            f"the agent runs as root, and others than root can change {place}, which it is started from: install handfast "
            "where only root can write"
        )
    path, next_command = units.install(
        command, node_plan.unit_directory, writable=(node_plan.certificate_directory, node_plan.kubeconfig.parent)
    )
    return Service(path, next_command or None)
