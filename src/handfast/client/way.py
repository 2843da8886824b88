# SPDX-License-Identifier: Apache-2.0
"""Walks the way to the API server step by step: its name, its port, its certificate, its clock, its version. What it means is `rules.diagnoses`'s.

1. What comes after a step that failed is not tried. The clock is, where somebody answers: a wrong one is why certificates are not in force.
2. Nothing is sent before the server has shown a certificate of the kubeconfig's CA.
3. Every step has its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib import parse as urls

import msgspec

from handfast import errors
from handfast.bootstrap import diagnosis
from handfast.client import api, connection, discovery, tokens, trouble
from handfast.pki import certificates
from handfast.rules import check
from handfast.rules.diagnoses import facts
from handfast.runtime import clock as clocks
from handfast.runtime import resolver, tasks, tls

SECONDS: Final = 5.0
_HTTPS: Final = 443
_SILENT: Final = f"a firewall drops packets, or the server hangs: see that it runs; {check.LOG}"
_RESOLVER: Final = check.Unread(
    f"its name was not resolved within {SECONDS:g} s",
    check.TIMEOUT,
    "see this machine's resolver (/etc/resolv.conf), or have an IP address in the kubeconfig",
)
_T = TypeVar("_T")


class Door(msgspec.Struct, frozen=True):
    """Where a server is, and by which CA it is judged; None: by the roots of the system."""

    url: str
    ca: bytes | None
    server_name: str | None = None

    @property
    def host(self) -> str:
        return urls.urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urls.urlsplit(self.url).port or _HTTPS

    async def addresses(self) -> list[str]:
        """Every address of its name."""
        return await resolver.addresses(self.host, self.port)

    async def _open(self, **how: Any) -> asyncio.StreamWriter:
        """A connection to the first address that takes one."""
        *others, last = await self.addresses()
        for address in others:
            with contextlib.suppress(OSError):
                return (await asyncio.open_connection(address, self.port, **how))[1]
        return (await asyncio.open_connection(last, self.port, **how))[1]

    async def connect(self) -> str:
        """HOST:PORT, which took a connection."""
        writer = await self._open()
        peer = writer.get_extra_info("peername")
        await _closed(writer)
        return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"

    async def certificate(self) -> certificates.Certificate:
        """What it shows, once it is verified."""
        name = self.server_name or self.host
        context = tls.client_context(self.ca)
        writer = await self._open(ssl=context, server_hostname=name)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        await _closed(writer)
        return certificates.read(shown)

    async def troubled(self) -> trouble.Troubled | None:
        """Why nobody can talk to it over TLS; None: somebody can."""
        try:
            async with asyncio.timeout(SECONDS):
                await self.certificate()
        except (OSError, ValueError) as error:
            return trouble.of(error)
        return None


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    # Whoever listens may cut it first: the question is answered already.
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class Way(msgspec.Struct, frozen=True):
    """The way that a kubeconfig names; `kubeconfig` is what that is called."""

    client: api.Client
    used: connection.Connection
    kubeconfig: str
    clock: clocks.Clock

    async def walk(self) -> facts.Reach:
        """As far as one gets (1)."""
        door = Door(self.used.server, self.used.ca_pem, self.used.tls_server_name)
        reach = facts.Reach(server=self.used.server, addresses=await self._step(door.addresses, _RESOLVER))
        if isinstance(reach.addresses, check.Unread):
            return reach
        reach = dataclasses.replace(reach, connected=await self._step(door.connect))
        if isinstance(reach.connected, check.Unread):
            return reach
        # 1. the clock is asked once somebody listens, whoever that is
        certificate = await self._step(door.certificate)
        if isinstance(certificate, check.Unread) and certificate.reason == check.TIMEOUT:
            return dataclasses.replace(reach, certificate=certificate)
        reach = dataclasses.replace(reach, ahead=await self._ahead(), certificate=certificate)
        if isinstance(certificate, check.Unread):
            return reach
        # 2. the first that is sent
        return dataclasses.replace(reach, version=await self._step(lambda: tokens.version(self.client)))

    async def _step(self, step: Callable[[], Awaitable[_T]], late: check.Unread | None = None) -> _T | check.Unread:
        server = self.used.server
        try:
            # 3. every step has its deadline
            async with asyncio.timeout(SECONDS):
                return await step()
        except TimeoutError:
            return late or check.Unread(f"{server} did not answer within {SECONDS:g} s", check.TIMEOUT, _SILENT)
        except (OSError, ValueError) as error:
            met = trouble.of(error)
            skew = None
            if met.trouble is diagnosis.Trouble.NOT_VALID_NOW:
                skew = await discovery.Discovery(self.clock).skew(server)
            return _unread(diagnosis.explain(met.trouble, server, met.detail, skew, by=f"a CA of {self.kubeconfig}"))
        except errors.HandfastError as error:
            return _unread(error)

    async def _ahead(self) -> facts.Ahead:
        skews: list[datetime.timedelta | None] = []

        async def ask() -> None:
            skews.append(await discovery.Discovery(self.clock).skew(self.used.server))

        await tasks.within(ask(), self.clock, SECONDS)
        if skews and skews[0] is not None:
            return -skews[0]
        return check.Unread("the API server does not say what time it is")


def _unread(error: errors.HandfastError) -> check.Unread:
    return check.Unread(error.message, error.reason, error.hint or "")
