# SPDX-License-Identifier: Apache-2.0
"""`handfast machine explain` and `readmit`: how far a machine has come, and giving it another key. It decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from handfast.cli import candidates, connecting, machine_options, output, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from handfast.rules.machines import explanation

_MARKS: Final = {"done": "ok", "waits": "waits", "later": "-"}


@click.command(name="explain", short_help="Say how far a machine has come, and what it needs.")
@click.argument("name", shell_complete=candidates.machines)
@machine_options.namespace_option()
@connecting.options
@output.format_option
@click.pass_context
def explain(ctx: click.Context, name: str, namespace: str, kubeconfig: str | None, directory: str, form: str) -> None:
    """Say how far a machine has come on its way to being a node: known, credential, asked, judged, issued, registered, linked.

    The first stage that is not done says what to do.
    """
    import asyncio

    from handfast.client import machine_explanation
    from handfast.rules.machines import explanation
    from handfast.runtime import clock

    now = clock.SystemClock().now()

    async def work(path: str) -> tuple[explanation.Facts, list[str]]:
        async with connecting.connected(path) as reached:
            return await machine_explanation.look(reached.client, name, namespace, now)

    facts, unread = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    stages = explanation.walk(facts)
    for each in unread:
        output.note(f"not everything could be read: {each}")
    if form != "text":
        rows = [machine_explanation.as_row(stage) for stage in stages]
        output.result(output.document({"machine": facts.machine.title, "stages": rows}, form))
    else:
        _show(stages)


def _show(stages: Sequence[explanation.Stage]) -> None:
    rows = [(stage.name, _MARKS[stage.state], output.printable(stage.sentence)) for stage in stages]
    output.result(tables.table(("STAGE", "STATE", "SEEN"), rows))
    for stage in stages:
        if stage.change:
            output.result(f"\nto go on: {output.printable(stage.change)}")


@click.command(name="readmit", short_help="Let a machine that was set up anew ask with another key.")
@click.argument("name", shell_complete=candidates.machines)
@machine_options.namespace_option()
@connecting.options
@output.format_option
@click.pass_context
def readmit(ctx: click.Context, name: str, namespace: str, kubeconfig: str | None, directory: str, form: str) -> None:
    """Let a machine that was set up anew ask with another key.

    For each Machine one key is approved. This forgets which, so that the next one can be. It also forgets the node of the
    machine, if that was deleted. The certificate of the key before stays good: `handfast node revoke` takes it back.

    Requests that wait in the machine's name now do not count any more, and are named: somebody else may have filed them. The
    machine has to ask after this, or you approve its request by hand.
    """
    import asyncio

    from handfast.client import machines as client_machines

    async def work(path: str) -> tuple[str, client_machines.Readmission]:
        async with connecting.connected(path) as reached:
            known = await client_machines.read(reached.client)
            machine = known.one(name, namespace)
            return machine.title, await client_machines.readmit(reached.client, known, machine)

    title, readmission = asyncio.run(work(connecting.chosen(ctx, kubeconfig, directory)))
    if form != "text":
        output.result(
            output.document(
                {"machine": title, "changed": readmission.changed, "waited": list(readmission.waited)}, form
            )
        )
    elif readmission.changed:
        output.result(f"{title} may ask with another key")
        _tell_waited(readmission.waited)
    else:
        output.result(f"{title} has no key yet, and no node that is gone: nothing was changed")


def _tell_waited(names: Sequence[str]) -> None:
    if names:
        output.note(f"these requests waited, and do not count any more: {', '.join(map(output.printable, names))}")
        output.note(
            "if one is the machine's own, approve it with `handfast csr approve`, or delete it so that it asks again"
        )
