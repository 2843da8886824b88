# SPDX-License-Identifier: Apache-2.0
"""`Agent/Watch`: a stream for each agent. Anchors, deny list and policy go down, what it works by and what it sees come up.

`rules.mesh.reports` says who may watch, and what may be reported. What all are told is `announcement`'s, a Pod's own rules are `policies`'.

1. Who watches is verified, in the ledger and not revoked, before anything is told. A certificate that was issued a moment ago is waited for.
   It reports about its own Pod and no other.
2. The first report comes first: it says which version the agent has. What it is then sent has a larger one, whichever replica sent that,
   and after every restart.
3. There is one answer at a time, the newest: who reads slowly misses what was in between, and nothing is queued.
4. Who is revoked while it watches is told the list that it is on, and then the stream ends. So does the stream of a certificate that expires.
5. Reports are read so fast, and no faster: who reports more is not read.
6. A Pod has so many streams, and the process so many; they count before they say anything. The oldest stream of a Pod makes room for its newest: an agent that starts again is never
   locked out by what it left.
7. What was reported is written for a Pod that is there, with the UID that the ledger has. So is that an agent was sent a version and says
   nothing of it.
8. The policy is that of the Pod in the ledger, with its UID. While that Pod is not there, what the agent was told before counts; where it was told
   nothing, nobody is let in. Only a certificate of no Pod has no policy.
9. By which anchors an agent works is what was sent to it with the version that it acknowledges, on the same stream. It cannot say others.

| who | holding | tries | stopped by | shown in tests/unit/mesh/agents/test_watching.py |
|---|---|---|---|---|
| a stranger | no certificate | watch | 1 | test_an_anonymous_client_is_told_nothing |
| who took over a workload | its open stream | go on after a Revocation | 4 | test_who_is_revoked_is_told_and_then_ended |
| a workload | its certificate | look as if it believed a root that it was not sent | 9 | test_which_anchors_an_agent_has_is_what_it_was_sent |
| … | its certificate | report about its neighbour | 1 | test_a_report_about_a_neighbour_ends_the_stream |
| a vandal in a Pod | its certificate | many streams | 6 | test_the_oldest_stream_makes_room |
| … | its certificate | many streams on which it never says anything | 6 | test_streams_that_say_nothing_are_counted_too |
| … | its certificate | never read, so that answers pile up | 3 | test_who_reads_slowly_gets_the_newest |
| … | its certificate | many reports | 5 | test_reports_are_read_no_faster_than_they_may_come |
| who may delete Pods by force | a Pod that goes on running | have its agent drop its policy | 8 | test_a_pod_that_is_deleted_while_it_runs_keeps_its_policy |
| a slow watch | a Pod that has not come | the same | 8 | test_a_pod_that_is_not_there_lets_in_nobody |
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import prometheus_client
import structlog

from handfast import errors
from handfast.mesh import cluster as cluster_module
from handfast.mesh import policies as policies_module
from handfast.mesh.agents import announcement as announcement_module
from handfast.mesh.agents import encoding
from handfast.mesh.agents import workloads as workloads_module
from handfast.rules import revocation
from handfast.rules.mesh import certify, issued, observed, policy, reports
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from handfast.wire import agent_messages, peers, server

MAX_STREAMS: Final = 10_000
MAX_OF_ONE: Final = 4
# 6. with those that are to end, and do not read that
_MAX_WITH_ENDING: Final = 2 * MAX_OF_ONE
# 5. reports that may come at once, and seconds for each further one
_BURST: Final = 10
_REPORT_SECONDS: Final = 0.5
_FIRST_SECONDS: Final = 10.0
# 1. how far what is followed of the ledger may be behind
_LEDGER_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 5.0
_AGAIN_MS: Final = 5_000
_MOST_ENCODED: Final = 1024
_UNAVAILABLE: Final = "UNAVAILABLE"
_CLOSED: Final = encoding.encode_policy(policy.CLOSED)
_log = structlog.get_logger("handfast.mesh.agents")

STREAMS = prometheus_client.Gauge("handfast_mesh_agent_streams", "Agents that are connected.")
REPORTS = prometheus_client.Counter("handfast_mesh_agent_reports", "Reports of agents, by result.", ["result"])
UPDATES = prometheus_client.Counter("handfast_mesh_agent_updates", "Updates that were sent to agents.")


class _Stream:
    """One agent."""

    def __init__(self, identity: str, shown: issued.Certificate) -> None:
        self.identity = identity
        # What it showed, and what it says that it has now.
        self.shown = shown
        self.certificate = shown
        self.acknowledged = 0
        # The version that was sent last, and what it had in it.
        self.sent = 0
        self.had: tuple[int, bytes] = (0, b"")
        self.sent_at = 0.0
        # Versions that are not acknowledged, with their anchors; and those of the newest that is.
        self.offered: list[tuple[int, tuple[str, ...]]] = []
        self.anchors: tuple[str, ...] = ()
        self.edges: tuple[reports.Edge, ...] = ()
        # Why it ends; None while it does not.
        self.refusal: server.Refusal | None = None
        self.wake = asyncio.Event()

    @property
    def owner(self) -> str:
        """Whose streams are counted together (6)."""
        return self.shown.holder.revocable or self.shown.key_fingerprint

    def offer(self, version: int, anchors: tuple[str, ...]) -> None:
        # 9. one after the other with the same anchors is one
        if not self.offered or self.offered[-1][1] != anchors:
            self.offered.append((version, anchors))

    def acknowledge(self, version: int) -> None:
        self.acknowledged = max(self.acknowledged, version)
        while self.offered and self.offered[0][0] <= self.acknowledged:
            # 9. what was sent, and no word of the agent's
            self.anchors = self.offered.pop(0)[1]

    def end(self, code: str, text: str) -> None:
        self.refusal = self.refusal or server.Refusal(code, text)
        self.wake.set()


class Watching:
    """All agents of a process."""

    def __init__(
        self,
        *,
        announcement: announcement_module.Announcement,
        policies: policies_module.Policies,
        cluster: cluster_module.Cluster,
        workloads: workloads_module.Workloads,
        clock: clocks.Clock,
    ) -> None:
        self._announcement = announcement
        self._policies = policies
        self._cluster = cluster
        self._workloads = workloads
        self._clock = clock
        # By whose they are, and by the namespace of their Pods.
        self._streams: dict[str, list[_Stream]] = {}
        self._by_namespace: dict[str, set[_Stream]] = {}
        self._count = 0
        # What policies come to, encoded: Pods of the same rules share one, and the value keeps its key from being used again.
        self._encoded: dict[int, tuple[policy.Compiled, bytes]] = {}
        announcement.subscribe(self._wake_all)
        policies.subscribe(self._wake_namespace)
        cluster.subscribe(self._cluster_changed)

    def services(self) -> server.Services:
        """What the gRPC server offers."""
        method = server.Duplex("Watch", agent_messages.Report, agent_messages.Parts, self.watch)
        return {agent_messages.SERVICE: (method,)}

    async def run(self) -> None:
        """End streams whose certificate has expired (4), and tell of those that acknowledge nothing (7), until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            now, limit = self._clock.now(), self._clock.monotonic() - _LOOK_SECONDS
            for stream in self._all():
                if stream.shown.not_after <= now:
                    stream.end(reports.UNAUTHENTICATED, "the certificate has expired: connect with the next one")
                elif stream.acknowledged < stream.sent and stream.sent_at <= limit:
                    self._observe(stream)

    def close(self) -> None:
        """End every stream: the process stops."""
        for stream in self._all():
            stream.end(_UNAVAILABLE, "this replica stops: connect to another, or again")

    async def watch(self, messages: AsyncIterator[Any], peer: peers.Peer) -> AsyncIterator[Any]:
        """One stream, until it ends."""
        with _refusing():
            stream = await self._admit(peer)
        with self._counted(stream):
            with _refusing():
                await self._begin(stream, messages)
            async with tasks.Group("agent") as group:
                group.start(self._read(stream, messages), name="reports")
                while True:
                    stream.wake.clear()
                    if (update := self._next(stream)) is not None:
                        UPDATES.inc()
                        # 3. the newest, when there is room for it
                        yield update
                    self._require_good(stream)
                    await stream.wake.wait()

    async def _admit(self, peer: peers.Peer) -> _Stream:
        """Who it is (1)."""
        identity = peer.identity(self._clock.now())
        certificate = None
        if identity and peer.verified is not None:
            if why_not := self._announcement.why_not or self._policies.why_not:
                raise server.Refusal(_UNAVAILABLE, f"not everything is known here: {why_not}", _AGAIN_MS)
            # 1. one that was just issued is waited for
            certificate = await self._announcement.issuance.find(peer.verified.fingerprint, _LEDGER_SECONDS)
        return _Stream(identity, reports.require_watcher(identity, certificate, self._announcement.denied))

    async def _begin(self, stream: _Stream, messages: AsyncIterator[Any]) -> None:
        """The first report."""
        first: list[Any] = []

        async def take() -> None:
            async for message in messages:
                first.append(message)
                return

        await tasks.within(take(), self._clock, _FIRST_SECONDS)
        if not first:
            raise server.Refusal(
                certify.INVALID_ARGUMENT, "an agent begins with a report, which says the version that it has"
            )
        report = encoding.read_report(first[0])
        reports.require_had(report.acknowledged, self._clock.now())
        # 2. what it is sent is newer than what it has
        stream.sent = report.acknowledged
        await self._take(stream, report)

    async def _read(self, stream: _Stream, messages: AsyncIterator[Any]) -> None:
        due = self._clock.monotonic()
        try:
            async for message in messages:
                report = encoding.read_report(message)
                reports.require_sent(report.acknowledged, stream.sent)
                await self._take(stream, report)
                # 5. so fast, and no faster
                now = self._clock.monotonic()
                due = max(due, now) + _REPORT_SECONDS
                if (ahead := due - now - _BURST * _REPORT_SECONDS) > 0:
                    await self._clock.sleep(ahead)
        except certify.Refusal as refused:
            REPORTS.labels(refused.reason).inc()
            stream.end(refused.code, refused.message)

    async def _take(self, stream: _Stream, report: reports.Report) -> None:
        if report.certificate and report.certificate != stream.certificate.fingerprint:
            # It may be a moment old.
            await self._announcement.issuance.find(report.certificate, _LEDGER_SECONDS)
        # 1. about its own Pod
        stream.certificate = reports.require_own(report, stream.shown, self._announcement.issuance.index)
        stream.acknowledge(report.acknowledged)
        if report.edges:
            stream.edges = report.edges
        REPORTS.labels("ok").inc()
        self._observe(stream)

    def _observe(self, stream: _Stream) -> None:
        holder = stream.shown.holder
        pod = self._cluster.pod(holder.namespace, holder.pod) if holder.pod else None
        # 7. a Pod that is there, with that UID
        if pod is None or pod.metadata.uid != holder.uid:
            return
        seen = observed.Observed(
            identity=stream.identity,
            certificate=stream.certificate,
            acknowledged=stream.acknowledged,
            current=stream.sent,
            edges=stream.edges,
            anchors=stream.anchors,
        )
        self._workloads.observe(holder, seen)

    def _next(self, stream: _Stream) -> agent_messages.Parts | None:
        """What the agent does not have; None where it has all."""
        own = self._policy(stream)
        if stream.had == (self._announcement.version, own):
            return None
        # 2. larger than the one that it has
        version = max(self._announcement.version, stream.sent + 1)
        stream.had, stream.sent = (self._announcement.version, own), version
        stream.sent_at = self._clock.monotonic()
        stream.offer(version, self._announcement.roots)
        return agent_messages.Parts((encoding.encode_version(version), self._announcement.octets, own))

    def _policy(self, stream: _Stream) -> bytes:
        holder = stream.shown.holder
        if not holder.pod:
            return b""
        pod = self._cluster.pod(holder.namespace, holder.pod)
        # 8. that Pod, and no other of its name
        if pod is None or holder.uid not in {"", pod.metadata.uid}:
            return stream.had[1] or _CLOSED
        try:
            compiled = self._policies.compiled(pod)
        except errors.Unavailable:
            # What it was told before counts; 8. and without that, nobody is let in
            return stream.had[1] or _CLOSED
        if id(compiled) not in self._encoded:
            if len(self._encoded) >= _MOST_ENCODED:
                self._encoded.clear()
            self._encoded[id(compiled)] = (compiled, encoding.encode_policy(compiled))
        return self._encoded[id(compiled)][1]

    def _require_good(self, stream: _Stream) -> None:
        if stream.refusal is not None:
            raise stream.refusal
        with _refusing():
            # 4. told, and then ended
            reports.require_not_denied(stream.shown, self._announcement.denied)

    @contextlib.contextmanager
    def _counted(self, stream: _Stream) -> Iterator[None]:
        # 6. so many in all, and so many of one
        if self._count >= MAX_STREAMS:
            raise server.Refusal(certify.RESOURCE_EXHAUSTED, "too many agents are connected here", _AGAIN_MS)
        own = self._streams.get(stream.owner, [])
        if len(own) >= _MAX_WITH_ENDING:
            raise server.Refusal(certify.RESOURCE_EXHAUSTED, "this workload has too many streams", _AGAIN_MS)
        going_on = [each for each in own if each.refusal is None]
        if len(going_on) >= MAX_OF_ONE:
            going_on[0].end("ABORTED", "a newer stream of the same workload took its place")
        self._streams.setdefault(stream.owner, own).append(stream)
        namespace = self._by_namespace.setdefault(stream.shown.holder.namespace, set())
        namespace.add(stream)
        self._count += 1
        STREAMS.set(self._count)
        try:
            yield
        finally:
            self._drop(stream)

    def _drop(self, stream: _Stream) -> None:
        own, place = self._streams[stream.owner], stream.shown.holder.namespace
        own.remove(stream)
        if not own:
            del self._streams[stream.owner]
        self._by_namespace[place].discard(stream)
        if not self._by_namespace[place]:
            del self._by_namespace[place]
        self._count -= 1
        STREAMS.set(self._count)

    # What wakes streams.

    def _all(self) -> list[_Stream]:
        return [stream for own in self._streams.values() for stream in own]

    def _wake_all(self) -> None:
        for stream in self._all():
            stream.wake.set()

    def _wake_namespace(self, namespace: str) -> None:
        if namespace == policies_module.ALL:
            self._wake_all()
        for stream in self._by_namespace.get(namespace, ()):
            stream.wake.set()

    def _cluster_changed(self, change: cluster_module.Change) -> None:
        if change.resource == cluster_module.PODS:
            pod = (change.new or change.old).metadata
            for stream in self._streams.get(revocation.pod_text(pod.namespace, pod.name, pod.uid), ()):
                stream.wake.set()


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """What rules refuse, as gRPC says it."""
    try:
        yield
    except certify.Refusal as refused:
        REPORTS.labels(refused.reason).inc()
        raise server.Refusal(refused.code, refused.message) from None
