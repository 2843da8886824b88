# SPDX-License-Identifier: Apache-2.0
"""Envoy's configuration, sent to one Envoy: delta ADS on a unix socket. What the resources say is nobody's business here.

    async with ads.Ads(clock).on(path) as envoy:
        envoy.put(resources.Kind.SECRET, "identity", document)
        envoy.put(resources.Kind.LISTENER, "inbound", document)
        await envoy.acknowledged([(resources.Kind.LISTENER, "inbound")])

1. The socket has mode 0600 from the moment it is there: secrets go over it.
2. A resource has a version, a new one with each `put`. Envoy is sent what it subscribed to, and has no newer version of.
3. What is put together is sent in the order of the kinds: what is named comes before who names it.
4. A cluster that is sent again has its endpoints sent after it, else Envoy waits 15 s for them. A listener that is sent has the secrets sent
   after it (envoy#47309).
5. Sent is not accepted: `acknowledged` returns when Envoy has taken the present version, and raises `Rejected`, with Envoy's own words, where it
   has not. Those about a secret end before they could quote it. What it rejected is counted, and sent `again`, alone, when somebody says so: of
   several in one answer Envoy does not say which one it means.
6. A cluster that Envoy asks for by name and that is not there is handed to `on_demand`, once; the answer is a `put` or an `absent`.
7. A new stream of an Envoy that was started anew, or came back, begins from nothing: all that it subscribes to is sent again, and what is
   there no more is taken back.
8. Nothing is kept of a cluster that is absent once Envoy knows it. Envoy keeps its name, and says all of them at once when it comes back: such a message may be large, else
   it would never be told anything again, no revocation either.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from handfast import errors
from handfast.rules.envoy import resources
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.wire import envoy_messages, peers, server

SERVICE: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
METHOD: Final = "DeltaAggregatedResources"
_ANY: Final = "*"
_MOST_WORDS: Final = 500
# 8. of 200,000 names
_LARGEST: Final = 64 << 20
_INVALID: Final = "Proto constraint validation failed"
_KINDS: Final = {kind.type_url: kind for kind in resources.Kind}
# Where one of the first is sent, those of the second are sent after it.
_AGAIN: Final = {resources.Kind.CLUSTER: resources.Kind.ENDPOINTS, resources.Kind.LISTENER: resources.Kind.SECRET}
_log = structlog.get_logger("handfast.ads")

Key = tuple[resources.Kind, str]


class Rejected(errors.Refused):
    """Envoy did not take a resource, and goes on with what it had (5)."""

    reason = "EnvoyRejected"


@dataclass(frozen=True, slots=True)
class _Resource:
    version: int
    octets: bytes = field(repr=False)


class _Stream(msgspec.Struct):
    """What one Envoy has subscribed to, and been sent, on one stream."""

    names: dict[resources.Kind, set[str]] = msgspec.field(default_factory=dict)
    sent: dict[Key, int] = msgspec.field(default_factory=dict)
    nonces: dict[str, dict[Key, int]] = msgspec.field(default_factory=dict)
    wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def wants(self, key: Key) -> bool:
        names = self.names.get(key[0], set())
        return key[1] in names or _ANY in names


def pack(kind: resources.Kind, document: Mapping[str, Any]) -> bytes:
    """A resource as it is sent; a field that is none of its type's is an error."""
    return envoy_messages.packed(kind.type_url, document)


