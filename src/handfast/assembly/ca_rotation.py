# SPDX-License-Identifier: Apache-2.0
"""Replaces the CA of a data directory, or its key of service account tokens, one step at a time, also while it is served.

Which step comes next and what it waits for is decided by `rules.trust_rotation`; what a step changes is in
`rotation_files` and `rotation_objects`. It prints nothing: see `cli.ca`.

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

| who | holding | tries | stopped by | shown in tests/unit/assembly/test_ca_rotation.py |
|---|---|---|---|---|
| a holder of the old CA's key | fresh certificates of it | be believed after its end | retire: file, ConfigMap | test_a_retired_ca_is_gone_from_everywhere |
| … | another certificate of that CA, issued again or cross-signed | be believed by that | 8 | test_every_certificate_of_a_retired_key_goes |
| … | … put back by somebody meanwhile | be believed by that | 8 | test_a_certificate_that_comes_back_is_not_overlooked |
| a holder of the old token key | fresh tokens of it | be believed after its end | retire: file of public keys | test_a_retired_key_is_gone |
| who reads the disk later | a temporary file of a crash | have the old key | 7 | test_leftovers_go_with_the_last_step |
| another user of the machine | a shell | read the next key before it signs | modes | test_keys_are_private |
| who restores an old backup | the old key in the key file | have the old CA sign beside a state that says otherwise | files 3 | test_a_key_that_does_not_fit_changes_nothing |
| who damages the state | a broken state file | have the wrong CA retired | decode | test_a_damaged_state_is_refused |
| an operator in a hurry | `--all` | lock out nodes that have not renewed | waits | test_retiring_waits_for_renewals |
| … | … | lock out nodes that never received the new certificate | waits | test_retiring_waits_for_nodes_that_are_off |
| an operator in a hurry | two terminals | do two steps at once | 2 | test_two_callers_take_turns |
| who edits the client CAs meanwhile | trust | have their CA removed or kept by the rotation | objects 1 | test_other_client_cas_stay |
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.assembly import datadir, layout, rotation_files, rotation_objects
from handfast.assembly import own_certificates as own
from handfast.client import api, connection
from handfast.pki import profiles
from handfast.rules import token_requests
from handfast.rules import trust_rotation as rotation
from handfast.runtime import clock as clocks
from handfast.runtime import files, following

# Seconds that those who notice files are given: several looks, and the writes that follow.
PATIENCE: Final = 30.0
_POLL: Final = 0.5
# 6: credentials that were replaced are in use by then.
_NOTICED: Final = dt.timedelta(seconds=following.SECONDS * 2 + 2)

Step = rotation.Step


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How a rotation reaches its API. `reach` opens a client anew, since the credentials change on the way."""

    reach: Callable[[], AbstractAsyncContextManager[api.Client]]
    running: bool
    clock: clocks.Clock
    max_token_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a call came to: the step that was done, if any, with what it did; what is next (None: it is over), and why not yet."""

    did: Step | None = None
    actions: tuple[str, ...] = ()
    next: Step | None = None
    waits: tuple[rotation.Wait, ...] = ()
    state: rotation.State | None = None


class Rotation:
    """One rotation of one directory."""

    def __init__(self, place: layout.Layout, what: rotation.What, world: World) -> None:
        self._place = place
        self._what = what
        self._world = world
        self._clock = world.clock
        self._kept = rotation_files.Kept.of(place, what)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """2: hold it for as long as the block runs."""
        files.create_directory(self._kept.directory)
        lock = files.lock_directory(self._kept.directory)
        try:
            yield
        finally:
            lock.release()

    @property
    def state(self) -> rotation.State | None:
        return self._kept.read()

    async def advance(self, *, skip_waits: bool = False) -> Report:
        """Do the next step, or say what it waits for."""
        state = self._kept.read() or self._first_state()
        waits = await self._waits(state)
        if waits and not skip_waits:
            return Report(next=state.next, waits=waits, state=state)
        return await self._do(state)

    async def undo(self) -> Report:
        """Turn round, and do the first step of the way back."""
        state = self._kept.read()
        if state is None:
            raise errors.Refused(
                "no rotation is under way", reason="NoRotation", hint="`handfast ca show` tells which CA signs"
            )
        turned = rotation.turn(state)
        # 1.
        self._kept.write(turned)
        return await self._do(turned)

    def _first_state(self) -> rotation.State:
        is_ca = self._what is rotation.What.CA
        old = rotation_files.signing_ca(self._place) if is_ca else rotation_files.signing_key(self._place)
        return rotation.State(what=self._what, old=old)

    async def _waits(self, state: rotation.State) -> tuple[rotation.Wait, ...]:
        seen = rotation.Seen()
        if state.next is Step.RETIRE and state.doing is None:
            seen = await self._seen()
        return rotation.waits(state, seen, self._clock.now())

    async def _seen(self) -> rotation.Seen:
        async with self._world.reach() as client:
            if self._what is rotation.What.CA:
                return rotation.Seen(
                    entries=await rotation_objects.entries(client),
                    running=await rotation_objects.running_nodes(client, self._clock.now()),
                    longest=profiles.YEAR,
                )
            key = own.private_key(self._place.service_account_key).public
            # What a Pod gets lives a year, however short the tokens are that others may ask for.
            longest = max(token_requests.EXTENDED_SECONDS, self._world.max_token_seconds)
            return rotation.Seen(
                longest=dt.timedelta(seconds=longest), old_tokens=await rotation_objects.old_tokens(client, key)
            )

    # --- one step

    async def _do(self, state: rotation.State) -> Report:
        step = state.next
        # 1.
        state = rotation.begin(state, step, self._clock.now())
        self._kept.write(state)
        if step is Step.RETIRE:
            await self._until_noticed(state)
        work = own.Work(place=self._place, now=self._clock.now())
        # 2.
        with datadir.locked(self._place):
            state = self._change_files(work, step, state)
            if step in {Step.RETIRE, Step.DROP}:
                # 7.
                files.remove_leftovers(self._place.pki)
        actions = [f"{path} {verb}" for path, verb in work.done]
        # 3.
        actions += await self._change_objects(step, state)
        if step in {Step.RETIRE, Step.DROP}:
            self._kept.remove()
            return Report(did=step, actions=(*actions, "the keys of the rotation removed"))
        state = rotation.finish(state, step, self._clock.now())
        self._kept.write(state)
        return Report(did=step, actions=tuple(actions), next=state.next, waits=await self._waits(state), state=state)

    def _change_files(self, work: own.Work, step: Step, state: rotation.State) -> rotation.State:
        kept, is_ca = self._kept, self._what is rotation.What.CA
        if step is Step.ADD:
            new = rotation_files.add_ca(work, kept) if is_ca else rotation_files.add_key(work, kept)
            return dataclasses.replace(state, new=new)
        if step is Step.SWITCH:
            (rotation_files.switch_ca if is_ca else rotation_files.switch_key)(work, kept, state)
        elif step is Step.REISSUE:
            rotation_files.reissue(work)
        elif step in {Step.RETIRE, Step.DROP} and is_ca:
            rotation_files.retire_ca(work, kept, state)
        elif step in {Step.RETIRE, Step.DROP}:
            rotation_files.retire_key(work, state, self._leaving_key(state))
        return state

    def _leaving_key(self, state: rotation.State) -> str:
        """Where the first step was cut short, the state does not know yet what it made."""
        return state.leaving or rotation_files.new_key(self._kept)

    async def _change_objects(self, step: Step, state: rotation.State) -> list[str]:
        if self._what is rotation.What.ACCOUNTS:
            return await self._look_at_keys(step, state)
        if step is Step.PUBLISH:
            return await self._publish(state)
        if step is Step.REISSUE:
            return await self._until_served()
        if step in {Step.RETIRE, Step.DROP}:
            return await self._withdraw(rotation_files.leaving_ca(self._kept, state))
        return []

    # --- what others tell

    async def _publish(self, state: rotation.State) -> list[str]:
        der = rotation_files.der_of(self._place, state.staying)
        async with self._world.reach() as client:
            added = await rotation_objects.trust_client_ca(client, der)
            await self._told(client, wanted=state.staying)
        # Whoever looks at the ConfigMap sees both from here on, and so does the API server.
        return [
            f"client CAs of the API server {'extended' if added else 'complete'}",
            "kube-root-ca.crt and cluster-info tell of both",
        ]

    async def _withdraw(self, leaving: Sequence[str]) -> list[str]:
        if not leaving:
            return []
        async with self._world.reach() as client:
            removed = await rotation_objects.distrust_client_ca(client, leaving)
            await self._told(client, unwanted=leaving)
        return [
            f"client CAs of the API server {'reduced' if removed else 'complete'}",
            "kube-root-ca.crt and cluster-info tell of one only",
        ]

    async def _told(self, client: api.Client, *, wanted: str = "", unwanted: Sequence[str] = ()) -> None:
        if not self._world.running:
            # 4.
            await rotation_objects.tell(client, datadir.read_trust(self._place).text)

        async def lacking() -> Sequence[str]:
            # 8.
            left = rotation_files.retained(self._place, unwanted)
            return left + await rotation_objects.untold(client, wanted=wanted, unwanted=unwanted)

        await self._until(lacking, "these do not tell of the right CAs yet: {}")

    async def _look_at_keys(self, step: Step, state: rotation.State) -> list[str]:
        if step is Step.PUBLISH:
            wanted, unwanted = state.staying, ""
        elif step in {Step.RETIRE, Step.DROP}:
            wanted, unwanted = "", self._leaving_key(state)
        else:
            return []

        async with self._world.reach() as client:

            async def lacking() -> Sequence[str]:
                told = await rotation_objects.told_keys(client)
                return ["/openid/v1/jwks"] if (wanted and wanted not in told) or unwanted in told else []

            await self._until(lacking, "the API server does not tell the changed keys yet: {}")
        return ["the key set of the API server is the changed one"]

    async def _until_served(self) -> list[str]:
        if not self._world.running:
            return []
        wanted = own.certificate(self._place.apiserver_certificate).der

        async def lacking() -> Sequence[str]:
            place = connection.load(str(self._place.admin_kubeconfig))
            served = await rotation_objects.served_certificate(place)
            return [] if served == wanted else [place.server]

        await self._until(lacking, "the API server does not serve the new certificate yet: {}")
        return ["the API server serves the new certificate"]

    async def _until_noticed(self, state: rotation.State) -> None:
        """6."""
        done = state.at(Step.REISSUE if self._what is rotation.What.CA else Step.SWITCH)
        if self._world.running and done is not None:
            left = (done + _NOTICED - self._clock.now()).total_seconds()
            if left > 0:
                await self._clock.sleep(min(left, _NOTICED.total_seconds()))

    async def _until(self, lacking: Callable[[], Awaitable[Sequence[str]]], message: str) -> None:
        """3: until nothing is lacking; Unavailable if that takes too long."""
        end = self._clock.monotonic() + PATIENCE
        while True:
            found = await lacking()
            if not found:
                return
            if self._clock.monotonic() >= end:
                shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
                raise errors.Unavailable(
                    message.format(shown),
                    reason="NotNoticed",
                    hint="see that the API server and the controllers run, and run the same command again: it goes on here",
                )
            await self._clock.sleep(_POLL)
