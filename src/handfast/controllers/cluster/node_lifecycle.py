# SPDX-License-Identifier: Apache-2.0
"""Marks Nodes that are silent or revoked, by conditions, taints and an Event. `rules.nodes.lifecycle` says which.

It evicts no Pods, and makes no node ready: that is the node's own word. A cluster's kube-controller-manager does the same for
silent nodes. So this runs only where it is named (`--controllers`); `handfast up` names it.

1. A node was heard of when its Lease was renewed, or it posted another heartbeat, by the monotonic clock of this process. One
   timer a node: it rings when the grace is over, looks, and is set again. Renewals cost no look of their own.
2. Before a node is called silent its Lease is read from the server: the watch may be late.
3. Every `MONITOR` seconds the API server is asked for an answer. When none comes, when asking itself comes late, or when the wall
   clock was set or the machine slept, the grace of every node begins anew: this process was away itself, and knows nothing of
   others. The grace also begins anew with every start of the controller.
4. Each write carries the version that was judged. Of several copies one writes, and that one tells of it.
5. A Revocation that comes, changes, goes or ends has every Node looked at: at once.
6. A server that answers may still take no writes: its disk is full, or it is overloaded. So nobody is called silent before writes
   were seen to be taken for 20 seconds: renewals of other nodes, or what this controller writes. Where no other node renews, it
   writes an Event on the silent one for that, and again every `MONITOR` seconds.
"""

from __future__ import annotations

from typing import Any, Final

import prometheus_client
import structlog

from handfast import errors
from handfast.api import resources, status
from handfast.client import api, cache, events, revoked
from handfast.controllers import loop, node_leases, views
from handfast.rules.nodes import lifecycle, liveness

NAME = "node-lifecycle-controller"
# As in kube-controller-manager: --node-monitor-grace-period, --node-startup-grace-period, --node-monitor-period.
GRACE: Final = 50.0
STARTUP_GRACE: Final = 60.0
MONITOR: Final = 5.0
# 3. how late asking may be, and how long an answer may take
_LATE: Final = 3 * MONITOR
_ANSWER: Final = 5.0
_SET: Final = 2.0
# Each has a connection of its own while it writes: one slow write delays no other node.
WORKERS: Final = 8
# 6. the Event by which a write is tried
NOT_RENEWED: Final = "LeaseNotRenewed"
# The key by which the controller looks after itself: no Node has this name.
OURSELVES: Final = ""
_STRATEGIC: Final = "application/strategic-merge-patch+json"
# The name that Kubernetes gives to Events of its own.
_COMPONENT: Final = "node-controller"

_log = structlog.get_logger("handfast.node_lifecycle")
MARKED = prometheus_client.Counter(
    "handfast_node_lifecycle_marked", "Nodes whose Ready condition was changed for them, by its new reason.", ["reason"]
)


