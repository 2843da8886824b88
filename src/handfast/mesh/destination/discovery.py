# SPDX-License-Identifier: Apache-2.0
"""Get and GetProfile, from the message to the stream: what a path names, whether it can be answered, and how many may listen.

What is said, `subjects` has; when, `publishers`. Codes and texts are those of Linkerd's, where it has them.

1. Nothing is answered before the cluster, the settings and the Revocations are known: by half of them a meshed Pod could be taken for another.
2. `Get` is for names. An address is refused; so is what is no name of the cluster. A Service that is not there is not found.
3. Something is said at once: the endpoints, or that there are none.
4. So many streams of one host, on loopback of one connection, and so many of all, and no more.
5. What a proxy says of itself is a claim. It goes to the log, and changes no answer.

| who | holding | tries | stopped by | shown in tests/unit/mesh/destination/test_discovery.py |
|---|---|---|---|---|
| a client | a connection | streams without end, to use up memory | 4 | test_streams_over_the_bound_of_a_connection_are_refused |
| … | many connections | all streams that there are, so that nobody else has one | 4 | test_many_connections_of_one_host_are_one_client |
| … | a context that names another Pod | be told what that one is told | 5 | test_what_a_proxy_says_of_itself_changes_nothing |
| a service that has just started | half of the cluster | hand out a meshed Pod without its identity | 1 | test_nothing_is_answered_before_everything_is_known |
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

import prometheus_client
import structlog

from handfast.mesh import cluster as cluster_module
from handfast.mesh.destination import publishers as publishers_module
from handfast.mesh.destination import subjects
from handfast.rules.mesh import authorities
from handfast.wire import mesh_messages, peers, server

STREAMS: Final = 65_536
STREAMS_OF_ONE: Final = 4_096
_AGAIN_MS: Final = 1000
_log = structlog.get_logger("handfast.mesh.destination")

OPEN = prometheus_client.Gauge("handfast_mesh_discovery_streams", "Streams of discovery that are open.", ["method"])
UPDATES = prometheus_client.Counter(
    "handfast_mesh_discovery_updates", "Messages sent on streams of discovery.", ["method"]
)
REFUSED = prometheus_client.Counter(
    "handfast_mesh_discovery_refused", "Streams of discovery that ended in a refusal, by its code.", ["code"]
)


class Discovery:
    """Answers Get and GetProfile."""

    def __init__(
        self,
        cluster: cluster_module.Cluster,
        publishers: publishers_module.Publishers,
        *,
        streams: int = STREAMS,
        streams_of_one: int = STREAMS_OF_ONE,
    ) -> None:
        self._cluster = cluster
        self._publishers = publishers
        self._most = streams
        self._most_of_one = streams_of_one
        self._open: collections.Counter[str] = collections.Counter()
        self._total = 0

    def methods(self) -> tuple[server.Stream, ...]:
        """What the gRPC server offers."""
        request = mesh_messages.GetDestination
        return (
            server.Stream("Get", request, mesh_messages.Update, self.get),
            server.Stream("GetProfile", request, mesh_messages.DestinationProfile, self.get_profile),
        )

    async def get(self, message: Any, peer: peers.Peer) -> AsyncGenerator[bytes, None]:
        """The endpoints of a Service's port at once, or that there are none (3), and every change of them."""
        async with contextlib.aclosing(self._stream("Get", message, peer)) as said:
            async for octets in said:
                yield octets

    async def get_profile(self, message: Any, peer: peers.Peer) -> AsyncGenerator[bytes, None]:
        """What is to be known of a Service or of an address, and every change of it."""
        async with contextlib.aclosing(self._stream("GetProfile", message, peer)) as said:
            async for octets in said:
                yield octets

    async def _stream(self, method: str, message: Any, peer: peers.Peer) -> AsyncGenerator[bytes, None]:
        updates = UPDATES.labels(method)
        try:
            subject = self._subject(method, message)
            with self._seat(method, peer):
                async with contextlib.aclosing(self._publishers.stream(subject)) as said:
                    async for octets in said:
                        updates.inc()
                        yield octets
        except server.Refusal as refusal:
            REFUSED.labels(refusal.code).inc()
            raise

    def _subject(self, method: str, message: Any) -> subjects.Subject:
        # 1. nothing before everything is known
        if (why := self.why_not()) is not None:
            raise server.Refusal(subjects.UNAVAILABLE, why, _AGAIN_MS)
        try:
            wanted = authorities.parse(message.path)
        except authorities.InvalidAuthority as invalid:
            raise server.Refusal(subjects.INVALID, invalid.message) from None
        # 5. a claim, for the log
        context = authorities.context(message.context_token)
        _log.debug("a proxy asks", method=method, pod=context.pod[:253], namespace=context.namespace[:63])
        if method == "Get":
            return self._endpoints(wanted)
        if isinstance(wanted, authorities.Address):
            return subjects.AddressProfile(wanted)
        return subjects.ServiceProfile(wanted)

    def _endpoints(self, wanted: authorities.Service | authorities.Address) -> subjects.Subject:
        # 2. for names, of Services that are there
        if isinstance(wanted, authorities.Address):
            raise server.Refusal(subjects.INVALID, f"IP queries not supported by Get API: host={wanted.host}")
        if self._cluster.service(*wanted.key) is None:
            raise subjects.refusal(subjects.missing(wanted))
        return subjects.ServiceEndpoints(wanted)

    def why_not(self) -> str | None:
        """Why nothing can be answered now; None where it can (1)."""
        if self._publishers.closed:
            return "the service stops"
        if not self._cluster.synced:
            return "the cluster was not listed so far"
        if self._cluster.mesh is None:
            return self._cluster.why_not
        return None if self._publishers.revocations.known else "who is revoked is not known"

    @contextlib.contextmanager
    def _seat(self, method: str, peer: peers.Peer) -> Iterator[None]:
        # 4. so many of one, and so many of all
        if self._open[peer.place] >= self._most_of_one or self._total >= self._most:
            raise server.Refusal("RESOURCE_EXHAUSTED", "so many streams are open, which is all that may", _AGAIN_MS)
        self._open[peer.place] += 1
        self._total += 1
        OPEN.labels(method).inc()
        try:
            yield
        finally:
            OPEN.labels(method).dec()
            self._open[peer.place] -= 1
            self._total -= 1
            if not self._open[peer.place]:
                del self._open[peer.place]
