# SPDX-License-Identifier: Apache-2.0
"""`handfast up`: start a control plane here, say where it is, and keep it running. It does not serve: children do.

On a terminal it prints a page to read: few lines while it starts, then the addresses and what to type next. Elsewhere it
prints JSON, one line for each event and nothing else. That goes to the log of a service, which more people read than may
join machines, so no token is printed there. A token that was made is written to a file that only its owner can read, and
the log names the file. The file is removed when the token has expired (this is checked every hour), and at the next start.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import click

from handfast import errors
from handfast.assembly import config, console_settings, mesh_settings, stores, up
from handfast.cli import console_keys, init_machines, invocation, output, settings, signing_flags, token_input
from handfast.datadir import endpoints, layout
from handfast.runtime import clock as clocks
from handfast.runtime import files
from handfast.telemetry.colour import Style
from handfast.wire import extra

# A service of `endpoints.json` -> how the page calls it, and what it is for.
_SERVICES: Final = {
    "console": ("console", "for a browser"),
    "machineConfig": ("machines", "their configurations"),
    "identity": ("identity", "gRPC, for workloads of the mesh"),
    "destination": ("destination", "likewise"),
    "injector": ("injector", "the webhook that adds proxies to Pods"),
}


@dataclass(slots=True)
class _Console:
    """What is printed for whoever started it."""

    place: layout.Layout
    form: str
    # Whether the first token was named by a flag.
    own_token: bool = False
    # What `handfast init` said, if it did something.
    first: dict[str, Any] = field(default_factory=dict)

    def event(self, level: str, text: str, **fields: Any) -> None:
        output.event(level, text, **fields)

    def prepared(self, printed: bytes) -> None:
        if not self._lives(self.first):
            self._remove_token()
        report = json.loads(printed)
        for line in self._files(report["done"]):
            output.event("info", line)
        if report["warning"]:
            output.event("warning", report["warning"])

    def _files(self, done: list[tuple[str, str]]) -> Iterator[str]:
        """What was done to which file. On a terminal, files of one outcome are counted in one line."""
        counts = collections.Counter(verb for _, verb in done)
        together = {verb: count for verb, count in counts.items() if count > 1 and sys.stderr.isatty()}
        yield from (f"{verb} {count} files in {self.place.root}" for verb, count in together.items())
        yield from (f"{verb} {self.place.root / path}" for path, verb in done if verb not in together)

    def introduced(self, printed: bytes) -> None:
        self.first = json.loads(printed)
        # A person reads it from the page that follows.
        if self.first["objects"] and not sys.stderr.isatty():
            output.event("info", "created what machines need to join", objects=len(self.first["objects"]))
        if self.first.get("token") and self._is_hidden() and not self.own_token:
            self._keep()

    def _is_hidden(self) -> bool:
        return self.form == "text" and not output.to_terminal()

    def _keep(self) -> None:
        """Keep the token in a file instead of a log. Where that fails, another token can be made."""
        path = self.place.first_token
        try:
            files.write_atomically(path, f"{self.first['token']}\n".encode("ascii"))
        except errors.HandfastError as error:
            output.event("warning", f"the first token was not written: {error.message}", reason=error.reason)
            del self.first["joinCommand"]
        else:
            output.event("info", "the first token was made, and written to a file", path=str(path), mode="0600")

    @staticmethod
    def _lives(first: dict[str, Any]) -> bool:
        """Whether a token was made at this start that has not expired."""
        ends = first.get("expires")
        return bool(first.get("token")) and not (
            ends and datetime.datetime.fromisoformat(ends) <= clocks.SystemClock().now()
        )

    def _remove_token(self) -> None:
        path = self.place.first_token
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            why = files.explain(error, "remove", path)
            output.event("warning", f"the file of the first token is still there: {why.message}", reason=why.reason)
        else:
            output.event("info", "the file of the first token was removed", path=str(path))

    def ready(self, endpoints_file: endpoints.Endpoints) -> None:
        # Whoever started it may have stopped reading. That is no reason to stop serving.
        with contextlib.suppress(OSError, output.Unwritten):
            self._show(endpoints_file)

    def _show(self, endpoints_file: endpoints.Endpoints) -> None:
        command = self.first.get("joinCommand", "")
        if command:
            output.event("warning", token_input.holder_warning(self.first["tokenID"], self.first["expires"] or ""))
        opens = console_keys.address(self.place) if "console" in endpoints_file.services else ""
        facts = {
            **endpoints_file.document(),
            "directory": str(self.place.root),
            "kubeconfig": str(self.place.admin_kubeconfig),
        }
        if self.form != "text":
            keys = ("token", "expires", "joinCommand") if command else ()
            shown = {key: self.first[key] for key in keys} | ({"consoleOpens": opens} if opens else {})
            output.result(output.document(facts | shown, self.form))
        elif output.to_terminal():
            output.styled(self._page(endpoints_file, opens))
        else:
            # An address that opens it is for a person who is there: a log has the command that makes one.
            pages = {"openConsole": console_keys.again(self.place)} if opens else {}
            output.event("info", "Handfast is ready", sys.stdout, **facts, **pages, **self._joining_from_a_log())

    def _page(self, endpoints_file: endpoints.Endpoints, opens: str) -> Iterator[tuple[str, Style]]:
        """What a person reads."""
        kubeconfig = self.place.admin_kubeconfig
        yield "\nHandfast is ready\n", Style.GOOD
        yield f"  API server   {endpoints_file.apiserver}", Style.PLAIN
        yield f"  controllers  {endpoints_file.controllers_admin} (health and metrics)", Style.PLAIN
        for name, (word, what) in _SERVICES.items():
            if address := endpoints_file.services.get(name):
                yield f"  {word:<13}{address} ({what})", Style.PLAIN
        yield f"  data         {self.place.root}", Style.PLAIN
        yield f"  kubeconfig   {kubeconfig}\n", Style.PLAIN
        if opens:
            yield "To open the console, once, within a minute:\n", Style.PLAIN
            yield f"  {opens}\n", Style.STRONG
            yield f"Later: {console_keys.again(self.place)}\n", Style.PLAIN
        yield "Next, in another terminal:\n", Style.PLAIN
        yield f"  export KUBECONFIG={output.quoted(str(kubeconfig))}", Style.STRONG
        yield "  kubectl get namespaces\n", Style.STRONG
        if self.first.get("new"):
            yield from self._joining()
        yield f"To stop it: Ctrl-C here, or kill {endpoints_file.supervisor}", Style.PLAIN

    def _joining(self) -> Iterator[tuple[str, Style]]:
        """How machines join, on a first start."""
        command = self.first.get("joinCommand", "")
        alone = self._only_here()
        if not command:
            yield "To join a machine, get a command for it:\n", Style.PLAIN
            yield f"  {self._another()}\n", Style.STRONG
        elif alone:
            yield "To join this machine:\n", Style.PLAIN
            yield f"  {invocation.here(command)}\n", Style.STRONG
        else:
            yield "To join a machine, there:\n", Style.PLAIN
            yield f"  {command}\n", Style.STRONG
        if alone:
            yield f"{alone[:1].upper()}{alone[1:]}.\n", Style.WARNING

    def _joining_from_a_log(self) -> dict[str, str]:
        """The same for machines, without the token: a log must not have it."""
        if not self.first.get("new"):
            return {}
        alone = {"note": note} if (note := self._only_here()) else {}
        command = self.first.get("joinCommand", "")
        if not command:
            return {"createToken": self._another(), **alone}
        hidden = command.replace(f"--token {self.first['token']}", "--token-file FILE")
        where = {} if self.own_token else {"tokenFile": str(self.place.first_token)}
        return {"joinCommand": hidden, **where, **alone}

    def _another(self) -> str:
        place = output.quoted(str(self.place.root))
        return f"{invocation.program()} token create --print-join-command --dir {place}"

    def _only_here(self) -> str:
        """The note that no other machine can join, and what to do; empty where others can."""
        return token_input.only_here(self.first.get("servers", ()))


@click.command(name="up", short_help="Start a control plane here and keep it running.")
@settings.directory_option("./handfast-data")
@settings.config_option
@settings.setting_options(
    *(
        "listen",
        "advertise",
        "store",
        "adminListen",
        "controllers",
        "leaderElect",
        "logLevel",
        "watchdogSeconds",
        "ledgerRetentionDays",
        "protectLivingNodes",
        "machines",
        "joinWithin",
    ),
    *config.MACHINE_CONFIG,
    *mesh_settings.KEYS,
    *console_settings.KEYS,
    *config.SIGNING,
    *settings.APISERVER,
    defaults=config.UP_DEFAULTS,
)
@init_machines.options
@token_input.first_token_options
@output.format_option
def command(directory: str, config_file: str | None, form: str, **flags: Any) -> None:
    """Start a control plane here and keep it running.

    The first start creates the data directory: a certificate authority, an administrator's kubeconfig, a configuration
    file and the store, with a first token, and prints the command by which machines join with it. Where the output is no
    terminal, and -o does not ask for it, no secret is printed: the token is in the file first-token of the directory,
    which only its owner can read, until it expires or the next start. Later starts go on from there, and make no token.
    Ctrl-C or SIGTERM stops it.

    With --machines it admits machines by inventory: see `handfast machine`. The first start with it makes the masters'
    bootstrap credential, in machines of the data directory, and the Machines of --inventory.

    With --mesh it gives workloads certificates in the names of their service accounts: the mesh is installed, as by
    `handfast mesh install`, and its services run.

    With --console the control plane is shown in a browser, on loopback. On a terminal the address that opens it is printed, which works once, within a minute;
    `handfast console --url` prints another.

    Where a default port is taken, the next free one is used, and a warning says which. A port that you name is never
    replaced.
    """
    place = layout.Layout.at(directory)
    ttl = flags.pop("token_ttl")
    token_input.parse_ttl(ttl, "--token-ttl")
    token = up.FirstToken(token_input.first_token(flags.pop("token"), flags.pop("token_file")), ttl)
    fleet_flags = init_machines.taken(flags)
    # Flags first: a typing mistake should not leave a directory behind.
    settled = settings.load(place, flags, config_file, config.UP_DEFAULTS).configuration
    init_machines.typed(fleet_flags, machines=settled.machines, out=place.machines)
    config.require_own_way_in(settled)
    if settled.mesh:
        extra.require()
    if settled.console:
        console_settings.require_loopback(settled.console_listen)
        console_keys.require_extra()
    stores.require(settled)
    signing_flags.require_pairs(settled)
    with files.otherwise(layout.ELSEWHERE):
        files.create_directory(place.root)
        lock = files.lock_directory(place.root)
    try:
        chosen = settings.load(place, flags, config_file, config.UP_DEFAULTS)
        role_flags = up.RoleFlags(
            apiserver=config.as_flags(chosen.values, settings.APISERVER),
            controllers=config.as_flags(chosen.values, config.SIGNING),
            machine_config=config.as_flags(chosen.values, settings.MACHINE_CONFIG_SERVER),
            first_objects=init_machines.as_flags(fleet_flags, place) if chosen.configuration.machines else (),
            unnamed=_unnamed(chosen),
        )
        console = _Console(place, form, own_token=bool(token.text))
        with console_keys.kept(place) if chosen.configuration.console else contextlib.nullcontext():
            asyncio.run(up.run(place, lock, chosen.configuration, console, role_flags=role_flags, token=token))
    finally:
        lock.release()


def _unnamed(chosen: config.Resolved) -> frozenset[str]:
    """The flags of ports that nobody named. An advertised address leads to the port of --listen, which has to stay."""
    ports = {"adminListen"}
    if chosen.configuration.machines:
        ports |= {"machineConfigListen", "machineConfigAdminListen"}
    if chosen.configuration.mesh:
        ports |= set(mesh_settings.LISTEN)
    if chosen.configuration.console:
        ports.add("consoleListen")
    rows = [
        row
        for row in config.SETTINGS
        if row.key in ports or (row.key == "listen" and not chosen.configuration.advertise)
    ]
    return frozenset(row.flag for row in rows if chosen.origins[row.key] == "default")
