# SPDX-License-Identifier: Apache-2.0
"""Replacing the root of a mesh, on an API without a server: every write cut off, two operators at once, and what is left in the end."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import mesh_anchor_rotation, mesh_trust
from handfast.rules.ledger import entries, segments
from handfast.rules.mesh import anchor_rotation, anchor_waits, control_plane, installation, issuer, settings
from handfast.rules.trust_rotation import Report, Step
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.rules.mesh import rotation_cases as cases
from tests.unit.rules.mesh.rotation_cases import BOTH, NEW, NEW_ROOT, NEW_SIGNER, NOW, OLD, OLD_ROOT, OLD_SIGNER
from tests.world.clock import MovableClock

WRITES = frozenset({"create", "update", "delete"})
SIGNING, ROTATION = ("secrets", "linkerd", control_plane.SIGNING), ("secrets", "linkerd", control_plane.ROTATION)
ANCHORS = ("configmaps", "linkerd", control_plane.TRUST_ANCHOR)


class Killed(Exception):
    """The process is gone."""


class World:
    """A mesh that is installed, and an operator who may be cut off after some writes."""

    def __init__(self) -> None:
        self.api = FakeClient()
        self.clock = MovableClock(NOW)
        for each in (
            *installation.trust("linkerd", OLD, generated=True),
            installation.config("linkerd", settings.Settings()),
        ):
            self.api.put(each.plural, each.name, "linkerd", **_body(each.document))
        self.left = 1000
        self.api.before = self._count

    def _count(self, verb: str, _plural: str, _name: str) -> None:
        if verb in WRITES:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def rotation(self, typed: issuer.Material | None = NEW) -> mesh_anchor_rotation.Rotation:
        return mesh_anchor_rotation.Rotation(self.api, "linkerd", self.clock, typed)

    async def advance(self, **flags: bool) -> Report:
        return await self.rotation().advance(**flags)

    async def later(self) -> None:
        await self.clock.advance(anchor_waits.NOTICE_TIME.total_seconds() + 1)

    def pod(self, *roots: str, signer: str = OLD_SIGNER) -> None:
        """One Pod with an agent that has acknowledged these roots, and has its certificate of this issuer."""
        document, entry = cases.pod(), cases.entry(signer=signer, lives=48 * cases.HOUR)
        self.api.put("pods", "web-1", "shop", **{**document, "metadata": {**document["metadata"]}})
        self.api.objects["pods", "shop", "web-1"]["metadata"] |= document["metadata"]
        workload = cases.workload("web-1", *roots, certificate=entry.certificate)
        self.api.put("meshworkloads", "web-1", "shop", status=workload["status"])
        self.api.objects["meshworkloads", "shop", "web-1"]["metadata"] |= workload["metadata"]
        segment = segments.extended(segments.following(None, segments.MESH), [entries.encode(entry)])
        self.api.put("issuancelogs", segment.name, spec=segments.spec_of(segment))

    @property
    def anchors(self) -> set[str]:
        text = self.api.objects[ANCHORS]["data"][control_plane.ANCHORS_KEY]
        return {anchor.fingerprint for anchor in issuer.read_anchors(text.encode()).anchors}

    @property
    def told(self) -> str:
        """Who agents are told is to have signed."""
        return str((self.api.objects[ANCHORS]["metadata"].get("annotations") or {}).get(installation.SIGNER, ""))

    @property
    def signer(self) -> str:
        data = self.api.objects[SIGNING]["data"]
        material = issuer.Material(base64.b64decode(data["tls.crt"]), b"", b"")
        return anchor_rotation.signer_of(material)

    @property
    def rotating(self) -> bool:
        return ROTATION in self.api.objects


def _body(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key in {"data", "type"}}


@pytest.fixture
def world() -> World:
    return World()


async def refused(work: Any) -> errors.HandfastError:
    with pytest.raises(errors.HandfastError) as caught:
        await work
    return caught.value


async def test_a_whole_rotation_waits_before_each_step_and_leaves_the_new_root(world):
    world.pod(OLD_ROOT)
    report = await world.advance()
    assert (report.did, report.next) == (Step.ADD, Step.SWITCH)
    assert (world.anchors, world.signer) == ({OLD_ROOT, NEW_ROOT}, OLD_SIGNER)
    await world.later()
    report = await world.advance()
    assert report.did is None
    assert [wait.sentence for wait in report.waits] == ["the new root is not acknowledged by 1 agent: shop/web-1"]
    world.pod(OLD_ROOT, NEW_ROOT)
    assert (await world.advance()).did is Step.SWITCH
    assert world.signer == NEW_SIGNER
    assert world.told == NEW_SIGNER[:16]
    await world.later()
    (wait,) = (await world.advance()).waits
    assert wait.sentence.startswith("1 has a certificate of the old issuer; ")
    world.pod(OLD_ROOT, NEW_ROOT, signer=NEW_SIGNER)
    report = await world.advance()
    assert (report.did, report.next) == (Step.RETIRE, None)
    assert (world.anchors, world.signer, world.told) == ({NEW_ROOT}, NEW_SIGNER, "")


async def test_the_keys_of_both_issuers_go_with_the_last_step(world):
    await world.advance()
    kept = world.api.objects[ROTATION]["data"]
    assert {base64.b64decode(kept[f"{side}-key.der"]) for side in ("old", "new")} == {OLD.key, NEW.key}
    for _ in range(2):
        await world.advance(skip_waits=True)
    assert not world.rotating


@pytest.mark.parametrize("way", ["forward", "back before the switch", "back after the switch"])
async def test_cut_off_at_any_write_it_is_taken_up_by_the_next_call(way):
    # So many writes, then the operator is gone; the next one goes on, to the same end.
    for cut in range(14):
        world = World()
        world.left = cut
        back = way != "forward"
        try:
            if way == "back before the switch":
                await world.advance()
            elif back:
                await world.advance()
                await world.advance(skip_waits=True)
            await (world.rotation().undo() if back else world.advance())
            while world.rotating:
                await world.advance(skip_waits=True)
        except Killed:
            world.left = 1000
            assert world.signer in {OLD_SIGNER, NEW_SIGNER}
            assert (OLD_ROOT if world.signer == OLD_SIGNER else NEW_ROOT) in world.anchors
        while world.rotating:
            await (
                world.rotation(None).advance(skip_waits=True)
                if not back or _is_undone(world)
                else world.rotation().undo()
            )
        if not back and world.signer == OLD_SIGNER:
            # Nothing was written down: there is nothing to go on with.
            assert (cut, world.anchors) == (0, {OLD_ROOT})
        elif back:
            assert (world.signer, world.anchors) == (OLD_SIGNER, {OLD_ROOT})
        else:
            assert (world.signer, world.anchors) == (NEW_SIGNER, {NEW_ROOT})


def _is_undone(world: World) -> bool:
    document = world.api.objects[ROTATION]
    record = mesh_trust.Stored(cases.MESH, {}, {}, document).record
    assert record is not None
    return record.state.undoing


async def test_a_step_back_at_each_step_restores_what_was(world):
    for steps in range(1, 3):
        for _ in range(steps):
            await world.advance(skip_waits=True)
        report = await world.rotation().undo()
        while report.next is not None:
            report = await world.advance(skip_waits=True)
        assert (world.signer, world.anchors, world.rotating) == (OLD_SIGNER, {OLD_ROOT}, False)
    assert (await refused(world.rotation().undo())).reason == "NoRotation"


async def test_an_issuer_that_has_ended_meanwhile_does_not_come_to_sign(world):
    await world.advance()
    await world.clock.advance(200 * 365 * 86400)
    assert (await refused(world.advance())).reason == "IssuerExpired"
    assert (world.signer, world.anchors) == (OLD_SIGNER, {OLD_ROOT, NEW_ROOT})
    # The way back before the switch signs nothing.
    assert (await world.rotation().undo()).did is Step.DROP


async def test_a_key_that_was_exchanged_in_the_record_does_not_come_to_sign(world):
    await world.advance()
    await world.later()
    data = world.api.objects[ROTATION]["data"]
    data["new-key.der"] = data["old-key.der"]
    error = await refused(world.rotation(None).advance())
    assert (error.reason, world.signer) == ("IssuerKeyMismatch", OLD_SIGNER)


async def test_of_two_operators_at_once_one_is_refused(world):
    await world.advance()
    stored = await mesh_trust.read(world.api, "linkerd")
    record = stored.record
    assert record is not None
    slow = mesh_anchor_rotation._Work(world.api, "linkerd", stored)
    writes = anchor_rotation.writes(record, stored.facts(), world.clock.now())
    assert (await world.rotation().undo()).did is Step.DROP
    error = await refused(slow.do(writes[0], dry_run=False))
    assert error.reason == "MeshChangedMeanwhile"
    assert world.anchors == {OLD_ROOT}


async def test_of_two_who_begin_one_is_refused(world):
    stored = await mesh_trust.read(world.api, "linkerd")
    slow = mesh_anchor_rotation._Work(world.api, "linkerd", stored)
    await world.advance()
    other = anchor_rotation.begun(stored.material, issuer.generate(NOW), cases.MESH, NOW)
    error = await refused(slow.do(anchor_rotation.Note(other), dry_run=False))
    assert error.reason == "MeshChangedMeanwhile"


async def test_a_late_write_of_a_step_that_is_over_changes_nothing(world):
    await world.advance()
    stored = await mesh_trust.read(world.api, "linkerd")
    record = stored.record
    assert record is not None
    slow = mesh_anchor_rotation._Work(world.api, "linkerd", stored)
    writes = anchor_rotation.writes(record, stored.facts(), world.clock.now())
    await slow.do(writes[0], dry_run=False)
    # Stopped here; somebody else finishes.
    while world.rotating:
        await world.rotation(None).advance(skip_waits=True)
    for write in writes[1:]:
        assert (await refused(slow.do(write, dry_run=False))).reason == "MeshChangedMeanwhile"
    assert (world.signer, world.anchors) == (NEW_SIGNER, {NEW_ROOT})


async def test_other_refusals_of_the_server_are_told_as_they_are(world):
    def forbid(verb: str, _plural: str, _name: str) -> None:
        if verb in WRITES:
            raise status.StatusError("Forbidden", "no")

    world.api.before = forbid
    assert (await refused(world.advance())).reason == "Forbidden"


async def test_a_dry_run_judges_everything_and_writes_nothing(world):
    world.left = 0
    report = await world.advance(dry_run=True)
    assert (report.did, report.tried, report.next) == (Step.ADD, True, Step.SWITCH)
    assert report.actions == ("ConfigMap linkerd-trust-anchor has 2 roots",)
    world.left = 1000
    await world.advance()
    world.left = 0
    assert (await world.advance(dry_run=True)).did is None
    report = await world.advance(skip_waits=True, dry_run=True)
    assert report.actions == (
        f"Secret linkerd-identity-signing has the issuer {NEW_SIGNER[:16]}",
        "agents are told to renew",
    )
    report = await world.rotation().undo(dry_run=True)
    assert (report.did, report.next, report.tried) == (Step.DROP, None, True)
    wrong = dataclasses.replace(NEW, anchors=OLD.anchors)
    world = World()
    assert (await refused(world.rotation(wrong).advance(dry_run=True))).reason == "IssuerNotTrusted"


async def test_another_root_than_the_one_that_is_being_added_is_refused(world):
    await world.advance()
    assert (await refused(world.rotation(issuer.generate(NOW)).advance())).reason == "OtherRotation"
    assert (await world.rotation(NEW).advance(skip_waits=True)).did is Step.SWITCH


async def test_without_files_a_root_is_made(world):
    await world.rotation(None).advance()
    assert len(world.anchors) == 2
    assert OLD_ROOT in world.anchors


async def test_what_is_not_installed_or_cannot_be_read_is_refused(world):
    await world.advance()
    world.api.objects[ROTATION]["data"]["state.json"] = "§"
    assert (await refused(world.advance())).reason == "BadRotationState"
    del world.api.objects[SIGNING]
    assert (await refused(world.advance())).reason == "NotInstalled"
    too_many = World()
    text = BOTH.to_pem().decode() * 1000
    too_many.api.objects[ANCHORS]["data"][control_plane.ANCHORS_KEY] = text
    assert (await refused(too_many.advance())).reason == "BadTrustAnchor"


async def test_who_goes_on_believing_the_old_root_is_named(world):
    stock = cases.pod("old-1", anchors=BOTH.to_pem())
    world.api.put("pods", "old-1", "shop", spec=stock["spec"])
    for _ in range(2):
        await world.advance(skip_waits=True)
    await world.later()
    report = await world.advance()
    assert report.did is Step.RETIRE
    assert report.actions[-1] == "Pods without an agent believe the old root until they are started again: shop/old-1"
