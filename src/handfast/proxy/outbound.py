# SPDX-License-Identifier: Apache-2.0
"""What a workload calls, as Envoy is told of it: one listener, its routes, and a cluster for each destination, when it is first asked for.

What is behind a destination, `destinations` follows; what the resources say is `rules.envoy`'s. Who may be called without an identity is told to it.

1. From the first moment there is a listener. A destination is asked for with its first request, and its cluster is there with the first answer, or says why
   nobody is.
2. All spellings of one destination are followed once.
3. What is known stays while the destination service is away. Where nothing is known, requests fail at once.
4. A cluster is put when something in it changes (`clusters`).
5. The own certificate, how long connections last, and whether an identity is required, change every cluster at once. Routes change with the last, so that
   open connections are judged by it.
6. So many destinations are followed, and no more. Where there are more, those that were not called for longest go to sleep: they are followed no longer,
   and say so to who calls, which wakes them. Of those that sleep there are so many, too (`clusters`).
7. In transparent mode (`place`) destinations are the addresses that the workload connects to, and what is no HTTP goes on to them as it is.
8. A destination with many endpoints is told of at intervals, so that changes without end do not keep the agent from all else.

| who | holding | tries | stopped by | shown in tests/scenarios/test_mesh_outbound.py |
|---|---|---|---|---|
| a server | a certificate of another CA, of another name, or a wildcard | be taken for the workload that is called | `rules.envoy.tls` | test_a_server_with_a_wrong_certificate_gets_no_request |
| whoever reads the network | the wire to a meshed workload | read a request | `rules.envoy.outbound` | test_no_plaintext_reaches_a_meshed_endpoint |
| an application | an authority of its choice | reach the agent's sockets, or its admin port | `rules.envoy.outbound_routes` | test_nothing_leads_to_the_proxy_itself |
| … | names without end | use up the agent's memory | 6 | test_names_without_end_are_bounded |
| … | an open connection | go on without an identity where one is required | 5 | test_a_required_identity_reaches_open_connections |
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from handfast import errors
from handfast.proxy import clusters, envoy
from handfast.proxy import destinations as following
from handfast.rules.envoy import destinations as forms
from handfast.rules.envoy import dns, outbound, outbound_routes, resources, transparent, usage
from handfast.rules.mesh import destinations
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.wire import ads, discovering

MOST: Final = 512
# How many go to sleep at once, and how often sleepers are looked after.
_ROOM: Final = 8
_LOOK_SECONDS: Final = 1.0
_LONGEST: Final = 300
# For each endpoint that was told: telling of it costs 0.06 ms.
_REST: Final = 0.00025
CROWDED: Final = "too-many-destinations"
_LISTENER: Final = (resources.Kind.LISTENER, outbound.NAME)
_ROUTES: Final = (resources.Kind.ROUTES, outbound_routes.OUTBOUND)
_DNS: Final = (resources.Kind.CLUSTER, dns.CLUSTER)
_log = structlog.get_logger("handfast.proxy")


@dataclass(slots=True, eq=False)
class _Followed:
    """One destination, the clusters that lead to it, and what is known of it."""

    target: destinations.Target
    names: set[str] = field(default_factory=set)
    standing: forms.Standing | None = None
    is_stale: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """How many rows Envoy is told."""
        return len(self.names) * len(self.standing.endpoints) if self.standing is not None else 0


class Outbound:
    """The listener for what the workload sends, and the destinations that it has asked for."""

    def __init__(
        self,
        sent: ads.Ads,
        discovery: discovering.Discovery | None,
        clock: clocks.Clock,
        facts: outbound.Facts,
        *,
        own: destinations.Own,
        ask: envoy.Ask | None = None,
        place: transparent.Place | None = None,
    ) -> None:
        self._ads = sent
        self._clock = clock
        self._facts = facts
        self._own = own
        self._ask = ask
        self._place = place
        self._follows = following.Following(discovery, own, clock)
        self._domains = destinations.DOMAINS if discovery is not None else ()
        self._clusters = clusters.Clusters(sent, identity_headers=facts.identity_headers)
        self._followed: dict[destinations.Target, _Followed] = {}
        self._awake: dict[str, _Followed] = {}
        self._asleep: clusters.Parked = collections.OrderedDict()
        # Names that are none: nothing wakes them.
        self._bad: clusters.Parked = collections.OrderedDict()
        # How often each was called in all, and when that was seen to change last.
        self._used: dict[str, tuple[int, float]] = {}
        self._demands: collections.deque[str] = collections.deque()
        self._news = asyncio.Event()

    @property
    def _mode(self) -> forms.Mode:
        return self._clusters.mode

    # What the agent does with a part.

    def begin(self) -> None:
        """Put everything for the first time."""
        # 1. from the first moment
        self._ads.put(*_DNS, dns.cluster(self._mode.longest, self._facts.resolvers))
        self._route()
        self._listen()

    def show(self, *, certified: bool, longest: int) -> None:
        """The own certificate is in force, or is not; connections of TLS last so many seconds."""
        self._change(dataclasses.replace(self._mode, certified=certified, longest=longest))

    def require_identity(self, required: bool) -> None:
        """Whether nobody is called without an identity."""
        if required != self._mode.require_identity:
            _log.info("outbound", identity="required" if required else "not required")
            self._change(dataclasses.replace(self._mode, require_identity=required))
            # 5. open connections, too
            self._route()
            if self._place is not None:
                self._listen()

    def keys(self) -> Sequence[ads.Key]:
        """What Envoy has to have acknowledged for it to be ready."""
        return (_LISTENER, _ROUTES, _DNS)

    def demand(self, name: str) -> None:
        """Envoy asks for a cluster."""
        self._demands.append(name)
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with tasks.Group("outbound") as group:
            while True:
                self._news.clear()
                while self._demands:
                    await self._admit(self._demands.popleft(), group)
                if self._asleep:
                    await tasks.wait_for_event(self._news, self._clock, _LOOK_SECONDS)
                    self._wake(await self._usage(self._asleep))
                else:
                    await self._news.wait()

    # One destination.

    async def _admit(self, name: str, group: tasks.Group) -> None:
        prefix, _, authority = name.partition("/")
        if name in self._awake or f"{prefix}/" not in {outbound.HTTP, outbound.TCP}:
            return
        if len(name) > _LONGEST:
            # 6. no name is that long, and nothing of it is kept
            self._clusters.refuse(name)
            return
        try:
            target = destinations.read(authority)
        except destinations.BadDestination as bad:
            _log.info("a destination that is none", reason=bad.reason, error=bad.message)
            self._clusters.park(self._bad, name, forms.BAD)
            return
        if len(self._awake) >= MOST and not await self._make_room():
            _log.warning("so many destinations are called that no more can be followed", most=MOST)
            self._sleep(name, CROWDED)
            return
        self._asleep.pop(name, None)
        self._join(name, target, group)

    def _join(self, name: str, target: destinations.Target, group: tasks.Group) -> None:
        # 2. followed once
        followed = self._followed.get(target)
        if followed is None:
            followed = self._followed[target] = _Followed(target)
            followed.task = group.start(self._follow(followed), name=str(target))
        followed.names.add(name)
        self._awake[name] = followed
        self._used[name] = (0, self._clock.monotonic())
        if followed.standing is not None:
            self._clusters.publish(name, followed.standing)

    async def _follow(self, followed: _Followed) -> None:
        async with tasks.Group("destination") as group:
            group.start(self._read(followed), name="read")
            while True:
                await followed.news.wait()
                followed.news.clear()
                self._tell(followed)
                # 8. not all the time
                await self._clock.sleep(_REST * followed.size)

    async def _read(self, followed: _Followed) -> None:
        async with contextlib.aclosing(self._follows.follow(followed.target)) as standings:
            async for standing in standings:
                # 3. what is known stays
                if standing is None and followed.standing is not None:
                    if not followed.is_stale:
                        _log.warning("the destination service is away", destination=str(followed.target))
                    followed.is_stale = True
                    continue
                followed.is_stale = standing is None
                followed.standing = standing or forms.Standing(why=forms.NOT_ASKED)
                followed.news.set()

    def _tell(self, followed: _Followed) -> None:
        if followed.standing is not None:
            for name in followed.names:
                # 4. what has changed
                self._clusters.publish(name, followed.standing)

    # All of them.

    def _change(self, mode: forms.Mode) -> None:
        if mode == self._mode:
            return
        if mode.longest != self._mode.longest:
            self._ads.put(*_DNS, dns.cluster(mode.longest, self._facts.resolvers))
        self._clusters.mode = mode
        for followed in self._followed.values():
            self._tell(followed)

    def _listen(self) -> None:
        if self._place is None:
            self._ads.put(*_LISTENER, outbound.listener(self._facts))
            return
        # 7. by where they were going
        self._ads.put(resources.Kind.CLUSTER, transparent.ORIGINAL, transparent.original())
        manager = outbound.manager(dataclasses.replace(self._facts, destination=transparent.DESTINATION))
        required = self._mode.require_identity
        self._ads.put(*_LISTENER, transparent.calling(self._place, manager, require_identity=required))

    def _route(self) -> None:
        routing = outbound_routes.Routing(
            domains=self._domains,
            own_ports=tuple(sorted(self._own.ports)),
            identity_headers=self._mode.identity_headers,
            require_identity=self._mode.require_identity,
            redirected=self._place is not None,
        )
        self._ads.put(*_ROUTES, outbound_routes.document(routing))

    # Those that sleep.

    async def _make_room(self) -> bool:
        uses = await self._usage(self._awake)
        if uses is None:
            return False
        now = self._clock.monotonic()
        for name, use in uses.items():
            if use.total != self._used[name][0]:
                self._used[name] = (use.total, now)
        idle = sorted((at, name) for name, (_, at) in self._used.items() if not uses[name].active)
        # 6. those that were not called for longest
        for _, name in idle[: max(1, MOST // _ROOM)]:
            self._sleep(name, forms.ASLEEP, uses[name].total)
        return bool(idle)

    def _sleep(self, name: str, why: str, total: int | None = None) -> None:
        followed = self._awake.pop(name, None)
        self._used.pop(name, None)
        if followed is not None:
            followed.names.discard(name)
            if not followed.names and followed.task is not None:
                followed.task.cancel()
                del self._followed[followed.target]
        self._clusters.park(self._asleep, name, why, total)

    def _wake(self, uses: Mapping[str, usage.Use] | None) -> None:
        for name, use in (uses or {}).items():
            before = self._asleep[name]
            self._asleep[name] = use.total
            # Somebody has called it since.
            if before is not None and use.total > before:
                self.demand(name)

    async def _usage(self, names: Iterable[str]) -> Mapping[str, usage.Use] | None:
        """How much each cluster is used; None where Envoy does not say."""
        if self._ask is None:
            return None
        try:
            status, body = await self._ask(usage.PATH)
        except errors.Unavailable:
            return None
        return usage.read(body, tuple(names)) if status == 200 else None
