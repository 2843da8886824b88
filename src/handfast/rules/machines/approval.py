# SPDX-License-Identifier: Apache-2.0
"""May a kubelet have its first client certificate? Yes, if it is one of the operator's machines that has just been made.

The checks of the machine-approver, seed 003's seven in its order. Each that fails has a reason, what it waits for, and the smallest
change that makes it pass. Nothing is ever denied here: a person may approve or deny.

1. It is a well-formed request for a node's client certificate (`certificates.kubelet`).
2. It is no renewal: a node does not ask for itself here.
3. It was created by exactly a bootstrap identity with its groups (`machines.bootstrapper`), and the operator has not switched
   this way off.
4. The Node does not exist.
5. Exactly one Machine has the name as its InternalDNS name. Of two neither counts. It is linked to no Node, is not being deleted, and
   has not failed. `localhost` and names that begin so are nobody's: a machine has them before it knows its own.
6. The request's creation lies strictly between ten seconds before the Machine's and `join_within` after it. Both instants are the
   API server's and stay as they are, so that no waiting brings a request into the window: a new Machine, another setting or a
   new request does.
   Between 6 and 7: no other key was approved for this Machine before; where an operator had that key forgotten, the request was created
   after every one that waited then; and whatever further checks the caller has.
7. Then it is approved.

Not checked here: that nobody is revoked, that the credential still stands (`machines.standing`), that no living node has the name, and that no older request asks with another key
(`machines.rivals`). Whoever approves reserves the key on the Machine first,
by a write of the very Machine that was judged, and reads the Node on the server.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_approval.py |
|---|---|---|---|---|
| an intruder | a leaked bootstrap credential, no Machine | any node's name | 5 | test_an_intruder_without_a_machine_gets_nothing |
| … | … and the name of a Machine that joined | that node's name | 4, 5 | test_a_machine_that_joined_is_not_joined_again |
| … | … and the name of a Machine that is just joining | a second key for it | the key of that Machine | test_a_second_key_for_a_known_machine_gets_nothing |
| … | … a request that waits until the operator readmits the machine | be approved in its place | created after those that waited | test_what_waited_when_its_machine_was_readmitted_does_not_count |
| … | … and an old Machine that never joined | its name, days later | 6 | test_the_window_is_open_strictly_between_its_ends |
| … | a request filed before, for names to come | the next Machine's name | 6 | test_the_window_is_open_strictly_between_its_ends |
| … | a Machine's name as another type of address | pass for that Machine | 5 | test_near_misses_are_named_and_do_not_count |
| a writer of Machines | a second Machine of a known name | take it over | 5: of two neither counts | test_of_two_machines_of_one_name_neither_counts |
| whoever signs certificates | the bootstrapper's name with other groups | pass for it | 3 | test_a_group_added_or_missing_is_named |
| a node | its own certificate | renew by the inventory | 2 | test_a_renewal_is_not_judged_by_the_inventory |
| a joining machine | a certificate request with more in it | more than a node is | 1 | test_client_rows |
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.api import objects
from handfast.rules.certificates import kubelet
from handfast.rules.ledger import entries
from handfast.rules.machines import bootstrapper, inventory
from handfast.rules.machines import settings as settings_module

# The condition of an approval, in the real product's words.
APPROVED_REASON: Final = entries.MACHINE_APPROVED
APPROVED_MESSAGE: Final = "This CSR was approved by the Node CSR Approver (cluster-machine-approver)"
# The condition beside it, whose message names the Machine. Only who may approve can write it.
MATCHED: Final = "MatchedMachine"
CLOCK_SKEW: Final = datetime.timedelta(seconds=10)

# Reasons, one for each check that can fail.
MALFORMED: Final = "NotRecognised"
RENEWAL: Final = "Renewal"
NOT_BOOTSTRAP: Final = "NotABootstrapIdentity"
DISABLED: Final = "FlowDisabled"
NODE_EXISTS: Final = "NodeExists"
LOCALHOST: Final = "LocalhostName"
NO_MACHINE: Final = "NoMachine"
AMBIGUOUS: Final = "AmbiguousMachine"
LINKED: Final = "MachineLinked"
DELETING: Final = "MachineDeleting"
FAILED: Final = "MachineFailed"
OUTSIDE_WINDOW: Final = "OutsideJoinWindow"
ANOTHER_KEY: Final = "AnotherKeyApproved"
BEFORE_READMISSION: Final = "BeforeReadmission"

# What can turn a check that failed.
MACHINE: Final = "Machine"
NODE: Final = "Node"
SETTINGS: Final = "settings"
CLOCK: Final = "clock"
# Another request, which stands first.
REQUEST: Final = "request"
# The object that makes a bootstrap credential count.
CREDENTIAL: Final = "credential"
NOTHING: Final[frozenset[str]] = frozenset()
ANYTHING: Final = frozenset({MACHINE, NODE, SETTINGS, CLOCK, REQUEST, CREDENTIAL})

# The names of the checks beside those of `kubelet` and `bootstrapper`.
IS_NEW: Final = "not a renewal"
IS_ON: Final = "client approval on"
NO_NODE: Final = "no such Node"
HAS_MACHINE: Final = "Machine"
IS_UNLINKED: Final = "not linked"
IS_WANTED: Final = "not being deleted"
IS_WELL: Final = "not failed"
IN_TIME: Final = "join window"
IS_FIRST_KEY: Final = "first key"
IS_AFTER: Final = "after the readmission"

_LOCALHOST: Final = "localhost"
_MOST_NAMED: Final = 5
_UNKNOWN: Final = "not compared: no one Machine has this name"


class Step(msgspec.Struct, frozen=True):
    """A check; and if it failed, the reason, what can turn it, and the change that would. One that was not made has no reason."""

    check: kubelet.Check
    reason: str = ""
    waits_for: frozenset[str] = NOTHING
    change: str = ""


# A further check of a request whose Machine is known, such as a proof that the operator asks for.
Further = Callable[[kubelet.Facts, inventory.Machine], Step]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every check in order, and the Machine that the request is matched with, if there is exactly one.

    `again` is in how many seconds the clock alone can turn it; None: it cannot.
    """

    steps: tuple[Step, ...]
    machine: inventory.Machine | None = None
    again: float | None = None

    @property
    def failed(self) -> Step | None:
        """The first check that failed; None: it is to be approved."""
        return next((step for step in self.steps if not step.check.passed), None)

    @property
    def checks(self) -> tuple[kubelet.Check, ...]:
        return tuple(step.check for step in self.steps)

    def with_step(self, step: Step, again: float | None = None) -> Verdict:
        """The same, with one more check at its end."""
        return Verdict((*self.steps, step), self.machine, again)

    @property
    def change(self) -> str:
        """The smallest change that turns it: what makes each failed check pass that was made."""
        return "; and ".join(dict.fromkeys(step.change for step in self.steps if not step.check.passed and step.change))


