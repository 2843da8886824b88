# SPDX-License-Identifier: Apache-2.0
"""Whom a mesh trusts and who signs, with their clocks, and how far the replacement of its root is: for the console. It looks nothing up.

The console never holds a private key: everything here is read off certificates. So it is not said whether the key fits, or whether what it signs is believed.
`handfast mesh check` says that.

1. A root signs if the issuer's certificate leads to it, by its signatures.
2. How near an end is, is judged as `handfast mesh check` judges it (`rules.mesh.expiry`).
3. A rotation is shown by its three steps, with when each was done, and with what the next one waits for (`rules.mesh.anchor_waits`): who lags is named there.
4. A record that cannot be read is told, and hides nothing else.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.pki import certificates, pem
from handfast.rules import trust_rotation
from handfast.rules.mesh import anchor_rotation, anchor_waits, believers, expiry, issuer

ROTATE: Final = trust_rotation.COMMANDS[trust_rotation.Target.MESH]
_WORDS: Final[Mapping[expiry.Stage, str]] = {
    expiry.Stage.FAR: "good",
    expiry.Stage.SOON: "ends soon",
    expiry.Stage.URGENT: "urgent",
    expiry.Stage.OVER: "expired",
}
EARLY: Final = "not yet valid"
_ABOUT: Final[Mapping[trust_rotation.Step, str]] = {
    trust_rotation.Step.ADD: "the new root is trusted beside the old one",
    trust_rotation.Step.SWITCH: "the other issuer signs",
    trust_rotation.Step.RETIRE: "the root that signs no more is trusted no longer",
    trust_rotation.Step.DROP: "the new root, which has signed nothing, is trusted no longer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A certificate and its life: `used` is the part of it that is over, from 0 to 100, and `state` a word for how near the end is."""

    subject: str
    fingerprint: str
    begins: datetime.datetime
    ends: datetime.datetime
    state: str
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A root, and who has to do with it: Pods with an agent, and without, that believe it, and how many certificates in force lead to it."""

    clock: Clock
    signs: bool
    agents: int
    stock: int
    holders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a rotation: `state` is `done`, `next` or `later`."""

    name: str
    about: str
    state: str
    at: datetime.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How far a rotation is (3). `back` is empty where there is no way back any more."""

    steps: tuple[Step, ...]
    waits: tuple[str, ...]
    undoing: bool
    command: str
    back: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """All of it. `problems` are sentences on what cannot be read, or signs nothing."""

    roots: tuple[Root, ...] = ()
    issuer: Clock | None = None
    agents: int = 0
    stock: int = 0
    unknown: int = 0
    rotation: Rotation | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is stored, without keys: anchors and issuer in PEM, None where it may not be read; and the parts of the rotation's record."""

    anchors: bytes | None = None
    issuer: bytes | None = None
    record: Mapping[str, bytes] | None = None


def trust(stored: Stored, known: believers.Known, now: datetime.datetime) -> Trust:
    """What is there."""
    problems: list[str] = []
    anchors = _anchors(stored.anchors, problems)
    chain = _chain(stored.issuer, problems)
    record, sides = _record(stored.record, problems)
    root_of = _signers(anchors, [*sides, chain])
    counts = believers.counted(known)
    signs = root_of.get(_tag(chain)) if chain else None
    if chain and anchors and signs is None:
        problems.append("the issuer leads to none of the trust anchors: what it signs is believed by nobody")
    kinds = [each.kind is believers.Kind.AGENT for each in known.believers]
    return Trust(
        roots=tuple(_root(anchor, signs, root_of, counts, known, now) for anchor in anchors),
        issuer=clock(chain[0], now) if chain else None,
        agents=sum(kinds),
        stock=len(kinds) - sum(kinds),
        unknown=sum(count for tag, count in counts.items() if tag not in root_of),
        rotation=None if record is None else _rotation(record, known, now),
        problems=tuple(problems),
    )


def variables(stored: Stored) -> dict[str, str]:
    """What Pods have in their variables, by the digest that the injector writes beside it: the anchors of today, and those of before a rotation's last step.

    So the variables themselves, among which are those of applications, need not be read. Of other digests nobody knows the anchors.
    """
    today = _anchors(stored.anchors, [])
    record, _ = _record(stored.record, [])
    sides = () if record is None else (record.old, record.new)
    gone: list[set[str]] = [
        set(),
        *({root.fingerprint for root in anchor_rotation.roots_of(side).anchors} for side in sides),
    ]
    pems = [
        pem.certificates_to_pem([each.der for each in today if each.fingerprint not in without]) for without in gone
    ]
    return {hashlib.sha256(each).hexdigest(): base64.b64encode(each).decode() for each in pems if each}


