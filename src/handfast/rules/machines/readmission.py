# SPDX-License-Identifier: Apache-2.0
"""May a machine come back as the node it was? After a long shutdown its certificate has expired, and its Node is still there.

Without this, an operator approves each such machine by hand. It takes the verdict of `machines.approval` and puts other checks in
place of the four that are about first joins: no Node, not linked, the join window, the first key. All others stay, and proofs are made
after these. It reads no Lease.

1. The operator has switched `readmission` on, and asks for a proof of which machine asks (`machines.proofs`): with the shared
   credential alone, whoever has it could take the name of every node that is off.
2. The Machine with that InternalDNS name is linked to that very Node, and no other Machine is. So it was this machine's before.
3. The Node is silent: nobody renews its Lease. A node that runs has a certificate. Whoever approves sees to that (`nodes.claim`), as
   for every request in a node's name by somebody else, and readmits nobody where Leases are not looked at.
4. Another key was not readmitted within the last hour. Two machines that take turns under one name are seen, and the key that was
   approved may ask again: its answer may have been lost. An operator who forgets the key (`machine readmit`) ends the hour.

Who approves writes the new key and the instant on the Machine (`marks`), in place of the old ones, by a write of the very
Machine that was judged.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_readmission.py |
|---|---|---|---|---|
| an intruder | the shared credential | the name of a node that is off | 1 | test_without_a_proof_nobody_is_readmitted |
| … | a machine's token, stolen | its name while it runs | 3 | test_a_node_that_runs_is_not_readmitted |
| … | … | take turns with the machine | 4 | test_one_key_an_hour |
| a machine | its own token | the name of a Node that is another's | 2 | test_a_node_that_is_linked_to_another_machine_is_not_taken |
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Sequence
from typing import Final

from handfast.api import objects
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, inventory, linking
from handfast.rules.machines import settings as settings_module

# When a machine was readmitted last, on its Machine.
READMITTED: Final = "machines.handfast.dev/readmitted-at"
INTERVAL: Final = datetime.timedelta(hours=1)

# The names of the checks.
KNOWN: Final = "known node"
SELDOM: Final = "readmitted seldom"

TOO_SOON: Final = "ReadmittedBefore"
NODE_GONE: Final = "NodeGone"
_REPLACED: Final = frozenset({approval.NO_NODE, approval.IS_UNLINKED, approval.IN_TIME, approval.IS_FIRST_KEY})


def judge(
    verdict: approval.Verdict,
    facts: kubelet.Facts,
    *,
    settings: settings_module.Settings,
    node_exists: bool,
    linked: Sequence[inventory.Machine],
    now: datetime.datetime,
) -> approval.Verdict:
    """The verdict on a request of a node that was there before; the same verdict for any other. `linked` are its Node's Machines."""
    machine = verdict.machine
    # 1. never without a proof
    proven = settings.source_address or settings.per_machine
    if not settings.readmission or not proven or not node_exists:
        return verdict
    # 2. of a Node that is this machine's
    if machine is None or machine.node != facts.node_name:
        return verdict
    kept = [step for step in verdict.steps if step.check.name not in _REPLACED]
    seldom = _seldom(facts, machine, now)
    due = next_at(machine)
    again = None if seldom.check.passed or due is None else (due - now).total_seconds()
    return approval.Verdict((*kept, _known(facts, linked), seldom), machine, again)


def is_readmission(verdict: approval.Verdict) -> bool:
    """Whether a verdict is on a machine that comes back."""
    return any(step.check.name == KNOWN for step in verdict.steps)


def marks(machine: inventory.Machine, key: str, now: datetime.datetime) -> dict[str, str]:
    """What is written on the Machine before this key is approved; the instant stays where the key does (4)."""
    written = {inventory.APPROVED_KEY: key}
    return written if machine.approved_key == key else {**written, READMITTED: objects.timestamp(now)}


def node_gone(facts: kubelet.Facts) -> approval.Step:
    """Where the Node has gone since it was judged: whoever comes then joins anew."""
    check = kubelet.Check(KNOWN, False, f'the Node "{facts.node_name}" has just gone')
    return approval.Step(check, NODE_GONE, frozenset({approval.NODE}), "wait: it is judged again as a first join")


def next_at(machine: inventory.Machine) -> datetime.datetime | None:
    """From when on another key may be readmitted; None: from now on (4)."""
    try:
        return objects.parse_timestamp(machine.annotations.get(READMITTED, "")) + INTERVAL
    except (ValueError, OverflowError):
        return None


def _known(facts: kubelet.Facts, linked: Sequence[inventory.Machine]) -> approval.Step:
    # 2. one Machine is linked to the Node
    titles = ", ".join(machine.title for machine in linked)
    compared = f'{titles} is linked to the Node "{facts.node_name}"'
    if len(linked) == 1:
        return approval.Step(kubelet.Check(KNOWN, True, compared))
    change = "correct status.nodeRef of the Machines, so that one is linked to the Node"
    check = kubelet.Check(KNOWN, False, f"{compared}; it is to be one")
    return approval.Step(check, linking.AMBIGUOUS_LINK, frozenset({approval.MACHINE}), change)


def _seldom(facts: kubelet.Facts, machine: inventory.Machine, now: datetime.datetime) -> approval.Step:
    # 4. one key an hour
    due = next_at(machine)
    if due is None or now >= due or machine.approved_key in {"", approval.key_of(facts)}:
        return approval.Step(kubelet.Check(SELDOM, True, f"{machine.title} was not readmitted with another key lately"))
    compared = f"{machine.title} was readmitted with another key at {objects.timestamp(due - INTERVAL)}"
    change = (
        f"wait until {objects.timestamp(due)}; if the machine did not ask twice, somebody else has its credential: revoke that; "
        f"or `handfast machine readmit {shlex.quote(machine.name)}`"
    )
    waits_for = frozenset({approval.CLOCK, approval.MACHINE})
    return approval.Step(kubelet.Check(SELDOM, False, compared), TOO_SOON, waits_for, change)
