# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh proxy`: what is done beside a workload. What the variables mean is in `rules.mesh.proxy_environment`.

1. Everything is checked before a key exists: the variables, the token, the directory, and that there is such a command.
2. The command takes the place of this process, with three variables more. Without a command, the variables are printed for a shell.
3. Where neither is possible in the end, the files are removed.
4. The key is in no core file: of this process, nor by a limit that it inherits, of the command.
"""

from __future__ import annotations

import grp
import ipaddress
import os
import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from handfast import errors
from handfast.assembly import setting_values
from handfast.cli import mesh_options, output, programs
from handfast.runtime import addresses

if TYPE_CHECKING:
    from handfast.rules.envoy import transparent
    from handfast.rules.mesh import proxy_listening

_OUTBOUND: Final = "127.0.0.1:4140"
_INBOUND: Final = "0.0.0.0:4143"
_ADMIN: Final = "127.0.0.1:4191"
# Python ignores these, and what a process ignores, the program that takes its place ignores, too.
_IGNORED: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def _address(_context: click.Context, _parameter: click.Parameter, text: str | None) -> addresses.Address | None:
    if text is None:
        return None
    try:
        place = addresses.parse(text)
        ipaddress.ip_address(place.host)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not IP:PORT") from None
    return place


def _group(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        return grp.getgrnam(text).gr_gid
    except KeyError:
        raise click.BadParameter(f"there is no group {text!r}") from None


@click.group(name="proxy", short_help="The proxy beside a workload.")
def command() -> None:
    """Prepare and run the proxy beside a workload, from the variables of its container."""


@command.command(name="init", short_help="Make the key of a workload, and start its proxy.")
@click.option("--require-memory", is_flag=True, help="Refuse a store directory that is not in memory.")
@click.argument("words", metavar="[-- CMD...]", nargs=-1, type=click.UNPROCESSED)
def init(*, require_memory: bool, words: Sequence[str]) -> None:
    """Make the key of a workload and its certificate request in the store directory, then execute CMD.

    The environment says who it is: LINKERD2_PROXY_LOCAL_IDENTITY_NAME, and with it LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS_BLOB,
    LINKERD2_PROXY_IDENTITY_TOKEN_FILE and LINKERD2_PROXY_IDENTITY_STORE_DIR. Without a name there is no identity, and CMD is executed as it is.
    Without CMD, the variables that lead to the files are printed for a shell.
    """
    from handfast.proxy import store_directory
    from handfast.rules.mesh import proxy_environment
    from handfast.runtime import core_dumps

    # 1. everything before a key
    environment = proxy_environment.read(os.environ)
    program = _program(words)
    if environment is None:
        output.note(f"{proxy_environment.NAME} is not set: a plain proxy, without an identity")
        _hand_over(program, words, {})
        return
    for text in store_directory.require_ready(environment, memory=require_memory):
        output.warn(text)
    # 4. no core file
    core_dumps.forbid()
    written = store_directory.write(environment)
    try:
        _hand_over(program, words, written.variables())
    except BaseException:
        # 3. no key that nobody uses
        written.remove()
        raise


@command.command(name="run", short_help="Serve a workload, by Envoy, with its identity.")
@click.option(
    "--pod-ip",
    metavar="IP",
    callback=mesh_options.ip,
    help="The address of the workload; else LINKERD2_PROXY_INBOUND_IPS.",
)
@click.option(
    "--inbound",
    "pairs",
    multiple=True,
    metavar="PORT[:APPLICATION_PORT]",
    callback=mesh_options.ports,
    help="A port that clients call, and where the workload listens on 127.0.0.1. May be repeated.",
)
@click.option(
    "--outbound", metavar="IP:PORT", callback=_address, help=f"Where the workload calls others. Default: {_OUTBOUND}."
)
@click.option(
    "--admin-listen",
    metavar="IP:PORT",
    callback=_address,
    help=f"Where /ready, /live, /metrics and /identity are. Default: {_ADMIN}.",
)
@click.option(
    "--identity-headers",
    is_flag=True,
    help="Tell the workload who calls and who answers, in l5d-client-id and l5d-server-id.",
)
@click.option(
    "--spiffe-socket",
    metavar="PATH",
    type=click.Path(path_type=pathlib.Path),
    help="Where programs get the same identity by the SPIFFE Workload API.",
)
@click.option(
    "--spiffe-socket-group",
    metavar="GROUP",
    callback=_group,
    help="Who may open that socket besides this user, by name or number.",
)
@click.option(
    "--log-level",
    type=click.Choice(setting_values.LEVELS),
    default="info",
    show_default=True,
    help="How much is logged.",
)
def run(
    *,
    pod_ip: str | None,
    pairs: Sequence[tuple[int, int]],
    outbound: addresses.Address | None,
    admin_listen: addresses.Address | None,
    identity_headers: bool,
    spiffe_socket: pathlib.Path | None,
    spiffe_socket_group: int | None,
    log_level: str,
) -> None:
    """Forward connections to a workload, and terminate TLS that is for its name.

    The environment is that of `handfast mesh proxy init`, with the files that it makes, and with LINKERD2_PROXY_IDENTITY_ADDR and
    LINKERD2_PROXY_IDENTITY_IDENTITY for the identity service. Until there is a certificate, TLS for the own name is refused and plaintext is
    forwarded. Without a name there is no identity, and everything is forwarded. Where an option is not given, the variables of the container
    say where it listens. With neither --inbound nor --outbound, it serves all ports: `handfast mesh proxy iptables` sends it their connections.
    """
    from handfast.proxy import binary
    from handfast.rules.mesh import proxy_clients, proxy_environment, proxy_listening, proxy_policy
    from handfast.runtime import clock, core_dumps
    from handfast.wire import extra

    policy = proxy_policy.read(os.environ)
    files = proxy_environment.read_files(os.environ)
    listening = proxy_listening.read(os.environ)
    _require_identity(spiffe_socket, spiffe_socket_group, is_there=files is not None)
    clients = None if files is None else proxy_clients.read(os.environ)
    extra.require()
    binary.path()
    # 4. no core file, of Envoy neither
    core_dumps.forbid()
    from handfast.assembly import proxy
    from handfast.cli import foreground

    redirected = None if pairs or outbound is not None else _redirected(listening)
    options = proxy.Options(
        pod_ip=listening.require_pod_ip(pod_ip) if redirected is None else "",
        ports=listening.ports(pairs),
        outbound=outbound or addresses.parse(listening.outbound or _OUTBOUND),
        admin_listen=admin_listen or addresses.parse(listening.admin or _ADMIN),
        files=files,
        clients=clients,
        identity_headers=identity_headers or listening.identity_headers,
        spiffe=None if spiffe_socket is None else proxy.Spiffe(spiffe_socket.absolute(), spiffe_socket_group),
        redirected=redirected,
        ips=listening.ips if pod_ip is None else (pod_ip,),
        policy=policy,
    )
    foreground.run(proxy.run(options, clock.SystemClock()), log_level)


def _require_identity(socket: pathlib.Path | None, group: int | None, *, is_there: bool) -> None:
    """Return if there is an identity for those who ask at the socket, else refuse."""
    from handfast.rules.mesh import proxy_environment

    if socket is not None and not is_there:
        raise click.UsageError(f"--spiffe-socket: without {proxy_environment.NAME} there is no identity to hand out")
    if group is not None and socket is None:
        raise click.UsageError("--spiffe-socket-group is for --spiffe-socket, which is not given")


def _redirected(listening: proxy_listening.Listening) -> transparent.Place:
    """Where the kernel sends connections to the workload."""
    from handfast.proxy import redirect
    from handfast.rules.envoy import transparent

    place = addresses.parse(listening.inbound or _INBOUND)
    own = addresses.parse(listening.outbound or _OUTBOUND).port
    opaque = listening.opaque.ranges
    return transparent.Place(host=place.host, port=place.port, both=redirect.has_ipv6(), own=(own,), opaque=opaque)


def _program(words: Sequence[str]) -> str | None:
    """The path of the command, if there is one."""
    if not words:
        return None
    return programs.find(words[0])


def _hand_over(program: str | None, words: Sequence[str], variables: Mapping[str, str]) -> None:
    # 2. in place of this process, or for a shell
    if program is None:
        if variables:
            output.passed_on("".join(f"export {name}={output.quoted(value)}\n" for name, value in variables.items()))
        return
    output.finish()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _IGNORED}
    try:
        os.execve(program, list(words), {**os.environ, **variables})  # noqa: S606 - the command that the user typed
    except OSError as error:
        raise errors.Refused(
            f"cannot execute {program}: {(error.strerror or 'it failed').lower()}", reason="CommandFailed"
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
