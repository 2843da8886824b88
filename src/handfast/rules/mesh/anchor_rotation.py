# SPDX-License-Identifier: Apache-2.0
"""Replacing the root of the mesh step by step: what comes next, what it waits for, what it writes, and the way back.

It writes nothing and asks nobody: `client.mesh_anchor_rotation` does. The steps, and what is written down of them, are those of `rules.trust_rotation`.
What a step waits for is decided by `anchor_waits`.

| step   | writes                                                            | begins only when                                        |
|--------|-------------------------------------------------------------------|---------------------------------------------------------|
| add    | the new root into the trust anchors, beside the old one           | -                                                       |
| switch | the new issuer into the issuer's Secret, and that agents renew    | everybody is known to believe the new root              |
| retire | the trust anchors without the old root                            | nobody depends on the old root                          |
| drop   | the trust anchors without the new root: the way back before switch | -                                                       |

1. What is new is judged before anything is written: roots that can be anchors, an issuer that passes every check under these roots alone, and keys that the
   mesh does not have already [RootInUse, IssuerInUse, TooManyAnchors, and the reasons of `issuer`].
2. Everything that is needed for every step, forward and back, is in the record before the first step: it survives whoever runs this.
3. A step is written down before it begins, and once it is done. One that was begun is done again. Every write may be made twice.
4. Until `retire` begins there is a way back (`trust_rotation.undo`). Both roots are believed all the while, so that nothing that was issued in between is refused.
5. What somebody else changed meanwhile stops the rotation, before anything is written [MeshChangedMeanwhile]. An issuer that was put back is switched once more.
6. Nobody's root but the two that are meant is added or taken away.

So at every moment whoever is known believes the issuer that signs: `tests/properties/test_anchor_rotation_properties.py` tries all orders, with a crash after each write.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_anchor_rotation.py |
|---|---|---|---|---|
| an operator in a hurry | `--all` | sign with a root that some agent does not believe | `anchor_waits` | test_the_switch_waits_for_every_agent_by_name |
| … | … | lock out stock proxies, which learn nothing | `anchor_waits` | test_a_stock_proxy_with_the_old_root_alone_holds_up_the_switch_and_the_end |
| … | an issuer of another root | have what it signs refused everywhere | 1 | test_an_issuer_that_is_not_of_the_new_root_is_refused |
| … | the old root, issued again with the same key | take it for a new one | 1 | test_a_root_or_an_issuer_with_a_key_in_use_is_refused |
| who edits the Secret by hand | a broken record | have the wrong root taken away | decode | test_a_damaged_record_is_refused |
| who may write the ConfigMap | another root, put there meanwhile | have it taken away, or approved, by the rotation | 6 | test_roots_of_others_stay |
| a holder of the old root's key | the old root, issued again and put beside | be believed after its end | `bundles`: a key is retired | test_every_certificate_of_a_retired_key_goes |
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.pki import bundles, certificates, pem
from handfast.rules import trust_rotation
from handfast.rules.mesh import certify, control_plane, issuer, names

Step = trust_rotation.Step
# The steps that end a rotation.
LAST: Final = frozenset({Step.RETIRE, Step.DROP})
# What a MeshWorkload says of its agent has room for more.
MOST_ANCHORS: Final = 32
_STATE: Final = "state.json"
_SIDES: Final = ("old", "new")
_PARTS: Final = ("tls.crt", "key.der", "ca-bundle.crt")
_AGAIN: Final = "run handfast mesh anchors rotate again, or go back with --undo"


class Disturbed(errors.Refused):
    """Anchors or issuer are not as the rotation left them (5)."""

    reason = "MeshChangedMeanwhile"


@dataclass(frozen=True, slots=True)
class Record:
    """One rotation: how far it is, and both sides whole: issuer, key and roots (2)."""

    state: trust_rotation.State
    old: issuer.Material
    new: issuer.Material

    @property
    def staying(self) -> issuer.Material:
        return self.old if self.state.undoing else self.new

    @property
    def leaving(self) -> issuer.Material:
        return self.new if self.state.undoing else self.old


class Stored(msgspec.Struct, frozen=True):
    """What the mesh has now: its anchors, and the certificate of its issuer, SHA-256 in hex."""

    anchors: bundles.TrustBundle
    signer: str


# --- what is written, in order


class Note(msgspec.Struct, frozen=True):
    """Write the record."""

    record: Record


class Trust(msgspec.Struct, frozen=True):
    """Have these anchors, and no others, believed; and agents renew what another than `signer` has signed. Empty: none."""

    anchors: bundles.TrustBundle
    signer: str = ""


class Sign(msgspec.Struct, frozen=True):
    """Have this issuer sign."""

    material: issuer.Material


class Forget(msgspec.Struct, frozen=True):
    """Remove the record, with its keys."""


Write = Note | Trust | Sign | Forget


def writes(record: Record, stored: Stored, now: datetime.datetime) -> tuple[Write, ...]:
    """What the next step writes, in order. Who is cut short after any of them begins anew, and comes to the same."""
    step = record.state.next
    _require_undisturbed(record, stored)
    # 3. before, and after
    doing = dataclasses.replace(record, state=trust_rotation.begin(record.state, step, now))
    done = dataclasses.replace(record, state=trust_rotation.finish(doing.state, step, now))
    if step is Step.ADD:
        return Note(doing), Trust(_joined(stored.anchors, record.staying)), Note(done)
    if step is Step.SWITCH:
        renewal = Trust(stored.anchors, tag_of(record.state.staying))
        return Note(doing), Sign(record.staying), renewal, Note(done)
    return Note(doing), Trust(_without(stored.anchors, record)), Forget()


def _joined(anchors: bundles.TrustBundle, material: issuer.Material) -> bundles.TrustBundle:
    return anchors.add(*roots_of(material).ders)


def _without(anchors: bundles.TrustBundle, record: Record) -> bundles.TrustBundle:
    """Without the root that leaves (6); one that both sides have stays."""
    there = [key for key in _leaving_keys(record) if anchors.of_key(key)]
    return anchors.retire(*there) if there else anchors


def _leaving_keys(record: Record) -> tuple[str, ...]:
    """SHA-256 of the key of each root that goes in the end."""
    staying = roots_of(record.staying).anchors
    return tuple(anchor.public_key.fingerprint for anchor in roots_of(record.leaving).anchors if anchor not in staying)


def resumed(record: Record, stored: Stored) -> Record:
    """The record as it is to go on from: an issuer that was put back is switched once more (5)."""
    state = record.state
    if state.next is not Step.RETIRE or state.doing is not None or stored.signer != state.leaving:
        return record
    done = tuple(pair for pair in state.done if pair[0] is not Step.SWITCH)
    return dataclasses.replace(record, state=dataclasses.replace(state, done=done))


def _require_undisturbed(record: Record, stored: Stored) -> None:
    state = record.state
    # 5. one of the two signs, and the one that stays before the other's root goes
    allowed = {state.staying} if state.next in LAST else {state.old, state.new}
    if stored.signer not in allowed:
        raise Disturbed(
            f"the mesh signs with the issuer {stored.signer[:16]}, and not with that of this rotation",
            hint=f"put the issuer {state.staying[:16]} back, then {_AGAIN}",
        )
    # 5. the roots of who signs, and of who is to sign, are believed
    for material in _needed(record):
        for root in roots_of(material).anchors:
            if root not in stored.anchors.anchors:
                raise Disturbed(
                    f"trust anchor {root.subject} is not among those of the mesh: somebody took it away",
                    hint=f"put it back into ConfigMap {control_plane.TRUST_ANCHOR}, then {_AGAIN}",
                )


def _needed(record: Record) -> tuple[issuer.Material, ...]:
    if record.state.next is Step.ADD:
        return (record.leaving,)
    return (record.staying,) if record.state.next in LAST else (record.staying, record.leaving)


# --- what is new


def begun(there: issuer.Material, new: issuer.Material, mesh: names.Mesh, now: datetime.datetime) -> Record:
    """The record of a rotation that begins: from what is stored to what is new (1)."""
    old, coming = issuer.load(there, mesh, now), issuer.load(new, mesh, now)
    if len(coming.anchors.anchors) != 1:
        raise errors.Refused(
            f"there are {len(coming.anchors.anchors)} new roots: one is added at a time",
            reason="OneRoot",
            hint="give the root of the new issuer alone; those that are trusted already stay until the last step",
        )
    _require_other_keys(old, coming)
    if len(old.anchors.anchors) >= MOST_ANCHORS:
        raise errors.Refused(
            f"there are {len(old.anchors.anchors)} trust anchors; with another one, at most {MOST_ANCHORS} are allowed",
            reason="TooManyAnchors",
            hint="take those away that nobody uses, with handfast mesh install --force",
        )
    state = trust_rotation.State(
        target=trust_rotation.Target.MESH, old=old.certificate.fingerprint, new=coming.certificate.fingerprint
    )
    # 2. both sides, whole; 6. of the old roots the one that signs
    before = dataclasses.replace(issuer.stored(there), anchors=pem.certificates_to_pem([_root_of(old).der]))
    return Record(state, before, issuer.stored(new))


def _require_other_keys(old: issuer.Issuer, coming: issuer.Issuer) -> None:
    if coming.certificate.public_key.spki == old.certificate.public_key.spki:
        raise errors.Refused(
            "the new issuer has the key of the one that signs now: nothing would be replaced",
            reason="IssuerInUse",
            hint="make an issuer with a new key",
        )
    (root,) = coming.anchors.anchors
    same = [anchor for anchor in old.anchors.anchors if anchor.public_key.spki == root.public_key.spki]
    # One that is believed already may come to sign, but for the one that does.
    if any(anchor != root or anchor.fingerprint == old.anchor for anchor in same):
        raise errors.Refused(
            f"the new root {root.subject} has the key of one that the mesh trusts already",
            reason="RootInUse",
            hint="make a root with a new key; another issuer below the same root is for handfast mesh install",
        )


def _root_of(loaded: issuer.Issuer) -> certificates.Certificate:
    return next(anchor for anchor in loaded.anchors.anchors if anchor.fingerprint == loaded.anchor)


# --- the way back


def undone(record: Record) -> Record:
    """The first record of the way back (4); Refused where there is none."""
    return dataclasses.replace(record, state=trust_rotation.undo(record.state))


# --- the written form


def encode(record: Record) -> dict[str, bytes]:
    """The data of a Secret, not in base64."""
    data = {_STATE: trust_rotation.encode(record.state)}
    for side, material in zip(_SIDES, (record.old, record.new), strict=True):
        values = (material.certificate, material.key, material.anchors)
        data |= {f"{side}-{part}": value for part, value in zip(_PARTS, values, strict=True)}
    return data


def decode(data: Mapping[str, bytes]) -> Record:
    """The inverse of `encode`; anything else is refused: a guess could take the wrong root away."""
    state = trust_rotation.decode(data.get(_STATE, b""))
    old, new = (issuer.Material(*(data.get(f"{side}-{part}", b"") for part in _PARTS)) for side in _SIDES)
    if state.target is not trust_rotation.Target.MESH or (state.old, state.new) != (signer_of(old), signer_of(new)):
        raise errors.Refused(
            "the record of the rotation and the issuers in it do not belong together",
            reason=trust_rotation.BAD_STATE,
            hint=f"restore Secret {control_plane.ROTATION} from a backup; or delete it, and see handfast mesh anchors show",
        )
    return Record(state, old, new)


def tag_of(fingerprint: str) -> str:
    """As the ledger has an issuer."""
    return fingerprint[: certify.TAG]


def signer_of(material: issuer.Material) -> str:
    """SHA-256 of the issuer's certificate; empty where it cannot be read."""
    try:
        return certificates.fingerprint(pem.certificates_from_pem(material.certificate)[0])
    except errors.Refused:
        return ""


def roots_of(material: issuer.Material) -> bundles.TrustBundle:
    """The roots of one side."""
    return issuer.read_anchors(material.anchors)
