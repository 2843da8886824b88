# SPDX-License-Identifier: Apache-2.0
"""Sees to it that a create whose answer was lost does not come later, when nobody expects it any more.

An update and a delete name the revision that they replace: once that is gone, they can never be done. A create names none. One
that waits in a frozen member, or on a line that hangs, would be done as soon as the key is absent: also after it was sent once more,
acknowledged, and the object deleted. No deadline of ours helps, since etcd counts its own from when it reads the request.

1. Every create compares the revision of one key, the guard, which is the same for all servers of a store.
2. When an answer was lost, the guard is written before the caller hears of it. What was sent before that is done by then, or never
   will be.
3. While that could not be done, no other create of this server is sent: it would be the one that the lost one follows.
   It is tried again until it is done.
4. A create that was refused only because somebody wrote the guard is sent again, with the guard as it is now: nothing was changed.

Servers of before this was so compare no guard: theirs may still come late. It decides nothing about keys and values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from handfast import errors
from handfast.runtime import clock as clocks
from handfast.runtime import crowd as crowds
from handfast.store import protocol
from handfast.store.etcd import marks, shared_read
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_messages as messages

KEY: Final = "creates"
_TRIES: Final = 8
# How long whoever lost an answer waits for the guard, before it is told; and seconds between two tries after that.
_PATIENCE: Final = 2.0
_PAUSE: Final = 2.0


def transaction(compare: Sequence[Any], operation: Any, reads: Sequence[bytes]) -> Any:
    """A write if everything compares equal, else a look at what is there."""
    return messages.TxnRequest(
        compare=compare,
        success=[operation],
        failure=[messages.RequestOp(request_range=sessions.range_of(key)) for key in reads],
    )


class Guard:
    """Sends creates. `crowd` has what goes on when a call has ended."""

    def __init__(self, session: sessions.Session, clock: clocks.Clock, crowd: crowds.Crowd) -> None:
        self._session = session
        self._clock = clock
        self._crowd = crowd
        self._key = session.place.own(KEY)
        # The revision that wrote the guard, as far as it is known: a wrong one costs a second try.
        self._revision = 0
        # Creates whose answer was lost, and those of them that can come no more.
        self._lost = 0
        self._settled = 0
        self._is_settling = False
        self._writing = shared_read.SharedRead(self._write)

    async def commit(self, compare: Sequence[Any], operation: Any, reads: Sequence[bytes]) -> Any:
        """The answer to a write of what must be absent; if it is not `succeeded`, its responses are what was read."""
        for _ in range(_TRIES):
            # 3. not behind one that was lost
            if self._lost > self._settled:
                await self._settle_first()
            revision = self._revision
            # 1. the guard is as it was
            guarded = transaction([*compare, marks.at(self._key, revision)], operation, [*reads, self._key])
            try:
                answer = await self._session.write(guarded)
            except protocol.StoreUncertain:
                await self._fence_off()
                raise
            if answer.succeeded:
                return answer
            found = answer.responses[-1].response_range.kvs
            now = found[0].mod_revision if found else 0
            if now == revision:
                del answer.responses[-1]
                return answer
            # 4. with the guard as it is now
            self._revision = max(self._revision, now)
        raise protocol.StoreUnavailable(
            f"{self._session.place}: creates were overtaken again and again by servers whose answers are lost"
        )

    async def stop(self) -> None:
        await self._writing.stop()

    async def _fence_off(self) -> None:
        """Have a create that was lost not come later (2)."""
        self._lost += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._writing.get()
        except (TimeoutError, errors.Unavailable):
            if not self._is_settling:
                self._is_settling = True
                self._crowd.start(self._settle_later())

    async def _settle_first(self) -> None:
        try:
            await self._writing.get()
        except protocol.StoreUncertain as error:
            # What this is asked for was not sent.
            raise protocol.StoreUnavailable(
                f"{error.message}; whether an earlier write was done is not known"
            ) from None

    async def _settle_later(self) -> None:
        while self._lost > self._settled:
            await self._clock.sleep(_PAUSE)
            try:
                await self._writing.get()
            except errors.Unavailable:
                continue
        self._is_settling = False

    async def _write(self) -> int:
        lost = self._lost
        answer = await self._session.write(messages.PutRequest(key=self._key, value=b"lost"))
        self._settled = lost
        self._revision = max(self._revision, int(answer.header.revision))
        return self._revision
