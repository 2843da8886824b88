# SPDX-License-Identifier: Apache-2.0
"""Replaces the CA of a data directory, or its key of service account tokens, one step at a time, also while it is served.

Which step comes next and what it waits for is decided by `rules.trust_rotation`; what a step does, and waiting until
it has taken effect, is in `rotation.steps`. It prints nothing: see `cli.ca`.

1. The step is written down, then done, then written down as done. After a crash the same call does it again.
2. Files are changed while nobody else changes keys (`datadir.locked`), and one rotation has one caller at a time.
3. The running API server and controllers notice files by themselves. A step is done only when what they tell is what the
   step was for; if they do not within `PATIENCE`, it stays begun, and the next call goes on with it.
4. Where the control plane is stopped, its API is served to the rotation alone for as long as a step takes.
5. Waiting may be skipped by whoever says so in as many words; what was not published never counts as known.
6. Before a CA is retired, everything of the control plane itself is of the other one, and is being served.
7. What a crash left of unfinished writes goes with the last step: it may be a key.
8. A CA is retired by its key, and the last step is not done while a certificate of that key is trusted: in the CA file, the
   client CAs, or what clients are told.

| who | holding | tries | stopped by | shown in tests/unit/datadir/rotation/test_sequence.py |
|---|---|---|---|---|
| a holder of the old CA's key | fresh certificates of it | be believed after its end | retire: file, ConfigMap | test_a_retired_ca_is_gone_from_everywhere |
| … | another certificate of that CA, issued again or cross-signed | be believed by that | 8 | test_every_certificate_of_a_retired_key_goes |
| … | … put back by somebody meanwhile | be believed by that | 8 | test_a_certificate_that_comes_back_is_not_overlooked |
| a holder of the old token key | fresh tokens of it | be believed after its end | retire: file of public keys | test_a_retired_key_is_gone |
| who reads the disk later | a temporary file of a crash | have the old key | 7 | test_leftovers_go_with_the_last_step |
| another user of the machine | a shell | read the next key before it signs | modes | test_keys_are_private |
| who restores an old backup | the old key in the key file | have the old CA sign beside a state that says otherwise | `files`: what does not fit together changes nothing | test_a_key_that_does_not_fit_changes_nothing |
| who damages the state | a broken state file | have the wrong CA retired | decode | test_a_damaged_state_is_refused |
| an operator in a hurry | `--all` | lock out nodes that have not renewed | waits | test_retiring_waits_for_renewals |
| … | … | lock out nodes that never received the new certificate | waits | test_retiring_waits_for_nodes_that_are_off |
| an operator in a hurry | two terminals | do two steps at once | 2 | test_two_callers_take_turns |
| who edits the client CAs meanwhile | trust | have their CA removed or kept by the rotation | `objects`: only the one CA that is meant | test_other_client_cas_stay |
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.datadir import layout, preparation
from handfast.datadir import own_certificates as own
from handfast.datadir.rotation import files as rotation_files
from handfast.datadir.rotation import steps
from handfast.rules import trust_rotation
from handfast.runtime import files, following

# 6. by then, credentials that were replaced are in use
_NOTICED: Final = dt.timedelta(seconds=following.SECONDS * 2 + 2)

Step = trust_rotation.Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a call came to: the step that was done, if any, with what it did; what is next (None: it is over), and why not yet."""

    did: Step | None = None
    actions: tuple[str, ...] = ()
    next: Step | None = None
    waits: tuple[trust_rotation.Wait, ...] = ()


class Rotation:
    """One rotation of one directory."""

    def __init__(self, place: layout.Layout, what: trust_rotation.What, control_plane: steps.ControlPlane) -> None:
        self._place = place
        self._what = what
        self._running = control_plane.running
        self._clock = control_plane.clock
        self._kept = rotation_files.Kept.of(place, what)
        self._steps = steps.OF[what](place, self._kept, control_plane)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the rotation for as long as the block runs (2.)."""
        files.create_directory(self._kept.directory)
        lock = files.lock_directory(self._kept.directory)
        try:
            yield
        finally:
            lock.release()

    async def advance(self, *, skip_waits: bool = False) -> Report:
        """Do the next step, or say what it waits for."""
        state = self._kept.read() or trust_rotation.State(what=self._what, old=self._steps.signing())
        waits = await self._waits(state)
        if waits and not skip_waits:
            return Report(next=state.next, waits=waits)
        return await self._do(state)

    async def undo(self) -> Report:
        """Turn round, and do the first step of the way back."""
        state = self._kept.read()
        if state is None:
            raise errors.Refused(
                "no rotation is under way", reason="NoRotation", hint="`handfast ca show` tells which CA signs"
            )
        turned = trust_rotation.turn(state)
        # 1. written down before it is done
        self._kept.write(turned)
        return await self._do(turned)

    async def _waits(self, state: trust_rotation.State) -> tuple[trust_rotation.Wait, ...]:
        seen = trust_rotation.Seen()
        if state.next is Step.RETIRE and state.doing is None:
            seen = await self._steps.seen()
        return trust_rotation.waits(state, seen, self._clock.now())

    async def _do(self, state: trust_rotation.State) -> Report:
        step = state.next
        # 1. written down before it is done
        state = trust_rotation.begin(state, step, self._clock.now())
        self._kept.write(state)
        if step is Step.RETIRE:
            await self._until_noticed(state)
        work = own.Work(place=self._place, now=self._clock.now())
        # 2. while nobody else changes keys
        with preparation.locked(self._place):
            state = self._steps.change_files(work, step, state)
            if step in steps.LAST:
                # 7. what a crash left of unfinished writes
                files.remove_leftovers(self._place.pki)
        actions = [f"{path} {verb}" for path, verb in work.done]
        # 3. done only when the running processes tell it
        actions += await self._steps.change_objects(step, state)
        if step in steps.LAST:
            self._kept.remove()
            return Report(did=step, actions=(*actions, "the keys of the rotation removed"))
        state = trust_rotation.finish(state, step, self._clock.now())
        self._kept.write(state)
        return Report(did=step, actions=tuple(actions), next=state.next, waits=await self._waits(state))

    async def _until_noticed(self, state: trust_rotation.State) -> None:
        """Wait until credentials that were replaced are in use (6.)."""
        done = state.at(self._steps.in_use)
        if self._running and done is not None:
            left = (done + _NOTICED - self._clock.now()).total_seconds()
            if left > 0:
                await self._clock.sleep(min(left, _NOTICED.total_seconds()))
