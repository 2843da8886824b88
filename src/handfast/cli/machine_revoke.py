# SPDX-License-Identifier: Apache-2.0
"""`handfast machine credentials revoke`: the cut, at once or after the roll-out, and how far the replacement has come.

It decides nothing: `rules.machine_config` says who follows and what is next. With `--after-rollout` a controller makes the cut
(`credential-rollout-controller`). So it goes on when this command ends, and a second call shows how far it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.cli import connecting, durations, output, revoke_output, rollout_output
from handfast.runtime import clock as clocks

if TYPE_CHECKING:
    from handfast.client import api
    from handfast.client import machine_credentials as client_credentials
    from handfast.rules.machine_config import rollout_facts, rollout_progress

KINDS: Final = ("master", "worker")
NOTHING_TO_REPLACE: Final = "NothingToReplace"
NOTHING_ROLLED_OUT: Final = "NothingIsRolledOut"
_TIMEOUT: Final = "5m"
_LONGEST: Final = "168h"


@click.command(short_help="Revoke a bootstrap credential, at once or after the roll-out.")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="Whose credential.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Of workers: also the tokens of single machines, and all others of the account.",
)
@click.option("--after-rollout", is_flag=True, help="Distribute the replacement to all machines first, then cut.")
@click.option("--dry-run", is_flag=True, help="Say what would be cut and who would follow, and change nothing.")
@click.option("--no-wait", is_flag=True, help="Return after the cut; with --after-rollout when it is asked for.")
@click.option(
    "--timeout", metavar="DURATION", default=None, help=f"How long to wait for machines.  [default: {_TIMEOUT}]"
)
@connecting.options
@output.format_option
@click.pass_context
def revoke(ctx: click.Context, /, **flags: Any) -> None:
    """Revoke a bootstrap credential, and show how its replacement comes to the machines.

    From the next request on the credential is refused, also on open connections. The masters' is the ConfigMap
    kubelet-bootstrap-kubeconfig. The workers' is the Secret node-bootstrapper-token, and every other Secret with a token of that
    account; a new one is made. Tokens of single machines stay good unless --all is given. Open requests that came by the
    credential are denied. Machines that have their own certificate go on.

    Then it waits until every machine that can follow has the replacement. Those that cannot are named: without an agent, in a
    paused pool, or silent. With --after-rollout the replacement goes to all machines first, and the credential is cut when
    everyone with an agent has it. The controllers see to that, also if this command ends; a second call shows how far it is.
    """
    import asyncio

    wanted = _wanted(flags)
    path = connecting.chosen(ctx, flags["kubeconfig"], flags["directory"])
    outcome = asyncio.run(_work(path, wanted))
    revoke_output.show(wanted, outcome)
    if not outcome.over:
        raise revoke_output.incomplete(wanted, outcome)


def _wanted(flags: dict[str, Any]) -> revoke_output.Wanted:
    """What was typed, if it goes together."""
    kind = flags["kind"]
    if flags["everything"] and kind == "master":
        raise output.Usage("--all does not go with --kind master")
    if flags["everything"] and flags["after_rollout"]:
        raise output.Usage(
            "--all does not go with --after-rollout", hint="nothing replaces the tokens of single machines"
        )
    for first, other in (("no_wait", "dry_run"), ("timeout", "dry_run"), ("timeout", "no_wait")):
        if flags[first] and flags[other]:
            words = [f"--{each.replace('_', '-')}" for each in (first, other)]
            raise output.Usage(f"{words[0]} does not go with {words[1]}: nothing is waited for")
    return revoke_output.Wanted(
        kind=kind,
        everything=flags["everything"],
        dry_run=flags["dry_run"],
        after_rollout=flags["after_rollout"],
        wait=not flags["no_wait"],
        seconds=durations.parse(flags["timeout"] or _TIMEOUT, "--timeout", _LONGEST).total_seconds(),
        form=flags["form"],
    )


async def _work(path: str, wanted: revoke_output.Wanted) -> revoke_output.Outcome:
    from handfast.client import machine_credentials as client_credentials

    async with connecting.connected(path) as reached:
        client = reached.client
        if wanted.dry_run:
            return await _rehearse(client, wanted)
        if wanted.after_rollout:
            return await _after_rollout(client, wanted)
        cut = await client_credentials.revoke(client, wanted.kind, clocks.SystemClock(), everything=wanted.everything)
        if wanted.form == "text":
            output.result(revoke_output.cut_text(wanted.kind, cut, dry_run=False))
        return await _follow(client, wanted, cut)


async def _rehearse(client: api.Client, wanted: revoke_output.Wanted) -> revoke_output.Outcome:
    from handfast.client import machine_credentials as client_credentials
    from handfast.client import machine_rollout

    facts = await machine_rollout.look(client)
    return revoke_output.Outcome(
        cut=await client_credentials.look(client, wanted.kind, everything=wanted.everything),
        pools=_concerned(facts.foreseen, wanted, {pool.name for pool in facts.pools if pool.target}),
        outside=facts.foreseen.outside,
        flying=await machine_rollout.in_flight(client, wanted.kind, facts),
    )


def _concerned(
    fleet: rollout_progress.Fleet, wanted: revoke_output.Wanted, rendered: set[str]
) -> tuple[rollout_progress.Progress, ...]:
    """The pools that this is about, of those that somebody renders."""
    return tuple(pool for pool in fleet.concerned(wanted.kind) if pool.pool in rendered)


async def _follow(
    client: api.Client, wanted: revoke_output.Wanted, cut: client_credentials.Open
) -> revoke_output.Outcome:
    """After a cut: until every machine that can follow has the replacement."""
    from handfast.client import machine_rollout

    nothing = not cut.objects and not cut.requests
    if nothing or not wanted.wait:
        return revoke_output.Outcome(cut=cut)
    live = rollout_output.Live(quiet=wanted.form != "text")

    def is_over(facts: rollout_facts.Facts) -> bool:
        pools = _rolled_out(facts, wanted)
        live.show({pool.pool: rollout_output.line(pool, patient=False) for pool in pools})
        return not any(pool.waits(patient=False) for pool in pools)

    try:
        facts, over = await machine_rollout.until(client, clocks.SystemClock(), wanted.seconds, is_over)
    except machine_rollout.Unseen as unseen:
        # Who may cut need not be allowed to look on.
        output.note(unseen.message)
        return revoke_output.Outcome(cut=cut, seen=False)
    finally:
        live.clear()
    return revoke_output.Outcome(cut=cut, pools=_rolled_out(facts, wanted), outside=facts.fleet.outside, over=over)


def _rolled_out(facts: rollout_facts.Facts, wanted: revoke_output.Wanted) -> tuple[rollout_progress.Progress, ...]:
    return tuple(pool for pool in facts.fleet.concerned(wanted.kind) if pool.rendering)


async def _after_rollout(client: api.Client, wanted: revoke_output.Wanted) -> revoke_output.Outcome:
    """Ask for it, or find that it was asked for; then follow it to its end."""
    from handfast.client import machine_rollout
    from handfast.rules.machine_config import credential_rollout

    clock = clocks.SystemClock()
    facts = await machine_rollout.look(client)
    if isinstance(facts.step(wanted.kind, clock.now()), credential_rollout.Nothing):
        await _ask(client, facts, wanted, clock)
    else:
        output.progress(f"the {wanted.kind} credential is being replaced already: this is how far it is")
    if not wanted.wait:
        return revoke_output.Outcome(pools=_rolled_out(facts, wanted), phase=credential_rollout.MAKING)
    live = rollout_output.Live(quiet=wanted.form != "text")

    def is_over(facts: rollout_facts.Facts) -> bool:
        step = facts.step(wanted.kind, clock.now())
        phase = credential_rollout.phase(step)
        lines = {"": f"{phase}: {step.sentence}" if isinstance(step, credential_rollout.Wait) else phase}
        pools = {pool.pool: rollout_output.line(pool, patient=True) for pool in _rolled_out(facts, wanted)}
        live.show({**(lines if phase else {}), **pools})
        return isinstance(step, credential_rollout.Nothing)

    try:
        facts, over = await machine_rollout.until(client, clock, wanted.seconds, is_over)
    finally:
        live.clear()
    return revoke_output.Outcome(
        pools=_rolled_out(facts, wanted),
        outside=facts.fleet.outside,
        phase=credential_rollout.phase(facts.step(wanted.kind, clock.now())),
        over=over,
    )


async def _ask(
    client: api.Client, facts: rollout_facts.Facts, wanted: revoke_output.Wanted, clock: clocks.Clock
) -> None:
    from handfast.api import objects
    from handfast.client import machine_rollout

    marked = facts.to_mark(wanted.kind)
    if not marked:
        raise errors.Refused(
            f"there is no {wanted.kind} credential to replace",
            reason=NOTHING_TO_REPLACE,
            hint="`handfast machine credentials show` lists what lets machines in",
        )
    if not _rolled_out(facts, wanted):
        raise errors.Refused(revoke_output.NO_POOLS, reason=NOTHING_ROLLED_OUT, hint="revoke without --after-rollout")
    for each in marked:
        await machine_rollout.mark(client, each.target, each.uid, objects.timestamp(clock.now()))
