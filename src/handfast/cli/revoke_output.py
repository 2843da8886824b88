# SPDX-License-Identifier: Apache-2.0
"""What `handfast machine credentials revoke` says: what was cut or would be, how far the replacement is, and what is left.

Words only: it reads nothing and changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from handfast import errors
from handfast.cli import output, rollout_output

if TYPE_CHECKING:
    from handfast.client import machine_credentials as client_credentials
    from handfast.rules.machine_config import following, in_flight, rollout_progress

INCOMPLETE: Final = "RolloutIncomplete"
NO_POOLS: Final = "no MachineConfigPool is rendered here, so that nothing is rolled out: machines keep what they have"
# How many names of requests a person is shown.
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was typed."""

    kind: str
    everything: bool
    dry_run: bool
    after_rollout: bool
    wait: bool
    seconds: float
    form: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was cut, or would be, and how far the replacement is. `over`: whoever can follow has it."""

    cut: client_credentials.Open | None = None
    pools: tuple[rollout_progress.Progress, ...] = ()
    outside: tuple[following.Follower, ...] = ()
    flying: tuple[in_flight.InFlight, ...] = ()
    phase: str = ""
    over: bool = True
    # Whether the one who asks may see how far it is.
    seen: bool = True


def incomplete(wanted: Wanted, outcome: Outcome) -> errors.Unavailable:
    """The error of whoever has waited for too long."""
    from handfast.rules.machine_config import credential_rollout

    late = [pool.pool for pool in outcome.pools if not pool.rendered]
    waits = [
        f"{node.node} ({node.reason})"
        for pool in outcome.pools
        if pool.rendered
        for node in (pool.expected if wanted.after_rollout else pool.able)
    ]
    behind = [f"the pool {name} is not rendered with it" for name in late] + waits
    names = ", ".join(behind[:_SHOWN]) + (", …" if len(behind) > _SHOWN else "")
    is_cut = not wanted.after_rollout or outcome.phase == credential_rollout.RETURNING
    what = "the old credential is cut" if is_cut else f"the {wanted.kind} credential is not cut yet"
    return errors.Unavailable(
        f"{what}, and not everyone has the replacement" + (f"; behind: {names}" if names else ""),
        reason=INCOMPLETE,
        hint="`handfast machine pools` shows who is behind; the controllers go on"
        + (", and the same command shows how far they are" if wanted.after_rollout else ""),
    )


def show(wanted: Wanted, outcome: Outcome) -> None:
    """The result; what was cut at once has been told already."""
    if wanted.form != "text":
        output.result(output.document(_document(wanted, outcome), wanted.form))
        return
    if wanted.dry_run and outcome.cut is not None:
        output.result("\n".join([cut_text(wanted.kind, outcome.cut, dry_run=True), *_foreseen_lines(wanted, outcome)]))
    elif wanted.wait:
        lines = _outcome_lines(wanted, outcome)
        if lines:
            output.result("\n".join(lines))
    elif wanted.after_rollout:
        output.result(f"the {wanted.kind} credential is cut once everyone with an agent has the replacement")
    is_nothing = outcome.cut is not None and not outcome.cut.objects and not outcome.cut.requests
    if wanted.wait and outcome.seen and not outcome.pools and not is_nothing:
        output.note(NO_POOLS)


def _foreseen_lines(wanted: Wanted, outcome: Outcome) -> list[str]:
    lines = []
    for pool in outcome.pools:
        paused = ", which is paused" if pool.paused else ""
        lines.append(f"{len(pool.able)} of {len(pool.nodes)} machines of the pool {pool.pool}{paused} would follow")
        lines += [f"{node.node} of {pool.pool} would not: {node.reason}: {node.sentence}" for node in pool.unable]
    if wanted.after_rollout:
        waits = [node.node for pool in outcome.pools for node in pool.unable if node.follows]
        if waits:
            lines.append(f"it would be cut only when these have the replacement, too: {', '.join(waits)}")
    lines += [f"{node.node} is not configured: {node.reason}: {node.sentence}" for node in outcome.outside]
    if outcome.flying:
        lines.append(f"{len(outcome.flying)} machines are in flight with this credential")
    return lines + [f"{each.machine} is in flight: {each.sentence}" for each in outcome.flying]


def _outcome_lines(wanted: Wanted, outcome: Outcome) -> list[str]:
    if not outcome.over:
        return []
    lines = []
    if wanted.after_rollout:
        lines.append(f"the {wanted.kind} credential was cut after its replacement had come to everyone with an agent")
    lines += [rollout_output.line(pool, patient=wanted.after_rollout) for pool in outcome.pools]
    return lines + rollout_output.behind(outcome.pools, outcome.outside)


def _document(wanted: Wanted, outcome: Outcome) -> dict[str, Any]:
    cut = outcome.cut
    shown: dict[str, Any] = {"kind": wanted.kind, "dryRun": wanted.dry_run, "afterRollout": wanted.after_rollout}
    if cut is not None:
        shown |= {
            "objects": list(cut.objects),
            "connections": cut.connections,
            "watches": cut.watches,
            "requests": list(cut.requests),
            "staying": list(cut.staying),
        }
    return {
        **shown,
        "phase": outcome.phase,
        "complete": outcome.over and outcome.seen and wanted.wait and not wanted.dry_run,
        "pools": [rollout_output.pool_document(pool, _without(wanted, pool)) for pool in outcome.pools],
        "outside": [rollout_output.node_document(node) for node in outcome.outside],
        "inFlight": [dataclasses.asdict(each) for each in outcome.flying],
    }


def _without(wanted: Wanted, pool: rollout_progress.Progress) -> Sequence[Any]:
    return pool.unable if wanted.dry_run else pool.without


def cut_text(kind: str, cut: client_credentials.Open, *, dry_run: bool) -> str:
    """What was cut, or would be."""
    if not cut.objects and not cut.requests:
        return f"there is no {kind} credential to revoke, and nothing that came by one"
    deleted, refused, denied = ("would be " if dry_run else "") + "deleted", "are refused", "denied"
    if dry_run:
        refused, denied = "would be refused", "would be denied"
    lines = [f"{title} {deleted}" for title in cut.objects]
    if cut.connections is not None:
        lines.append(f"{cut.connections} open connections and {cut.watches} open watches of it {refused}")
    else:
        lines.append("this API server does not tell what connections and watches it has open")
    shown = ", ".join(cut.requests[:_SHOWN]) + (", …" if len(cut.requests) > _SHOWN else "")
    lines.append(f"{len(cut.requests)} open requests {denied}" + (f": {shown}" if shown else ""))
    if cut.staying:
        staying = ", ".join(cut.staying[:_SHOWN]) + (", …" if len(cut.staying) > _SHOWN else "")
        lines.append(f"{len(cut.staying)} tokens of single machines stay good; --all revokes them, too: {staying}")
    return "\n".join(lines)
