# SPDX-License-Identifier: Apache-2.0
"""How much one source may ask: token buckets per address, and the numbers that bound a connection.

Two gates use them: new connections before TLS costs anything (`gate`), and requests without a credential
(`pipeline`). They bound what a flood costs; they are not an access rule.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are written down in docs/reference/limits.md."""

    connections: int = 8192
    connections_per_source: int = 4096
    # A connection that sends nothing at all is closed after this long.
    silence_seconds: float = 3.0
    handshakes_in_flight: int = 64
    handshakes_per_source: int = 32
    handshake_seconds: float = 5.0
    # A request head (or the silence before the first one) may take this long: slow-loris clients end here.
    head_seconds: float = 20.0
    body_seconds: float = 30.0
    # Between requests; without a client certificate much shorter, or strangers could keep every connection.
    idle_seconds: float = 3630.0
    anonymous_idle_seconds: float = 15.0
    # A client that does not read its answer is given up after this long.
    write_seconds: float = 30.0
    body_bytes: int = 3 << 20
    header_bytes: int = 32 << 10
    connections_per_second: float = 100.0
    connections_burst: int = 400
    anonymous_per_second: float = 50.0
    anonymous_burst: int = 200
    # A watcher further behind than this is dropped, never waited for.
    watch_buffer_bytes: int = 4 << 20
    lifted: bool = False


class Buckets:
    """A token bucket for each source address; the least recently seen are forgotten, so memory is bounded."""

    def __init__(self, rate: float, burst: int, sources: int = 10_000) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._sources = sources
        self._state: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, source: str, now: float) -> float:
        """0.0 if one more is allowed now (and takes it), else the seconds until one is."""
        tokens, then = self._state.pop(source, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        allowed = tokens >= 1.0
        self._state[source] = (tokens - 1.0 if allowed else tokens, now)
        if len(self._state) > self._sources:
            self._state.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / self._rate
