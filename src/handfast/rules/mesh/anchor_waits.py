# SPDX-License-Identifier: Apache-2.0
"""What the next step of replacing the mesh's root waits for, in sentences that name who is waited for. Which step that is, `anchor_rotation` says.

It looks nothing up: who believes whom is read by `believers`.

1. The switch, and the end, wait for everybody: each Pod with an identity believes the root that stays. An agent that reports has acknowledged it. A stock proxy has it
   in its variables. One of which nothing is known does not.
2. The end waits until nobody depends on the old root: each certificate in force is signed by the issuer that stays.
3. `NOTICE_TIME` has passed since the step before: who injects Pods, and who signs, has noticed.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from handfast.api import objects
from handfast.rules import trust_rotation
from handfast.rules.mesh import anchor_rotation as rotation
from handfast.rules.mesh import believers

Step = trust_rotation.Step
# 3. how long those who inject and those who sign take to notice
NOTICE_TIME: Final = datetime.timedelta(seconds=5)
_SHOWN: Final = 10


def waits(record: rotation.Record, known: believers.Known, now: datetime.datetime) -> tuple[trust_rotation.Wait, ...]:
    """What the next step waits for; nothing: it may begin. One that was begun does not wait again."""
    state = record.state
    if state.doing is not None or state.next not in {Step.SWITCH, Step.RETIRE}:
        return ()
    reasons = [*_unbelieving(record, known)]
    if state.next is Step.RETIRE:
        reasons += _dependent(record, known)
    before, word = (Step.ADD, "injects Pods") if state.next is Step.SWITCH else (Step.SWITCH, "signs")
    return (*_noticing(state.done_at(before), word, now), *reasons)


def _noticing(done: datetime.datetime | None, who: str, now: datetime.datetime) -> list[trust_rotation.Wait]:
    # 3. some seconds for who follows the objects
    until = None if done is None else done + NOTICE_TIME
    if until is None or now >= until:
        return []
    return [
        trust_rotation.Wait(sentence=f"who {who} notices within seconds: until {objects.timestamp(until)}", until=until)
    ]


def _unbelieving(record: rotation.Record, known: believers.Known) -> list[trust_rotation.Wait]:
    # 1. the root that stays
    wanted = {anchor.fingerprint for anchor in rotation.roots_of(record.staying).anchors}
    lacking = [each for each in known.believers if not wanted <= each.roots]
    side = "old" if record.state.undoing else "new"
    texts = {
        believers.Kind.AGENT: ("agent", f"the {side} root is not acknowledged by {{}}: {{}}"),
        believers.Kind.STOCK: (
            "Pod",
            f"the {side} root is not in the variables of {{}} without an agent; start again: {{}}",
        ),
        believers.Kind.UNKNOWN: ("Pod", "nobody knows whom {} with a certificate and without an agent believes: {}"),
    }
    sentences = []
    for kind, (noun, text) in texts.items():
        pods = [each.pod for each in lacking if each.kind is kind]
        if pods:
            sentences.append(text.format(f"{len(pods)} {noun}{'' if len(pods) == 1 else 's'}", several(pods)))
    return [trust_rotation.Wait(sentence=sentence) for sentence in sentences]


def _dependent(record: rotation.Record, known: believers.Known) -> list[trust_rotation.Wait]:
    # 2. every certificate in force is of the one that stays
    tag = rotation.tag_of(record.state.staying)
    ends = {each.pod: each.until for each in known.believers if each.until is not None and each.signers - {tag}}
    ends |= {each.name: each.until for each in known.loose if each.signer != tag}
    if not ends:
        return []
    last = max(ends.values())
    count = "1 has" if len(ends) == 1 else f"{len(ends)} have"
    side = "new" if record.state.undoing else "old"
    sentence = (
        f"{count} a certificate of the {side} issuer; the last ends {objects.timestamp(last)}: {several(list(ends))}"
    )
    return [trust_rotation.Wait(sentence=sentence, until=last)]


def keep_believing(record: rotation.Record, known: believers.Known) -> tuple[str, ...]:
    """Pods that go on believing a root that leaves, until they are started again: their variables have it, and nobody tells them otherwise."""
    leaving = {anchor.fingerprint for anchor in rotation.roots_of(record.leaving).anchors}
    leaving -= {anchor.fingerprint for anchor in rotation.roots_of(record.staying).anchors}
    return tuple(each.pod for each in known.believers if each.kind is not believers.Kind.AGENT and each.roots & leaving)


def several(words: Sequence[str]) -> str:
    """The first of them by name, and how many more there are."""
    rows = sorted(words)
    return ", ".join(rows[:_SHOWN]) + (f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "")