def judge(
    facts: kubelet.Facts,
    created: datetime.datetime,
    *,
    settings: settings_module.Settings,
    machines: inventory.Index,
    node_exists: bool,
    further: Sequence[Further] = (),
) -> Verdict:
    """Judge a request that was created at this instant."""
    # 1. a well-formed request for a node's client certificate
    steps = [_form(check) for check in kubelet.checks(facts, kubelet.NODE_CLIENT)]
    # 2. and 3. who asks
    steps += (_renewal(facts), _identity(facts, settings), _enabled(settings))
    # 4. the Node does not exist
    steps.append(node(facts, node_exists=node_exists))
    # 5. exactly one Machine
    matched = machines.by_dns(facts.node_name) if facts.node_name else ()
    steps.append(_machine(facts, matched, machines))
    machine = matched[0] if len(matched) == 1 and not _is_localhost(facts.node_name) else None
    if machine is None:
        steps += (_unmade(name) for name in (IS_UNLINKED, IS_WANTED, IS_WELL, IN_TIME, IS_FIRST_KEY, IS_AFTER))
        return Verdict(tuple(steps))
    steps += (_linked(machine), _deleting(machine), _phase(machine))
    # 6. in time
    steps.append(_window(facts, created, machine, settings.join_within))
    # Between 6. and 7.: the first key, since it was forgotten, and what the caller asks for
    steps += (_first_key(facts, machine), _after(facts, created, machine))
    steps += (check(facts, machine) for check in further)
    return Verdict(tuple(steps), machine)


def key_of(facts: kubelet.Facts) -> str:
    """The key of a request, as it is written on its Machine."""
    return facts.request.public_key.fingerprint


def by_hand(facts: kubelet.Facts) -> str:
    """What a person can always do."""
    return f"approve it by hand: handfast csr approve {shlex.quote(facts.name)}"


