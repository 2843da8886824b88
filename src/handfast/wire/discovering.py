# SPDX-License-Identifier: Apache-2.0
"""A client of the destination service: what is behind a name or an address, now and after each change. What is done with it, the caller knows.

    async for answer in discovery.endpoints("web.shop.svc.cluster.local:80"):
        ...

1. The service is called in plaintext on loopback only. Elsewhere it proves its name by the anchors before it is told anything (`channel`). The own
   certificate is shown while it is valid: a connection is made with that of its moment, and none that is over is used for a new one.
2. All streams that were opened with the same certificate and anchors share a connection.
3. A stream that ends is opened again, after a time that grows, with a chance in it. Meanwhile there is nothing new, which is said (`Away`): what was
   known stays known to whoever holds it.
4. A stream that says more than so much at once is read slowly. What it says is judged by `discovered`.

| who | holding | tries | stopped by | shown in tests/unit/wire/test_discovering.py |
|---|---|---|---|---|
| a stranger | the address of the service | say where requests go | 1 | test_a_false_service_is_asked_nothing |
| a service that is confused | its certificate | updates without end | 4 | test_updates_without_end_are_read_slowly |
| … | … | bytes that are no message | 3 | test_a_stream_that_makes_no_sense_is_opened_again |
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.pki import bundles, pairs
from handfast.runtime import addresses, backoff
from handfast.runtime import clock as clocks
from handfast.wire import channel, discovered, mesh_messages

GET: Final = f"/{mesh_messages.DESTINATION_SERVICE}/Get"
GET_PROFILE: Final = f"/{mesh_messages.DESTINATION_SERVICE}/GetProfile"
# 4. at once, and then for each second
_BURST: Final = 256
_RATE: Final = 20.0
_AGAIN: Final = backoff.Schedule(initial=0.2, cap=15.0)


@dataclass(frozen=True, slots=True)
class Service:
    """Where the destination service is, and the name that it proves; None on loopback, in plaintext."""

    address: str
    name: str | None


_VERDICTS: Final[dict[str, discovered.Answer]] = {
    "NOT_FOUND": discovered.Missing(),
    "INVALID_ARGUMENT": discovered.Foreign(),
}


class _Line(msgspec.Struct):
    """One connection, for those who opened streams with the same certificate and anchors (2)."""

    shown: tuple[Any, ...]
    opened: channel.Channel
    stack: contextlib.AsyncExitStack
    users: int = 0
    broken: bool = False


class Discovery:
    """Asks one destination service. `pair` is the certificate of the moment, `anchors` what the service is believed by."""

    def __init__(
        self,
        service: Service,
        *,
        anchors: Callable[[], bundles.TrustBundle | None],
        pair: Callable[[], pairs.Pair | None],
        clock: clocks.Clock,
        context: str = "",
    ) -> None:
        self._service = service
        self._anchors = anchors
        self._pair = pair
        self._clock = clock
        self._context = context
        self._line: _Line | None = None
        self._lock = asyncio.Lock()

    async def endpoints(self, path: str) -> AsyncGenerator[discovered.Answer, None]:
        """The endpoints of NAME:PORT, for ever."""
        async with contextlib.aclosing(self._ever(GET, path, mesh_messages.Update, discovered.Endpoints)) as answers:
            async for answer in answers:
                yield answer

    async def profile(self, path: str) -> AsyncGenerator[discovered.Answer, None]:
        """What is at IP:PORT, for ever."""
        reading = self._ever(GET_PROFILE, path, mesh_messages.DestinationProfile, discovered.Profiles)
        async with contextlib.aclosing(reading) as answers:
            async for answer in answers:
                yield answer

    async def _ever(
        self, method: str, path: str, response: Any, state: Callable[[discovered.Sieve], discovered.State]
    ) -> AsyncGenerator[discovered.Answer, None]:
        delays = backoff.Backoff(_AGAIN)
        while True:
            try:
                async with contextlib.aclosing(self._stream(method, path, response)) as messages:
                    known = state(discovered.Sieve(path))
                    async for message in messages:
                        delays.reset()
                        yield known.take(message)
                yield discovered.Away("the stream ended")
            except channel.Failed as failed:
                yield _VERDICTS.get(failed.code) or discovered.Away(failed.message)
            except errors.HandfastError as refused:
                # 1. not the service that is meant
                yield discovered.Away(refused.message)
            # 3. again, later
            await self._clock.sleep(next(delays))

    async def _stream(self, method: str, path: str, response: Any) -> AsyncGenerator[Any, None]:
        request = mesh_messages.GetDestination(scheme="k8s", path=path, context_token=self._context)
        pace = _Pace(self._clock)
        async with self._shared() as line, contextlib.aclosing(line.opened.stream(method, request, response)) as said:
            try:
                async for message in said:
                    yield message
                    # 4. slowly, if there is no end
                    await pace.wait()
            except channel.Failed as failed:
                line.broken |= failed.code not in _VERDICTS
                raise

    @contextlib.asynccontextmanager
    async def _shared(self) -> AsyncIterator[_Line]:
        async with self._lock:
            line = self._line = await self._usable()
            line.users += 1
        try:
            yield line
        finally:
            line.users -= 1
            if not line.users:
                self._line = None if self._line is line else self._line
                await line.stack.aclose()

    async def _usable(self) -> _Line:
        # 1. with the certificate of this moment
        anchors, pair = self._anchors() if self._service.name is not None else None, self._pair()
        shown = (anchors and anchors.to_pem(), pair and pair.chain)
        # 2. one connection for all
        if self._line is not None and self._line.shown == shown and not self._line.broken:
            return self._line
        if self._service.name is not None and anchors is None:
            raise errors.Misuse("a destination service elsewhere is believed by anchors only")
        stack = contextlib.AsyncExitStack()
        opening = channel.opened(
            addresses.parse(self._service.address),
            anchors=anchors,
            server_name=self._service.name or "",
            clock=self._clock,
            pair=pair,
        )
        return _Line(shown, await stack.enter_async_context(opening), stack)


class _Pace:
    """So many at once, and then so many in a second."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._left = float(_BURST)
        self._at = clock.monotonic()

    async def wait(self) -> None:
        now = self._clock.monotonic()
        self._left = min(float(_BURST), self._left + (now - self._at) * _RATE) - 1
        self._at = now
        if self._left < 0:
            await self._clock.sleep(-self._left / _RATE)
