# SPDX-License-Identifier: Apache-2.0
"""What goes over a bridge of this machine, as somebody between two Pods would see it. It needs root, and proves nothing itself."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

_EVERYTHING = 3  # ETH_P_ALL
_LONGEST = 65536


class Tap:
    """All frames of a device, since it was made."""

    def __init__(self, device: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERYTHING))
        self._socket.bind((device, 0))
        self._socket.settimeout(0.1)
        self._frames: list[bytes] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                self._frames.append(self._socket.recv(_LONGEST))

    def frames(self, *addresses: str) -> list[bytes]:
        """Those of IPv4 that have all of these addresses in their header."""
        wanted = {socket.inet_aton(address) for address in addresses}
        return [frame for frame in self._frames if wanted <= {frame[26:30], frame[30:34]}]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def tap(device: str) -> Iterator[Tap]:
    made = Tap(device)
    try:
        yield made
    finally:
        made.close()
