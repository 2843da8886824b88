# SPDX-License-Identifier: Apache-2.0
"""`handfast node run|status|rotate|recover`: this machine's own agent, in the foreground, looked at, and asked for things.

The work is in `assembly.node` and the room `node`; it prints what came of it. What `status` shows is in `node_status`, and
settings are in `assembly.node_config`.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast import errors
from handfast.assembly import node_config
from handfast.cli import durations, node_settings, output

if TYPE_CHECKING:
    from handfast.node import report as reports
    from handfast.pki import pairs

_F = TypeVar("_F", bound=Callable[..., Any])

_MAX_BYTES: Final = 1 << 20
_POLL: Final = 0.5
_PLACES: Final = {
    "kubeconfig": (node_config.KUBECONFIG, "The node's kubeconfig; written after the first certificate."),
    "cert-dir": (node_config.CERT_DIR, "Where certificates and keys are kept."),
}


def _places(function: _F) -> _F:
    """Adds --cert-dir and --kubeconfig."""
    for name, (default, about) in _PLACES.items():
        function = node_settings.setting(name, about, default)(function)
    return function


def _switch(name: str, about: str) -> Callable[[_F], _F]:
    """A flag that may have a value, as the kubelet's: --x, --x=true, --x=false."""
    return node_settings.setting(name, about, "false", is_flag=False, flag_value="true", metavar="[=true|false]")


def _timeout(default: str) -> Callable[[_F], _F]:
    return click.option("--timeout", default=default, show_default=True, metavar="DURATION", help="How long to wait.")


def _resolved(flags: dict[str, Any], config_file: str | None) -> node_config.NodeConfiguration:
    """All settings, and those of the file."""
    document: dict[str, Any] = {}
    if config_file is not None:
        from handfast.runtime import files

        with files.otherwise("name another file with --config"):
            document = node_config.parse(files.read(pathlib.Path(config_file), limit=_MAX_BYTES), config_file)
    return node_config.resolve(flags, os.environ, document, config_file or "", exists=_exists)


def _exists(path: str) -> bool:
    try:
        return pathlib.Path(path).exists()
    except OSError:
        # Whoever may not look there could not read it either.
        return False


@click.command(short_help="Run this machine's node agent.")
@node_settings.setting(
    "bootstrap-kubeconfig",
    "The kubeconfig with which to ask for the first certificate.",
    f"{node_config.BOOTSTRAP_KUBECONFIG}, if it is there",
)
@_places
@node_settings.setting("node-name", "The name of the Node.", "the host name", metavar="NAME")
@node_settings.setting(
    "node-ip", "Its addresses.", "the address from which it reaches the API server", metavar="IP[,IP]"
)
@_switch("rotate-certificates", "Renew the client certificate before it ends.")
@_switch("rotate-server-certificates", "Have the endpoint's certificate issued by the cluster, and renewed.")
@node_settings.setting("static-pods-dir", "A directory of Pods' manifests to observe.")
@node_settings.setting("listen", "The endpoint.", node_config.LISTEN, metavar="HOST:PORT")
@node_settings.setting(
    "proxy-protocol-from", "Balancers, whose connections begin with a PROXY header.", "none", metavar="NETWORKS"
)
@_switch("machine-config", "Follow the pool's configuration: fetch, apply and report it.")
@node_settings.setting("root", "Where that configuration is written.", node_config.ROOT)
@node_settings.setting(
    "machine-config-server", "Where it is fetched.", "the API server's host, port 22623", metavar="URL"
)
@click.option("--config", "config_file", metavar="PATH", default=None, help="A KubeletConfiguration file.")
@node_settings.setting("feature-gates", "The kubelet's, as far as they are known.", metavar="NAME=true,…")
@click.option(
    "-v",
    "--v",
    "verbosity",
    metavar="LEVEL",
    default=None,
    help=f"How much is logged; from 2 on, everything.  [${node_config.variable('verbosity')}; default: 0]",
)
def run(config_file: str | None, **flags: Any) -> None:
    """Run the agent of this machine's node, until SIGTERM or Ctrl-C stops it.

    It obtains and renews the node's certificate, registers its Node, keeps its Lease, follows its Pods, and answers for
    its health over HTTPS. It runs no containers. Without a certificate after five minutes it ends with an error.
    Let systemd start it again: it goes on with the same key and the same request.
    """
    if flags["verbosity"] is not None:
        # The kubelet's -v=2.
        flags["verbosity"] = flags["verbosity"].removeprefix("=")
    configuration = _resolved(flags, config_file)

    from handfast.assembly import node
    from handfast.cli import foreground
    from handfast.runtime import clock

    foreground.run(node.run(configuration, clock=clock.SystemClock()), configuration.log_level)


