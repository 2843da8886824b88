# SPDX-License-Identifier: Apache-2.0
"""Names that one process of this machine has at a time: an address, a port, a Pod. They end with the process, however it ends.

A claim is an abstract socket of the kernel's, on which nobody listens: nothing is written to a disk, and nothing is left to be removed. Whoever has a
name is not told. Processes of another network namespace have names of their own, as they have addresses of their own.

It keeps nobody from using what is claimed: who does not ask here is not heard.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from types import TracebackType
from typing import Final, Self

_PREFIX: Final = "\0handfast/"


class Claims:
    """The names that this process has, until the block ends."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}

    def take(self, name: str) -> bool:
        """Whether the name is ours now; a name that is ours already is not given twice."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"{_PREFIX}{name}")
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._sockets[name] = claim
        return True

    def drop(self, name: str) -> None:
        """Give a name back."""
        with contextlib.suppress(KeyError):
            self._sockets.pop(name).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in tuple(self._sockets):
            self.drop(name)
