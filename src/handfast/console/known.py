# SPDX-License-Identifier: Apache-2.0
"""What the console knows: informers of everything that pages need, what is in their way, and what was made from them. It judges nothing.

1. One informer for each need, however many pages name it. They begin when the console does, so that a page need not wait for a list. Nodes, Leases and
   the ledger are many: they are not kept as objects, but as `fleet` keeps them.
2. What is in the way of one is a `Trouble`: forbidden, unreachable, another server, an answer that cannot be read, overloaded, a stranger to the server, or still being
   read. What was known stays, with its age. A server that hangs leaves watches open: it counts as unreachable as soon as it does not answer when it is asked (`client.hearing`).
3. What is expensive to make from informers is made once for all who ask (`once`): again when one of them has changed, but not more often than told.
4. Who follows changes is told of each, by the name of the need. That is cheap: thousands come in a second.
5. An object that no rule can read is left out and counted (`unread`). It ends no watch.
6. Facts of `handfast check` about nodes come from what is followed: to list ten thousand of them, and the ledger, twice a minute took 2.5 % of a core and
   held the event loop for seconds.
7. That there is none of something is only said where nothing is in the way (`is_sure`).
8. What a page asks the server itself has a few seconds, and none while the server is silent: a page says so, and is not waited for (`ask`).
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from handfast import errors
from handfast.client import api, cache, connection, partial, transport
from handfast.console import explaining as explaining_module
from handfast.console import fleet as fleet_module
from handfast.console import looking as looking_module
from handfast.console import needs as needs_module
from handfast.console import unread as unread_module
from handfast.rules import check
from handfast.rules.console import access
from handfast.rules.diagnoses import facts as facts_module
from handfast.rules.mesh import control_plane
from handfast.rules.nodes import overview
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

T = TypeVar("T")
V = TypeVar("V", bound=partial.Viewed)
_OVERLOADED = frozenset({429, 500, 502, 503, 504})
_UNKNOWN = frozenset({401})
_BAD_ANSWER = "BadAnswer"
# How often somebody looks whether the server is in the way.
_LOOK_SECONDS = 2.0
# From which difference on clocks are said to differ.
_SKEW = datetime.timedelta(seconds=5)
# 8. how long a page waits for the server; one that answers takes milliseconds
_ASK_SECONDS = 5.0


# What listeners are told when something gets into the way of the server, or out of it.
SERVER = "server"


class Way(enum.StrEnum):
    """What is in the way (2)."""

    FORBIDDEN = "forbidden"
    UNREACHABLE = "unreachable"
    ANOTHER = "another"
    GARBLED = "garbled"
    OVERLOADED = "overloaded"
    STRANGER = "stranger"
    READING = "reading"


_OF_SERVER = frozenset({Way.UNREACHABLE, Way.ANOTHER, Way.OVERLOADED, Way.STRANGER})


def _way(code: int, reason: str) -> Way:
    """What an answer with this code, or the lack of one for this reason, is."""
    if code in _UNKNOWN:
        return Way.STRANGER
    if code in _OVERLOADED:
        return Way.OVERLOADED
    if reason in transport.NOT_BELIEVED:
        return Way.ANOTHER
    return Way.GARBLED if reason == _BAD_ANSWER else Way.UNREACHABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why something is not known, or not known as of now: what it is, the words of the server, since when, and what would help."""

    way: Way
    title: str
    message: str
    since: datetime.datetime | None = None
    commands: tuple[str, ...] = ()
    # Whether something of it was read before.
    was_known: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Which cluster it is and who asks it."""

    server: str
    ca: str = ""
    user: str = ""


_Kept = cache.Informer[Any] | fleet_module.Keeper[Any]


@dataclass(slots=True)
class _Made:
    version: tuple[int, ...]
    at: float
    value: Any


class Known:
    """All of it, for one cluster and one operator."""

    def __init__(
        self, client: api.Client, used: connection.Connection, looking: looking_module.Looking, clock: clocks.Clock
    ) -> None:
        self.client = client
        self.used = used
        self.looking = looking
        self.cluster = Cluster(server=used.server)
        # Where the control plane of the mesh is.
        self.mesh_namespace = control_plane.NAMESPACE
        self._clock = clock
        # 5. left out, and counted
        self.unread = unread_module.Unread()
        self._informers = cache.Informers(client, clock, self.unread)
        self._sources: dict[str, tuple[needs_module.Need[Any], _Kept, cache.Following]] = {}
        self._versions: dict[str, int] = {}
        self._made: dict[Hashable, _Made] = {}
        self._kept: dict[Hashable, Any] = {}
        self._listeners: list[Callable[[str], None]] = []
        self.fleet = fleet_module.Fleet(clock, self._changed, self.unread)
        self.explaining: explaining_module.Explaining | None = None
        looking.on_change = self._looked

    def now(self) -> datetime.datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def kept(self, key: Hashable, build: Callable[[], T]) -> T:
        """What a page keeps for as long as the console runs: built at the first request for this key."""
        if key not in self._kept:
            self._kept[key] = build()
        value: T = self._kept[key]
        return value

    def of(self, need: needs_module.Need[V]) -> cache.Informer[V]:
        """The informer of a need (1)."""
        kept = self._keeping(need)
        if not isinstance(kept, cache.Informer):
            raise errors.Misuse(f"{need.title} are not kept as objects: see `fleet`")
        return kept

    def _keeping(self, need: needs_module.Need[Any]) -> _Kept:
        if need.name not in self._sources:
            if need.of_mesh:
                need = need.within(self.mesh_namespace)
            kept: _Kept
            if need.name in self.fleet.keepers:
                kept = self.fleet.keepers[need.name]
            else:
                kept = cache.Informer(need.source, guard=self.unread)
                kept.subscribe(lambda _old, _new: self._changed(need.name))
            following = self._informers.follow(need.source, kept, kept.refused)
            self._sources[need.name] = (need, kept, following)
        return self._sources[need.name][1]

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `work` has from the server, within seconds (8)."""
        silent = self.client.transport.unheard
        answers: list[T] = []

        async def asked() -> None:
            answers.append(await work())

        if silent is None:
            await tasks.within(asked(), self._clock, _ASK_SECONDS)
        if not answers:
            raise errors.Unavailable(
                f"the API server does not answer: {silent or f'nothing came within {_ASK_SECONDS:g} s'}",
                reason="Timeout",
                hint="load the page again; `handfast check` says how far one gets",
            )
        return answers[0]

    def following(self, key: str, build: Callable[[cache.Informers, Callable[[], None]], T]) -> T:
        """What follows several sources by itself, built at the first request; its changes are those of the need of this name."""
        return self._informers.shared(key, lambda: build(self._informers, lambda: self._changed(key)))

    def start(self, group: tasks.Group, every_need: Sequence[needs_module.Need[Any]]) -> None:
        """Follow what these name, from now on."""
        for need in every_need:
            self._keeping(need)
        self.fleet.follow(self.of(needs_module.REQUESTS), self.of(needs_module.REVOCATIONS))
        self._informers.start(group)
        group.start(self.fleet.run(), name="fleet")
        group.start(self._watch_server(), name="server")

    async def _watch_server(self) -> None:
        """Tell who listens when something gets into the way of the server, or out of it. Never returns."""
        before = None
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            met = self.server_trouble()
            now = None if met is None else (met.way, met.since)
            if now != before:
                before = now
                for listener in self._listeners:
                    listener(SERVER)

    def facts(self) -> facts_module.Facts | None:
        """Those of the last look, with the nodes as they are followed (6); None: nobody has looked yet."""
        looked = self.looking.facts
        if looked is None or not looked.reach.arrived:
            return looked
        following = self.fleet.keepers[needs_module.NODES.name]
        nodes: overview.Standing | check.Unread
        if following.refusal:
            nodes = check.Unread(following.refusal)
        elif not following.synced:
            nodes = check.Unread("they are being read")
        else:
            nodes = self.fleet.table.standing(self.now(), unreadable=self.fleet.ledger.unreadable)
        return msgspec.structs.replace(looked, nodes=nodes, hidden=self._hidden_of_nodes())

    def _hidden_of_nodes(self) -> tuple[str, ...]:
        """What is not known of nodes, and could hide one that needs somebody."""
        told = [
            f"{need.title} could not be read: {refusal}"
            for need in (needs_module.LEASES, needs_module.LEDGER, needs_module.REQUESTS, needs_module.REVOCATIONS)
            if (refusal := self._keeping(need).refusal)
        ]
        if (count := self.fleet.ledger.unreadable) > 0:
            told.append(f"{count:,} entries of the ledger cannot be read: `handfast ledger verify` tells which")
        elif self.fleet.table.ordered and not self.fleet.ledger.segment_count:
            told.append("the ledger has no entry, so that nobody knows when the certificates of nodes end")
        return tuple(told)

    def skew(self) -> datetime.timedelta | None:
        """By how much the server's clock is ahead of ours, by the last look; None: it is not known."""
        facts = self.looking.facts
        ahead = None if facts is None else facts.reach.ahead
        return ahead if isinstance(ahead, datetime.timedelta) else None

    def clocks_differ(self) -> bool | None:
        """Whether they differ by so much that pages say so; None: that is not known."""
        skew = self.skew()
        return None if skew is None else abs(skew) >= _SKEW

    # --- changes

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of a need whenever something of it changes (4); `facts` are those of `handfast check`."""
        self._listeners.append(listener)

    def _changed(self, name: str) -> None:
        self._versions[name] = self._versions.get(name, 0) + 1
        for listener in self._listeners:
            listener(name)

    def _looked(self) -> None:
        for listener in self._listeners:
            listener("facts")

    def version(self, of: Sequence[needs_module.Need[Any]]) -> tuple[int, ...]:
        """It differs from before when one of these needs has changed, or facts were looked up."""
        return (self.looking.count, *(self._versions.get(need.name, 0) for need in of))

    def once(
        self,
        key: Hashable,
        of: Sequence[needs_module.Need[Any]],
        make: Callable[[], T],
        *,
        seconds: float = 1.0,
        at_most: float = 30.0,
    ) -> T:
        """What `make` makes of these needs (3): kept until one of them changes, for `seconds` at least and `at_most` at longest."""
        now = self._clock.monotonic()
        version = self.version(of)
        kept = self._made.get(key)
        # What a look has found is new at once: looks have a pause of their own.
        looked = kept is not None and kept.version[0] != version[0]
        changed = kept is not None and kept.version != version and now - kept.at >= seconds
        if kept is None or looked or changed or now - kept.at > at_most:
            kept = self._made[key] = _Made(version, now, make())
        value: T = kept.value
        return value

    def last(self, key: Hashable, otherwise: T) -> T:
        """What `once` made last for this key, however old; `otherwise` where it made nothing yet."""
        kept = self._made.get(key)
        value: T = otherwise if kept is None else kept.value
        return value

    # --- what is in the way

    def troubles(self, of: Sequence[needs_module.Need[Any]]) -> list[Trouble]:
        """What is in the way of these needs, worst first (2)."""
        found = [trouble for need in of if (trouble := self.trouble(need)) is not None]
        return sorted(found, key=lambda each: list(Way).index(each.way))

    def trouble(self, need: needs_module.Need[Any]) -> Trouble | None:
        """What is in the way of one."""
        informer = self._keeping(need)
        need, _, following = self._sources[need.name]
        met = following.trouble
        if informer.refusal:
            commands = access.grant(need.kind, need.namespace, self.cluster.user)
            since = None if met is None else met.since
            return Trouble(
                way=Way.FORBIDDEN, title=need.title, message=informer.refusal, since=since, commands=commands
            )
        if met is not None:
            return Trouble(
                way=_way(met.code, met.reason),
                title=need.title,
                message=met.message,
                since=met.since,
                was_known=informer.synced,
            )
        if not informer.synced:
            return Trouble(way=Way.READING, title=need.title, message="it is being read")
        return None

    def server_trouble(self) -> Trouble | None:
        """What is in the way of the server itself, the worst of it; without a title where it is in the way of several needs. None: nothing is."""
        met = self.troubles([need for need, _, _ in self._sources.values()])
        of_server = [each for each in met if each.way in _OF_SERVER]
        if not of_server:
            return self._link_trouble()
        alike = [each for each in of_server if each.way is of_server[0].way]
        first = min(alike, key=lambda each: each.since or self.now())
        if len(alike) == 1:
            return first
        return dataclasses.replace(first, title="", was_known=any(each.was_known for each in alike))

    def _link_trouble(self) -> Trouble | None:
        """What the server's silence says, or that it does not know who asks, before any watch has noticed."""
        link = self.client.transport
        if link.unheard is None and not link.is_stranger:
            return None
        way, message = Way.STRANGER, "it answers that it does not know who asks"
        if link.unheard is not None:
            told = None if self.explaining is None else self.explaining.last
            way = Way.UNREACHABLE if told is None else _way(0, told.reason)
            message = link.unheard if told is None else told.message
        was_known = any(kept.synced for _, kept, _ in self._sources.values())
        return Trouble(way=way, title="", message=message, since=link.unheard_since, was_known=was_known)

    def is_sure(self, of: Sequence[needs_module.Need[Any]]) -> bool:
        """Whether nothing is in the way of these needs, so that none of something means that there is none (7)."""
        return self._link_trouble() is None and not self.troubles(of)

    def is_read(self) -> bool:
        """Whether all that pages follow was read, or may not be."""
        return all(kept.synced or kept.refusal for _, kept, _ in self._sources.values())

    def hidden(self) -> list[Trouble]:
        """What the operator may not read."""
        everything = self.troubles([each[0] for each in self._sources.values()])
        return [each for each in everything if each.way is Way.FORBIDDEN]
