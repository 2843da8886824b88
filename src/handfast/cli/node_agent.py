# SPDX-License-Identifier: Apache-2.0
"""`handfast node run|status|rotate|recover`: this machine's own agent, in the foreground, looked at, and asked for things.

The work is in `assembly.node` and the room `node`; it prints what came of it. Settings are in `assembly.node_config`.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast import errors
from handfast.assembly import node_config
from handfast.cli import durations, output

if TYPE_CHECKING:
    import datetime

    from handfast.node import report as reports
    from handfast.pki import pairs

_F = TypeVar("_F", bound=Callable[..., Any])

_MAX_BYTES: Final = 1 << 20
_POLL: Final = 0.5


def _places(function: _F) -> _F:
    """Adds --cert-dir and --kubeconfig."""
    for name, default, about in (
        ("kubeconfig", node_config.KUBECONFIG, "The node's kubeconfig; written after the first certificate."),
        ("cert-dir", node_config.CERT_DIR, "Where certificates and keys are kept."),
    ):
        shown = f"{about}  [$HANDFAST_{name.replace('-', '_').upper()}; default: {default}]"
        function = click.option(f"--{name}", type=click.Path(), default=None, help=shown)(function)
    return function


def _switch(name: str, about: str) -> Callable[[_F], _F]:
    """A flag that may have a value, as the kubelet's: --x, --x=true, --x=false."""
    return click.option(
        f"--{name}",
        is_flag=False,
        flag_value="true",
        default=None,
        metavar="[=true|false]",
        help=f"{about}  [default: false]",
    )


def _timeout(default: str) -> Callable[[_F], _F]:
    return click.option("--timeout", default=default, show_default=True, metavar="DURATION", help="How long to wait.")


def _resolved(flags: dict[str, Any], config_file: str | None = None) -> node_config.NodeConfiguration:
    document: dict[str, Any] = {}
    if config_file is not None:
        from handfast.runtime import files

        with files.otherwise("name another file with --config"):
            document = node_config.parse(files.read(pathlib.Path(config_file), limit=_MAX_BYTES), config_file)
    return node_config.resolve(
        flags, os.environ, document, config_file or "", exists=lambda path: pathlib.Path(path).exists()
    )


@click.command(short_help="Run this machine's node agent.")
@click.option(
    "--bootstrap-kubeconfig",
    type=click.Path(),
    default=None,
    help=f"What to ask for the first certificate with.  [default: {node_config.BOOTSTRAP_KUBECONFIG}, if it is there]",
)
@_places
@click.option("--node-name", metavar="NAME", default=None, help="The name of the Node.  [default: the host name]")
@click.option("--node-ip", metavar="IP[,IP]", default=None, help="Its addresses.  [default: the way to the API server]")
@_switch("rotate-certificates", "Renew the client certificate before it ends.")
@_switch("rotate-server-certificates", "Have the endpoint's certificate issued by the cluster, and renewed.")
@click.option("--static-pods-dir", type=click.Path(), default=None, help="A directory of Pods' manifests to observe.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=None,
    help=f"The endpoint.  [$HANDFAST_NODE_LISTEN; default: {node_config.LISTEN}]",
)
@click.option("--config", "config_file", type=click.Path(), default=None, help="A KubeletConfiguration file.")
@click.option("--feature-gates", metavar="NAME=true,…", default=None, help="The kubelet's, as far as they are known.")
@click.option(
    "-v", "--v", "verbosity", metavar="LEVEL", default=None, help="How much is logged; from 2 on, everything."
)
def run(config_file: str | None, **flags: Any) -> None:
    """Run the agent of this machine's node, until SIGTERM or Ctrl-C stops it.

    It obtains and renews the node's certificate, registers its Node, keeps its Lease, follows its Pods, and answers for
    its health over HTTPS. It runs no containers. Without a certificate after five minutes it ends with an error: have
    it started again, by systemd for instance; it goes on with the same key and the same request.
    """
    if flags["verbosity"] is not None:
        # The kubelet's -v=2.
        flags["verbosity"] = flags["verbosity"].removeprefix("=")
    found = _resolved(flags, config_file)

    from handfast.assembly import node
    from handfast.cli import foreground
    from handfast.runtime import clock

    foreground.run(node.run(found, clock=clock.SystemClock()), found.log_level)