@click.command(short_help="Show this node's certificate and the state of its agent.")
@_places
@output.format_option
def status(form: str, **flags: Any) -> int:
    """Show this node's certificate, its next renewal, the last error, the API server, and how far the clocks differ.

    The exit code is 1 where there is no certificate in force, or where the server refuses it.
    """
    from handfast.cli import node_status
    from handfast.telemetry import log

    # What is wrong is told as a fact.
    log.configure(level="error")
    configuration = node_settings.resolved(flags, *_PLACES)
    named = node_settings.named(flags, "kubeconfig") is not None
    facts = node_status.look(configuration.cert_dir, configuration.kubeconfig, named=named)
    output.result(node_status.shown(facts) if form == "text" else output.document(facts, form))
    good = facts["certificate"] is not None and facts["certificate"]["inForce"] and not facts["refused"]
    return output.Code.DONE if good else output.Code.FAILED


@click.command(short_help="Have the running agent renew its certificate now.")
@_places
@_timeout("2m")
@output.format_option
def rotate(timeout: str, form: str, **flags: Any) -> None:
    """Have the running agent renew its client certificate now, with a fresh key, and wait until it has.

    The agent is asked by a file in the certificate directory, so whoever may write there can ask.
    """
    import asyncio

    seconds = durations.parse(timeout, "--timeout", "168h").total_seconds()
    renewed = asyncio.run(_rotated(node_settings.resolved(flags, *_PLACES).cert_dir, seconds))
    if form != "text":
        facts = {"node": renewed.node, "serial": renewed.certificate, "nextRenewal": renewed.next_renewal or None}
        output.result(output.document(facts, form))
        return
    output.result(
        f"node {renewed.node} has a new certificate, serial {renewed.certificate}\nnext renewal {renewed.next_renewal}"
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
        hint="it goes on trying; `handfast node status` shows its state",
    )


@click.command(short_help="Renew a certificate that has expired, without a token.")
@_places
@_timeout("1m")
@output.format_option
def recover(timeout: str, form: str, **flags: Any) -> None:
    """Renew this node's certificate, which expired while the machine was off, without a token.

    The expired certificate is shown to the API server. The server may accept it for one thing: to ask for its successor.
    A running agent does this by itself. Where the API server refuses, the error says what to do instead.
    """
    import asyncio

    seconds = durations.parse(timeout, "--timeout", "168h").total_seconds()
    configuration = node_settings.resolved(flags, *_PLACES)
    before, after = asyncio.run(_recovered(configuration.cert_dir, configuration.kubeconfig, seconds))
    ends = f"{after.leaf.not_after:%Y-%m-%dT%H:%M:%SZ}"
    if form != "text":
        subject, serial = str(after.leaf.subject), after.leaf.serial
        facts = {"recovered": before is not after, "subject": subject, "serial": serial, "notAfter": ends}
        output.result(output.document(facts, form))
    elif before is after:
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
    with files.otherwise("name another directory with --cert-dir"):
        pair = recovery.expired(store, now)
    if pair is None:
        kept = store.find().pair
        if kept is None:
            raise errors.Unavailable(f"the certificate in {directory} went away", reason="NoCertificate")
        return kept, kept
    with node.owned(directory), files.otherwise("name another file with --kubeconfig"):
        return pair, await recovery.recover(store, pair, kubeconfig, clock=now, seconds=seconds)


COMMANDS: Final = (run, status, rotate, recover)
