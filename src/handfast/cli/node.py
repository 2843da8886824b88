# SPDX-License-Identifier: Apache-2.0
"""`handfast node`: the words there are, and refusing a node or letting it in again.

It says what came of it: the work of refusing is in `revocation`, and what is about this machine's own agent is in
`node_agent`.
"""

from __future__ import annotations

import datetime
import shlex
from typing import TYPE_CHECKING

import click

from handfast.cli import (
    candidates,
    connecting,
    durations,
    node_agent,
    node_configuration,
    node_list,
    node_reset,
    output,
)

if TYPE_CHECKING:
    from handfast.cli import revocation


@click.group(name="node", short_help="Run this machine's node agent, show its state, or refuse a node.")
def command() -> None:
    """Run this machine's node agent, show its state, or refuse a node."""


for _command in (node_list.command, *node_agent.COMMANDS, node_configuration.command, node_reset.command):
    command.add_command(_command)


@command.command(short_help="Refuse a node from now on.")
@click.argument("name", shell_complete=candidates.nodes)
@click.option("--reason", default=None, help="Why, for people; it is in the object and in the server's log.")
@click.option("--for", "duration", metavar="DURATION", default=None, help="For how long, as in 90m, 12h or 7d.")
@click.option("--undo", is_flag=True, help="Let the node in again.")
@connecting.options
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
    """Refuse a node from now on: every certificate it has or gets, and the tokens of its Pods.

    Its open watches end, and each of its requests is answered with 401. A second call changes nothing.
    """
    if undo and (reason is not None or duration is not None):
        raise output.Usage("--undo takes neither --reason nor --for")
    if reason == "":
        raise output.Usage("--reason is empty", hint="leave it out, or say why")
    length = None if duration is None else durations.parse(duration, "--for", "36500d")
    chosen = connecting.chosen(ctx, kubeconfig, directory)

    import asyncio

    outcome = asyncio.run(_carry_out(chosen, name, undo=undo, reason=reason or "", length=length))
    if form == "text":
        output.result(_undone(outcome) if undo else _revoked(outcome))
    else:
        output.result(output.document(_facts(outcome), form))
    _notes(outcome)


async def _carry_out(
    kubeconfig: str, node: str, *, undo: bool, reason: str, length: datetime.timedelta | None
) -> revocation.Outcome:
    from handfast.api import objects
    from handfast.cli import revocation
    from handfast.runtime import clock

    revocation.name_of(node)
    expires = "" if length is None else objects.timestamp(clock.SystemClock().now() + length)
    async with connecting.connected(kubeconfig) as reached:
        if undo:
            return await revocation.undo(reached.client, node)
        return await revocation.revoke(reached.client, node, reason, expires)


def _revoked(outcome: revocation.Outcome) -> str:
    now = "is refused from now on" if outcome.changed else "was refused already, and still is"
    return (
        f"node {outcome.node} {now}\n\n"
        f"  refused     the user system:node:{outcome.node}, also with a new certificate, and tokens of Pods on the node\n"
        f"  until       {outcome.expires or 'it is undone'}\n"
        f"  reason      {outcome.reason}\n"
        f"  revocation  {outcome.revocation}\n\n"
        f"To undo it: handfast node revoke {shlex.quote(outcome.node)} --undo"
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
    facts: dict[str, object] = {
        "node": outcome.node,
        "revocation": outcome.revocation,
        "revoked": outcome.revoked,
        "changed": outcome.changed,
    }
    if outcome.revoked:
        facts |= {"reason": outcome.reason, "expires": outcome.expires or None, "nodeExists": outcome.known}
    else:
        facts["namedBy"] = list(outcome.others)
    return facts


def _notes(outcome: revocation.Outcome) -> None:
    if outcome.known is False:
        output.note(f"there is no Node {outcome.node} now; whoever joins by that name is refused")
    if outcome.others:
        output.note(f"`kubectl delete revocation {shlex.join(outcome.others)}` lets node {outcome.node} in again")