class NodeLifecycle:
    """Handles one Node, by name; `OURSELVES` is the look at this process."""

    def __init__(
        self,
        context: loop.Context,
        nodes: cache.Informer[views.Node],
        leases: node_leases.NodeLeases,
        revocations: revoked.Revoked,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._nodes = nodes
        self._leases = leases
        self._revocations = revocations
        self._recorder = events.Recorder(context.client, context.clock, _COMPONENT)
        # When each node last posted, on the monotonic clock (1).
        self._posted: dict[str, float] = {}
        # Since when everybody is given a grace (3); and when this was last looked at, by both clocks.
        self._anew = self._clock.monotonic()
        self._looked = (self._clock.monotonic(), self._clock.now().timestamp())
        # Writes that were seen to be taken, and when one was last tried for that (6).
        self._writes: liveness.Writes | None = None
        self._tried = -MONITOR
        # Nodes without a timer: they are silent, and stay so until they are heard of.
        self.silent: set[str] = set()
        nodes.subscribe(self._note)

    def _note(self, old: views.Node | None, new: views.Node | None) -> None:
        name = (new or old or views.Node()).metadata.name
        if new is None:
            self._posted.pop(name, None)
            self.silent.discard(name)
        elif old is None or lifecycle.heartbeat(_plain(old)) != lifecycle.heartbeat(_plain(new)):
            self._posted[name] = self._clock.monotonic()
            if old is not None:
                self._saw_write()

    def of_lease(self, name: str) -> bool:
        """A Lease has come, changed or gone. Returns whether its Node is to be looked at now: others have a timer (1)."""
        pulse = self._leases.pulse(name)
        if pulse is not None and pulse.beat:
            self._saw_write()
        return name in self.silent

    def _saw_write(self) -> None:
        self._writes = liveness.saw_write(self._writes, self._clock.monotonic())

    def _wrote(self, error: errors.HandfastError | None) -> None:
        """Note what came of a write of ours (6). A write that was refused for what it says shows that others are taken."""
        code = error.code if isinstance(error, status.StatusError) else 0
        if isinstance(error, errors.Unavailable) or code == 429 or code >= 500:
            self._writes = None
        else:
            self._saw_write()

    async def reconcile(self, name: str) -> float | None:
        if name == OURSELVES:
            return await self._look_at_ourselves()
        node = self._nodes.get("", name)
        if node is None:
            self.silent.discard(name)
            return None
        document, now = _plain(node), self._clock.now()
        left = await self._left(node, document)
        revocation = self._revocations.index.of_node(name, now)
        change = lifecycle.judge(document, revocation, now, silent=left <= 0)
        await self._write(node, change)
        if left <= 0:
            self.silent.add(name)
        else:
            self.silent.discard(name)
        ends = self._revocations.next_end(name, now)
        again = [seconds for seconds in (left if left > 0 else None, ends) if seconds is not None]
        return min(again, default=None)

    async def _left(self, node: views.Node, document: Any) -> float:
        """For how many seconds the node is not called silent yet (1)."""
        name = node.metadata.name
        grace = GRACE if lifecycle.ready(document) is not None else STARTUP_GRACE
        self._notice_absence()
        left = self._heard(name) + grace - self._clock.monotonic()
        if left <= 0 and name not in self.silent:
            # 6. could it have renewed?
            if not await self._writes_proven(node, document):
                return MONITOR
            # 2. the watch may be late
            await self._leases.read(self._client, name)
            left = self._heard(name) + grace - self._clock.monotonic()
        return left

    async def _writes_proven(self, node: views.Node, document: Any) -> bool:
        """Whether a node that was not heard of can be called silent (6); one whose Node says so already can."""
        name, now = node.metadata.name, self._clock.monotonic()
        if self._writes is not None and self._writes.prove(now):
            return True
        if not lifecycle.judge(document, None, self._clock.now(), silent=True).conditions:
            return True
        if now - self._tried >= MONITOR:
            self._tried = now
            message = f"Node {name} does not renew its Lease: it is called Unknown unless it is heard of now"
            self._wrote(await self._recorder.record(_about(node), NOT_RENEWED, message))
        return False

    def _heard(self, name: str) -> float:
        pulse = self._leases.pulse(name)
        return max(self._anew, self._posted.get(name, 0.0), 0.0 if pulse is None else pulse.at)

    async def _write(self, node: views.Node, change: lifecycle.Change) -> None:
        try:
            await self._patch(node, change)
        except errors.HandfastError as error:
            self._wrote(error)
            raise

    async def _patch(self, node: views.Node, change: lifecycle.Change) -> None:
        # 4. at the version that was judged
        meta = node.metadata
        version = meta.resource_version
        if change.conditions:
            patch = {"metadata": {"resourceVersion": version}, "status": {"conditions": list(change.conditions)}}
            with api.MISSING_OK:
                answer = await self._client.patch(
                    resources.NODES, meta.name, patch, content_type=_STRATEGIC, subresource="status"
                )
                version = answer["metadata"]["resourceVersion"]
                await self._tell(node, change)
        if change.taints is not None:
            spec = {"taints": list(change.taints) or None}
            with api.MISSING_OK:
                await self._client.patch(
                    resources.NODES, meta.name, {"metadata": {"resourceVersion": version}, "spec": spec}
                )

    async def _tell(self, node: views.Node, change: lifecycle.Change) -> None:
        meta = node.metadata
        ready = next((row for row in change.conditions if row["type"] == lifecycle.READY), None)
        if ready is None:
            return
        MARKED.labels(ready["reason"]).inc()
        _log.info("a node is not ready", node=meta.name, status=ready["status"], reason=ready["reason"])
        about = _about(node)
        if change.lost:
            message = f"Node {meta.name} status is now: {lifecycle.NOT_READY_EVENT}"
            await self._recorder.record(about, lifecycle.NOT_READY_EVENT, message)
        if ready["reason"] == lifecycle.NODE_REVOKED:
            await self._recorder.record(about, ready["reason"], ready["message"], severity=events.WARNING)

    async def _look_at_ourselves(self) -> float:
        """Ask the API server for an answer, and begin every grace anew where none comes (3)."""
        self._notice_absence()
        try:
            await self._client.transport.request("GET", "/livez", seconds=_ANSWER)
        except (errors.Refused, errors.Unavailable) as error:
            _log.debug("the API server does not answer", reason=error.reason, error=error.message)
            self._anew, self._writes = self._clock.monotonic(), None
        self._looked = (self._clock.monotonic(), self._clock.now().timestamp())
        return MONITOR

    def _notice_absence(self) -> None:
        """Notice that this process was away (3). Also before a node is called silent: after a pause everything is due at once, in any order."""
        before, before_wall = self._looked
        monotonic, wall = self._clock.monotonic(), self._clock.now().timestamp()
        passed = monotonic - before
        if passed > _LATE or abs(wall - before_wall - passed) > _SET:
            self._anew, self._looked = monotonic, (monotonic, wall)
            _log.info("this process was away, or a clock was set: every node is given its grace anew")


def _about(node: views.Node) -> events.Regarding:
    return events.Regarding(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)


def _plain(node: views.Node) -> Any:
    """As the rules read it."""
    return {
        "metadata": {"creationTimestamp": node.metadata.creation_timestamp},
        "spec": {"taints": node.spec.taints},
        "status": {"conditions": node.status.conditions},
    }


def build(context: loop.Context) -> loop.Controller[str]:
    nodes = context.informers.get(views.ALL_NODES)

    def of_lease(name: str) -> None:
        if handler.of_lease(name):
            controller.queue.add(name)

    def of_revocations() -> None:
        # 5. every Node, at once
        for node in nodes:
            controller.queue.add(node.metadata.name)

    leases = node_leases.follow(context, of_lease)
    revocations = revoked.follow(context.informers, of_revocations)
    handler = NodeLifecycle(context, nodes, leases, revocations)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=WORKERS)
    controller.watches(nodes, lambda node: [node.metadata.name], unless=views.only_rolled_out)
    controller.needs(leases)
    controller.uses(revocations)
    controller.queue.add(OURSELVES)
    return controller
