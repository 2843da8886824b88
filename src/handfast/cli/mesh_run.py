# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh run`: a command as a workload of the mesh, on this machine. The work is in `node.workload`.

1. Everything that was typed is judged before anything is made.
2. Signals go to the command. Ctrl-C in a terminal reaches it by itself. Before it has started, they end this program.
3. What the command prints is all that is on stdout, and the exit code is its own; 128 and the number of the signal that killed it.
4. With --pod the node's kubeconfig counts, where nobody named another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from handfast.assembly import node_config, setting_values
from handfast.cli import connecting, mesh_options, output, programs

if TYPE_CHECKING:
    from handfast.node import workload, workload_life

_PASSED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
# Of a terminal: to everybody in its foreground.
_BY_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH})
_ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})


def _name(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, str] | None:
    from handfast.api import objects

    if text is None:
        return None
    namespace, _, name = text.partition("/")
    if objects.dns_label(namespace) is not None or objects.dns_subdomain(name) is not None:
        raise click.BadParameter(f"{text!r} is not NAMESPACE/NAME", param=parameter)
    return namespace, name


def _labels(_context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    from handfast.api import objects

    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        # What else an annotation may be is the API server's to say.
        is_value = parameter.name == "annotations" or objects.label_value(value) is None
        if not equals or objects.qualified_name(key) is not None or not is_value:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param=parameter)
        labels[key] = value
    return labels


@click.command(
    name="run",
    short_help="Run a command as a workload of the mesh.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--service-account", "account", metavar="NS/NAME", callback=_name, default=None, help="Make a Pod of this account."
)
@click.option("--pod", metavar="NS/NAME", callback=_name, default=None, help="Run a Pod that is bound to this node.")
@click.option(
    "--inbound",
    "ports",
    metavar="PORT[:APPLICATION_PORT]",
    multiple=True,
    callback=mesh_options.ports,
    help="A port of the Pod, and where CMD listens for it on 127.0.0.1.  May be given several times.",
)
@click.option(
    "--name", default="", metavar="NAME", help="The name of the Pod.  [default: that of the account, and a suffix]"
)
@click.option(
    "--label",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_labels,
    help="A label of the Pod, by which Services select it.  May be given several times.",
)
@click.option(
    "--annotation",
    "annotations",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_labels,
    help="An annotation of the Pod, as in mesh.handfast.dev/identity-headers=enabled.  May be given several times.",
)
@click.option(
    "--pod-ip",
    default="",
    metavar="IP",
    callback=mesh_options.ip,
    help="The Pod's address.  [default: the one that leads to the API server, or one of its own on loopback]",
)
@click.option(
    "--spiffe-socket",
    default="",
    metavar="PATH",
    help="A socket of the SPIFFE Workload API, for programs that ask for this identity themselves.",
)
@click.option(
    "--log-level",
    type=click.Choice(setting_values.LEVELS),
    default="warning",
    show_default=True,
    help="How much is logged, of the proxy, too.",
)
@connecting.options
@click.argument("words", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, /, kubeconfig: str | None, directory: str, **flags: Any) -> int:
    """Run CMD as a workload of the mesh, with a proxy beside it, and without root.

    With --service-account a Pod is made, so that the mesh's webhook injects it, and is removed at the end. With --pod the Pod is there, and the
    credentials of its node are all that is needed. CMD listens on 127.0.0.1; its proxy listens at the Pod's address and ports. CMD calls
    others through http_proxy, which is set for it, as are POD_IP, POD_NAME, POD_NAMESPACE and MESH_ADMIN.

    CMD starts when the proxy has its certificate. The exit code is that of CMD.
    """
    options = _options(flags)
    path = _kubeconfig(ctx, kubeconfig, directory, by_node=not options.account)
    from handfast.proxy import binary
    from handfast.wire import extra

    # 1. before anything is made
    extra.require()
    binary.path()
    import uvloop

    # 3. the exit code of the command
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(options, path, is_one_file=pathlib.Path(path).exists()))


def _options(flags: dict[str, Any]) -> workload_life.Options:
    from handfast.node import workload_life
    from handfast.rules.mesh import workload_pod

    account, pod = flags["account"], flags["pod"]
    if (account is None) == (pod is None):
        raise output.Usage("name either --service-account or --pod", hint="as in --service-account shop/web -- ./web")
    if pod is not None and (flags["name"] or flags["labels"] or flags["annotations"]):
        raise output.Usage(
            "--name, --label and --annotation are for a Pod that is made", hint="leave them out with --pod"
        )
    namespace, name = account or pod
    return workload_life.Options(
        program=programs.find(flags["words"][0]),
        words=flags["words"],
        namespace=namespace,
        name=flags["name"] if account else name,
        account=name if account else "",
        labels=flags["labels"],
        annotations=flags["annotations"],
        ports=tuple(workload_pod.Port(*pair) for pair in flags["ports"]),
        pod_ip=flags["pod_ip"],
        spiffe_socket=str(pathlib.Path(flags["spiffe_socket"]).absolute()) if flags["spiffe_socket"] else "",
        log_level=flags["log_level"],
        on_running=output.note,
    )


def _kubeconfig(ctx: click.Context, kubeconfig: str | None, directory: str, *, by_node: bool) -> str:
    named = connecting.named(ctx, kubeconfig, directory)
    # 4. the node's
    if named is None and by_node and os.access(node_config.KUBECONFIG, os.R_OK):
        return node_config.KUBECONFIG
    return connecting.chosen(ctx, kubeconfig, directory)


async def _run(options: workload_life.Options, path: str, *, is_one_file: bool) -> int:
    from handfast.client import connection
    from handfast.node import workload, workload_pods
    from handfast.runtime import clock
    from handfast.telemetry import log

    async with connecting.connected(path) as reached:
        log.configure(level=options.log_level)
        loaded = reached.connection
        # Of several files at once, none is read again.
        load = (lambda: connection.load(path)) if is_one_file else (lambda: loaded)
        access = workload_pods.Access(reached.client, load, workload_pods.node_of(loaded), loaded.server)
        return await _until_ended(workload.Workload(options, access, clock.SystemClock()))


async def _until_ended(work: workload.Workload) -> int:
    task = asyncio.current_task()
    stopped: list[signal.Signals] = []

    def passed_on(number: signal.Signals) -> None:
        # 2. what the terminal has told already
        if number in _BY_TERMINAL and _in_foreground() and work.signal(0):
            return
        if not work.signal(number) and number in _ENDING and task is not None:
            stopped.append(number)
            task.cancel()

    loop = asyncio.get_running_loop()
    for number in _PASSED:
        loop.add_signal_handler(number, passed_on, number)
    with contextlib.suppress(asyncio.CancelledError):
        return await work.run()
    return 128 + (stopped[0] if stopped else signal.SIGTERM)


def _in_foreground() -> bool:
    """Whether a terminal sends its signals to this process's group."""
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(0) == os.getpgrp()
    return False
