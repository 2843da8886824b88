# SPDX-License-Identifier: Apache-2.0
"""When a node is called silent, when not, and what is written of it. What a Node then says is tested with the rules."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime
from typing import Any

import msgspec
import pytest

from handfast import errors
from handfast.api import objects, status
from handfast.client import cache, revoked
from handfast.controllers import loop, node_leases, views
from handfast.controllers.cluster import node_lifecycle
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.world.clock import MovableClock, settle

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class Line:
    """A server that answers, or does not."""

    def __init__(self) -> None:
        self.trouble: errors.HandfastError | None = None

    async def request(self, method: str, path: str, *, seconds: float) -> bytes:
        assert (method, path) == ("GET", "/livez")
        if self.trouble is not None:
            raise self.trouble
        return b"ok"


class Client(FakeClient):
    """… whose patches reach conditions and taints."""

    transport: Any

    def __init__(self) -> None:
        super().__init__()
        self.transport = Line()

    async def patch(
        self, resource: Any, name: str, patch: Any, *, subresource: str = "", content_type: str = "", **_: Any
    ) -> dict[str, Any]:
        found = self._find("patch", resource, name, "")
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise status.conflict(resource.plural, resource.group, name)
        if subresource == "status":
            assert content_type == "application/strategic-merge-patch+json"
            rows = {row["type"]: row for row in found["status"].get("conditions") or ()}
            rows.update({row["type"]: row for row in patch["status"]["conditions"]})
            found["status"]["conditions"] = copy.deepcopy(list(rows.values()))
        else:
            found["spec"]["taints"] = copy.deepcopy(patch["spec"]["taints"])
        return self._wrote(f"patch {subresource}".strip(), resource, name, found)


class World:
    """Nodes and Leases on a server, and one copy of the controller that follows them."""

    def __init__(self, client: Client | None = None, clock: MovableClock | None = None) -> None:
        self.client, self.clock = client or Client(), clock or MovableClock(START)
        self.nodes = cache.Informer(views.ALL_NODES)
        self.leases = cache.Informer(node_leases.SOURCE)
        self.revoked = cache.Informer(revoked.SOURCE)
        for informer in (self.nodes, self.leases, self.revoked):
            informer.end()
        # Whether each Lease that changed had its Node looked at.
        self.queued: list[bool] = []
        context = loop.Context(client=self.client, informers=cache.Informers(self.client, self.clock), clock=self.clock)
        self.handler = node_lifecycle.NodeLifecycle(
            context,
            self.nodes,
            node_leases.NodeLeases(
                self.leases, self.clock, lambda name: self.queued.append(self.handler.of_lease(name))
            ),
            revoked.Revoked(self.revoked),
        )

    def post(self, name: str = "n1", word: str = "True", *, taints: Any = None) -> None:
        """What a kubelet does at times."""
        now = objects.timestamp(self.clock.now())
        row = {"type": "Ready", "status": word, "reason": "K", "lastHeartbeatTime": now, "lastTransitionTime": now}
        self.client.put("nodes", name, spec={"taints": taints}, status={"conditions": [row] if word else []})
        self.follow(name)

    def follow(self, name: str = "n1") -> None:
        """The watch tells."""
        self.nodes.put(msgspec.convert(self.client.objects["nodes", "", name], views.Node))

    def renew(self, name: str = "n1", *, tell: bool = True) -> None:
        """What a kubelet does every ten seconds."""
        spec = {"renewTime": objects.micro_timestamp(self.clock.now()), "leaseDurationSeconds": 40}
        document = self.client.put("leases", name, "kube-node-lease", spec=spec)
        if tell:
            self.leases.put(msgspec.convert(document, node_leases.Lease))

    def revoke(self, name: str = "gone", **spec: Any) -> None:
        document = {"metadata": {"name": name, "resourceVersion": str(id(spec))}, "spec": spec}
        self.revoked.put(msgspec.convert(document, revoked.Revocation))

    async def look(self, name: str = "n1") -> float | None:
        again = await self.handler.reconcile(name)
        self.follow(name)
        return again

    async def live(self, seconds: float, *renewed: str) -> None:
        """Time passes as it should: the controller looks after itself, and some nodes renew their Leases."""
        for _ in range(round(seconds / 5)):
            await self.clock.advance(5)
            await self.handler.reconcile(node_lifecycle.OURSELVES)
            for name in renewed:
                self.renew(name)

    def ready(self, name: str = "n1") -> tuple[str, str]:
        (row,) = [
            row for row in self.client.objects["nodes", "", name]["status"]["conditions"] if row["type"] == "Ready"
        ]
        return row["status"], row["reason"]

    def taints(self, name: str = "n1") -> list[tuple[str, str]]:
        rows = self.client.objects["nodes", "", name]["spec"]["taints"] or ()
        return [(row["key"].removeprefix("node.kubernetes.io/"), row["effect"]) for row in rows]

    def events(self) -> list[tuple[str, str, str]]:
        found = [document for (plural, _, _), document in self.client.objects.items() if plural == "events"]
        return [(document["type"], document["reason"], document["message"]) for document in found]


@pytest.fixture
def world() -> World:
    made = World()
    made.post()
    made.renew()
    return made


async def test_a_node_that_falls_silent(world: World) -> None:
    assert await world.look() == 50
    await world.live(45, "n2")
    assert await world.look() == 5
    assert world.ready() == ("True", "K")
    await world.live(5, "n2")
    # No timer any more: it is silent until it is heard of.
    assert await world.look() is None
    assert world.handler.silent == {"n1"}
    assert world.ready() == ("Unknown", "NodeStatusUnknown")
    assert world.taints() == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    assert world.events() == [("Normal", "NodeNotReady", "Node n1 status is now: NodeNotReady")]
    world.queued.clear()
    calls = len(world.client.calls)
    await world.live(100, "n2")
    assert await world.look() is None
    assert len(world.client.calls) == calls
    # It comes back: its own word counts, and the taints go.
    world.post(taints=world.client.objects["nodes", "", "n1"]["spec"]["taints"])
    world.renew()
    # Of a Lease that is renewed only a silent node is looked at.
    assert world.queued == [False] * 20 + [True]
    assert await world.look() == 50
    assert (world.ready(), world.taints(), world.handler.silent) == (("True", "K"), [], set())


async def test_a_node_that_renews_its_lease_is_let_be(world: World) -> None:
    await world.live(300, "n1")
    assert await world.look() == 50
    assert world.client.calls == []


async def test_a_node_without_a_lease_is_heard_by_what_it_posts() -> None:
    world = World()
    world.post()
    await world.live(45)
    world.post()
    await world.live(45)
    assert await world.look() == 5


async def test_a_node_that_never_posted() -> None:
    world = World()
    world.post(word="")
    await world.live(55, "n2")
    assert await world.look() == 5
    await world.live(5, "n2")
    assert await world.look() is None
    assert world.ready() == ("Unknown", "NodeStatusNeverUpdated")
    # It was never ready, so that nothing was lost.
    assert world.events() == []


async def test_the_server_is_asked_before_a_node_is_called_silent(world: World) -> None:
    """The watch may be late."""
    await world.live(45, "n2")
    world.renew(tell=False)
    await world.live(5, "n2")
    assert await world.look() == 50
    assert world.ready() == ("True", "K")


async def test_while_the_server_does_not_answer_nobody_dies(world: World) -> None:
    await world.live(40)
    world.client.transport.trouble = errors.Unavailable("down", reason="Unreachable")
    await world.live(120)
    assert await world.look() == 50
    world.client.transport.trouble = None
    # Nodes need a moment, too, to find it again.
    await world.live(45, "n2")
    assert await world.look() == 5
    assert world.ready() == ("True", "K")
    await world.live(5, "n2")
    await world.look()
    assert world.ready()[0] == "Unknown"


async def waits(world: World, *renewed: str) -> None:
    """Time passes, and the node is looked at when its timer rings."""
    for _ in range(4):
        assert await world.look() == 5
        assert world.ready() == ("True", "K")
        await world.live(5, *renewed)


async def test_a_lone_node_is_called_silent_when_writes_were_taken_for_a_while(world: World) -> None:
    """Nobody else renews, so that the controller writes itself: an Event."""
    await world.live(50)
    # Once in five seconds, however often it is looked at.
    assert await world.look() == 5
    await waits(world)
    (event,) = world.events()
    assert event[:2] == ("Normal", "LeaseNotRenewed")
    assert [call[:2] for call in world.client.calls] == [("create", "events"), *[("update", "events")] * 3]
    assert await world.look() == 5
    assert await world.look() is None
    assert world.ready() == ("Unknown", "NodeStatusUnknown")
    # A start finds what was said, and asks nothing.
    again, calls = World(world.client, world.clock), len(world.client.calls)
    again.follow()
    again.leases.put(msgspec.convert(world.client.objects["leases", "kube-node-lease", "n1"], node_leases.Lease))
    await again.live(50)
    assert await again.look() is None
    assert len(again.client.calls) == calls


REFUSALS = [
    status.StatusError("ServiceUnavailable", "no space left for this write"),
    status.StatusError("TooManyRequests", "later", retry_after=1),
    errors.Unavailable("reset", reason="Unreachable"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: str(error.reason))
async def test_while_the_server_takes_no_writes_nobody_dies(world: World, refusal: errors.HandfastError) -> None:
    """A full disk: it answers, and neither nodes nor this controller can write. Then nodes need a moment."""

    def refuse(verb: str, *_: str) -> None:
        if verb in {"create", "update", "patch"}:
            raise refusal

    world.client.before = refuse
    await world.live(600)
    await waits(world)
    world.client.before = lambda *_: None
    await waits(world)
    world.renew()
    assert await world.look() == 50
    assert world.ready() == ("True", "K")


async def test_a_write_that_fails_begins_the_wait_anew(world: World) -> None:
    await world.live(50, "n2")
    world.client.before = failing(REFUSALS[0], verb="patch")
    with pytest.raises(status.StatusError, match="no space left"):
        await world.look()
    world.client.before = lambda *_: None
    await waits(world, "n2")


async def test_an_event_that_is_forbidden_keeps_nobody_alive(world: World) -> None:
    """It says nothing of other writes, and there is no other way to find out."""
    world.client.before = failing(status.forbidden("events", "", "", "no"), plural="events")
    await world.live(50)
    await waits(world)
    assert await world.look() == 5
    assert await world.look() is None


async def test_a_slow_write_delays_no_other_node() -> None:
    world, slow = World(), asyncio.Event()
    patch = world.client.patch

    async def patched(resource: Any, name: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if name == "n1":
            await slow.wait()
        return await patch(resource, name, *rest, **more)

    world.client.patch = patched  # type: ignore[method-assign]
    followed = {informer.source.resource.plural: informer for informer in (world.nodes, world.leases, world.revoked)}

    class Informers(cache.Informers):
        def get(self, source: Any, indexes: Any = None) -> Any:
            return followed[source.resource.plural]

    informers = Informers(world.client, world.clock)
    controller = node_lifecycle.build(loop.Context(client=world.client, informers=informers, clock=world.clock))
    running = asyncio.create_task(controller.run())
    try:
        for name in ("n1", "n2"):
            world.post(name)
            world.revoke(f"gone-{name}", node=name)
        await settle(50)
        assert (world.ready("n1"), world.ready("n2")) == (("True", "K"), ("False", "NodeRevoked"))
        slow.set()
        await settle(50)
        assert world.ready("n1") == ("False", "NodeRevoked")
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_a_clock_that_is_set_kills_nobody(world: World, jump: float) -> None:
    """Ahead also: the machine slept, and its monotonic clock stood still."""
    await world.live(45)
    world.clock.set_wall(jump)
    await world.clock.advance(5)
    assert await world.look() == 50
    assert world.ready() == ("True", "K")


async def test_a_pause_of_this_process_kills_nobody(world: World) -> None:
    """Whatever is handled first afterwards."""
    await world.live(45)
    world.clock.hold(120)
    assert await world.look() == 50
    assert world.ready() == ("True", "K")


async def test_a_start_gives_everybody_a_grace(world: World) -> None:
    await world.live(300)
    again = World(world.client, world.clock)
    again.follow()
    assert await again.look() == 50
    assert again.ready() == ("True", "K")


async def test_a_revoked_node_is_not_ready_at_once(world: World) -> None:
    world.revoke(node="n1", reason="stolen")
    # Its timer goes on: should the revocation end, the Lease decides.
    assert await world.look() == 50
    assert world.ready() == ("False", "NodeRevoked")
    assert world.taints() == [("not-ready", "NoSchedule"), ("not-ready", "NoExecute")]
    assert sorted(world.events()) == [
        ("Normal", "NodeNotReady", "Node n1 status is now: NodeNotReady"),
        ("Warning", "NodeRevoked", 'the node is refused by Revocation "gone": stolen'),
    ]
    (item,) = world.revoked
    world.revoked.remove(item)
    await world.look()
    assert world.ready() == ("Unknown", "NodeStatusUnknown")
    assert world.taints() == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]


async def test_a_revocation_that_ends_by_itself_is_looked_at_then(world: World) -> None:
    world.revoke(node="n1", expires=objects.timestamp(START + datetime.timedelta(seconds=20)))
    assert await world.look() == 20
    await world.live(20)
    await world.look()
    assert world.ready() == ("Unknown", "NodeStatusUnknown")


async def test_of_two_copies_one_writes(world: World) -> None:
    """Without a lock: who comes second finds another version, and looks again."""
    other = World(world.client, world.clock)
    other.follow()
    other.leases.put(msgspec.convert(world.client.objects["leases", "kube-node-lease", "n1"], node_leases.Lease))
    for _ in range(10):
        await world.live(5, "n2")
        other.renew("n2")
        await other.handler.reconcile(node_lifecycle.OURSELVES)
    await world.look()
    with pytest.raises(errors.Refused) as caught:
        await other.handler.reconcile("n1")
    assert caught.value.reason == "Conflict"
    other.follow()
    assert await other.look() is None
    assert world.client.calls.count(("patch status", "nodes", "n1")) == 1
    assert len(world.events()) == 1


async def test_a_node_that_is_gone(world: World) -> None:
    del world.client.objects["nodes", "", "n1"]
    await world.live(50)
    await world.handler.reconcile("n1")
    (item,) = world.nodes
    world.nodes.remove(item)
    assert await world.handler.reconcile("n1") is None
    assert world.handler.silent == set()
