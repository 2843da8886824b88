# SPDX-License-Identifier: Apache-2.0
"""The second half of `handfast join`: from the bootstrap kubeconfig to a certificate, a kubeconfig and an agent.

How the cluster was found is in `join`. How a certificate is obtained is in `node.identity`.

1. A kubeconfig of another cluster is not touched, and nothing is asked for or written: a machine is in one cluster.
2. Where this machine has a certificate in force for this cluster already, no other is asked for; it is tried all the same.
3. What fails can be tried again: the same key and the same request are gone on with.
4. The name of a node that is alive is not taken, unless that is said (--replace-node), and then only once its Lease has ended
   or an administrator approves. Where its Node can be seen, nothing is asked for; else the approver tells.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast import errors
from handfast.assembly import node_config
from handfast.cli import node_settings, output
from handfast.node import units

if TYPE_CHECKING:
    from handfast.assembly import node
    from handfast.client import discovery, requests

_F = TypeVar("_F", bound=Callable[..., Any])
_PASSING: Final = frozenset({"BootstrapTimeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What this machine is to become; `unit` is where its systemd unit goes, None for no unit."""

    name: str
    kubeconfig: pathlib.Path
    directory: pathlib.Path
    unit: pathlib.Path | None
    replace: bool = False

    def command(self) -> list[str]:
        """How its agent is started: what is not the default is named."""
        words = [*units.program(), "node", "run", "--node-name", self.name]
        for flag, value, default in (
            ("--kubeconfig", self.kubeconfig, node_config.KUBECONFIG),
            ("--cert-dir", self.directory, node_config.CERT_DIR),
        ):
            if str(value) != default:
                words += [flag, str(value)]
        return [*words, "--rotate-certificates"]


@dataclass(frozen=True, slots=True)
class Joined:
    """What came of it."""

    plan: Plan
    obtained: node.Obtained

    def facts(self) -> dict[str, Any]:
        from handfast.api import objects

        leaf = self.obtained.pair.leaf
        return {
            "joined": True,
            "node": self.plan.name,
            "nodeExisted": self.obtained.known,
            "kubeconfig": str(self.plan.kubeconfig),
            "certificateDirectory": str(self.plan.directory),
            "certificate": {
                "subject": str(leaf.subject),
                "serial": leaf.serial,
                "notAfter": objects.timestamp(leaf.not_after),
                "new": self.obtained.fresh,
            },
            "agentCommand": self.plan.command(),
        }


def options(function: _F) -> _F:
    """Adds what concerns the node."""
    rows = (
        node_settings.setting("node-name", "The name of the Node.", "the host name", metavar="NAME"),
        node_settings.setting("cert-dir", "Where certificates are kept.", node_config.CERT_DIR, metavar="DIR"),
        node_settings.setting(
            "kubeconfig", "Where the node's kubeconfig goes.", node_config.KUBECONFIG, metavar="FILE"
        ),
        click.option(
            "--replace-node",
            is_flag=True,
            help="Take over the name of a node that is alive, once its Lease has ended or an administrator approves.",
        ),
        click.option(
            "--systemd", is_flag=True, help="Install the agent as a service, so that it runs after each start."
        ),
        click.option("--systemd-dir", metavar="DIR", hidden=True, help="Where the unit goes."),
    )
    for row in reversed(rows):
        function = row(function)
    return function


def plan(given: dict[str, Any]) -> Plan:
    """From the flags, before anything is asked of anybody."""
    from handfast.node import machine

    found = node_settings.resolved(given, "node-name", "cert-dir", "kubeconfig")
    return Plan(
        name=found.node_name or machine.node_name(),
        kubeconfig=found.kubeconfig,
        directory=found.cert_dir,
        unit=pathlib.Path(given["systemd_dir"] or units.DIRECTORY) if given["systemd"] else None,
        replace=given["replace_node"],
    )


def require_same_cluster(wanted: Plan, found: discovery.Found) -> None:
    """1."""
    from handfast.client import connection
    from handfast.runtime import files

    try:
        with files.otherwise("name another file with --kubeconfig"):
            known = connection.load(str(wanted.kubeconfig)).server
    except errors.Refused as refused:
        if refused.reason in {"PermissionDenied", "NotAFile", "NotADirectory"}:
            raise
        # It is not there, or cannot be used, and is written anew.
        return
    if known.rstrip("/") not in {server.rstrip("/") for server in (found.server, *found.info.servers)}:
        raise errors.Refused(
            f"this machine is in a cluster already: {wanted.kubeconfig} names {known}",
            reason="AlreadyJoined",
            hint=f"to leave it, stop its agent and remove {wanted.kubeconfig} and {wanted.directory}; "
            "or name other places with --kubeconfig and --cert-dir",
        )


