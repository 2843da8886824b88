# SPDX-License-Identifier: Apache-2.0
"""`handfast console`: pages for a browser, in the foreground. What they show is in `console`, as whom in the kubeconfig.

1. An address that opens it is printed: it works once, within a minute. It is printed, not given to a program: others on this machine can read arguments.
2. Enter prints another one, where a person is at the terminal.
3. Without the extra `console` it is refused with the command that installs it.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from handfast.cli import connecting, console_keys, mesh_options, output, roles, supervised
from handfast.datadir import layout
from handfast.runtime import addresses

if TYPE_CHECKING:
    from handfast.assembly import console
    from handfast.client import api, connection
    from handfast.console import looking as tellings
    from handfast.rules.diagnoses import facts

DEFAULT: Final = "127.0.0.1:8765"
_ENTER: Final = "press Enter in the terminal where `handfast console` runs"


@click.command(name="console", short_help="Show the control plane in a browser.")
@click.option(
    "--listen",
    default=DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    help="Where it listens; port 0 picks a free one.",
)
@click.option(
    "--tls-cert-file", type=click.Path(), help="Serve HTTPS with this certificate, and what follows it in the file."
)
@click.option("--tls-private-key-file", type=click.Path(), help="The private key of --tls-cert-file.")
@click.option(
    "--networks",
    metavar="NETWORKS",
    default=None,
    help="Who may connect where it listens on more than loopback: private, or networks such as 10.0.0.0/8,fd00::/8.",
)
@click.option(
    "--url",
    is_flag=True,
    help="Print an address that opens the console of the `handfast up` of --dir, and start nothing.",
)
@click.option("--listen-fd", type=int, hidden=True, help="A socket that listens already.")
@click.option("--key-file", type=click.Path(), hidden=True, help="What addresses that open it are made with.")
@supervised.option
@mesh_options.control_plane_option
@connecting.options
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    listen: str,
    url: bool,
    namespace: str,
    kubeconfig: str | None,
    directory: str,
    form: str,
    **flags: Any,
) -> None:
    """Show the control plane in a browser: what needs somebody, requests, tokens, nodes, machines, the mesh, the ledger, checks and the store.

    It is a client of the API with your own credentials: you see what you may read, and what you do is done as you. It keeps nothing. The address that it prints
    opens it in one browser, once, within a minute. Ctrl-C stops it.

    It listens on loopback. From another machine, reach it through `ssh -L 8765:127.0.0.1:8765`; or have it listen elsewhere, with TLS of its own and networks that you
    name.
    """
    if url:
        output.result(console_keys.address(layout.Layout.at(directory)))
        return
    console_keys.require_extra()
    from handfast.assembly import console as assembly
    from handfast.console import opening
    from handfast.rules import networks as network_rules

    place, key_file, tie = layout.Layout.at(directory), flags["key_file"], flags["tie"]
    networks = flags["networks"]
    options = assembly.Options(
        kubeconfigs=connecting.several(connecting.chosen(ctx, kubeconfig, directory)),
        mesh_namespace=namespace,
        listen=_address(listen),
        key=opening.new_key() if key_file is None else console_keys.read(key_file),
        reopen=_ENTER if key_file is None else f"run `{console_keys.again(place)}` on its machine",
        pair=roles.tls_files(flags["tls_cert_file"], flags["tls_private_key_file"]),
        networks=None if networks is None else network_rules.Networks.parse(networks),
    )
    assembly.require_safe(options)
    look = _looker(place.root, options.kubeconfigs[0], namespace)
    with roles.tied(tie, directory), _listening(options.listen, flags["listen_fd"]) as sock:
        _serve(options, sock, look, "" if tie is not None else form)


def _listening(listen: addresses.Address, descriptor: int | None) -> socket.socket:
    return addresses.listen(listen, "--listen") if descriptor is None else socket.socket(fileno=descriptor)


def _address(text: str) -> addresses.Address:
    try:
        return addresses.parse(text)
    except ValueError as error:
        raise output.Usage(f'--listen: "{text[:80]}" {error}', hint=f"give HOST:PORT, as in {DEFAULT}") from None


def _looker(directory: pathlib.Path, kubeconfig: str, namespace: str) -> console.Look:
    """Looks up what `handfast check` would, but for nodes: the console follows them."""

    async def look(client: api.Client, used: connection.Connection, tell: tellings.Tell) -> facts.Facts:
        from handfast.check import look as looking
        from handfast.runtime import clock

        target = looking.Target(
            client=client, used=used, kubeconfig=kubeconfig, directory=directory, mesh_namespace=namespace
        )
        return await looking.look(target, clock.SystemClock(), tell, looking.BUT_NODES)

    return look


def _serve(options: console.Options, sock: socket.socket, look: console.Look, form: str) -> None:
    """Until it is stopped. Where `up` runs it, it says nothing itself: `up` does."""
    import dataclasses

    from handfast.assembly import console as assembly
    from handfast.cli import foreground
    from handfast.runtime import clock

    async def work() -> None:
        here = dataclasses.replace(options, listen=addresses.bound(sock, options.listen))
        async with assembly.served(here, sock, look, clock.SystemClock()) as running:
            if not form:
                await running.wait()
            _tell(here.base, running, form)
            with _on_enter(lambda: _tell_again(here.base, running)):
                await running.wait()

    foreground.run(work(), "warning")


def _tell(base: str, running: console.Running, form: str) -> None:
    from handfast.console import opening

    # 1. printed, and nothing else
    address = opening.address(base, running.code())
    if form in {"json", "yaml"}:
        output.result(output.document({"console": base, "opens": address, "seconds": 60}, form))
    else:
        output.result(f"The console is at {base}. This address opens it, once, within a minute:\n\n  {address}\n")
        if sys.stdin.isatty():
            output.note("Enter prints another address; Ctrl-C stops the console")
    sys.stdout.flush()


def _tell_again(base: str, running: console.Running) -> None:
    from handfast.console import opening

    output.result(f"  {opening.address(base, running.code())}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _on_enter(tell: Callable[[], None]) -> Iterator[None]:
    """While the block runs, a line at the terminal asks for another address (2)."""
    import asyncio

    if not sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        if sys.stdin.readline():
            tell()
        else:
            loop.remove_reader(sys.stdin.fileno())

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin.fileno())