def _step(name: str, passed: bool, compared: str, reason: str, waits_for: frozenset[str], change: str) -> Step:
    check = kubelet.Check(name, passed, compared)
    return Step(check) if passed else Step(check, reason, waits_for, change)


def _unmade(name: str) -> Step:
    return Step(kubelet.Check(name, False, _UNKNOWN))


def _form(check: kubelet.Check) -> Step:
    # 1. a well-formed request for a node's client certificate
    return _step(
        check.name, check.passed, check.compared, MALFORMED, NOTHING, "create a new request without this fault"
    )


def _renewal(facts: kubelet.Facts) -> Step:
    # 2. no node asks for itself
    common_name = facts.request.subject.common_name
    compared = f"{facts.username!r} is not to be the common name {common_name!r}"
    change = "nothing: csrapproving judges renewals"
    return _step(IS_NEW, facts.username != common_name, compared, RENEWAL, NOTHING, change)


def _identity(facts: kubelet.Facts, settings: settings_module.Settings) -> Step:
    # 3. exactly a bootstrap identity with its groups
    check = bootstrapper.check(facts.username, facts.groups, settings.identities)
    change = (
        "ask with a credential of a bootstrap identity with exactly its groups (`handfast machine credentials create`), or list "
        f"this one in bootstrapIdentities of {_config()}"
    )
    return _step(check.name, check.passed, check.compared, NOT_BOOTSTRAP, frozenset({SETTINGS}), change)


def _enabled(settings: settings_module.Settings) -> Step:
    # 3. the operator has not switched this way off
    compared = f"nodeClientCert.disabled is {str(settings.disabled).lower()}"
    change = f"take nodeClientCert.disabled out of {_config()}"
    return _step(IS_ON, not settings.disabled, compared, DISABLED, frozenset({SETTINGS}), change)


def _config() -> str:
    return f"the ConfigMap {settings_module.NAMESPACE}/{settings_module.NAME}"


def node(facts: kubelet.Facts, *, node_exists: bool) -> Step:
    """Whether there is a Node of that name: asked once more as late as can be."""
    # 4. the Node does not exist
    name = facts.node_name
    compared = f'there is {"a" if node_exists else "no"} Node "{name}"'
    change = f'delete the Node "{name}" if its machine is set up anew; if it is the same machine after a long shutdown, {by_hand(facts)}'
    return _step(NO_NODE, not node_exists, compared, NODE_EXISTS, frozenset({NODE}), change)


def _is_localhost(name: str) -> bool:
    return name.lower().startswith(_LOCALHOST)


def _machine(facts: kubelet.Facts, matched: Sequence[inventory.Machine], machines: inventory.Index) -> Step:
    # 5. exactly one Machine
    node = facts.node_name
    if _is_localhost(node):
        compared = f'"{node}" is the name of every machine, and no Machine counts as having it'
        change = "give the machine its own host name before its kubelet starts, which then asks anew"
        return _step(HAS_MACHINE, False, compared, LOCALHOST, NOTHING, change)
    if len(matched) > 1:
        titles = _titles(matched)
        compared = f'{len(matched)} Machines have the InternalDNS name "{node}", so that none counts: {titles}'
        change = f'leave the InternalDNS name "{node}" to one of: {titles}'
        return _step(HAS_MACHINE, False, compared, AMBIGUOUS, frozenset({MACHINE}), change)
    if matched:
        return Step(kubelet.Check(HAS_MACHINE, True, f'{matched[0].title} has the InternalDNS name "{node}"'))
    near = _near(node, machines)
    compared = f'no Machine has the InternalDNS name "{node}"' + (f"; {near}" if near else "")
    change = (
        f'make a Machine with the InternalDNS name "{node}": the next request of its kubelet, within 15 minutes, counts; or '
        f"{by_hand(facts)}"
    )
    return _step(HAS_MACHINE, False, compared, NO_MACHINE, frozenset({MACHINE}), change)


def _near(node: str, machines: inventory.Index) -> str:
    """What comes close, for people (5)."""
    if others := machines.by_other_name(node):
        types = sorted(
            {row.type for row in others[0].addresses if kubelet.canonical(row.address) == kubelet.canonical(node)}
        )
        return f"{_some(others)} has it as {', '.join(types)}, which does not count"
    if named := machines.named(node):
        texts = ", ".join(named[0].texts(inventory.INTERNAL_DNS))
        has = f"its InternalDNS name is {texts}" if texts else "it reports no InternalDNS name"
        return f"{_some(named)} is called so, and {has}"
    if alike := machines.by_first_label(node):
        return f"{_some(alike)} has the InternalDNS name {alike[0].texts(inventory.INTERNAL_DNS)[0]}"
    return ""


