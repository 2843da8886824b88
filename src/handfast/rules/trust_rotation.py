# SPDX-License-Identifier: Apache-2.0
"""Replacing a CA, or the key of service account tokens, step by step: what comes next, what it waits for, and the way back.

It touches no file and asks nobody. `datadir.rotation.sequence` begins and finishes each step, and keeps the `State` on
disk. `datadir.rotation.steps` has what a step changes. The roots of the mesh are replaced by the same state, and by waits of their own:
see `rules.mesh.anchor_rotation`.

| step    | does                                                            | begins only when                              |
|---------|-----------------------------------------------------------------|-----------------------------------------------|
| add     | makes the new one, and has it trusted beside the old one        | -                                             |
| publish | sees to it that everyone is told of both                        | -                                             |
| switch  | signs with the new one                                          | clients have had time to learn of it (1)      |
| reissue | issues the control plane's own certificates anew (a CA only)    | -                                             |
| retire  | trusts the old one no longer, and forgets its key               | nothing depends on it any more (2, 3, 4)      |

1. `PUBLICATION_TIME` after the last publication: clients look once an hour.
2. A CA: every holder of a certificate that it signed, by the ledger, has a newer one, or the certificate has expired. Where
   there is no ledger, the longest lifetime has passed since it signed last.
3. The ledger shows what was issued, not what was received. So a node counts as renewed if two things hold: its newer
   certificate is `RECEIPT_TIME` old, because a node that lacks it asks again within that time; and it runs, because one that is
   off would be locked out.
4. A token key: the longest lifetime of a token has passed since it signed last, and no token in a Secret is signed by it.
5. A step is written down before it begins, and once it is done. One that was begun and not done is done again.
6. Until `retire` begins, there is a way back. Before the switch, the new one is simply dropped. After it the two change
   places: sign with the old one again, and in the end retire the new one. Nothing that was issued in between is refused.
7. Who signed when is kept, so that certificates are counted for the right CA. Around a switch, both count.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.rules import user_names
from handfast.rules.ledger import entries as ledger_entries

# 1. how long clients take to learn of a new one
PUBLICATION_TIME: Final = datetime.timedelta(hours=2)
# 3. how long a node takes to receive what was issued
RECEIPT_TIME: Final = datetime.timedelta(hours=1)
_NODE: Final = f"CN={user_names.NODE_PREFIX}"
# 7. how far the instants in the ledger and that of the switch may be apart
_SWITCH_MARGIN: Final = datetime.timedelta(minutes=1)
_VERSION: Final = 1
# The reason of a refusal: what was read is no state.
BAD_STATE: Final = "BadRotationState"
_HINT: Final = "restore it from a backup; without it nobody knows which keys are in use"


class Target(enum.StrEnum):
    """What is replaced."""

    CA = "ca"
    TOKEN_KEY = "service-account-key"  # noqa: S105 - what is replaced
    MESH = "mesh-anchors"


class Step(enum.StrEnum):
    """The rows of the table, and `drop`: the way back before the switch."""

    ADD = "add"
    PUBLISH = "publish"
    SWITCH = "switch"
    REISSUE = "reissue"
    RETIRE = "retire"
    DROP = "drop"


STEPS: Final[Mapping[Target, tuple[Step, ...]]] = {
    Target.CA: (Step.ADD, Step.PUBLISH, Step.SWITCH, Step.REISSUE, Step.RETIRE),
    Target.TOKEN_KEY: (Step.ADD, Step.PUBLISH, Step.SWITCH, Step.RETIRE),
    # Those who learn of both say so: nothing is to be published beside that.
    Target.MESH: (Step.ADD, Step.SWITCH, Step.RETIRE),
}
COMMANDS: Final[Mapping[Target, str]] = {
    Target.CA: "handfast ca rotate",
    Target.TOKEN_KEY: "handfast ca rotate --service-account-key",
    Target.MESH: "handfast mesh anchors rotate",
}
# What a data directory has.
OF_DIRECTORY: Final = (Target.CA, Target.TOKEN_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One rotation. `old` and `new` are fingerprints (a CA's certificate) or key ids; `new` is empty until it is made.

    `done` holds the steps that are done, with their instants; `doing` the one that was begun. `signers` has who signs since
    when; the one that signed before the rotation has no instant. `undoing`: on the way back (6).
    """

    target: Target
    old: str
    new: str = ""
    undoing: bool = False
    doing: Step | None = None
    done: tuple[tuple[Step, datetime.datetime], ...] = ()
    signers: tuple[tuple[str, datetime.datetime | None], ...] = ()

    @property
    def staying(self) -> str:
        return self.old if self.undoing else self.new

    @property
    def leaving(self) -> str:
        return self.new if self.undoing else self.old

    @property
    def next(self) -> Step:
        """What was begun, else the first step that is not done."""
        if self.doing is not None:
            return self.doing
        finished = {step for step, _ in self.done}
        return next((step for step in STEPS[self.target] if step not in finished), Step.RETIRE)

    def done_at(self, step: Step) -> datetime.datetime | None:
        """When a step was done."""
        return dict(self.done).get(step)

    @property
    def switched(self) -> datetime.datetime | None:
        """When the one that stays began to sign; None while it does not."""
        signer, since = self.signers[-1] if self.signers else (self.old, None)
        return since if signer == self.staying else None


