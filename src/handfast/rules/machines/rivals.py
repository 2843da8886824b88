# SPDX-License-Identifier: Apache-2.0
"""Several keys wait for one Machine: which request stands first? The one that was there before the others.

With the shared credential everybody sees the requests of all, and can file more in a machine's name while the machine's own one
waits. So numbers must not count: what was filed in answer to a request comes after it. It judges no request: the caller says
which of the others would be approved if they were alone.

1. Rivals are requests for a name of the same Machine with another key. Requests with the same key are one machine's.
2. A request that would not be approved if it were alone keeps nobody waiting.
3. The older one stands first, by the creation that the server wrote on it; within one second, by the version at which it was seen
   first. A requester chooses neither: both only grow. Its name and UID do not count.
4. Of two that cannot be told apart, neither stands first: both wait for a person.
5. Who waits is told which request stands first, and what to do if that is not the machine's.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_rivals.py |
|---|---|---|---|---|
| an intruder | the shared credential, and sees the machine's request | be approved by many requests | 3 | test_what_was_filed_in_answer_never_stands_first |
| … | … | a name that sorts before all others | 3 | test_within_a_second_the_first_version_decides |
| … | … | another name of the same Machine | 1 | test_another_name_of_the_machine_is_a_rival_too |
| … | many old requests that are not approved | keep the machine waiting | 2 | test_who_would_not_be_approved_keeps_nobody_waiting |

Not stopped: whoever asks before the machine does, once its Machine is there. Then the machine's own request waits, and says so.
The version is that of the last write where an approver has started anew since: within one second, a request that was written on in
between may then come second.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from handfast.api import objects
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, inventory

ANOTHER_ASKS: Final = "AnotherKeyAsks"
# The name of the check.
STANDS_FIRST: Final = "first to ask"
# Whatever can take away the request that stands first, or have it fail.
_WAITS_FOR: Final = approval.ANYTHING - {approval.CLOCK}


class Asking(msgspec.Struct, frozen=True):
    """A request that waits. `version` is the one it was seen at first; 0 where versions are no numbers."""

    facts: kubelet.Facts
    created: datetime.datetime
    version: int = 0

    @property
    def order(self) -> tuple[datetime.datetime, int]:
        return (self.created, self.version)


def are(one: Asking, other: Asking, machine: inventory.Machine) -> bool:
    """Whether the other one asks for the same Machine with another key (1.)."""
    is_for = kubelet.canonical(other.facts.node_name) in machine.values(inventory.INTERNAL_DNS)
    return is_for and approval.key_of(one.facts) != approval.key_of(other.facts)


def keeps_waiting(other: Asking, mine: Asking, machine: inventory.Machine, counts: Callable[[Asking], bool]) -> bool:
    """Whether a request waits for another one; `counts`: that would be approved if it were alone."""
    # 3. and 4. whoever is not younger
    return other.order <= mine.order and are(mine, other, machine) and counts(other)


def first(
    mine: Asking, others: Iterable[Asking], machine: inventory.Machine, counts: Callable[[Asking], bool]
) -> Asking | None:
    """The request that this one waits for; None: it stands first itself."""
    oldest_first = sorted(others, key=lambda each: each.order)
    # 2. and only those that would be approved
    return next((each for each in oldest_first if keeps_waiting(each, mine, machine, counts)), None)


def step(before: Asking | None) -> approval.Step:
    """The check, and what to do where another one stands first (5.)."""
    if before is None:
        return approval.Step(
            kubelet.Check(STANDS_FIRST, True, "no older request with another key asks for this Machine")
        )
    name, key = before.facts.name, approval.key_of(before.facts)
    compared = (
        f'the request "{name}" of {objects.timestamp(before.created)} asks for this Machine with another key, {key[:16]}…, '
        "and stands first"
    )
    change = (
        f"if that is not the machine's own, deny it (`handfast csr deny {shlex.quote(name)}`), and revoke the bootstrap "
        "credential: somebody else asks in its name"
    )
    return approval.Step(kubelet.Check(STANDS_FIRST, False, compared), ANOTHER_ASKS, _WAITS_FOR, change)