def _some(machines: Sequence[inventory.Machine]) -> str:
    """Near misses, of which a handful was looked at."""
    more = " and others" if len(machines) > _MOST_NAMED else ""
    return ", ".join(machine.title for machine in machines[:_MOST_NAMED]) + more


def _titles(machines: Sequence[inventory.Machine]) -> str:
    more = f" and {len(machines) - _MOST_NAMED} more" if len(machines) > _MOST_NAMED else ""
    return ", ".join(machine.title for machine in machines[:_MOST_NAMED]) + more


def _linked(machine: inventory.Machine) -> Step:
    # 5. linked to no Node
    compared = f'it is linked to the Node "{machine.node}"' if machine.node else "it is linked to no Node"
    change = f"make the Machine anew, or clear status.nodeRef of {machine.title}"
    return _step(IS_UNLINKED, not machine.node, compared, LINKED, frozenset({MACHINE}), change)


def _deleting(machine: inventory.Machine) -> Step:
    # 5. not being deleted
    compared = f"{machine.title} is {'being deleted' if machine.deleting else 'not being deleted'}"
    change = "wait until it is gone, and make another"
    return _step(IS_WANTED, not machine.deleting, compared, DELETING, frozenset({MACHINE}), change)


def _phase(machine: inventory.Machine) -> Step:
    # 5. not failed
    compared = f"its phase is {machine.phase}" if machine.phase else "it has no phase"
    change = f"delete {machine.title}, which has failed for good, and make another"
    return _step(IS_WELL, machine.phase != inventory.FAILED, compared, FAILED, frozenset({MACHINE}), change)


def _window(
    facts: kubelet.Facts, created: datetime.datetime, machine: inventory.Machine, join_within: datetime.timedelta
) -> Step:
    # 6. strictly between the ends
    opens, closes = machine.created - CLOCK_SKEW, machine.created + join_within
    compared = (
        f"the request of {objects.timestamp(created)} is to lie between {objects.timestamp(opens)} and "
        f"{objects.timestamp(closes)}, both ends left out"
    )
    change = (
        f"have the kubelet ask again, which it does by itself within 15 minutes; or {by_hand(facts)}"
        if created <= opens
        else f"raise joinWithin in {_config()}; or make the Machine anew and have the kubelet ask again; or {by_hand(facts)}"
    )
    waits_for = frozenset({MACHINE, SETTINGS})
    return _step(IN_TIME, opens < created < closes, compared, OUTSIDE_WINDOW, waits_for, change)


def _first_key(facts: kubelet.Facts, machine: inventory.Machine) -> Step:
    # Between 6. and 7.: no other key was approved
    key, approved = key_of(facts), machine.approved_key
    compared = (
        f"the key {key[:16]}… is asked for, and {f'{approved[:16]}…' if approved else 'none'} was approved before"
    )
    change = (
        f"if the machine was set up anew, `handfast machine readmit {shlex.quote(machine.name)}`; if not, somebody else asks in its name: "
        "revoke the bootstrap credential"
    )
    return _step(IS_FIRST_KEY, approved in {"", key}, compared, ANOTHER_KEY, frozenset({MACHINE}), change)


def _after(facts: kubelet.Facts, created: datetime.datetime, machine: inventory.Machine) -> Step:
    # Between 6. and 7.: nobody who waited when the key was forgotten
    text = machine.annotations.get(inventory.REQUESTS_AFTER, "")
    if not text or machine.approved_key == key_of(facts):
        return Step(
            kubelet.Check(IS_AFTER, True, "no request waited for it when its key was forgotten, or it has this key")
        )
    compared = (
        f"the request of {objects.timestamp(created)} is to be newer than {text}: {machine.title} was readmitted then"
    )
    change = (
        f"if it is the machine's own, {by_hand(facts)}; or delete it (`kubectl delete csr {shlex.quote(facts.name)}`) and have the "
        "kubelet ask again"
    )
    return _step(IS_AFTER, _is_after(created, text), compared, BEFORE_READMISSION, frozenset({MACHINE}), change)


def _is_after(created: datetime.datetime, text: str) -> bool:
    try:
        return created > objects.parse_timestamp(text)
    except ValueError:
        return False
