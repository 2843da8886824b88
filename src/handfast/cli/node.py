# SPDX-License-Identifier: Apache-2.0
"""`handfast node`: refuse a node, or let it in again. It says what came of it; the work is in `revocation`."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import click

from handfast import errors
from handfast.assembly import layout
from handfast.cli import output, settings

if TYPE_CHECKING:
    from handfast.cli import revocation
    from handfast.client import api

_VARIABLE: Final = "KUBECONFIG"
# Where kubeadm puts it.
_SYSTEM: Final = pathlib.Path("/etc/kubernetes/admin.conf")
_DURATION: Final = re.compile(r"(?:[0-9]{1,6}[dhms])+", re.ASCII)
_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_CHOOSE: Final = "choose another credential with --kubeconfig"


@click.group(name="node", short_help="Refuse a node, or let it in again.")
def command() -> None:
    """Refuse a node, or let it in again."""


@command.command(short_help="Refuse a node from now on.")
@click.argument("name")
@click.option("--reason", default=None, help="Why, for people; it is in the object and in the server's log.")
@click.option("--for", "duration", metavar="DURATION", default=None, help="For how long, as in 90m, 12h or 7d.")
@click.option("--undo", is_flag=True, help="Let the node in again.")
@click.option(
    "--kubeconfig",
    type=click.Path(),
    default=None,
    help="How to reach the API.  [default: $KUBECONFIG, else admin.conf of --dir, else /etc/kubernetes/admin.conf]",
)
@settings.directory_option("./handfast-data")
@output.format_option
@click.pass_context
def revoke(
    ctx: click.Context,
    name: str,
    reason: str | None,
    duration: str | None,
    undo: bool,
    kubeconfig: str | None,
    directory: str,
    form: str,
) -> None:
    """Refuse a node from now on, with every certificate it has or gets, and the tokens of its Pods.

    Its open watches end, and each of its requests is answered with 401. Asking twice does no harm.
    """
    if undo and (reason is not None or duration is not None):
        raise output.Usage("--undo takes neither --reason nor --for")
    if reason == "":
        raise output.Usage("--reason is empty", hint="leave it out, or say why")
    length = None if duration is None else _length(duration)
    if kubeconfig is None:
        explicit = ctx.get_parameter_source("directory") is click.core.ParameterSource.COMMANDLINE
        kubeconfig = _found_kubeconfig(layout.Layout.at(directory).admin_kubeconfig, explicit=explicit)

    import asyncio

    outcome = asyncio.run(_carry_out(kubeconfig, name, undo=undo, reason=reason or "", length=length))
    if form == "text":
        output.result(_undone(outcome) if undo else _revoked(outcome))
    else:
        output.result(output.document(_facts(outcome), form))
    _notes(outcome)


def _length(text: str) -> datetime.timedelta:
    if _DURATION.fullmatch(text) is not None:
        parts = re.findall(r"([0-9]+)([dhms])", text)
        found = sum((datetime.timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts), datetime.timedelta())
        if datetime.timedelta() < found <= datetime.timedelta(days=36500):
            return found
    raise output.Usage(
        f'--for: "{text}" is no duration', hint="give numbers with d, h, m or s, as in 7d or 1h30m, of at most 36500d"
    )


def _found_kubeconfig(own: pathlib.Path, *, explicit: bool) -> str:
    """The kubeconfig that counts where none was named; a data directory that was named goes before the environment."""
    named = os.environ.get(_VARIABLE, "")
    if explicit:
        return str(own)
    if os.pathsep in named:
        raise errors.Refused(
            f"${_VARIABLE} names several files: {named}",
            reason="BadKubeconfig",
            hint="name one of them with --kubeconfig",
        )
    if named:
        return named
    for path in (own, _SYSTEM):
        if path.exists():
            return str(path)
    raise errors.Refused(
        f"no kubeconfig: ${_VARIABLE} is not set, and there is neither {own} nor {_SYSTEM}",
        reason="NoKubeconfig",
        hint="name one with --kubeconfig, or the data directory of a control plane with --dir",
    )


@contextlib.asynccontextmanager
async def _connected(kubeconfig: str) -> AsyncIterator[api.Client]:
    from handfast.client import api, connection, transport
    from handfast.runtime import clock, files

    with files.otherwise("name another file with --kubeconfig"):
        found = connection.load(kubeconfig)
    opened = transport.Transport(found, clock=clock.SystemClock())
    try:
        yield api.Client(opened)
    finally:
        await opened.close()


async def _carry_out(
    kubeconfig: str, node: str, *, undo: bool, reason: str, length: datetime.timedelta | None
) -> revocation.Outcome:
    from handfast.api import objects, status
    from handfast.cli import revocation
    from handfast.runtime import clock
    from handfast.telemetry import log

    # What goes wrong is told as an error; the client's own remarks would come on top of it.
    log.configure(level="error")
    revocation.name_of(node)
    expires = "" if length is None else objects.timestamp(clock.SystemClock().now() + length)
    try:
        async with _connected(kubeconfig) as client:
            if undo:
                return await revocation.undo(client, node)
            return await revocation.revoke(client, node, reason, expires)
    except status.StatusError as error:
        if error.reason in {"Forbidden", "Unauthorized"}:
            error.hint = _CHOOSE
        raise


def _revoked(outcome: revocation.Outcome) -> str:
    now = "is refused from now on" if outcome.changed else "was refused already, and still is"
    return (
        f"node {outcome.node} {now}\n\n"
        f"  refused     the user system:node:{outcome.node}, also with a new certificate, and tokens of Pods on the node\n"
        f"  until       {outcome.expires or 'it is undone'}\n"
        f"  reason      {outcome.reason}\n"
        f"  revocation  {outcome.revocation}\n\n"
        f"To undo it: handfast node revoke {outcome.node} --undo"
    )


def _undone(outcome: revocation.Outcome) -> str:
    gone = "was deleted" if outcome.changed else "is not there"
    if outcome.others:
        return (
            f"Revocation {outcome.revocation} {gone}, but others name node {outcome.node}: {', '.join(outcome.others)}"
        )
    now = "is let in again" if outcome.changed else "was not refused"
    return f"node {outcome.node} {now}: Revocation {outcome.revocation} {gone}"


def _facts(outcome: revocation.Outcome) -> dict[str, object]:
    found: dict[str, object] = {
        "node": outcome.node,
        "revocation": outcome.revocation,
        "revoked": outcome.revoked,
        "changed": outcome.changed,
    }
    if outcome.revoked:
        found |= {"reason": outcome.reason, "expires": outcome.expires or None, "nodeExists": outcome.known}
    else:
        found["namedBy"] = list(outcome.others)
    return found


def _notes(outcome: revocation.Outcome) -> None:
    if outcome.known is False:
        output.note(f"there is no Node {outcome.node} now; whoever joins by that name is refused")
    if outcome.others:
        output.note(f"`kubectl delete revocation {' '.join(outcome.others)}` lets node {outcome.node} in again")
