# SPDX-License-Identifier: Apache-2.0
"""The gate: rates, shares, silence and turns, on real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from handfast.rules import networks
from handfast.runtime import proxied
from handfast.serving import gate, limits
from handfast.serving import rates as rates_module
from tests.world.clock import MovableClock


class Door:
    """A gate whose handshakes a test ends when it likes."""

    def __init__(self, balancers: str = "none", **settings: float) -> None:
        self.started: list[str] = []
        self.shaking: list[gate.Visitor] = []
        self.clock = MovableClock()
        self.peers: list[socket.socket] = []
        self.ours: list[socket.socket] = []
        named = proxied.Proxied(networks.Networks.parse(balancers))
        bounds = limits.Limits(**settings)  # type: ignore[arg-type]
        self.gate = gate.Gate(bounds, self.clock, self._start, named)

    def _start(self, visitor: gate.Visitor) -> None:
        if visitor.source == "unlucky":
            raise RuntimeError("no task can be made")
        self.started.append(visitor.source)
        self.shaking.append(visitor)

    def of(self, source: str) -> gate.Visitor:
        """One of this source that has begun and not left."""
        return next(visitor for visitor in self.shaking if visitor.source == source)

    def connect(self, source: str, *, speak: bool = True, header: bytes = b"") -> socket.socket:
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        peer.settimeout(2)
        self.ours.append(ours)
        self.peers.append(peer)
        if header:
            peer.send(header)
        if speak:
            peer.send(b"hello")
        self.gate.enter(ours, source)
        return peer

    def close(self) -> None:
        self.gate.close()
        for sock in (*self.ours, *self.peers):
            sock.close()


@pytest.fixture
def doors() -> Iterator[list[Door]]:
    made: list[Door] = []
    yield made
    for door in made:
        door.close()


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0.005)


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


async def until(done: Callable[[], bool]) -> None:
    """The gate's timers are the loop's, whatever the clock says."""
    async with asyncio.timeout(5):
        while not done():
            await asyncio.sleep(0.002)


async def test_over_its_rate_a_source_waits_and_nobody_else(doors: list[Door]) -> None:
    door = Door(connections_per_second=50.0, connections_burst=2)
    doors.append(door)
    peers = [door.connect("a") for _ in range(4)]
    # Two are over the rate, and wait; whoever is not does not wait behind them.
    assert door.started == ["a", "a"]
    door.connect("b")
    await turn()
    assert door.started == ["a", "a", "b"]
    assert not any(is_closed(peer) for peer in peers)
    # One comes in each fiftieth of a second, and one that comes later waits behind the others.
    peers.append(door.connect("a"))
    for number in range(3):
        assert len(door.started) == 3 + number
        await door.clock.advance(0.021)
        await until(lambda expected=4 + number: len(door.started) == expected)  # type: ignore[misc]
        await turn()
    assert door.gate.refused == 0
    assert [visitor.sock for visitor in door.shaking if visitor.source == "a"] == [
        ours for ours, peer in zip(door.ours, door.peers, strict=True) if peer in peers
    ]


async def test_the_wait_is_bounded(doors: list[Door]) -> None:
    door = Door(connections_per_second=10.0, connections_burst=1, waiting_seconds=0.2, connections_waiting=3)
    doors.append(door)
    # Two may wait for a fifth of a second: a third would wait for longer.
    assert [is_closed(door.connect("a")) for _ in range(4)] == [False, False, False, True]
    # In all, three wait.
    assert [is_closed(door.connect("b")) for _ in range(3)] == [False, False, True]
    assert door.gate.refused == 2
    # That is for those who are over their rate.
    assert not is_closed(door.connect("c"))
    assert door.gate.counts == (6, 3, 3)


async def test_whoever_leaves_while_waiting_takes_no_turn(doors: list[Door]) -> None:
    door = Door(connections_per_second=50.0, connections_burst=1)
    doors.append(door)
    door.connect("a")
    door.connect("a", speak=False).close()
    door.connect("a")
    await door.clock.advance(0.021)
    await until(lambda: len(door.started) == 2)
    assert door.gate.counts == (2, 2, 1)


async def test_closing_turns_away_who_is_over_the_rate(doors: list[Door]) -> None:
    door = Door(connections_per_second=1.0, connections_burst=1)
    doors.append(door)
    _, waiting = door.connect("a"), door.connect("a")
    door.gate.close()
    assert is_closed(waiting)
    assert door.gate.counts == (1, 1, 1)
    door.gate.left(door.of("a"))
    assert door.gate.counts == (0, 0, 0)


async def test_strangers_behind_the_same_address(doors: list[Door]) -> None:
    rates = {"connections_per_second": 1.0, "connections_burst": 2, "proven_per_second": 1.0, "proven_burst": 6}
    door = Door("none", waiting_seconds=0.0, handshakes_per_round=64, **rates)
    doors.append(door)
    # A node pays nothing, however often it comes.
    for number in range(5):
        assert not is_closed(door.connect("a"))
        door.gate.proved(door.shaking[-1], f"system:node:{number}")
    # Strangers use the rate up, and the second one is still there for nodes, and for strangers.
    assert [is_closed(door.connect("a")) for _ in range(2)] == [False, False]
    for number in range(5):
        assert not is_closed(door.connect("a"))
        door.gate.proved(door.shaking[-1], f"system:node:{number + 5}")
    assert [is_closed(door.connect("a")) for _ in range(7)] == [False] * 6 + [True]
    # Where nobody is known there is no second rate, and after a while there is none here.
    assert [is_closed(door.connect("b")) for _ in range(3)] == [False, False, True]
    for visitor in door.shaking:
        door.gate.left(visitor)
    await door.clock.advance(rates_module.PROVEN_SECONDS)
    assert [is_closed(door.connect("a")) for _ in range(3)] == [False, False, True]


async def test_a_kept_connection_keeps_the_second_rate(doors: list[Door]) -> None:
    rates = {"connections_per_second": 1e-6, "connections_burst": 1, "proven_per_second": 1.0, "proven_burst": 1}
    door = Door("none", waiting_seconds=0.0, handshakes_per_round=64, **rates)
    doors.append(door)
    door.connect("a")
    node = door.shaking[-1]
    door.gate.proved(node, "system:node:n1")
    # What it gave back is used up; it asks on and on over this one.
    assert not is_closed(door.connect("a"))
    for _ in range(3):
        await door.clock.advance(2 * rates_module.PROVEN_SECONDS)
        assert [is_closed(door.connect("a")) for _ in range(3)] == [False, True, True]
    door.gate.left(node)
    await door.clock.advance(rates_module.PROVEN_SECONDS - 1.0)
    door.connect("a")
    assert not is_closed(door.peers[-1])
    await door.clock.advance(1.0)
    assert is_closed(door.connect("a"))


async def test_who_is_good_is_not_good_without_end(doors: list[Door]) -> None:
    door = Door(
        connections_per_second=0.5, connections_burst=3, waiting_seconds=0.0, proven_burst=0, handshakes_per_round=64
    )
    doors.append(door)
    came = 0
    while not is_closed(door.connect("a")):
        came += 1
        # Said once or twice, it counts once.
        door.gate.proved(door.shaking[-1], "system:node:n1")
        door.gate.proved(door.shaking[-1], "system:node:n1")
    # Three that were given back, and then three that were not.
    assert came == 6


async def test_who_is_good_is_remembered_within_bounds(doors: list[Door], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "PROVEN_SOURCES", 2)
    door = Door(connections_burst=1, waiting_seconds=0.0, handshakes_per_round=64)
    doors.append(door)
    for source in ("a", "b", "c"):
        door.connect(source)
        door.gate.proved(door.shaking[-1], source)
        door.gate.left(door.shaking[-1])
        door.connect(source)
    assert [is_closed(door.connect(source)) for source in ("a", "b", "c")] == [True, False, False]


async def test_share_of_connections(doors: list[Door]) -> None:
    door = Door(connections=3, connections_per_source=2)
    doors.append(door)
    for source, closed in (("a", False), ("a", False), ("a", True), ("b", False), ("c", True)):
        known = len(door.shaking)
        # With the fifth the total is reached, whoever asks.
        assert is_closed(door.connect(source)) is closed
        for visitor in door.shaking[known:]:
            door.gate.proved(visitor, source)
    door.gate.left(door.of("a"))
    assert not is_closed(door.connect("c"))


async def test_servers_share_places_and_rates(doors: list[Door]) -> None:
    """Two doors with all their limits let in together what one would."""
    pair = [Door(connections=6, connections_per_source=4, connections_burst=8, waiting_seconds=0.0) for _ in range(2)]
    doors.extend(pair)
    for door in pair:
        door.gate.share(2)
        for source, closed in (("a", False), ("a", False), ("a", True), ("b", False), ("c", True)):
            known = len(door.shaking)
            assert is_closed(door.connect(source)) is closed
            for visitor in door.shaking[known:]:
                door.gate.proved(visitor, source)
    # Who comes back alone has all places again.
    pair[0].gate.share(1)
    assert not is_closed(pair[0].connect("a"))


@pytest.mark.parametrize("stage", ["silent", "in the queue", "in its handshake", "open"])
async def test_strangers_make_room(doors: list[Door], stage: str) -> None:
    door = Door(connections=6, connections_per_source=4, handshakes_per_source=1 if stage == "in the queue" else 32)
    doors.append(door)
    strangers = []
    for _ in range(4):
        strangers.append(door.connect("a", speak=stage != "silent"))
        if stage == "open":
            door.gate.shaken(door.shaking[-1])
    # Whoever comes within the rate has a place, of its own source's strangers; the oldest leaves.
    for number in range(3):
        assert not is_closed(door.connect("a"))
        assert [is_closed(peer) for peer in strangers] == [at <= number for at in range(4)]
    assert door.gate.counts[0] == 4
    # And of the oldest of all, where all places are taken.
    assert not any(is_closed(door.connect(source)) for source in ("b", "c", "d"))
    assert all(is_closed(peer) for peer in strangers)
    assert (door.gate.counts[0], door.gate.refused) == (6, 4)
    door.gate.close()
    for visitor in door.shaking:
        door.gate.left(visitor)
    assert door.gate.counts == (0, 0, 0)


async def test_who_is_known_makes_no_room(doors: list[Door]) -> None:
    door = Door(connections_per_source=3, connections_per_second=0.001, connections_burst=4, handshakes_per_round=64)
    doors.append(door)
    nodes = [door.connect("a") for _ in range(2)]
    for visitor in door.shaking:
        door.gate.proved(visitor, visitor.source)
    strangers = [door.connect("a") for _ in range(4)]
    assert [is_closed(peer) for peer in strangers] == [True, True, True, False]
    door.gate.proved(door.shaking[-1], "system:node:n3")
    # All three are known now: the newcomer is refused, and has paid nothing.
    assert [is_closed(door.connect("a")) for _ in range(9)] == [True] * 9
    assert not any(is_closed(peer) for peer in (*nodes, strangers[-1]))


async def test_who_is_over_the_rate_pushes_nobody_out(doors: list[Door]) -> None:
    door = Door(connections_per_source=2, connections_per_second=0.001, connections_burst=2)
    doors.append(door)
    strangers = [door.connect("a") for _ in range(2)]
    assert is_closed(door.connect("a"))
    assert not any(is_closed(peer) for peer in strangers)


def test_the_arithmetic_of_the_docstring() -> None:
    bounds = limits.Limits()
    at_once = bounds.connections_burst + bounds.proven_burst
    rate = bounds.connections_per_second + bounds.proven_per_second
    assert (bounds.connections_per_source - at_once) / rate > 6
    assert (bounds.connections_per_source - 1000 - at_once) / rate > 3
    assert rate * bounds.first_head_seconds == 2000 < bounds.connections_per_source


async def test_this_machine_has_places_of_its_own(doors: list[Door]) -> None:
    """However many come from elsewhere; and it takes none of theirs."""
    door = Door(connections=2, local_connections=1, handshakes_per_round=64)
    doors.append(door)
    away = [door.connect(source) for source in ("192.0.2.1", "192.0.2.2")]
    here = door.connect("127.0.0.1")
    assert door.gate.counts == (2, 3, 3)
    # Whoever comes from elsewhere has the place of the oldest from elsewhere, and nobody's from here.
    away.append(door.connect("192.0.2.3"))
    assert [is_closed(peer) for peer in (*away, here)] == [True, False, False, False]
    again = door.connect("127.0.0.1")
    assert [is_closed(peer) for peer in (*away[1:], here, again)] == [False, False, True, False]
    for visitor in door.shaking:
        door.gate.left(visitor)
    assert door.gate.counts == (0, 0, 0)


async def test_silence_holds_no_slot(doors: list[Door]) -> None:
    door = Door(handshakes_in_flight=1, silence_seconds=0.05)
    doors.append(door)
    silent = [door.connect("a", speak=False) for _ in range(5)]
    door.connect("a")
    await turn()
    assert door.started == ["a"]
    async with asyncio.timeout(5):
        while not all(is_closed(peer) for peer in silent):
            await asyncio.sleep(0.005)
    # Those that were given up are no longer counted.
    assert door.gate.counts == (1, 1, 1)


async def test_share_of_slots(doors: list[Door]) -> None:
    door = Door(handshakes_in_flight=4, handshakes_per_source=2)
    doors.append(door)
    for _ in range(5):
        door.connect("a")
    await turn()
    assert door.started == ["a", "a"]
    door.connect("b")
    await turn()
    assert door.started == ["a", "a", "b"]
    door.gate.shaken(door.of("a"))
    assert door.started == ["a", "a", "b", "a"]


async def test_slots_go_round_the_sources(doors: list[Door]) -> None:
    door = Door(handshakes_in_flight=1, handshakes_per_source=1)
    doors.append(door)
    for source in ("a", "a", "a", "b", "c"):
        door.connect(source)
        await turn()
    for _ in range(4):
        door.gate.shaken(door.shaking[-1])
    assert sorted(door.started[:4]) == ["a", "a", "b", "c"]
    assert len(door.started) == 5


async def test_few_handshakes_begin_in_one_round(doors: list[Door]) -> None:
    door = Door(handshakes_per_round=2)
    doors.append(door)
    for source in ("a", "a", "a", "b", "b"):
        door.connect(source)
    assert door.started == ["a", "a"]
    await asyncio.sleep(0)
    assert door.started == ["a", "a", "a", "b"]
    await asyncio.sleep(0)
    assert door.started == ["a", "a", "a", "b", "b"]


async def test_lifted_limits_admit_all(doors: list[Door]) -> None:
    door = Door(lifted=True, connections=1, connections_per_source=1, connections_burst=1, handshakes_per_source=1)
    doors.append(door)
    assert not any(is_closed(door.connect("a")) for _ in range(5))
    await turn()
    assert door.started == ["a"] * 5


async def test_closing_turns_away_who_waits(doors: list[Door]) -> None:
    door = Door(handshakes_in_flight=1)
    doors.append(door)
    silent, _, waiting = door.connect("a", speak=False), door.connect("a"), door.connect("a")
    await turn()
    door.gate.close()
    assert is_closed(silent)
    assert is_closed(waiting)


async def test_whoever_has_spoken_starts_at_once(doors: list[Door]) -> None:
    door = Door()
    doors.append(door)
    door.connect("a")
    assert door.started == ["a"]
    late = door.connect("b", speak=False)
    assert door.started == ["a"]
    late.send(b"hello")
    await turn()
    assert door.started == ["a", "b"]


async def test_whoever_was_reset_meanwhile_starts_too(doors: list[Door]) -> None:
    door = Door()
    doors.append(door)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    ours.setblocking(False)
    door.ours.append(ours)
    gate.reset(peer)
    door.gate.enter(ours, "a")
    await turn()
    # Its handshake fails, which is told to the gate as any other end of one.
    assert door.started == ["a"]


async def test_whoever_leaves_twice_is_counted_once(doors: list[Door]) -> None:
    door = Door(connections_per_source=2, handshakes_per_source=1)
    doors.append(door)
    door.connect("a")
    door.connect("a")
    gone = door.of("a")
    door.gate.left(gone)
    door.gate.left(gone)
    door.gate.shaken(gone)
    # The other one is still here, has the slot now, and its source has room for one more and not for two.
    assert door.gate.counts == (1, 1, 1)
    door.gate.proved(door.shaking[-1], "system:node:n1")
    door.gate.shaken(door.shaking[-1])
    assert not is_closed(door.connect("a"))
    door.gate.proved(door.shaking[-1], "system:node:n2")
    assert is_closed(door.connect("a"))


async def test_a_handshake_that_cannot_begin_holds_no_slot(doors: list[Door]) -> None:
    door = Door(handshakes_in_flight=1)
    doors.append(door)
    assert is_closed(door.connect("unlucky"))
    assert door.gate.counts == (0, 0, 0)
    door.connect("a")
    assert door.started == ["a"]


class TestBehindABalancer:
    BALANCER = "10.0.0.9"

    def door(self, doors: list[Door], **settings: float) -> Door:
        doors.append(Door(f"{self.BALANCER}/32", **settings))
        return doors[-1]

    async def test_connections_count_for_the_client(self, doors: list[Door]) -> None:
        door = self.door(doors, connections_per_source=1)
        for client in ("192.0.2.7", "192.0.2.8", "2001:db8::7"):
            header = f"PROXY TCP{6 if ':' in client else 4} {client} {client} 1 2\r\n".encode()
            assert not is_closed(door.connect(self.BALANCER, header=header))
            door.gate.proved(door.shaking[-1], client)
            assert is_closed(door.connect(self.BALANCER, header=header))
        assert door.started == ["192.0.2.7", "192.0.2.8", "2001:db8::/64"]
        assert [(visitor.address, visitor.proxied) for visitor in door.shaking][-1] == ("2001:db8::7", True)
        assert door.gate.counts == (3, 3, 3)

    async def test_the_balancers_own_are_its_own(self, doors: list[Door]) -> None:
        door = self.door(doors)
        door.connect(self.BALANCER, header=b"PROXY UNKNOWN\r\n")
        seen = [(visitor.address, visitor.proxied, visitor.unnamed) for visitor in door.shaking]
        assert seen == [(self.BALANCER, False, True)]

    async def test_while_the_header_comes_it_counts_for_the_total(self, doors: list[Door]) -> None:
        door = self.door(doors, connections=2)
        half = [door.connect(self.BALANCER, header=b"PROXY TCP4 ", speak=False) for _ in range(2)]
        assert is_closed(door.connect("a"))
        assert is_closed(door.connect(self.BALANCER, header=b"PROXY UNKNOWN\r\n"))
        assert door.gate.counts == (2, 0, 1)
        half[0].send(b"192.0.2.7 192.0.2.8 1 2\r\nhello")
        await turn()
        assert door.started == ["192.0.2.7"]
        door.gate.close()
        assert is_closed(half[1])
        assert door.gate.counts == (1, 1, 1)

    async def test_what_is_refused_is_not_counted(self, doors: list[Door]) -> None:
        door = self.door(doors)
        header = b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"
        assert is_closed(door.connect(self.BALANCER))
        assert is_closed(door.connect(self.BALANCER, header=header * 2))
        assert is_closed(door.connect("a", header=header))
        late = door.connect("a", speak=False)
        late.send(header)
        await turn()
        assert is_closed(late)
        assert (door.started, door.gate.counts) == ([], (0, 0, 0))
        assert door.gate.proxied.refused == {"NoHeader": 1, "SecondHeader": 1, "NotNamed": 2}


class Endings:
    """Ends a connection at a gate in each of the ways there are."""

    def __init__(self, door: Door) -> None:
        self.door = door

    async def run(self, ending: str, number: int) -> None:
        gate_, source = self.door.gate, f"{ending}-{number % 7}"
        known = len(self.door.shaking)
        peer = self.door.connect(source, speak=ending not in {"silent, then reset", "silent, then it speaks"})
        if ending == "silent, then reset":
            gate.reset(peer)
        elif ending == "silent, then it speaks":
            peer.send(b"hello")
        async with asyncio.timeout(5):
            while len(self.door.shaking) == known:
                await asyncio.sleep(0)
        for visitor in self.door.shaking[known:]:
            if ending == "the handshake is cancelled":
                gate_.left(visitor)
                continue
            gate_.shaken(visitor)
            for _ in range(2 if ending == "said twice" else 1):
                gate_.left(visitor)
            gate_.shaken(visitor)
        for sock in (*self.door.ours, *self.door.peers):
            sock.close()
        self.door.ours.clear()
        self.door.peers.clear()
        self.door.shaking.clear()


@pytest.mark.slow
async def test_counts_return_to_zero(doors: list[Door]) -> None:
    """Ten thousand connections, without TLS; `test_listener` has the endings that need it."""
    door = Door(connections_burst=10_000)
    doors.append(door)
    endings = Endings(door)
    ways = ("silent, then reset", "silent, then it speaks", "the handshake is cancelled", "said twice", "the usual")
    for number in range(10_000):
        await endings.run(ways[number % len(ways)], number)
    assert (door.gate.counts, door.gate.waiting) == ((0, 0, 0), 0)
    # None was taken for more than it was: a source may still have its share, and no more.
    assert door.gate.refused == 0


@pytest.mark.parametrize("ending", ["a header", "gone", "silent", "reset", "the usual"])
async def test_whoever_waited_is_counted_down_once(doors: list[Door], ending: str) -> None:
    """However a connection ends that had to wait for its turn; a header is none of its to send."""
    door = Door(connections_per_second=50.0, connections_burst=1, silence_seconds=0.01)
    doors.append(door)
    door.connect("a")
    peers = [door.connect("a", speak=False) for _ in range(3)]
    assert door.gate.waiting == 3
    for peer in peers:
        if ending == "a header":
            peer.send(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n")
        elif ending == "the usual":
            peer.send(b"hello")
        elif ending == "gone":
            peer.close()
        elif ending == "reset":
            gate.reset(peer)
    async with asyncio.timeout(20):
        while door.gate.waiting or door.gate.counts[0] > len(door.shaking):
            await door.clock.advance(1.0)
            await asyncio.sleep(0.01)
    for visitor in door.shaking:
        door.gate.shaken(visitor)
        door.gate.left(visitor)
    assert (door.gate.counts, door.gate.waiting) == ((0, 0, 0), 0)
    assert len(door.shaking) == (4 if ending == "the usual" else 1)
