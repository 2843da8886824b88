# SPDX-License-Identifier: Apache-2.0
"""Replaces the CA of a data directory, or its key of service account tokens, one step at a time, also while it is served.

The steps are add, publish, switch, reissue, retire. Which comes next and what it waits for is decided by
`rules.trust_rotation`. What a step changes, and waiting until it has taken effect, is in `rotation.steps`. Where the control
plane is stopped, `cli.ca` serves its API to the rotation alone. It prints nothing: see `cli.ca`.

1. `--unsafe-skip-wait` skips what a step waits for. It skips no step: publishing is always done before the switch.
2. The step is written down, then done, then written down as done. After a crash the same call does it again.
3. Before a CA is retired, the control plane serves and logs in with certificates of the CA that stays.
4. Files are changed while nobody else changes keys (`preparation.locked`), and one rotation has one caller at a time.
5. What a crash left of unfinished writes goes with the last step: it may be a key.
6. The running API server and controllers notice files by themselves. A step is done only when what they show is what the
   step was for. If they do not within `PATIENCE`, it stays begun, and the next call goes on with it.
7. A CA is retired by its key. The last step is not done while a certificate of that key is trusted: in the CA file, the
   client CAs, or what clients are told.

| who | holding | tries | stopped by | shown in tests/unit/datadir/rotation/test_sequence.py |
|---|---|---|---|---|
| a holder of the old CA's key | fresh certificates of it | be believed after its end | retire: file, ConfigMap | test_a_retired_ca_is_gone_from_everywhere |
| … | another certificate of that CA, issued again or cross-signed | be believed by that | 7 | test_every_certificate_of_a_retired_key_goes |
| … | … put back by somebody meanwhile | be believed by that | 7 | test_a_certificate_that_comes_back_is_not_overlooked |
| a holder of the old token key | fresh tokens of it | be believed after its end | retire: file of public keys | test_a_retired_key_is_gone |
| who reads the disk later | a temporary file of a crash | have the old key | 5 | test_leftovers_go_with_the_last_step |
| another user of the machine | a shell | read the next key before it signs | modes | test_keys_are_private |
| who restores an old backup | the old key in the key file | have the old CA sign beside a state that says otherwise | `trust_files`: what does not fit together changes nothing | test_a_key_that_does_not_fit_changes_nothing |
| who damages the state | a broken state file | have the wrong CA retired | decode | test_a_damaged_state_is_refused |
| an operator in a hurry | `--all` | lock out nodes that have not renewed | waits | test_retiring_waits_for_renewals |
| … | … | lock out nodes that never received the new certificate | waits | test_retiring_waits_for_nodes_that_are_off |
| an operator in a hurry | two terminals | do two steps at once | 4 | test_while_one_caller_is_at_work_a_second_is_refused |
| who edits the client CAs meanwhile | trust | have their CA removed or kept by the rotation | `trust_objects`: only the one CA that is meant | test_other_client_cas_stay |
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Final

from handfast import errors
from handfast.datadir import layout, own_certificates, preparation
from handfast.datadir.rotation import steps, trust_files
from handfast.rules import trust_rotation
from handfast.runtime import files, following

# 3. by then, credentials that were replaced are in use
_NOTICE_TIME: Final = datetime.timedelta(seconds=following.SECONDS * 2 + 2)

Step = trust_rotation.Step


class Rotation:
    """One rotation of one directory."""

    def __init__(self, place: layout.Layout, target: trust_rotation.Target, control_plane: steps.ControlPlane) -> None:
        self._place = place
        self._target = target
        self._running = control_plane.running
        self._clock = control_plane.clock
        self._directory = trust_files.RotationDirectory.of(place, target)
        self._steps = steps.STEPS_OF_TARGET[target](place, self._directory, control_plane)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the rotation for as long as the block runs (4)."""
        files.create_directory(self._directory.path)
        lock = files.lock_directory(self._directory.path)
        try:
            yield
        finally:
            lock.release()

    async def advance(self, *, skip_waits: bool = False) -> trust_rotation.Report:
        """Do the next step, or say what it waits for."""
        state = self._directory.read() or trust_rotation.State(target=self._target, old=self._steps.signing())
        waits = await self._waits(state)
        # 1. waiting may be skipped
        if waits and not skip_waits:
            return trust_rotation.Report(next=state.next, waits=waits)
        return await self._do(state)

    async def undo(self) -> trust_rotation.Report:
        """Do the first step of the way back."""
        state = self._directory.read()
        if state is None:
            raise errors.Refused(
                "no rotation is under way", reason="NoRotation", hint="`handfast ca show` tells which CA signs"
            )
        undoing = trust_rotation.undo(state)
        # 2. written down before it is done
        self._directory.write(undoing)
        return await self._do(undoing)

    async def _waits(self, state: trust_rotation.State) -> tuple[trust_rotation.Wait, ...]:
        observed = trust_rotation.Observed()
        if state.next is Step.RETIRE and state.doing is None:
            observed = await self._steps.observe()
        return trust_rotation.waits(state, observed, self._clock.now())

    async def _do(self, state: trust_rotation.State) -> trust_rotation.Report:
        step = state.next
        # 2. written down before it is done
        state = trust_rotation.begin(state, step, self._clock.now())
        self._directory.write(state)
        # 3. the control plane uses what stays
        if step is Step.RETIRE:
            await self._until_noticed(state)
        work = own_certificates.Work(place=self._place, now=self._clock.now())
        # 4. while nobody else changes keys
        with preparation.locked(self._place):
            state = self._steps.change_files(work, step, state)
            if step in steps.LAST:
                # 5. what a crash left of unfinished writes
                files.remove_leftovers(self._place.pki)
        actions = [f"{path} {verb}" for path, verb in work.done]
        # 6. done only when the running processes show it, and 7. no certificate of a retired key is left
        actions += await self._steps.change_objects(step, state)
        if step in steps.LAST:
            self._directory.remove()
            return trust_rotation.Report(did=step, actions=(*actions, "the keys of the rotation removed"))
        # 2. written down as done
        state = trust_rotation.finish(state, step, self._clock.now())
        self._directory.write(state)
        return trust_rotation.Report(did=step, actions=tuple(actions), next=state.next, waits=await self._waits(state))

    async def _until_noticed(self, state: trust_rotation.State) -> None:
        """Wait until credentials that were replaced are in use (3)."""
        done = state.done_at(self._steps.step_that_takes_effect)
        if self._running and done is not None:
            left = (done + _NOTICE_TIME - self._clock.now()).total_seconds()
            if left > 0:
                await self._clock.sleep(min(left, _NOTICE_TIME.total_seconds()))