# --- waiting


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step does not begin yet; `until` is when it will at the latest, if that can be told."""

    sentence: str
    until: datetime.datetime | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call.

    `did` and `actions`: the step that was done, and what it did. `next` and `waits`: the next step, and why it does not begin
    yet. `next` is None when the rotation is over. `tried` is whether nothing was done, and all of it is what would be.
    """

    did: Step | None = None
    actions: tuple[str, ...] = ()
    next: Step | None = None
    waits: tuple[Wait, ...] = ()
    tried: bool = False


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What only the world knows. `entries` is the ledger; None: there is none.

    `longest_lifetime` is the longest that anything lives which the leaving one signed: a certificate of the CA, or a token.
    `old_tokens` are the Secrets that hold a token of another key than the one that stays.
    """

    entries: Sequence[ledger_entries.Entry] | None = None
    running_nodes: frozenset[str] = frozenset()
    longest_lifetime: datetime.timedelta = datetime.timedelta()
    old_tokens: Sequence[str] = ()


def waits(state: State, observed: Observed, now: datetime.datetime) -> tuple[Wait, ...]:
    """What the next step waits for; nothing: it may begin. A step that was begun does not wait again."""
    if state.doing is not None:
        return ()
    if state.next is Step.SWITCH:
        return _waits_for_clients(state, now)
    if state.next is Step.RETIRE:
        return (
            _waits_for_renewals(state, observed, now)
            if state.target is Target.CA
            else _waits_for_tokens(state, observed, now)
        )
    return ()


def _waits_for_clients(state: State, now: datetime.datetime) -> tuple[Wait, ...]:
    # 1. clients have had time to learn of it; on the way back both have been known all along
    published = state.done_at(Step.PUBLISH)
    if state.undoing or state.signers or published is None or now >= published + PUBLICATION_TIME:
        return ()
    until = published + PUBLICATION_TIME
    return (Wait(sentence=f"clients learn of it within two hours: until {objects.timestamp(until)}", until=until),)


def _waits_for_renewals(state: State, observed: Observed, now: datetime.datetime) -> tuple[Wait, ...]:
    # 2. every holder has a newer certificate, and 3. has received it
    if observed.entries is None:
        return _waits_for_lifetime(state, observed, now, "there is no ledger that tells who holds its certificates")
    not_renewed, unsure = outstanding(state, observed.entries, observed.running_nodes, now)
    reasons = (
        (not_renewed, "in use and not renewed yet"),
        (unsure, "renewed, but the node may lack the new one: that is not an hour old, or the node does not run"),
    )
    return tuple(_wait_of_holders(entries, why) for entries, why in reasons if entries)


def _wait_of_holders(entries: Sequence[ledger_entries.Entry], why: str) -> Wait:
    names = sorted({entry.names[0] if entry.names else entry.serial for entry in entries})
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    last = max(entry.not_after for entry in entries)
    count = "1 certificate of the old CA is" if len(entries) == 1 else f"{len(entries)} certificates of the old CA are"
    return Wait(sentence=f"{count} {why}; the last ends {objects.timestamp(last)}: {shown}", until=last)


def outstanding(
    state: State, entries: Iterable[ledger_entries.Entry], running_nodes: frozenset[str], now: datetime.datetime
) -> tuple[list[ledger_entries.Entry], list[ledger_entries.Entry]]:
    """Unexpired certificates that the leaving CA may have signed.

    First those whose holder has no newer one (2), then those whose holder may not have received it (3).
    """
    newest: dict[tuple[str, tuple[str, ...]], datetime.datetime] = {}
    of_leaving = []
    for entry in entries:
        if state.leaving in signers_at(state, entry.issued_at):
            of_leaving.append(entry)
        else:
            key = (entry.signer, entry.names)
            newest[key] = max(newest.get(key, entry.issued_at), entry.issued_at)
    not_renewed, unsure = [], []
    for entry in of_leaving:
        renewed_at = newest.get((entry.signer, entry.names))
        if entry.not_after <= now:
            continue
        if renewed_at is None or renewed_at < entry.issued_at:
            not_renewed.append(entry)
        elif not _received(entry, renewed_at, running_nodes, now):
            unsure.append(entry)
    return not_renewed, unsure


def _received(
    entry: ledger_entries.Entry, renewed_at: datetime.datetime, running_nodes: frozenset[str], now: datetime.datetime
) -> bool:
    # 3. a node that has received it; people who ask for a certificate look at what they get
    name = entry.names[0] if entry.names else ""
    if not name.startswith(_NODE):
        return True
    return now - renewed_at >= RECEIPT_TIME and name.removeprefix(_NODE) in running_nodes


def _waits_for_tokens(state: State, observed: Observed, now: datetime.datetime) -> tuple[Wait, ...]:
    # 4. no token of the old key is in use
    waiting = list(_waits_for_lifetime(state, observed, now, "tokens that the old key signed may live that long"))
    if observed.old_tokens:
        shown = ", ".join(observed.old_tokens[:10])
        more = f" and {len(observed.old_tokens) - 10} more" if len(observed.old_tokens) > 10 else ""
        sentence = (
            f"tokens in Secrets do not expire, and these are signed by the old key: {shown}{more}; remove data.token from "
            "each, and it is filled in anew"
        )
        waiting.append(Wait(sentence=sentence))
    return tuple(waiting)


def _waits_for_lifetime(state: State, observed: Observed, now: datetime.datetime, why: str) -> tuple[Wait, ...]:
    until = (state.switched or now) + observed.longest_lifetime
    return () if now >= until else (Wait(sentence=f"{why}: until {objects.timestamp(until)}", until=until),)


# --- what is written down of a step, and the way back


def begin(state: State, step: Step, now: datetime.datetime) -> State:
    """What is written before a step begins (5)."""
    begun = dataclasses.replace(state, doing=step)
    if step is not Step.SWITCH:
        return begun
    # 7. a switch that is done again counts from now: nobody knows when the first attempt ended
    again = bool(state.signers) and state.signers[-1][0] == state.staying
    before = state.signers[:-1] if again else state.signers
    return dataclasses.replace(begun, signers=(*(before or ((state.leaving, None),)), (state.staying, now)))


def finish(state: State, step: Step, now: datetime.datetime) -> State:
    """What is written when a step is done (5)."""
    others = tuple(pair for pair in state.done if pair[0] is not step)
    return dataclasses.replace(state, doing=None, done=(*others, (step, now)))


def undo(state: State) -> State:
    """The way back (6); Refused where there is none."""
    if state.doing is Step.RETIRE:
        raise errors.Refused(
            f"there is no way back: retiring {state.leaving[:16]} has begun",
            reason="TooLate",
            hint=f"finish it with `{COMMANDS[state.target]}`, and begin another rotation if need be",
        )
    if not state.signers:
        return dataclasses.replace(state, undoing=True, doing=Step.DROP)
    kept = tuple(pair for pair in state.done if pair[0] in {Step.ADD, Step.PUBLISH})
    return dataclasses.replace(state, undoing=not state.undoing, doing=None, done=kept)


# --- who signed when


def signers_at(state: State, instant: datetime.datetime) -> frozenset[str]:
    """Who may have signed at this instant: one, or two around a switch (7)."""
    signers: set[str] = set()
    spans = state.signers or ((state.leaving, None),)
    for index, (signer, since) in enumerate(spans):
        ends = spans[index + 1][1] if index + 1 < len(spans) else None
        if (since is None or since - _SWITCH_MARGIN <= instant) and (ends is None or instant <= ends + _SWITCH_MARGIN):
            signers.add(signer)
    return frozenset(signers)


# --- the written form


def encode(state: State) -> bytes:
    """JSON, for people, too."""
    # The words of the first release: `what` is target, `turned` is undoing, `signed` is signers.
    document = {
        "version": _VERSION,
        "what": state.target,
        "old": state.old,
        "new": state.new,
        "turned": state.undoing,
        "doing": state.doing,
        "done": [[step, at.isoformat()] for step, at in state.done],
        "signed": [[signer, None if since is None else since.isoformat()] for signer, since in state.signers],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def decode(data: bytes) -> State:
    """The inverse of `encode`; anything else is refused, since a guess could retire the wrong one."""
    try:
        document = json.loads(data)
        state = State(
            target=Target(document["what"]),
            old=_text(document["old"]),
            new=_text(document["new"]),
            undoing=document["turned"] is True,
            doing=None if document["doing"] is None else Step(document["doing"]),
            done=tuple((Step(step), _instant(at)) for step, at in document["done"]),
            signers=tuple((_text(signer), None if at is None else _instant(at)) for signer, at in document["signed"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        state = None
    if state is None or encode(state) != data:
        raise errors.Refused("this is not the state of a rotation", reason=BAD_STATE, hint=_HINT)
    return state


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _instant(value: Any) -> datetime.datetime:
    instant = datetime.datetime.fromisoformat(_text(value))
    if instant.tzinfo is None:
        raise ValueError
    return instant
