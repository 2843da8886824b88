# SPDX-License-Identifier: Apache-2.0
"""Two connections that are joined: what comes in at one goes out at the other. It reads nothing of what it passes on.

1. Who does not read is not written to: each side is paused while the other is full.
2. The end of one is the end of the other.
3. What comes before they are joined is kept, and nothing more is read until then: uvloop reads once from a plain socket that was paused
   as it was made.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast


class Half(asyncio.Protocol):
    """One of the two connections."""

    transport: asyncio.Transport
    other: Half | None = None
    early: bytes = b""

    def join(self, other: Half) -> None:
        """Pass on from here to there, and back."""
        self.other, other.other = other, self
        for half, opposite in ((self, other), (other, self)):
            if half.early:
                opposite.transport.write(half.early)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)
            return
        # 3. kept until they are joined
        self.early += data
        with contextlib.suppress(RuntimeError):
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        # TLS cannot be closed in one direction only; what is under way still leaves.
        return False

    # 1. who does not read is not written to
    def pause_writing(self) -> None:
        if self.other is not None:
            with contextlib.suppress(RuntimeError):
                self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            with contextlib.suppress(RuntimeError):
                self.other.transport.resume_reading()

    # 2. both end together
    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()

    def close(self) -> None:
        self.transport.close()
