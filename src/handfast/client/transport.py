# SPDX-License-Identifier: Apache-2.0
"""HTTP to one API with the current credentials; refusals come back as `StatusError`.

It knows paths and bytes only: what a resource is, and how to list or watch one, is in `api` and `watch`. Nothing is
retried here except one request after a 401 with a token file that has changed since. No redirect is followed: the body, or
what is asked for, would go to somebody whom nobody named. An answer that is read whole has at most `MAX_BYTES`.

Credentials may change while it is in use (`use`): new requests go out under the new ones at once, streams end as if the
server had closed them, requests under way are answered first, and no connection made with the old ones stays open.

Where a cluster has several servers, the first is asked until it does not answer, then the next, and so on round:

1. A request that could not be sent, or a GET that was not answered, goes to each of the others at once. Any other
   failure is told, since the request may have been carried out; the next request goes to another server. A server that
   turns down the client's certificate with a TLS alert has answered: that is a 401.
2. Every server is verified with the one CA of the connection before it is sent anything.
3. Whoever answers stays in use, also with other credentials, until it fails or the connection names another first.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
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
from handfast.bootstrap import diagnosis
from handfast.client import connection as connections
from handfast.client import trouble
from handfast.runtime import clock as clocks
from handfast.runtime import files, tls

# How long a token read from a file is used before the file is looked at again; kubelets rewrite it hours ahead.
_TOKEN_SECONDS = 10.0
_TOKEN_BYTES = 64 << 10
_CONNECT_SECONDS = 10.0
# … where somebody else can be asked: an address that swallows packets should cost seconds.
_CONNECT_OR_MOVE_SECONDS = 3.0
# A page of 500 objects of half a MiB each; whoever sends more is not the API server that was asked for a page.
MAX_BYTES = 256 << 20
# The longest wait that is asked for and believed.
_MAX_RETRY_AFTER = 3600
# The reasons of Unavailable when nobody answered.
NO_ANSWER = frozenset({"Timeout", "Unreachable"})
# Reasons of a server whose certificate is not that of the one that was meant (`bootstrap.diagnosis`).
NOT_BELIEVED = frozenset({"TLSInterception", "WrongServerName", "CertificateNotValid"})
USER_AGENT = f"handfast/0.1 ({platform.system().lower()}/{platform.machine()})"

# Of several reasons for one code, what an answer without a Status most likely means.
_REASONS = {code: reason for reason, code in reversed(status.CODES.items())} | {409: "Conflict", 410: "Expired"}


class Explain(Protocol):
    """The error for a person whom a server did not answer.

    Without it, it is always Unavailable: whoever runs for long tries again, whatever the cause.
    """

    async def __call__(self, server: str, met: trouble.Troubled) -> errors.HandfastError: ...


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


class UnexpectedAnswer(status.StatusError):
    """A refusal that is no Status: it may be a proxy's, and not the API server's."""


def status_error(body: bytes, code: int, retry_after: str = "") -> status.StatusError:
    """The error a server meant by an answer that is no success, even if the body is not a Status."""
    try:
        answer = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = _Status()
    kind: type[status.StatusError] = status.StatusError
    if answer.kind != "Status":
        kind = UnexpectedAnswer
        text = body[:200].decode("utf-8", "replace").strip()
        answer = _Status(message=text or f"the server answered {code} without a body", code=code)
    details = answer.details or _Details()
    wait = details.retry_after_seconds or (int(retry_after[:9]) if retry_after.isdecimal() else 0)
    code = answer.code or code
    return kind(
        answer.reason or _REASONS.get(code, "InternalError" if code >= 500 else "BadRequest"),
        answer.message,
        code=code,
        name=details.name,
        group=details.group,
        kind=details.kind,
        causes=[
            status.Cause(str(row.get("reason", "")), str(row.get("message", "")), str(row.get("field", "")))
            for row in details.causes or ()
        ],
        retry_after=min(wait, _MAX_RETRY_AFTER),
        continue_token=str((answer.metadata or {}).get("continue", "")),
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


class _Stream:
    """The body of an answer that can be ended from here."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self._ended = False

    async def readany(self) -> bytes:
        return b"" if self._ended else await self._answer.content.readany()

    def end(self) -> None:
        # Its reader sees a body that is complete; the connection is not kept.
        self._ended = True
        self._answer.content.feed_eof()
        self._answer.close()