@click.command(short_help="Show this node's certificate, and how its agent does.")
@_places
@output.format_option
def status(form: str, **flags: Any) -> int:
    """Show this node's certificate, its next renewal, the last error, the API server, and how far the clocks differ.

    The exit code is 1 where there is no certificate in force.
    """
    import asyncio

    found = _resolved(flags)
    facts = _look(found.cert_dir, *asyncio.run(_server(found.kubeconfig)))
    output.result(_shown(facts) if form == "text" else output.document(facts, form))
    return (
        output.Code.DONE if facts["certificate"] is not None and facts["certificate"]["inForce"] else output.Code.FAILED
    )


def _look(directory: pathlib.Path, server: str | None, difference: float | None, trouble: str | None) -> dict[str, Any]:
    from handfast.node import certificate_store, report
    from handfast.runtime import clock
    from handfast.telemetry import log

    # What is wrong is told as a fact.
    log.configure(level="error")
    now = clock.SystemClock()
    store = certificate_store.CertificateStore(directory, certificate_store.CLIENT, now)
    kept = store.find() if directory.is_dir() else certificate_store.Found(None, None, linked=False)
    seen = report.read(directory)
    running = seen is not None and report.is_fresh(seen, now.now())
    return {
        "node": seen.node if seen is not None and running else _name(kept.pair),
        "certificate": None if kept.pair is None else _certificate(kept.pair, str(kept.path), now.now()),
        "unusable": [problem.message for problem in kept.problems],
        "agent": _agent(seen) if seen is not None and running else None,
        "server": server,
        "clockDifferenceSeconds": difference,
        "serverTrouble": trouble,
    }


def _name(pair: pairs.Pair | None) -> str | None:
    from handfast.rules import user_names

    return None if pair is None else pair.leaf.subject.common_name.removeprefix(user_names.NODE_PREFIX)


def _certificate(pair: pairs.Pair, path: str, now: datetime.datetime) -> dict[str, Any]:
    from handfast.api import objects

    leaf = pair.leaf
    return {
        "subject": str(leaf.subject),
        "serial": leaf.serial,
        "notBefore": objects.timestamp(leaf.not_before),
        "notAfter": objects.timestamp(leaf.not_after),
        "inForce": leaf.not_before <= now < leaf.not_after,
        "file": path,
    }


def _agent(seen: reports.Report) -> dict[str, Any]:
    return {
        "pid": seen.pid,
        "phase": seen.phase,
        "endpoint": seen.endpoint,
        "rotation": seen.rotation,
        "serverRotation": seen.server_rotation,
        "nextRenewal": seen.next_renewal or None,
        "lastError": seen.last_error or None,
        "servingNotAfter": seen.serving_not_after or None,
        "pods": seen.pods,
        "staticPods": list(seen.static_pods),
        "problems": dict(seen.problems),
    }


async def _server(kubeconfig: pathlib.Path) -> tuple[str | None, float | None, str | None]:
    """The API server, how far this machine's clock is ahead of its, and why it cannot be asked; no credential is sent."""
    from handfast.bootstrap import diagnosis
    from handfast.client import anonymous, connection
    from handfast.runtime import clock

    try:
        found = connection.load(str(kubeconfig))
    except (errors.Refused, errors.Unavailable) as error:
        return None, None, error.message
    try:
        answer = await anonymous.ask(found.server.rstrip("/") + "/version", anonymous.Trust(found.ca_pem))
    except anonymous.Troubled as troubled:
        return found.server, None, diagnosis.explain(troubled.trouble, found.server, troubled.detail, None).message
    skew = diagnosis.skew(answer.date, clock.SystemClock().now())
    return found.server, None if skew is None else skew.total_seconds(), None


def _shown(facts: dict[str, Any]) -> str:
    certificate, agent = facts["certificate"], facts["agent"]
    rows = [("node", facts["node"] or "unknown")]
    if certificate is None:
        rows.append(("certificate", "none"))
    else:
        word = "in force" if certificate["inForce"] else "NOT in force"
        rows += [
            ("certificate", f"{certificate['subject']}, {word}"),
            ("valid", f"{certificate['notBefore']} to {certificate['notAfter']}"),
            ("file", certificate["file"]),
        ]
    rows += [("unusable", text) for text in facts["unusable"]]
    if agent is None:
        rows.append(("agent", "not running"))
    else:
        renewal = agent["nextRenewal"] or ("not known yet" if agent["rotation"] else "off")
        rows += [
            ("agent", f"{agent['phase']}, process {agent['pid']}, {agent['endpoint']}"),
            ("renewal", renewal),
            ("last error", agent["lastError"] or "none"),
            ("Pods", f"{agent['pods']} of the API, {len(agent['staticPods'])} static"),
        ]
        rows += [("problem", f"{name}: {why}") for name, why in sorted(agent["problems"].items())]
    rows.append(("server", facts["server"] or "unknown"))
    rows.append(("clock", facts["serverTrouble"] or _clock(facts["clockDifferenceSeconds"])))
    return "\n".join(f"{name:<12} {text}" for name, text in rows)


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "the server does not say its time"
    # The server's is told in whole seconds.
    if abs(seconds) < 2:
        return "agrees with the server's"
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the server's"


