# SPDX-License-Identifier: Apache-2.0
"""HTTP to one API server with the current credentials; refusals come back as `StatusError`.

It knows paths and bytes only: what a resource is, and how to list or watch one, is in `api` and `watch`. Nothing is
retried here except one request after a 401 with a token file that has changed since.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import platform
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import aiohttp
import msgspec
import structlog
import yarl

from handfast import errors
from handfast.api import status
from handfast.client import connection as connections
from handfast.runtime import clock as clocks
from handfast.runtime import tls

# How long a token read from a file is used before the file is looked at again; kubelets rewrite it hours ahead.
_TOKEN_SECONDS = 10.0
_CONNECT_SECONDS = 10.0
# The reasons of Unavailable when nobody answered.
NO_ANSWER = frozenset({"Timeout", "Unreachable"})
USER_AGENT = f"handfast/0.1 ({platform.system().lower()}/{platform.machine()})"

# Of several reasons for one code, what an answer without a Status most likely means.
_REASONS = {code: reason for reason, code in reversed(status.CODES.items())} | {409: "Conflict", 410: "Expired"}


class Body(Protocol):
    """The body of an answer as it arrives; empty when it has ended."""

    async def readany(self) -> bytes: ...


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    causes: list[dict[str, Any]] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, rename="camel"):
    """The parts of a Status document that become a StatusError."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None
    metadata: dict[str, Any] | None = None


_log = structlog.get_logger("handfast.client")

_status_decoder = msgspec.json.Decoder(_Status)


def status_error(body: bytes, code: int, retry_after: str = "") -> status.StatusError:
    """The error a server meant by an answer that is no success, even if the body is not a Status."""
    try:
        found = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _Status()
    if found.kind != "Status":
        text = body[:200].decode("utf-8", "replace").strip()
        found = _Status(message=text or f"the server answered {code} without a body", code=code)
    details = found.details or _Details()
    wait = details.retry_after_seconds or (int(retry_after) if retry_after.isdecimal() else 0)
    code = found.code or code
    return status.StatusError(
        found.reason or _REASONS.get(code, "InternalError" if code >= 500 else "BadRequest"),
        found.message,
        code=code,
        name=details.name,
        group=details.group,
        kind=details.kind,
        causes=[
            status.Cause(str(row.get("reason", "")), str(row.get("message", "")), str(row.get("field", "")))
            for row in details.causes or ()
        ],
        retry_after=wait,
        continue_token=str((found.metadata or {}).get("continue", "")),
    )


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket on which a vanished peer is noticed in about half a minute, also under an idle watch."""
    opened = socket.socket(address[0], address[1], address[2])
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened


class Transport:
    """Requests to one server. Make it, use it and close it on the same event loop."""

    def __init__(
        self,
        connection: connections.Connection,
        *,
        clock: clocks.Clock,
        user_agent: str = USER_AGENT,
        seconds: float = 30.0,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._seconds = seconds
        self._base = connection.server.rstrip("/")
        self._tls: ssl.SSLContext | bool = True
        if self._base.startswith("https:"):
            self._tls = tls.client_context(connection.ca_pem, connection.cert_pem, connection.key_pem)
        # Compression would cost both sides more than loopback and data-centre bytes do.
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._session: aiohttp.ClientSession | None = None
        self._token = connection.token
        self._token_read_at: float | None = None
        self._reachable = True

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> bytes:
        """The body of a successful answer."""
        headers = {"Accept": accept, **({} if body is None else {"Content-Type": content_type})}
        timeout = aiohttp.ClientTimeout(total=self._seconds, sock_connect=_CONNECT_SECONDS)
        async with self._answer(method, path, params=params, data=body, headers=headers, timeout=timeout) as answer:
            return await answer.read()

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], accept: str, idle_seconds: float
    ) -> AsyncIterator[Body]:
        """The body of a successful GET as it arrives; an error if nothing arrives for `idle_seconds`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=idle_seconds)
        async with self._answer("GET", path, params=params, headers={"Accept": accept}, timeout=timeout) as answer:
            yield answer.content

    @contextlib.asynccontextmanager
    async def _answer(self, method: str, path: str, **more: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """One exchange: network failures become Unavailable, refusals StatusError, also while the body is read."""
        try:
            answer = await self._send(method, path, **more)
            if answer.status == 401 and self._token_changed():
                answer.release()
                answer = await self._send(method, path, **more)
            async with answer:
                self._heard()
                if answer.status >= 400:
                    raise status_error(await answer.read(), answer.status, answer.headers.get("Retry-After", ""))
                yield answer
        except TimeoutError as error:
            self._unheard("did not answer in time")
            raise errors.Unavailable(f"{self._base} did not answer in time", reason="Timeout") from error
        except (aiohttp.ClientError, OSError) as error:
            self._unheard(str(error))
            raise errors.Unavailable(f"{self._base} cannot be reached: {error}", reason="Unreachable") from error

    def _heard(self) -> None:
        if not self._reachable:
            self._reachable = True
            _log.info("the API server answers again", server=self._base)

    def _unheard(self, why: str) -> None:
        # Once for each outage: dozens of watches share this transport and all of them fail.
        if self._reachable:
            self._reachable = False
            _log.warning("the API server cannot be reached", server=self._base, error=why)

    async def _send(self, method: str, path: str, headers: dict[str, str], **more: Any) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = self._open()
        token = self._bearer()
        if token is not None:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        # encoded=True: names are quoted already, and yarl would undo %2F.
        url = yarl.URL(self._base + path, encoded=True)
        return await self._session.request(
            method, url, headers=headers, server_hostname=self._connection.tls_server_name, **more
        )

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, socket_factory=_socket, keepalive_timeout=60.0)
        return aiohttp.ClientSession(
            connector=connector, headers=self._headers, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )

    def _bearer(self) -> str | None:
        if self._connection.token_file is not None:
            now = self._clock.monotonic()
            if self._token_read_at is None or now - self._token_read_at >= _TOKEN_SECONDS:
                self._read_token(now)
        return self._token

    def _read_token(self, now: float) -> None:
        path = self._connection.token_file or ""
        try:
            text = pathlib.Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            if self._token is None:
                raise errors.Unavailable(f"the token file {path} cannot be read", reason="NoToken") from error
            text = ""
        # While the file is being replaced the last token serves on.
        self._token = text or self._token
        self._token_read_at = now

    def _token_changed(self) -> bool:
        if self._connection.token_file is None:
            return False
        before = self._token
        self._read_token(self._clock.monotonic())
        return self._token != before

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            # aiohttp closes TLS transports on the next turn of the loop.
            await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, not a wait
            self._session = None