def _anchors(data: bytes | None, problems: list[str]) -> Sequence[certificates.Certificate]:
    try:
        return () if data is None else issuer.read_anchors(data).anchors
    except errors.Refused as refused:
        problems.append(f"the trust anchors cannot be used: {refused.message}")
        return ()


def _chain(data: bytes | None, problems: list[str]) -> list[certificates.Certificate]:
    try:
        return [] if data is None else [certificates.read(der) for der in pem.certificates_from_pem(data)]
    except errors.Refused as refused:
        problems.append(f"the issuer's certificate cannot be read: {refused.message}")
        return []


_Chains = list[list[certificates.Certificate]]


def _record(data: Mapping[str, bytes] | None, problems: list[str]) -> tuple[anchor_rotation.Record | None, _Chains]:
    """The record, and the issuers of both sides."""
    if data is None:
        return None, []
    # 4. told, and no more than that
    try:
        record = anchor_rotation.decode(data)
        sides = (record.old, record.new)
        for side in sides:
            anchor_rotation.roots_of(side)
        return record, [
            [certificates.read(der) for der in pem.certificates_from_pem(side.certificate)] for side in sides
        ]
    except errors.Refused as refused:
        problems.append(f"how far the rotation is cannot be read: {refused.message}")
        return None, []


def _signers(anchors: Sequence[certificates.Certificate], chains: _Chains) -> dict[str, str]:
    """Each issuer that is known, by its tag, with the root that it leads to."""
    pairs = [(_tag(each), leads_to(each, anchors)) for each in chains if each]
    return {tag: root.fingerprint for tag, root in pairs if root is not None}


def _tag(chain: Sequence[certificates.Certificate]) -> str:
    return anchor_rotation.tag_of(chain[0].fingerprint)


def leads_to(
    chain: Sequence[certificates.Certificate], anchors: Sequence[certificates.Certificate]
) -> certificates.Certificate | None:
    """The root that a chain leads to (1): of each certificate in it, the next one has signed it, until a root has."""
    for at, each in enumerate(chain):
        for anchor in anchors:
            if each.der == anchor.der or _signed(each, anchor):
                return anchor
        # 1. by its signatures
        if at + 1 < len(chain) and not _signed(each, chain[at + 1]):
            return None
    return None


def _signed(certificate: certificates.Certificate, signer: certificates.Certificate) -> bool:
    try:
        certificates.require_signed_by(certificate, signer)
    except errors.Refused:
        return False
    return True


def clock(certificate: certificates.Certificate, now: datetime.datetime) -> Clock:
    """The life of a certificate (2)."""
    life = certificate.not_after - certificate.not_before
    share = (now - certificate.not_before) / life if life else 1.0
    early = now < certificate.not_before
    return Clock(
        subject=str(certificate.subject),
        fingerprint=certificate.fingerprint,
        begins=certificate.not_before,
        ends=certificate.not_after,
        # 2. as the check judges it
        state=EARLY if early else _WORDS[expiry.stage(certificate, now)],
        used=round(100 * min(1.0, max(0.0, share))),
    )


def _root(
    anchor: certificates.Certificate,
    signs: str | None,
    root_of: Mapping[str, str],
    counts: Mapping[str, int],
    known: believers.Known,
    now: datetime.datetime,
) -> Root:
    own = anchor.fingerprint
    believing = [each.kind is believers.Kind.AGENT for each in known.believers if own in each.roots]
    return Root(
        clock=clock(anchor, now),
        signs=own == signs,
        agents=sum(believing),
        stock=len(believing) - sum(believing),
        holders=sum(counts.get(tag, 0) for tag, root in root_of.items() if root == own),
    )


def _rotation(record: anchor_rotation.Record, known: believers.Known, now: datetime.datetime) -> Rotation:
    state = record.state
    done = dict(state.done)
    undone_before_switch = state.next is trust_rotation.Step.DROP
    steps = (
        (trust_rotation.Step.ADD, trust_rotation.Step.DROP)
        if undone_before_switch
        else trust_rotation.STEPS[trust_rotation.Target.MESH]
    )
    rows = tuple(
        Step(
            name=str(step),
            about=_ABOUT[step],
            state="next" if step is state.next else "done" if step in done else "later",
            at=done.get(step),
        )
        for step in steps
    )
    # 3. who lags
    waits = tuple(wait.sentence for wait in anchor_waits.waits(record, known, now))
    last = state.doing in anchor_rotation.LAST
    return Rotation(
        steps=rows, waits=waits, undoing=state.undoing, command=ROTATE, back="" if last else f"{ROTATE} --undo"
    )
