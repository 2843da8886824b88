# SPDX-License-Identifier: Apache-2.0
"""What is behind one destination, followed for as long as somebody wants: by the destination service, or without one. It tells Envoy nothing.

1. A name is the destination service's. What it says is none of its own is DNS's; what it does not know is nowhere. While it does not answer, there is
   nothing new, and never DNS instead: whoever answers DNS would be called in plaintext in the place of a workload.
2. An address is a Pod's, with its identity, or a Service's, whose endpoints are followed then; any other is called as it is, in plaintext.
3. An endpoint that speaks no HTTP has no TLS of the mesh's: it is called in plaintext.
4. An endpoint in plaintext that is a port of the proxy's own is left out, whoever names it.
5. Without a destination service every name is DNS's, and every address is called as it is.

| who | holding | tries | stopped by | shown in tests/unit/proxy/test_destinations.py |
|---|---|---|---|---|
| who answers DNS | the name of a Service | be called in its place while the destination service is away | 1 | test_while_the_service_is_away_nobody_else_is_asked |
| a service that is confused | its certificate | the admin port, or the proxy itself, as an endpoint | 4 | test_the_ports_of_the_proxy_are_no_endpoints |
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from handfast.rules.envoy import destinations as forms
from handfast.rules.envoy import outbound
from handfast.rules.mesh import destinations
from handfast.runtime import clock as clocks
from handfast.wire import discovered, discovering

_AGAIN = 1.0


class Following:
    """Follows one destination after the other; what a workload's own addresses are is the same for all."""

    def __init__(self, discovery: discovering.Discovery | None, own: destinations.Own, clock: clocks.Clock) -> None:
        self._discovery = discovery
        self._own = own
        self._clock = clock

    async def follow(self, target: destinations.Target) -> AsyncGenerator[forms.Standing | None, None]:
        """What is known, after each change; None where the service does not answer."""
        if self._discovery is None:
            # 5. nobody to ask
            yield self._as_it_is(target)
            return
        stream = self._at if target.is_address else self._of
        async with contextlib.aclosing(stream(target, self._discovery)) as standings:
            async for standing in standings:
                yield standing

    async def _of(
        self, target: destinations.Target, discovery: discovering.Discovery
    ) -> AsyncGenerator[forms.Standing | None, None]:
        # 1. the service's own
        async with contextlib.aclosing(discovery.endpoints(str(target))) as answers:
            async for answer in answers:
                yield self._standing(answer, target)

    async def _at(
        self, target: destinations.Target, discovery: discovering.Discovery
    ) -> AsyncGenerator[forms.Standing | None, None]:
        while True:
            name = ""
            async with contextlib.aclosing(discovery.profile(str(target))) as answers:
                async for answer in answers:
                    if isinstance(answer, discovered.Profile) and answer.name:
                        name = answer.name
                        break
                    yield self._standing(answer, target)
            # 2. a Service's, until there is no such Service
            async with contextlib.aclosing(self._service(name, target, discovery)) as standings:
                async for standing in standings:
                    yield standing
            await self._clock.sleep(_AGAIN)

    async def _service(
        self, name: str, target: destinations.Target, discovery: discovering.Discovery
    ) -> AsyncGenerator[forms.Standing | None, None]:
        try:
            service = destinations.read(f"{name}:{target.port}")
        except destinations.BadDestination:
            yield forms.Standing(why=forms.BAD)
            return
        async with contextlib.aclosing(discovery.endpoints(str(service))) as answers:
            async for answer in answers:
                if isinstance(answer, discovered.Missing | discovered.Foreign):
                    yield forms.Standing(why=forms.UNKNOWN)
                    return
                yield self._standing(answer, target)

    def _standing(self, answer: discovered.Answer, target: destinations.Target) -> forms.Standing | None:
        rows: tuple[discovered.Endpoint, ...]
        match answer:
            case discovered.Away():
                return None
            case discovered.Foreign():
                return self._as_it_is(target)
            case discovered.Missing():
                return forms.Standing(why=forms.UNKNOWN, is_home=self._is_home(target))
            case discovered.Profile():
                rows = () if answer.endpoint is None else (answer.endpoint,)
            case discovered.Known():
                rows = answer.endpoints
        return forms.Standing(tuple(filter(self._may_be_called, map(_endpoint, rows))), is_home=self._is_home(target))

    def _as_it_is(self, target: destinations.Target) -> forms.Standing:
        if not target.is_address:
            return forms.Standing(by_dns=(target.host, target.port))
        row = outbound.Endpoint(target.host, target.port)
        return forms.Standing((row,) if self._may_be_called(row) else (), is_home=self._is_home(target))

    def _is_home(self, target: destinations.Target) -> bool:
        return target.is_address and self._own.is_home(target.host, target.port)

    def _may_be_called(self, row: outbound.Endpoint) -> bool:
        # 4. not the proxy itself
        return bool(row.identity) or not self._own.is_own_port(row.host, row.port)


def _endpoint(row: discovered.Endpoint) -> outbound.Endpoint:
    # 3. no HTTP, no TLS
    return outbound.Endpoint(row.host, row.port, "" if row.opaque else row.identity)
