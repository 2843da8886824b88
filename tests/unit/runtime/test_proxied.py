# SPDX-License-Identifier: Apache-2.0
"""Whose connection it is, on real sockets: named balancers, everybody else, and what is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from handfast.rules import networks
from handfast.runtime import proxied

HEADER = b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\n"
HELLO = b"\x16\x03\x01hello"
BALANCER, OTHER = "10.0.0.9", "10.0.0.10"


class Door:
    def __init__(self) -> None:
        self.proxied = proxied.Proxied(networks.Networks.parse(f"{BALANCER}/32"))
        self.clients: list[str] = []
        self.socks: list[socket.socket] = []

    def connect(self, address: str, *words: bytes) -> tuple[socket.socket, socket.socket]:
        """Both ends."""
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        self.socks += [ours, peer]
        for word in words:
            peer.send(word)
        self.proxied.enter(ours, address, self.clients.append)
        return ours, peer


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    for sock in made.socks:
        sock.close()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    ("header", "client"),
    [(HEADER, "192.0.2.7"), (b"PROXY UNKNOWN\r\n", BALANCER), (b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", BALANCER)],
)
async def test_the_header_goes_and_nothing_else(door: Door, header: bytes, client: str) -> None:
    ours, _ = door.connect(BALANCER, header + HELLO)
    assert door.clients == [client]
    assert ours.recv(100) == HELLO
    assert not door.proxied.refused


@pytest.mark.parametrize("size", [1, 2, 7, 30])
async def test_it_may_come_in_parts(door: Door, size: int) -> None:
    ours, peer = door.connect(BALANCER)
    for start in range(0, len(HEADER), size):
        assert door.clients == []
        peer.send(HEADER[start : start + size])
        await turns(2)
    assert door.clients == ["192.0.2.7"]
    peer.send(HELLO)
    assert ours.recv(100) == HELLO
    assert not door.proxied.reading


async def test_everybody_else_is_who_they_are(door: Door) -> None:
    ours, _ = door.connect(OTHER, HELLO)
    door.connect(OTHER)
    assert door.clients == [OTHER, OTHER]
    assert ours.recv(100) == HELLO


@pytest.mark.parametrize("header", [HEADER, b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)])
async def test_a_header_from_anybody_else(door: Door, header: bytes) -> None:
    with capture_logs() as logs:
        ours, _ = door.connect(OTHER, header + HELLO)
    assert (door.clients, ours.fileno()) == ([], -1)
    assert door.proxied.refused == {proxied.NOT_NAMED: 1}
    assert "--proxy-protocol-from" in logs[0]["detail"]
    assert (logs[0]["source"], logs[0]["reason"]) == (OTHER, "NotNamed")


async def test_a_second_header(door: Door) -> None:
    ours, _ = door.connect(BALANCER, HEADER + HEADER + HELLO)
    assert (door.clients, ours.fileno()) == ([], -1)
    assert door.proxied.refused == {proxied.SECOND_HEADER: 1}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (HELLO, "NoHeader"),
        (b"GET / HTTP/1.1\r\n\r\n", "NoHeader"),
        (b"PROXY TCP4 127.0.0.1 192.0.2.1 1 2\r\n", "BadAddress"),
        (b"PROXY TCP4 me you 1 2\r\n", "Malformed"),
        (b"PROXY UNKNOWN " + b"x" * 200, "TooLong"),
    ],
)
async def test_a_connection_without_a_header(door: Door, words: bytes, reason: str) -> None:
    ours, _ = door.connect(BALANCER, words)
    assert (door.clients, ours.fileno()) == ([], -1)
    assert door.proxied.refused == {reason: 1}


async def test_half_a_header_ends(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied, "SECONDS", 0.5)
    half, _ = door.connect(BALANCER, HEADER[:10])
    silent, _ = door.connect(BALANCER)
    gone, peer = door.connect(BALANCER, HEADER[:10])
    peer.close()
    looked, peer = door.connect(BALANCER)
    with capture_logs() as logs:
        peer.close()
        await turns()
        assert gone.fileno() == looked.fileno() == -1
    # Balancers look in this way whether somebody is there.
    assert [log["reason"] for log in logs] == ["Gone"]
    async with asyncio.timeout(5):
        while door.proxied.reading:
            await turns(1)
    assert half.fileno() == silent.fileno() == -1
    assert door.proxied.refused == {"Timeout": 2, "Gone": 1, "Empty": 1}
    assert door.clients == []


async def test_not_too_many_at_once(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxied, "MOST", 2)
    for _ in range(2):
        door.connect(BALANCER)
    late, _ = door.connect(BALANCER, HEADER)
    assert late.fileno() == -1
    assert door.proxied.refused == {proxied.TOO_MANY: 1}
    door.proxied.stop()
    assert not door.proxied.reading
    assert all(sock.fileno() == -1 for sock in door.socks[::2])


async def test_the_log_is_told_once_in_a_while(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as logs:
        for _ in range(5):
            door.connect(OTHER, HEADER)
        door.connect(BALANCER, HELLO)
        assert [(log["reason"], log["others"]) for log in logs] == [("NotNamed", 0), ("NoHeader", 0)]
        monkeypatch.setattr(proxied, "TELL_SECONDS", 0.0)
        door.connect(OTHER, HEADER)
        assert (logs[-1]["reason"], logs[-1]["others"]) == ("NotNamed", 4)
    assert door.proxied.refused == {"NotNamed": 6, "NoHeader": 1}


async def test_nobody_is_named_unless_somebody_is() -> None:
    assert not proxied.Proxied().names("127.0.0.1")
