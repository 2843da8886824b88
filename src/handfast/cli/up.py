# SPDX-License-Identifier: Apache-2.0
"""`handfast up`: start a control plane here, say where it is, and keep it running. It does not serve: children do.

What it prints in plain text is for a person at a terminal. Elsewhere it goes to the log of a service, which more people
read than may join machines: there no token is printed. One that was made is written to a file for its owner alone, and
the log names the file. The file is removed when the token has expired, which is looked at every hour, and at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
from dataclasses import dataclass, field
from typing import Any

import click

from handfast import errors
from handfast.assembly import config, endpoints, layout, up
from handfast.cli import output, settings, signing_flags, token_input
from handfast.runtime import clock as clocks
from handfast.runtime import files


@dataclass(slots=True)
class _Console:
    """What the person at the terminal is told."""

    place: layout.Layout
    form: str
    # Whether whoever started it brought the token along.
    given: bool = False
    # What `handfast init` said, if it did something.
    first: dict[str, Any] = field(default_factory=dict)

    def event(self, level: str, text: str, **fields: Any) -> None:
        output.event(level, text, **fields)

    def prepared(self, printed: bytes) -> None:
        if not self._lives(self.first):
            self._remove_token()
        found = json.loads(printed)
        for path, verb in found["done"]:
            output.event("info", f"{verb} {self.place.root / path}")
        if found["warning"]:
            output.event("warning", found["warning"])

    def introduced(self, printed: bytes) -> None:
        self.first = json.loads(printed)
        if self.first["objects"]:
            output.event("info", "created what machines need to join", objects=len(self.first["objects"]))
        if self.first.get("token") and self._is_hidden() and not self.given:
            self._keep()

    def _is_hidden(self) -> bool:
        return self.form == "text" and not output.to_terminal()

    def _keep(self) -> None:
        """The token, in a file instead of in a log; without it another can be made."""
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

    def ready(self, found: endpoints.Endpoints) -> None:
        # Whoever started it may have stopped reading. That is no reason to stop serving.
        with contextlib.suppress(OSError, output.Unwritten):
            self._show(found)

    def _show(self, found: endpoints.Endpoints) -> None:
        kubeconfig = self.place.admin_kubeconfig
        command = self.first.get("joinCommand", "")
        if command:
            output.event("warning", token_input.holder_warning(self.first["tokenID"], self.first["expires"] or ""))
        if self.form != "text":
            facts = {**found.document(), "directory": str(self.place.root), "kubeconfig": str(kubeconfig)}
            told = ("token", "expires", "joinCommand") if command else ()
            output.result(output.document(facts | {key: self.first[key] for key in told}, self.form))
            return
        output.result(
            f"Handfast is ready\n\n"
            f"  API server   {found.apiserver}\n"
            f"  controllers  {found.controllers_admin} (health and metrics)\n"
            f"  data         {self.place.root}\n"
            f"  kubeconfig   {kubeconfig}\n\n"
            f"Next, in another terminal:\n\n"
            f"  export KUBECONFIG={output.quoted(str(kubeconfig))}\n"
            f"  kubectl get namespaces\n\n"
            f"{self._joining()}"
            f"To stop it: Ctrl-C here, or kill {found.supervisor}"
        )

    def _joining(self) -> str:
        """How machines join, on a first start."""
        if not self.first.get("new"):
            return ""
        command = self.first.get("joinCommand", "")
        if not command:
            place = output.quoted(str(self.place.root))
            return f"To join a machine, get a command for it:\n\n  handfast token create --print-join-command --dir {place}\n\n"
        if output.to_terminal():
            return f"To join a machine, there:\n\n  {command}\n\n"
        hidden = command.replace(f"--token {self.first['token']}", "--token-file FILE")
        where = "that was given" if self.given else f"that is in {self.place.first_token} here"
        return f"To join a machine, there, with the token {where} in FILE:\n\n  {hidden}\n\n"


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
    ),
    *config.SIGNING,
    *settings.APISERVER,
    defaults=config.UP_DEFAULTS,
)
@token_input.first_token_options
@output.format_option
def command(directory: str, config_file: str | None, form: str, **flags: Any) -> None:
    """Start a control plane here and keep it running.

    The first start creates the data directory: a certificate authority, an administrator's kubeconfig, a configuration
    file and the store, with a first token, and prints the command by which machines join with it. Where the output is no
    terminal, and -o does not ask for it, no secret is printed: the token is in the file first-token of the directory,
    which only its owner can read, until it expires or the next start. Later starts go on from there, and make no token. Ctrl-C or SIGTERM stops it.
    """
    place = layout.Layout.at(directory)
    ttl = flags.pop("token_ttl")
    token_input.parse_ttl(ttl, "--token-ttl")
    given = token_input.first_token(flags.pop("token"), flags.pop("token_file"))
    token = up.FirstToken(given, ttl)
    # Flags first: a typing mistake should not leave a directory behind.
    settled = settings.load(place, flags, config_file, config.UP_DEFAULTS).configuration
    config.require_own_way_in(settled)
    signing_flags.require_pairs(settled)
    with files.otherwise(layout.ELSEWHERE):
        files.create_directory(place.root)
        lock = files.lock_directory(place.root)
    try:
        chosen = settings.load(place, flags, config_file, config.UP_DEFAULTS)
        told = up.Told(
            apiserver=config.as_flags(chosen.values, settings.APISERVER),
            controllers=config.as_flags(chosen.values, config.SIGNING),
        )
        console = _Console(place, form, given=bool(given))
        asyncio.run(up.run(place, lock, chosen.configuration, console, told=told, token=token))
    finally:
        lock.release()