class _Link:
    """The connections made with one set of credentials, and who is using them."""

    def __init__(self, connection: connections.Connection, headers: Mapping[str, str], server: str) -> None:
        self.base = server.rstrip("/")
        self.server_name = connection.tls_server_name
        self.users = 0
        self.streams: set[_Stream] = set()
        self.retired = False
        self._headers = headers
        # Made at once, so that credentials that cannot be used are refused where they are given.
        self._tls: ssl.SSLContext | bool = True
        if self.base.startswith("https:"):
            self._tls = tls.client_context(connection.ca_pem, connection.cert_pem, connection.key_pem)
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0, socket_factory=_socket, keepalive_timeout=60.0)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self._headers, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session

    def look_up_again(self) -> None:
        """Forget which address the server's name had: it may have moved to another."""
        connector = None if self._session is None else self._session.connector
        if isinstance(connector, aiohttp.TCPConnector):
            connector.clear_dns_cache()

    async def retire(self) -> None:
        """End the streams, and close when the last request under way has its answer."""
        self.retired = True
        for stream in tuple(self.streams):
            stream.end()
        await self.left()

    async def left(self) -> None:
        if self.retired and not self.users:
            await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            # aiohttp closes TLS transports on the next turn of the loop.
            await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop, not a wait
            self._session = None


def _certificate_refused(server: str, alert: str) -> status.StatusError:
    """As the 401 that a server would have given, had it come so far: it is an answer, and no other server's is better."""
    return status.StatusError(
        "Unauthorized", f"{server} ended TLS for this client certificate, with the alert {alert!r}"
    )


def _why(error: aiohttp.ClientError | OSError) -> str:
    return "did not answer in time" if isinstance(error, TimeoutError) else str(error)