async def obtain(wanted: Plan, bootstrap_kubeconfig: pathlib.Path, seconds: float) -> Joined:
    """2. to 4."""
    from handfast.assembly import node
    from handfast.node import identity
    from handfast.runtime import clock

    output.note(f"asking for a certificate as node {wanted.name}")
    where = identity.Places(
        node=wanted.name,
        kubeconfig=wanted.kubeconfig,
        bootstrap_kubeconfig=bootstrap_kubeconfig,
        directory=wanted.directory,
    )
    try:
        return Joined(
            wanted, await node.obtain(where, seconds, clock=clock.SystemClock(), waits=_waits(wanted, "waiting"))
        )
    except errors.HandfastError as error:
        if error.reason in _PASSING:
            again = "run the same command again, which goes on with the same request"
            error.hint = f"{error.hint}; or {again}" if error.hint else again
        raise


async def rehearse(wanted: Plan, bootstrap_kubeconfig: str) -> bool | None:
    """Of a dry run: would the cluster take this machine's request? None: none would be made."""
    from handfast.assembly import node
    from handfast.bootstrap import kubeconfig
    from handfast.client import connection
    from handfast.node import identity
    from handfast.runtime import clock

    where = identity.Places(node=wanted.name, kubeconfig=wanted.kubeconfig, directory=wanted.directory)
    described = connection.resolve(kubeconfig.parse(bootstrap_kubeconfig), pathlib.Path())
    waits = _waits(wanted, "a join would wait")
    return await node.rehearse(where, described, clock=clock.SystemClock(), waits=waits) or None


def _waits(wanted: Plan, what: str) -> requests.Waits:
    """4, where `what` says what is done until then."""
    from handfast.client import requests

    def waits(reason: str, message: str) -> None:
        if not wanted.replace:
            raise requests.NotWaitedFor(
                message,
                reason=reason,
                hint="name this machine otherwise with --node-name; or, if it is to be that node, stop the one that runs and "
                "add --replace-node, which waits until its Lease has ended",
            )
        output.note(f"{message}: {what} until its Lease has ended, or an administrator approves the request")

    return waits


def install(wanted: Plan) -> dict[str, Any]:
    """The unit, where one was wanted."""
    if wanted.unit is None:
        return {"systemdUnit": None, "left": None}
    command = wanted.command()
    if place := units.exposed(command):
        output.warn(
            f"the agent runs as root, and others than root can change {place}, which it is started from: install handfast "
            "where only root can write"
        )
    path, left = units.install(command, wanted.unit, writable=(wanted.directory, wanted.kubeconfig.parent))
    return {"systemdUnit": str(path), "left": left or None}


def would(wanted: Plan, bootstrap_kubeconfig: str, *, asks: bool) -> str:
    """What a dry run leaves out; `asks`: the request was rehearsed."""
    if asks:
        lines = [
            f"would write {bootstrap_kubeconfig}, ask for a certificate as node {wanted.name},",
            f"keep it in {wanted.directory} and write {wanted.kubeconfig}",
            "The cluster would take the request; who approves it is not asked here.",
        ]
    else:
        lines = [f"would ask for nothing: a certificate of node {wanted.name} is in {wanted.directory} already"]
    if wanted.unit is not None:
        lines.append(f"would write {wanted.unit / units.NAME}")
    return "\n".join(lines)


def story(facts: dict[str, Any], table: str) -> str:
    """For people."""
    certificate = facts["certificate"]
    word = "" if certificate["new"] else ", which was here already"
    known = " (a Node of this name is there already, and is taken over)" if facts["nodeExisted"] else ""
    text = (
        f"this machine has joined the cluster as node {facts['node']}{known}\n\n{table}"
        f"  certificate {certificate['subject']}, until {certificate['notAfter']}{word}\n"
        f"  kept in     {facts['certificateDirectory']}\n"
        f"  kubeconfig  {facts['kubeconfig']}\n\n"
    )
    if facts["systemdUnit"] is None:
        command = " ".join(output.quoted(part) for part in facts["agentCommand"])
        return f"{text}The certificate is renewed only while the node's agent runs. To start it:\n\n  {command}"
    if facts["left"]:
        return f"{text}wrote {facts['systemdUnit']}; it was not started. To start the agent:\n\n  {facts['left']}"
    return f"{text}wrote {facts['systemdUnit']}: the agent runs now, and after every start of this machine"
