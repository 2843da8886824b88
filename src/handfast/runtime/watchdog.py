# SPDX-License-Identifier: Apache-2.0
"""Finds out that a child process no longer answers: asks its `/livez` again and again, and says when it has to be killed.

A process that is stopped (`kill -STOP`), that has lost its event loop to one endless step, or that waits for a lock nobody
gives back, does not die, so that nobody starts it again. It does not kill: `supervisor` does, with the reason given here.

What must hold before a process is called dead:

1. It has answered once in this life. A start takes as long as its store is large: it has `Patience.start` seconds.
2. It left `Patience.failures` questions in a row without an answer, each for `Patience.answer` seconds, with a pause between
   them; or said each time that it is not well (5xx). One answer, and the count begins anew.
3. Whatever a process that is stuck cannot do counts as an answer: 401, 403, 429, a connection reset or closed. A server
   under a flood turns connections away, and must not be killed for it. For the same reason one connection is kept for all
   questions: it does not wait behind strangers who want to connect.
4. This process was there all the time. If a question or a pause took longer than it can, the asker itself was stopped, or had
   no processor: that counts for nothing, and the count begins anew.
5. The address can be asked. Where this machine has lost it, or has no descriptor to ask with, nothing is known.
6. No debugger holds it.

The certificate is not looked at: the socket is the supervisor's own, nothing secret is sent, and a server whose
certificate has expired, or is of a new CA, is alive.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import pathlib
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from handfast.runtime import addresses
from handfast.runtime import clock as clocks

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]{1,5})\r\n", re.IGNORECASE)
_CLOSES: Final = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)
TRACED: Final = "t"
_STATES: Final = {
    "T": "it is stopped (SIGSTOP)",
    "R": "it is running, or waits for a processor",
    "D": "it waits for a disk",
    "S": "it sleeps",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long silence is borne, in seconds."""

    # No step of a server takes more than a fraction of a second: this is for a machine that swaps, or a disk that hangs.
    answer: float = 10.0
    pause: float = 10.0
    failures: int = 3
    # 1. a start takes as long as its store is large: gigabytes are read in minutes
    start: float = 600.0
    # Until the first answer the pause is no longer than this, so that a process is watched as soon as it serves.
    first_pause: float = 1.0
    # 4. how much too late this process may wake, and still be believed to have been there
    slack: float = 2.0

    @classmethod
    def of(cls, seconds: float) -> Patience:
        """A process that falls silent is called dead within `seconds`, once it has answered."""
        return cls(answer=seconds / 6, pause=seconds / 6)


class Sign(enum.Enum):
    """What one question found out."""

    LIFE = enum.auto()
    TROUBLE = enum.auto()
    # 5. it could not be asked
    NOTHING = enum.auto()


Finding = tuple[Sign, str]
Question = Callable[[], Awaitable[Finding]]


class Livez:
    """Asks `GET /livez` over one connection, which is made again when it ends. Close it in the end."""

    def __init__(self, address: addresses.Address, context: ssl.SSLContext | None, seconds: float) -> None:
        self._address = address.local()
        self._context = context
        self._seconds = seconds
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self) -> Finding:
        try:
            async with asyncio.timeout(self._seconds):
                code = await self._ask()
        except TimeoutError:
            self.close()
            if not self._is_here():
                return Sign.NOTHING, f"{self._address.host} is no address of this machine any more"
            return Sign.TROUBLE, f"nothing came within {self._seconds:g} s"
        except ConnectionRefusedError:
            return Sign.TROUBLE, f"nobody listens on {self._address}"
        except (ConnectionError, ssl.SSLError, EOFError, ValueError, LookupError, asyncio.LimitOverrunError):
            # 3. a stuck process ends no connection, and says nothing that cannot be read
            self.close()
            return Sign.LIFE, ""
        except OSError as error:
            self.close()
            return Sign.NOTHING, f"it cannot be asked: {(error.strerror or 'failed').lower()}"
        return (Sign.LIFE, "") if code < 500 else (Sign.TROUBLE, f"it answers {code}")

    async def _ask(self) -> int:
        if self._streams is not None:
            try:
                return await self._exchange(*self._streams)
            except (ConnectionError, ssl.SSLError, EOFError):
                # A server may close what was idle.
                self.close()
        self._streams = await asyncio.open_connection(self._address.host, self._address.port, ssl=self._context)
        return await self._exchange(*self._streams)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(
            f"GET /livez HTTP/1.1\r\nHost: {self._address}\r\nUser-Agent: handfast-supervisor\r\n\r\n".encode()
        )
        head = await reader.readuntil(_HEAD_END)
        length = _LENGTH.search(head)
        if length is None or _CLOSES.search(head):
            self.close()
        else:
            await reader.readexactly(int(length[1]))
        return int(head.split(b" ", 2)[1])

    def _is_here(self) -> bool:
        """5. Whether this machine has the address; a name is taken to be its own."""
        try:
            family = socket.AF_INET if ipaddress.ip_address(self._address.host).version == 4 else socket.AF_INET6
        except ValueError:
            return True
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((self._address.host, 0))
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def state_of(pid: int) -> str:
    """The letter by which the kernel says what a process does, where it does (Linux); else nothing."""
    try:
        return (
            pathlib.Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except (OSError, IndexError):
        return ""


async def watch(ask: Question, state: Callable[[], str], clock: clocks.Clock, patience: Patience) -> str:
    """Returns when the process has to be killed, and why."""
    lived, failures, pause = False, 0, 0.0
    since = awake = clock.monotonic()
    while True:
        began = clock.monotonic()
        sign, why = await ask()
        now = clock.monotonic()
        # 4. the asker was there; 6. and nobody debugs
        fair = now - began <= patience.answer + patience.slack and began - awake <= pause + patience.slack
        if sign is Sign.TROUBLE and fair and state() != TRACED:
            failures += 1
        else:
            lived = lived or sign is Sign.LIFE
            failures = 0
            # Without a sign of life a start goes on; 4. but not while nobody looked.
            since = now if lived or not fair else since
        # 2. in a row
        if lived and failures >= patience.failures:
            return f"/livez was not answered {failures} times in a row, for {now - since:.0f} s: {_explained(why, state())}"
        # 1. a start that does not end
        if not lived and failures and now - since >= patience.start:
            return f"/livez was not answered within {patience.start:g} s of its start: {_explained(why, state())}"
        awake = clock.monotonic()
        pause = patience.pause if lived else min(patience.first_pause, patience.pause)
        await clock.sleep(pause)


def _explained(why: str, state: str) -> str:
    return f"{why}; {_STATES[state]}" if state in _STATES else why