@click.command(short_help="Have the running agent renew its certificate now.")
@_places
@_timeout("2m")
def rotate(timeout: str, **flags: Any) -> None:
    """Have the running agent renew its client certificate now, with a fresh key, and wait until it has.

    The agent is asked by a file in the certificate directory: whoever may write there has its keys anyway.
    """
    import asyncio

    seconds = durations.parse(timeout, "--timeout", "168h").total_seconds()
    found = asyncio.run(_rotated(_resolved(flags).cert_dir, seconds))
    output.result(
        f"node {found.node} has a new certificate, serial {found.certificate}\nnext renewal {found.next_renewal}"
    )


async def _rotated(directory: pathlib.Path, seconds: float) -> reports.Report:
    from handfast.node import report
    from handfast.runtime import clock

    now = clock.SystemClock()
    before = report.read(directory)
    if before is None or not report.is_fresh(before, now.now()):
        raise errors.Unavailable(
            f"no agent runs with the certificate directory {directory}",
            reason="AgentNotRunning",
            hint="start it: systemctl start handfast-node, or handfast node run; or name its directory with --cert-dir",
        )
    if not before.rotation:
        raise errors.Refused(
            f"the agent of node {before.node} does not rotate certificates",
            reason="RotationOff",
            hint="start it with --rotate-certificates (rotateCertificates: true)",
        )
    report.ask_to_rotate(directory)
    until = now.monotonic() + seconds
    while now.monotonic() < until:
        await now.sleep(_POLL)
        seen = report.read(directory)
        if seen is not None and seen.certificate not in {"", before.certificate}:
            return seen
    seen = report.read(directory)
    last = f"; the last error: {seen.last_error}" if seen is not None and seen.last_error else ""
    raise errors.Unavailable(
        f"node {before.node} has no new certificate after {seconds:g} s{last}",
        reason="Timeout",
        hint="it goes on trying; `handfast node status` shows how it does",
    )


@click.command(short_help="Get a node back whose certificate has expired.")
@_places
@_timeout("1m")
def recover(timeout: str, **flags: Any) -> None:
    """Get this node back, whose certificate expired while it was off, without a token.

    The expired certificate is shown to the API server, which may let it ask for its own successor and for nothing else.
    A running agent does this by itself. Where the API server does not allow it, you are told what to do instead.
    """
    import asyncio

    seconds = durations.parse(timeout, "--timeout", "168h").total_seconds()
    found = _resolved(flags)
    before, after = asyncio.run(_recovered(found.cert_dir, found.kubeconfig, seconds))
    ends = f"{after.leaf.not_after:%Y-%m-%dT%H:%M:%SZ}"
    if before is after:
        output.result(f"nothing to recover: the certificate {after.leaf.subject} is in force until {ends}")
    else:
        output.result(f"recovered: the certificate {after.leaf.subject} is in force until {ends}")


async def _recovered(
    directory: pathlib.Path, kubeconfig: pathlib.Path, seconds: float
) -> tuple[pairs.Pair, pairs.Pair]:
    from handfast.assembly import node
    from handfast.node import certificate_store, recovery
    from handfast.runtime import clock, files
    from handfast.telemetry import log

    log.configure(level="error")
    now = clock.SystemClock()
    store = certificate_store.CertificateStore(directory, certificate_store.CLIENT, now)
    pair = recovery.expired(store, now)
    if pair is None:
        kept = store.find().pair
        if kept is None:
            raise errors.Unavailable(f"the certificate in {directory} went away", reason="NoCertificate")
        return kept, kept
    with node.owned(directory), files.otherwise("name another file with --kubeconfig"):
        return pair, await recovery.recover(store, pair, kubeconfig, clock=now, seconds=seconds)


COMMANDS: Final = (run, status, rotate, recover)
