# SPDX-License-Identifier: Apache-2.0
"""How far a machine has come on its way to being a node, and what to do where it stands still.

It decides nothing: `machines.approval` judges requests. The caller brings what it looked up.

The way has seven stages, in this order. The first that is not done is the one that needs something; those after it wait.

1. Known: exactly one Machine has its name, and it has an InternalDNS name and addresses.
2. Credential: a bootstrap credential counts in the cluster.
3. Asked: there is, or was, a request for its node name.
4. Judged: that request was approved.
5. Issued: the ledger has a certificate of that name, or the request has it.
6. Registered: there is a Node of that name.
7. Linked: the Machine names that Node.

A machine that is linked has gone all the way, whichever of its traces are left: requests are deleted within a day, and the
ledger is kept for a while only.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.api import signing_requests
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.machines import approval, inventory, revocation

KNOWN: Final = "known"
CREDENTIAL: Final = "credential"
ASKED: Final = "asked"
JUDGED: Final = "judged"
ISSUED: Final = "issued"
REGISTERED: Final = "registered"
LINKED: Final = "linked"

DONE: Final = "done"
WAITS: Final = "waits"
LATER: Final = "later"
# How many names of requests are shown.
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: whether it is done, what was seen, and what to do if it needs something."""

    name: str
    state: str
    sentence: str
    change: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked up. `requests` are those for the node's name, the newest first; `verdict` is of the newest."""

    machine: inventory.Machine
    # Others with the same InternalDNS name.
    rivals: Sequence[inventory.Machine] = ()
    # Which bootstrap credentials count: words for people.
    credentials: Sequence[str] = ()
    requests: Sequence[signing_requests.Request] = ()
    verdict: approval.Verdict | None = None
    # The newest certificate of the node in the ledger.
    issued: ledger_entries.Entry | None = None
    node_exists: bool = False
    node_created: str = msgspec.field(default="")


# What was seen, and what to do; nothing to do: the stage is done.
_Seen = tuple[str, str]


def node_name(machine: inventory.Machine) -> str:
    """The name that the machine's node has to have; empty where the Machine does not say."""
    return next((text.lower().removesuffix(".") for text in machine.texts(inventory.INTERNAL_DNS) if text), "")


def walk(facts: Facts) -> tuple[Stage, ...]:
    """The seven stages."""
    seen = {
        KNOWN: _known(facts),
        CREDENTIAL: _credential(facts),
        ASKED: _asked(facts),
        JUDGED: _judged(facts),
        ISSUED: _issued(facts),
        REGISTERED: _registered(facts),
        LINKED: _linked(facts),
    }
    stages: list[Stage] = []
    is_through = bool(facts.machine.node)
    stuck = False
    for name, (sentence, change) in seen.items():
        if not change or (is_through and name != LINKED):
            stages.append(Stage(name, DONE, sentence))
        elif stuck:
            stages.append(Stage(name, LATER, sentence))
        else:
            stages.append(Stage(name, WAITS, sentence, change))
            stuck = True
    return tuple(stages)


def _known(facts: Facts) -> _Seen:
    machine, name = facts.machine, node_name(facts.machine)
    if not name:
        change = f"give {machine.title} an address of type {inventory.INTERNAL_DNS}: the name that its node will have"
        return f"{machine.title} has no InternalDNS name", change
    if facts.rivals:
        titles = ", ".join(each.title for each in facts.rivals)
        return (
            f'{machine.title} has the InternalDNS name "{name}", and so has {titles}: none of them counts',
            f'leave the InternalDNS name "{name}" to one of them',
        )
    if machine.deleting or machine.phase == inventory.FAILED:
        state = "is being deleted" if machine.deleting else "has failed"
        return f"{machine.title} {state}", "make another Machine"
    return f'{machine.title} has the InternalDNS name "{name}"', ""


def _credential(facts: Facts) -> _Seen:
    if facts.credentials:
        return f"these count: {', '.join(facts.credentials)}", ""
    return (
        "no bootstrap credential counts",
        (
            "run the node-bootstrapper-token controller, which makes the workers' one (`handfast up --machines`), or make one for "
            "masters with `handfast machine credentials create`"
        ),
    )


def _asked(facts: Facts) -> _Seen:
    if facts.requests:
        newest = facts.requests[0]
        count = len(facts.requests)
        also = f", the newest of {count}" if count > 1 else ""
        waiting = [each.metadata.name for each in facts.requests[1:] if revocation.is_pending(each)]
        others = f"; these wait, too: {', '.join(waiting[:_SHOWN])}" if waiting else ""
        more = ", …" if len(waiting) > _SHOWN else ""
        return f"request {newest.metadata.name} of {newest.metadata.creation_timestamp}{also}{others}{more}", ""
    if facts.issued is not None:
        return "its request was cleaned up", ""
    return (
        "no request for its node name has come",
        (
            "start its kubelet with the bootstrap kubeconfig, and see there whether it reaches the API server and is called "
            f'"{node_name(facts.machine)}"'
        ),
    )


def _judged(facts: Facts) -> _Seen:
    if not facts.requests:
        return ("approved, as the ledger shows", "") if facts.issued is not None else ("nothing to judge", _AFTER)
    newest = facts.requests[0]
    for kind, word in ((signing_requests.APPROVED, "approved"), (signing_requests.DENIED, "denied")):
        condition = newest.condition(kind)
        if condition is not None:
            said = f"{word} ({condition.reason}): {condition.message}"
            return said, "" if kind == signing_requests.APPROVED else "a denial is final: have the kubelet ask again"
    failed = None if facts.verdict is None else facts.verdict.failed
    if facts.verdict is None or failed is None:
        name = shlex.quote(newest.metadata.name)
        return "not judged yet", f"see whether the machine-approver runs, and what `handfast csr explain {name}` says"
    return f"waits: {failed.check.name}: {failed.check.compared}", facts.verdict.change or "approve it by hand"


def _issued(facts: Facts) -> _Seen:
    if facts.issued is not None:
        return f"serial {facts.issued.serial}, until {facts.issued.not_after:%Y-%m-%dT%H:%M:%SZ}", ""
    if facts.requests and facts.requests[0].status.certificate:
        return "the request has its certificate", ""
    return "no certificate in its name is on record", "see whether the signing controller runs"


def _registered(facts: Facts) -> _Seen:
    name = node_name(facts.machine)
    if facts.node_exists:
        since = f", since {facts.node_created}" if facts.node_created else ""
        return f'there is a Node "{name}"{since}', ""
    return f'there is no Node "{name}"', "see on the machine why its kubelet does not register"


def _linked(facts: Facts) -> _Seen:
    if facts.machine.node:
        return f'linked to the Node "{facts.machine.node}"', ""
    return (
        "linked to no Node",
        "see whether the node-link controller runs, and whether the Node has the Machine's provider id or InternalIP",
    )


_AFTER: Final = "it comes with the request"