class Ads:
    """The resources of one Envoy, and what it said about them."""

    def __init__(self, clock: clocks.Clock, on_demand: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        # Whom a cluster is asked of (6).
        self.on_demand = on_demand
        self._versions = 0
        self._resources: dict[Key, _Resource] = {}
        # Not there, by version: for who asked by name.
        self._absent: dict[Key, int] = {}
        self._taken: dict[Key, int] = {}
        self._rejected: dict[Key, tuple[int, str]] = {}
        # How often Envoy said no, by kind, since the start.
        self.rejections: collections.Counter[resources.Kind] = collections.Counter()
        # 5. what is sent alone, since it was rejected once
        self._alone: set[Key] = set()
        self._asked: set[str] = set()
        self._stream: _Stream | None = None
        self._news = asyncio.Event()

    @property
    def connected(self) -> bool:
        return self._stream is not None

    def put(self, kind: resources.Kind, name: str, document: Mapping[str, Any]) -> None:
        """From now on, the resource of that name is this one."""
        self.place(kind, name, pack(kind, document))

    def place(self, kind: resources.Kind, name: str, octets: bytes) -> None:
        """The same with a resource that is packed already, which may be done in a thread."""
        self._absent.pop((kind, name), None)
        # 2. a version of its own
        self._resources[kind, name] = _Resource(self._next(), octets)
        self._wake()

    def again(self, key: Key) -> None:
        """Send a resource again, as it is (5)."""
        if key in self._resources:
            self._resources[key] = dataclasses.replace(self._resources[key], version=self._next())
            self._wake()

    def absent(self, kind: resources.Kind, name: str) -> None:
        """From now on, there is none of that name; whoever asks is told so."""
        self._resources.pop((kind, name), None)
        self._absent[kind, name] = self._next()
        self._asked.discard(name)
        self._wake()

    def forget(self, kind: resources.Kind, name: str) -> None:
        """From now on, nothing is known of that name; Envoy is told nothing."""
        for rows in (self._resources, self._absent, self._taken, self._rejected):
            rows.pop((kind, name), None)
        self._alone.discard((kind, name))
        if self._stream is not None:
            self._stream.sent.pop((kind, name), None)
            names = self._stream.names.get(kind, set())
            if _ANY in names:
                names.discard(name)

    async def acknowledged(self, keys: Iterable[Key]) -> None:
        """Until Envoy has taken the present version of each; `Rejected` where it says that it does not (5)."""
        for key in keys:
            while self._taken.get(key, 0) < self._present(key):
                words = self.rejected().get(key)
                if words is not None:
                    raise Rejected(words)
                self._news.clear()
                await self._news.wait()

    async def settled(self, keys: Iterable[Key]) -> None:
        """Until Envoy has taken the present version of each that it subscribed to. What it rejects is waited for: it may be sent again.

        What it has not subscribed to, nothing there uses; it gets the present version when that changes.
        """
        wanted = tuple(keys)
        while not self._is_settled(wanted):
            self._news.clear()
            await self._news.wait()

    def _is_settled(self, keys: Iterable[Key]) -> bool:
        stream = self._stream
        if stream is None:
            return False
        return all(not stream.wants(key) or self._taken.get(key, 0) >= self._present(key) for key in keys)

    def holds(self, keys: Iterable[Key]) -> bool:
        """Whether Envoy has taken the present version of each, on the stream of this moment."""
        return all(0 < self._present(key) <= self._taken.get(key, 0) for key in keys)

    def rejected(self) -> dict[Key, str]:
        """What Envoy does not take, in its present version, and why."""
        return {
            key: f"Envoy does not take {key[1]} ({key[0].name.lower()}): {words}"
            for key, (version, words) in self._rejected.items()
            if version >= self._present(key) > self._taken.get(key, 0)
        }

    async def rejection(self) -> None:
        """Until there is something that Envoy does not take."""
        while not self.rejected():
            self._news.clear()
            await self._news.wait()

    @contextlib.asynccontextmanager
    async def on(self, path: pathlib.Path, beside: server.Services | None = None) -> AsyncIterator[Ads]:
        """Answer on a socket at that path while the block runs, with other services of the agent's `beside`."""
        # 1. for this user alone: the server sees to it
        method = server.Duplex(METHOD, envoy_messages.Request, envoy_messages.Response, self._answer)
        services = {SERVICE: [method], **(beside or {})}
        async with server.Server(services, clock=self._clock, largest=_LARGEST).at(path):
            yield self

    def _next(self) -> int:
        self._versions += 1
        return self._versions

    def _present(self, key: Key) -> int:
        if key in self._resources:
            return self._resources[key].version
        return self._absent.get(key, 0)

    def _wake(self) -> None:
        if self._stream is not None:
            self._stream.wake.set()

    async def _answer(self, requests: AsyncIterator[Any], _peer: peers.Peer) -> AsyncIterator[Any]:
        # 7. from nothing
        stream = self._stream = _Stream()
        self._taken.clear()
        self._rejected.clear()
        self._absent.clear()
        self._asked.clear()
        try:
            async with tasks.Group("ads") as group:
                reading = group.start(self._read(requests, stream), name="requests")
                reading.add_done_callback(lambda _: stream.wake.set())
                while not reading.done():
                    for response in self._due(stream):
                        yield response
                    await stream.wake.wait()
                    stream.wake.clear()
        finally:
            if self._stream is stream:
                self._stream = None
                self._news.set()

    async def _read(self, requests: AsyncIterator[Any], stream: _Stream) -> None:
        async for request in requests:
            kind = _KINDS.get(request.type_url)
            if kind is None:
                _log.warning("envoy asks for what nobody has", type=request.type_url[:_MOST_WORDS])
                continue
            if request.response_nonce:
                self._take(request, stream)
            self._subscribe(request, kind, stream)
            self._news.set()
            stream.wake.set()

    def _subscribe(self, request: Any, kind: resources.Kind, stream: _Stream) -> None:
        first = kind not in stream.names
        names = stream.names.setdefault(kind, set())
        added = list(request.resource_names_subscribe)
        if first and not added:
            added = [_ANY]
        names.update(added)
        for name in added:
            # Asked for anew: sent anew.
            stream.sent.pop((kind, name), None)
            self._demand(kind, name)
        names.difference_update(request.resource_names_unsubscribe)
        for name in request.resource_names_unsubscribe:
            stream.sent.pop((kind, name), None)
            # Nobody asks for it any more: it is asked for anew if somebody does.
            self._absent.pop((kind, name), None)
            self._asked.discard(name)
        for name in request.initial_resource_versions:
            if (kind, name) not in self._resources:
                # 7. taken back
                self._absent.setdefault((kind, name), self._next())
                names.add(name)

    def _demand(self, kind: resources.Kind, name: str) -> None:
        # 6. once
        known = (kind, name) in self._resources or (kind, name) in self._absent
        if kind is resources.Kind.CLUSTER and name != _ANY and not known and name not in self._asked:
            self._asked.add(name)
            if self.on_demand is not None:
                self.on_demand(name)

    def _take(self, request: Any, stream: _Stream) -> None:
        versions = stream.nonces.pop(request.response_nonce, {})
        # 5. taken, or not
        if request.HasField("error_detail"):
            self.rejections[_KINDS[request.type_url]] += 1
            self._alone.update(versions)
            for (kind, name), version in versions.items():
                words = _words(kind, request.error_detail.message)
                self._rejected[kind, name] = (version, words)
                _log.error("envoy rejects a resource", kind=kind.name.lower(), name=name, error=words)
        else:
            self._taken.update(versions)
            self._alone.difference_update(versions)
            self._let_go(versions)
        self._news.set()

    def _let_go(self, versions: Mapping[Key, int]) -> None:
        """Forget clusters that Envoy knows to be absent: those that it asks for have names without end."""
        for (kind, name), version in versions.items():
            if kind is resources.Kind.CLUSTER and self._absent.get((kind, name)) == version:
                # 8. nothing is kept of it
                self.forget(kind, name)

    def _due(self, stream: _Stream) -> Iterable[Any]:
        """The answers that the stream lacks, in the order of the kinds (3); then what has to follow them (4)."""
        again: set[Key] = set()
        for kind in resources.Kind:
            versions = self._lacking(kind, stream) | {
                key: self._present(key) for key in again if key[0] is kind and key in stream.sent
            }
            if versions:
                again |= self._following(versions)
                yield from self._responses(kind, versions, stream)
        secrets = {key: self._present(key) for key in again if key[0] is resources.Kind.SECRET and key in stream.sent}
        if secrets:
            yield self._response(resources.Kind.SECRET, secrets, stream)

    def _lacking(self, kind: resources.Kind, stream: _Stream) -> dict[Key, int]:
        keys = [key for key in (*self._resources, *self._absent) if key[0] is kind and stream.wants(key)]
        return {key: self._present(key) for key in keys if stream.sent.get(key, 0) < self._present(key)}

    def _following(self, versions: Mapping[Key, int]) -> set[Key]:
        # 4. endpoints after their cluster, secrets after a listener
        follows: set[Key] = set()
        for kind, name in versions:
            after = _AGAIN.get(kind)
            if after is resources.Kind.ENDPOINTS:
                follows.add((after, name))
            elif after is not None:
                follows.update(key for key in self._resources if key[0] is after)
        return follows

    def _responses(self, kind: resources.Kind, versions: dict[Key, int], stream: _Stream) -> Iterable[Any]:
        # 5. alone, what was rejected once
        together = {key: version for key, version in versions.items() if key not in self._alone}
        alone = [{key: version} for key, version in versions.items() if key in self._alone]
        for rows in filter(None, [together, *alone]):
            yield self._response(kind, rows, stream)

    def _response(self, kind: resources.Kind, versions: dict[Key, int], stream: _Stream) -> Any:
        nonce = str(self._next())
        stream.sent.update(versions)
        stream.nonces[nonce] = versions
        response = envoy_messages.Response(type_url=kind.type_url, nonce=nonce, system_version_info=nonce)
        for key in versions:
            resource = self._resources.get(key)
            if resource is None:
                response.removed_resources.append(key[1])
            else:
                # The nonce makes it another version for Envoy, where it is sent again as it was.
                row = response.resources.add(name=key[1], version=f"{resource.version}.{nonce}")
                row.resource.type_url = kind.type_url
                row.resource.value = resource.octets
        return response


def _words(kind: resources.Kind, message: str) -> str:
    """What is wrong, without the resource itself, which Envoy may have written out before."""
    text = " ".join(message.split())
    _, mark, words = text.rpartition(_INVALID)
    words = (mark + words if mark else text)[:_MOST_WORDS]
    return words.partition("inline")[0].partition("-----")[0] if kind is resources.Kind.SECRET else words
