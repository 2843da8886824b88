# SPDX-License-Identifier: Apache-2.0
"""Replaces the root of a mesh over the API, one step a call. It prints nothing.

Which step is next and what it writes is decided by `rules.mesh.anchor_rotation`, what it waits for by `anchor_waits`.

1. Everything is read first, and judged. What is refused is refused before the first write. So is an issuer that comes to sign, with its key, once more: a
   rotation may be taken up a year later, and its record may have been edited.
2. Every write is made at the version that was read: who was slower than somebody else is refused, and nothing is written over.
3. A write that changes nothing is not made, so that a step may be done again.
4. `--unsafe-skip-wait` skips what a step waits for, and no step.
5. With `dry_run` nothing is written, and everything is judged.
6. The record goes with the last step, and with it the keys of both issuers. It is deleted at its version.

| who | holding | tries | stopped by | shown in tests/unit/client/test_mesh_anchor_rotation.py |
|---|---|---|---|---|
| two operators | two terminals | do two steps, or a step and its way back, at once | 2 | test_of_two_operators_at_once_one_is_refused |
| an operator who was interrupted | a command that was stopped for an hour | finish a step of a rotation that is over | 2 | test_a_late_write_of_a_step_that_is_over_changes_nothing |
| who edits the record | another key in it | have an issuer put in place that cannot sign | 1 | test_a_key_that_was_exchanged_in_the_record_does_not_come_to_sign |
| who reads Secrets later | the namespace of the control plane | find the old issuer's key | 6 | test_the_keys_of_both_issuers_go_with_the_last_step |
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from handfast import errors
from handfast.api import jsonpath, resources, status
from handfast.client import api, mesh_trust
from handfast.rules import trust_rotation
from handfast.rules.mesh import anchor_rotation, anchor_waits, control_plane, installation, issuer
from handfast.runtime import clock as clocks


class NoRotation(errors.Refused):
    """There is nothing to go back from."""

    reason = "NoRotation"


class Rotation:
    """The rotation of one mesh. `typed` is the new root with its issuer; None: they are made."""

    def __init__(
        self, client: api.Client, namespace: str, clock: clocks.Clock, typed: issuer.Material | None = None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._typed = typed

    async def advance(self, *, skip_waits: bool = False, dry_run: bool = False) -> trust_rotation.Report:
        """Do the next step, or say what it waits for."""
        stored = await mesh_trust.read(self._client, self._namespace)
        record = self._go_on(stored)
        waits = await self._waits(record)
        # 4. waiting may be skipped
        if waits and not skip_waits:
            return trust_rotation.Report(next=record.state.next, waits=waits, tried=dry_run)
        return await self._do(stored, record, dry_run=dry_run)

    async def undo(self, *, dry_run: bool = False) -> trust_rotation.Report:
        """Do the first step of the way back."""
        stored = await mesh_trust.read(self._client, self._namespace)
        record = stored.record
        if record is None:
            raise NoRotation("no rotation is under way", hint="`handfast mesh anchors show` tells which root signs")
        return await self._do(stored, anchor_rotation.undone(record), dry_run=dry_run)

    def _go_on(self, stored: mesh_trust.Stored) -> anchor_rotation.Record:
        record = stored.record
        if record is None:
            now = self._clock.now()
            return anchor_rotation.begun(stored.material, self._typed or issuer.generate(now), stored.mesh, now)
        if self._typed is not None and issuer.stored(self._typed) != record.new:
            raise errors.Refused(
                f"a rotation to another issuer, {record.state.new[:16]}, is under way",
                reason="OtherRotation",
                hint="finish it, or go back with --undo, before you begin another",
            )
        return anchor_rotation.resumed(record, stored.facts())

    async def _waits(self, record: anchor_rotation.Record) -> tuple[trust_rotation.Wait, ...]:
        if record.state.doing is not None or record.state.next is trust_rotation.Step.ADD:
            return ()
        now = self._clock.now()
        return anchor_waits.waits(record, await mesh_trust.known(self._client, self._namespace, now), now)

    async def _do(
        self, stored: mesh_trust.Stored, record: anchor_rotation.Record, *, dry_run: bool
    ) -> trust_rotation.Report:
        step = record.state.next
        now = self._clock.now()
        if step is trust_rotation.Step.SWITCH:
            # 1. who is to sign can do so
            issuer.load(record.staying, stored.mesh, now)
        # 1. judged as a whole
        writes = anchor_rotation.writes(record, stored.facts(), now)
        work = _Work(self._client, self._namespace, stored)
        actions = [text for write in writes for text in await work.do(write, dry_run=dry_run)]
        if step in anchor_rotation.LAST:
            return trust_rotation.Report(did=step, actions=(*actions, *await self._left(record)), tried=dry_run)
        done = next(write.record for write in reversed(writes) if isinstance(write, anchor_rotation.Note))
        return trust_rotation.Report(
            did=step, actions=tuple(actions), next=done.state.next, waits=await self._waits(done), tried=dry_run
        )

    async def _left(self, record: anchor_rotation.Record) -> Sequence[str]:
        """Who goes on believing the root that is gone."""
        known = await mesh_trust.known(self._client, self._namespace, self._clock.now())
        pods = anchor_waits.keep_believing(record, known)
        if not pods:
            return ()
        side = "new" if record.state.undoing else "old"
        shown = anchor_waits.several(pods)
        return (f"Pods without an agent believe the {side} root until they are started again: {shown}",)


class _Work:
    """The writes of one step, each at the version that was read (2)."""

    def __init__(self, client: api.Client, namespace: str, stored: mesh_trust.Stored) -> None:
        self._client = client
        self._namespace = namespace
        self._stored = stored
        self._rotation = stored.rotation

    async def do(self, write: anchor_rotation.Write, *, dry_run: bool) -> list[str]:
        """Make one write; what it did, for people."""
        try:
            match write:
                # 5. judged before, and not written
                case anchor_rotation.Note(record):
                    return [] if dry_run else await self._note(record)
                case anchor_rotation.Trust():
                    return await self._trust(write, dry_run=dry_run)
                case anchor_rotation.Sign(material):
                    return await self._sign(material, dry_run=dry_run)
                case anchor_rotation.Forget():
                    return [] if dry_run else await self._forget()
        except status.StatusError as error:
            # 2. somebody else was faster
            if error.reason not in {"AlreadyExists", "Conflict", "NotFound"}:
                raise
            raise anchor_rotation.Disturbed(
                "the trust of the mesh was changed by somebody else at the same time",
                hint="run this again: it goes on from what is there",
            ) from None

    async def _note(self, record: anchor_rotation.Record) -> list[str]:
        data = {key: _text(value) for key, value in anchor_rotation.encode(record).items()}
        if self._rotation is None:
            document = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": control_plane.ROTATION, "namespace": self._namespace},
                "type": "Opaque",
                "data": data,
            }
            self._rotation = await self._client.create(resources.SECRETS, document, namespace=self._namespace)
        elif self._rotation.get("data") != data:
            self._rotation = await self._client.update(resources.SECRETS, {**self._rotation, "data": data})
        return []

    async def _trust(self, write: anchor_rotation.Trust, *, dry_run: bool) -> list[str]:
        there, wanted = self._stored.anchors, write.anchors.to_pem()
        # 3. what says the same is left
        if issuer.read_anchors(installation.read_anchors(there)).to_pem() == wanted:
            wanted = installation.read_anchors(there)
        data = {**(there.get("data") or {}), control_plane.ANCHORS_KEY: wanted.decode()}
        annotations = {**jsonpath.mapping(there, "metadata", "annotations")}
        annotations.pop(installation.SIGNER, None)
        annotations |= {installation.SIGNER: write.signer} if write.signer else {}
        changed = {**there, "metadata": {**there["metadata"], "annotations": annotations}, "data": data}
        same = (data, annotations) == (there.get("data"), jsonpath.mapping(there, "metadata", "annotations"))
        if not same and not dry_run:
            await self._client.update(resources.CONFIG_MAPS, changed)
        if write.signer:
            return ["agents are told to renew"]
        count = len(write.anchors.anchors)
        return [f"ConfigMap {control_plane.TRUST_ANCHOR} has {'1 root' if count == 1 else f'{count} roots'}"]

    async def _sign(self, material: issuer.Material, *, dry_run: bool) -> list[str]:
        there = self._stored.signing
        tag = anchor_rotation.tag_of(anchor_rotation.signer_of(material))
        wanted = {
            control_plane.CERTIFICATE_KEY: _text(material.certificate),
            control_plane.PRIVATE_KEY_KEY: _text(material.key),
        }
        data = {**(there.get("data") or {}), **wanted}
        # 3. what says the same is left
        if data == there.get("data"):
            return [f"Secret {control_plane.SIGNING} has the issuer {tag} already"]
        if not dry_run:
            await self._client.update(resources.SECRETS, {**there, "data": data})
        return [f"Secret {control_plane.SIGNING} has the issuer {tag}"]

    async def _forget(self) -> list[str]:
        # 6. at its version
        if self._rotation is not None:
            meta = self._rotation["metadata"]
            await self._client.delete(
                resources.SECRETS,
                control_plane.ROTATION,
                namespace=self._namespace,
                uid=meta["uid"],
                resource_version=meta["resourceVersion"],
            )
        return [f"Secret {control_plane.ROTATION} removed, with the keys of both issuers"]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
