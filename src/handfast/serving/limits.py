# SPDX-License-Identifier: Apache-2.0
"""The numbers that bound a connection: how many there are, how fast they come, how long and how large each step may be.

`gate`, `connection` and `unread` keep to them. What a service bounds beyond its connections is its own: the API server adds
the budgets of requests (`apiserver.limits`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are those of an API server, written down in docs/reference/limits.md."""

    connections: int = 8192
    connections_per_source: int = 4096
    # Places for this machine itself, beside all others; 0: it is a source like any other.
    local_connections: int = 0
    # A connection that sends nothing at all is closed after this long.
    silence_seconds: float = 3.0
    handshakes_in_flight: int = 64
    handshakes_per_source: int = 32
    # Begun in one round of the event loop.
    handshakes_per_round: int = 4
    handshake_seconds: float = 5.0
    # A request head (or the silence before the first one) may take this long: slow-loris clients end here.
    head_seconds: float = 20.0
    # The first one without a client certificate: silence after TLS must not fill a source's places at its rates.
    first_head_seconds: float = 5.0
    # Between requests; without a client certificate much shorter, or strangers could keep every connection.
    idle_seconds: float = 3630.0
    anonymous_idle_seconds: float = 15.0
    # A client that does not read its answer is given up after this long.
    write_seconds: float = 30.0
    # One line of a head, and all of it.
    header_bytes: int = 32 << 10
    head_bytes: int = 64 << 10
    # Answers that were written and have not been read, of one user and of all.
    unread_per_user_bytes: int = 64 << 20
    unread_bytes: int = 256 << 20
    connections_per_second: float = 100.0
    connections_burst: int = 400
    # More, for a source from which somebody has shown a good credential in the last while.
    proven_per_second: float = 300.0
    proven_burst: int = 1200
    # Over these it waits: no longer than this, which is less than clients give a handshake (10 s), and so many in all.
    waiting_seconds: float = 5.0
    connections_waiting: int = 4096
    lifted: bool = False