def _repeatable(method: str, error: aiohttp.ClientError | OSError) -> bool:
    """1. Whether nothing can have been done, and there is time."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return True
    return method == "GET" and not isinstance(error, TimeoutError)


class Transport:
    """Requests to the servers of one API. Make it, use it and close it on the same event loop."""

    def __init__(
        self,
        connection: connections.Connection,
        *,
        clock: clocks.Clock,
        user_agent: str = USER_AGENT,
        seconds: float = 30.0,
        max_bytes: int = MAX_BYTES,
        explain: Explain | None = None,
    ) -> None:
        self._explain = explain
        self._clock = clock
        self._seconds = seconds
        self._max_bytes = max_bytes
        # Compression would cost both sides more than loopback and data-centre bytes do.
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._retiring: set[_Link] = set()
        # Why nobody answered, since the last answer of any kind.
        self.unheard: str | None = None
        self.unheard_since: datetime.datetime | None = None
        # Whether it answers that it does not know who asks: see `hearing`.
        self.is_stranger = False
        self._take(connection)

    def _take(self, connection: connections.Connection, server: str = "") -> None:
        self._link = _Link(connection, self._headers, server or connection.server)
        self._connection = connection
        self._token = connection.token
        self._token_read_at: float | None = None

    @property
    def server(self) -> str:
        """The one that is asked now."""
        return self._link.base

    def _servers(self) -> list[str]:
        return list(dict.fromkeys(url.rstrip("/") for url in (self._connection.server, *self._connection.others)))

    async def use(self, connection: connections.Connection) -> None:
        """Go on with other credentials, or at another address; what cannot be used is refused and changes nothing."""
        old, before = self._link, self._connection
        # 3. who answers stays in use
        stays = connection.server == before.server and old.base in {url.rstrip("/") for url in connection.others}
        self._take(connection, old.base if stays else "")
        self._retiring.add(old)
        for link in tuple(self._retiring):
            await link.retire()
        self._retiring = {link for link in self._retiring if link.users}

    def _move(self, failed: _Link, why: str) -> bool:
        """Ask the next server from now on, unless somebody has moved on already; whether there is another."""
        failed.look_up_again()
        servers = self._servers()
        if len(servers) == 1:
            return False
        if failed is self._link:
            following = (
                servers[(servers.index(failed.base) + 1) % len(servers)] if failed.base in servers else servers[0]
            )
            self._link = _Link(self._connection, self._headers, following)
            # What still works there goes on to its end.
            failed.retired = True
            self._retiring = {link for link in (*self._retiring, failed) if link.users}
            if self.unheard is None:
                _log.warning(
                    "an API server does not answer; the next is asked", server=failed.base, next=following, error=why
                )
        return True

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        seconds: float | None = None,
    ) -> bytes:
        """The body of a successful answer, within `seconds` if they are given."""
        headers = {"Accept": accept, **({} if body is None else {"Content-Type": content_type})}
        timeout = aiohttp.ClientTimeout(total=seconds or self._seconds, sock_connect=self._connect_seconds())
        exchange = self._answer(method, path, params=params, data=body, headers=headers, timeout=timeout)
        async with exchange as (_link, answer):
            return await self._whole(answer)

    def _connect_seconds(self) -> float:
        return _CONNECT_OR_MOVE_SECONDS if self._connection.others else _CONNECT_SECONDS

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], accept: str, idle_seconds: float
    ) -> AsyncIterator[Body]:
        """The body of a successful GET as it arrives; an error if nothing arrives for `idle_seconds`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds(), sock_read=idle_seconds)
        exchange = self._answer("GET", path, params=params, headers={"Accept": accept}, timeout=timeout)
        async with exchange as (link, answer):
            stream = _Stream(answer)
            link.streams.add(stream)
            try:
                # The credentials may have changed while the answer's head was on its way.
                if link.retired:
                    stream.end()
                yield stream
            finally:
                link.streams.discard(stream)

    @contextlib.asynccontextmanager
    async def _answer(self, method: str, path: str, **more: Any) -> AsyncIterator[tuple[_Link, aiohttp.ClientResponse]]:
        """One exchange: network failures become Unavailable, refusals StatusError, also while the body is read."""
        link, answer = await self._asked(method, path, **more)
        try:
            async with answer:
                self._heard()
                if answer.status >= 400:
                    body = await self._whole(answer)
                    raise status_error(body, answer.status, answer.headers.get("Retry-After", ""))
                if answer.status >= 300:
                    raise errors.Unavailable(
                        f"{link.base} answers with a redirect ({answer.status}), which is not followed",
                        reason="BadAnswer",
                        hint="name the API server itself in the kubeconfig",
                    )
                yield link, answer
        except (aiohttp.ClientError, OSError) as error:
            self._move(link, _why(error))
            raise await self._failure({link.base: error}) from error
        finally:
            link.users -= 1
            await link.left()

    async def _asked(self, method: str, path: str, **more: Any) -> tuple[_Link, aiohttp.ClientResponse]:
        """The head of an answer, and a use of the link it came by. Each server is asked once at most (1)."""
        failed: dict[str, aiohttp.ClientError | OSError] = {}
        while True:
            link, answer = self._link, None
            link.users += 1
            try:
                answer = await self._send(link, method, path, **more)
                if answer.status == 401 and self._token_changed():
                    answer.release()
                    answer = await self._send(link, method, path, **more)
            except (aiohttp.ClientError, OSError) as error:
                answer = None
                if alert := trouble.refusal(error):
                    # Another server may take the certificate; and before the handshake is over anybody can send an alert.
                    self._move(link, alert)
                    self._heard()
                    raise _certificate_refused(link.base, alert) from error
                failed[link.base] = error
                another = self._move(link, _why(error)) and self._link.base not in failed
                if not (another and _repeatable(method, error)):
                    raise await self._failure(failed) from error
            finally:
                if answer is None:
                    link.users -= 1
                    await link.left()
            if answer is not None:
                return link, answer

    async def _failure(self, failed: Mapping[str, aiohttp.ClientError | OSError]) -> errors.HandfastError:
        """The error of a request that none of the servers answered."""
        self._unheard("; ".join(map(_why, failed.values())))
        failures: list[errors.HandfastError] = []
        for base, error in failed.items():
            met = trouble.of(error)
            if self._explain is not None:
                failures.append(await self._explain(base, met))
                continue
            hint = diagnosis.explain(met.trouble, base, met.detail, None).hint
            silent = isinstance(error, TimeoutError)
            how = f"{base} {_why(error) if silent else f'cannot be reached: {error}'}"
            failures.append(errors.Unavailable(how, reason="Timeout" if silent else "Unreachable", hint=hint))
        # Whoever refuses has answered, and says more than silence does.
        chosen = next((error for error in failures if isinstance(error, errors.Refused)), failures[0])
        others = [error.message for error in failures if error is not chosen]
        chosen.message += f" (and {'; '.join(others)})" if others else ""
        return chosen

    async def _whole(self, answer: aiohttp.ClientResponse) -> bytes:
        length = answer.content_length
        if length is not None and length <= self._max_bytes:
            return await answer.read()
        body = bytearray()
        # Its length is not said, or it is too much.
        while len(body) <= self._max_bytes and (length or 0) <= self._max_bytes:
            part = await answer.content.readany()
            if not part:
                return bytes(body)
            body += part
        answer.close()
        raise errors.Unavailable(
            f"{answer.url.origin()} answers with more than {self._max_bytes} bytes", reason="BadAnswer"
        )

    def _heard(self) -> None:
        if self.unheard is not None:
            self.unheard = self.unheard_since = None
            _log.info("the API server answers again", server=self._link.base)

    def _unheard(self, why: str) -> None:
        # Once for each outage: dozens of watches share this transport and all of them fail.
        if self.unheard is None:
            self.unheard_since = self._clock.now()
            _log.warning("the API server cannot be reached", server=self._link.base, error=why)
        self.unheard = why

    async def _send(
        self, link: _Link, method: str, path: str, headers: dict[str, str], **more: Any
    ) -> aiohttp.ClientResponse:
        token = self._bearer()
        if token is not None:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        # encoded=True: names are quoted already, and yarl would undo %2F.
        url = yarl.URL(link.base + path, encoded=True)
        return await link.session().request(
            method, url, headers=headers, server_hostname=link.server_name, allow_redirects=False, **more
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
            text = files.read(pathlib.Path(path), limit=_TOKEN_BYTES).decode("ascii").strip()
        except (errors.HandfastError, ValueError) as error:
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
        for link in (self._link, *self._retiring):
            await link.close()
        self._retiring.clear()
