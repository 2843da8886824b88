# SPDX-License-Identifier: Apache-2.0
"""What passes on loopback, octet by octet, as whoever reads the network has it. It needs root, or CAP_NET_RAW; nothing here is under test."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Self

import pytest

_ALL = 0x0003
_IPV4 = 0x0800
_TCP = 6
_DISCARD = 9
# A packet that leaves: on loopback each is seen again when it arrives.
_OUTGOING = 4
_SYN = 2
_ATTACH_FILTER = 26
Place = tuple[str, int]


@dataclass
class Flow:
    """One direction of a connection, in the order of its sequence numbers; `begun`: from its first octet."""

    parts: dict[int, bytes] = field(default_factory=dict)
    begun: bool = False

    def take(self, number: int, octets: bytes) -> None:
        # What is sent again may come with more.
        if len(octets) > len(self.parts.get(number, b"")):
            self.parts[number] = octets

    @property
    def octets(self) -> bytes:
        whole, end = bytearray(), 0
        for number in sorted(self.parts):
            part = self.parts[number]
            whole += part[max(0, end - number) :]
            end = max(end, number + len(part))
        return bytes(whole)


@dataclass(frozen=True)
class Connection:
    """What a client sent, and what it was answered; `begun`: all of it."""

    sent: bytes
    answered: bytes
    begun: bool


def _of(address: str) -> bytes:
    """A filter for the kernel: TCP from this address or to it, and the datagram that ends a capture; else a busy machine is read for nothing."""
    wanted = struct.unpack("!I", socket.inet_aton(address))[0]
    load_half, load_octet, load_word, equal, give = 0x28, 0x30, 0x20, 0x15, 0x06
    rows = [
        (load_half, 0, 0, 12),
        (equal, 0, 9, _IPV4),
        (load_octet, 0, 0, 23),
        (equal, 0, 4, _TCP),
        (load_word, 0, 0, 26),
        (equal, 4, 0, wanted),
        (load_word, 0, 0, 30),
        (equal, 2, 3, wanted),
        (load_half, 0, 0, 36),
        (equal, 0, 1, _DISCARD),
        (give, 0, 0, 0x40000),
        (give, 0, 0, 0),
    ]
    return b"".join(struct.pack("HBBI", *row) for row in rows)


class Capture:
    """Everything of TCP on loopback while the block runs, by source and destination; with an address only what comes from there or goes there."""

    def __init__(self, address: str = "") -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        except PermissionError:
            give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            give_up("not run: reading the network needs CAP_NET_RAW")
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
        if address:
            self._filter = ctypes.create_string_buffer(_of(address))
            program = struct.pack("HP", len(self._filter.raw) // 8, ctypes.addressof(self._filter))
            self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        self._socket.bind(("lo", 0))
        self._flows: dict[tuple[Place, Place], Flow] = {}
        # What was sent before it was read before it, however much others send.
        self._end = secrets.token_bytes(32)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        frame = b""
        while not frame.endswith(self._end):
            frame, about = self._socket.recvfrom(1 << 17)
            if about[2] != _OUTGOING:
                self._take(frame)

    def _take(self, frame: bytes) -> None:
        packet = frame[14:]
        if struct.unpack("!H", frame[12:14])[0] != _IPV4 or packet[9] != _TCP:
            return
        segment = packet[(packet[0] & 15) * 4 : struct.unpack("!H", packet[2:4])[0] or None]
        source, destination, number = struct.unpack("!HHI", segment[:8])
        ends = (socket.inet_ntoa(packet[12:16]), source), (socket.inet_ntoa(packet[16:20]), destination)
        flow = self._flows.setdefault(ends, Flow())
        flow.begun |= bool(segment[13] & _SYN)
        if octets := segment[(segment[12] >> 4) * 4 :]:
            flow.take(number, octets)

    def connections(self, place: Place) -> list[Connection]:
        """Those to that place on which a client has said something."""
        rows = [
            (flow, self._flows.get((place, source), Flow()))
            for (source, destination), flow in tuple(self._flows.items())
            if destination == place
        ]
        return [Connection(sent.octets, back.octets, sent.begun and back.begun) for sent, back in rows if sent.parts]

    def to(self, place: Place) -> list[bytes]:
        """What was sent there, for each connection."""
        return [flow.octets for (_, destination), flow in self._flows.items() if destination == place and flow.parts]

    def sent_by(self, place: Place) -> list[bytes]:
        """What was sent from there."""
        return [flow.octets for (source, _), flow in self._flows.items() if source == place and flow.parts]

    def seen(self, octets: bytes) -> set[Place]:
        """The destinations to which these octets went."""
        return {destination for (_, destination), flow in self._flows.items() if octets in flow.octets}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as teller:
            while self._thread.is_alive():
                # Once more where the reader was so far behind that a packet was lost.
                teller.sendto(self._end, ("127.0.0.1", _DISCARD))
                self._thread.join(1)
        self._socket.close()


def chosen_version(records: bytes) -> int:
    """The version of TLS that a ServerHello chooses (RFC 8446, section 4.1.3)."""
    assert records[0] == 22, records[:16]
    hello = records[9:]
    at = 2 + 32
    at += 1 + hello[at] + 2 + 1
    end = at + 2 + struct.unpack("!H", hello[at : at + 2])[0]
    at += 2
    while at < end:
        kind, length = struct.unpack("!HH", hello[at : at + 4])
        if kind == 43:
            return int(struct.unpack("!H", hello[at + 4 : at + 6])[0])
        at += 4 + length
    return int(struct.unpack("!H", hello[:2])[0])
