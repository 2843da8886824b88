# SPDX-License-Identifier: Apache-2.0
"""A client of etcd: one gRPC channel for each endpoint, its TLS and login from files, and calls that say how far they came.

1. Without a CA only loopback is called. With one, the endpoint's certificate leads to it and names the endpoint's host.
2. Certificate, key and CA are read again when one of the files has changed: new channels then take the place of the old ones. Who waits for
   a connection of an old one goes on with the new one; a call that an old one has sent, and that ends with it, has failed.
3. A login is exchanged for a token; a token that is no longer taken is exchanged for a new one. The password is read from
   its file each time, and is in no text of an error. Of an endpoint one login is under way at a time, and its outcome is that of
   everybody who waits for it: were each to try for itself, the last of many would wait for all of their deadlines.
4. A call is sent on a connection that stands. So whoever gets `NotSent` knows that the endpoint never saw it.
5. No proxy of the environment is used.

It gives no meaning to keys, and repeats nothing: which endpoint is called next, and whether at all, is the caller's.

| who | holding | tries | stopped by | shown in tests/unit/wire/test_etcd_client.py |
|---|---|---|---|---|
| a stranger | the address of an endpoint, a certificate of another CA | be told Secrets | 1 | test_an_endpoint_of_another_ca_is_not_called |
| a stranger | the way to an endpoint | read along | 1 | test_without_a_ca_only_loopback_is_called |
| a reader of logs | errors | find the password | 3 | test_a_refused_login_is_named_without_its_password |
"""

from __future__ import annotations

import asyncio
import pathlib
import re
from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio

from handfast import errors
from handfast.runtime import addresses, crowd, files
from handfast.wire import etcd_access
from handfast.wire import etcd_messages as messages

# A page of a list; the caller asks for less where it was too much. gRPC's own limit is 4 MiB.
LARGEST: Final = 64 << 20
_FILE_BYTES: Final = 1 << 20
_FAREWELL: Final = 1.0
_LONGEST_TEXT: Final = 500
# What etcd says of a token from before users or roles were changed.
_OLD_LOGIN: Final = "revision of auth store is old"
_CLOSED: Final = "the connection was closed"
_NO_ANSWER: Final = "no answer in time"
# gRPC says of every connection that failed, before it says why.
_PREAMBLE: Final = re.compile(r"^failed to connect to all addresses; last error: [A-Z_]+: (?:ipv[46]:[^ ]+: )?")
_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    # 5. no proxy of the environment
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_send_message_length", LARGEST),
    # A peer that is frozen or cut off is noticed while calls wait for it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    # Also how long an attempt may take.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


class Failed(errors.Unavailable):
    """A call that was not answered, or answered with an error; `code` is gRPC's name for it."""

    reason = "EtcdCallFailed"

    def __init__(self, endpoint: str, code: str, text: str) -> None:
        super().__init__(f"etcd at {endpoint}: {text[:_LONGEST_TEXT]}")
        self.endpoint = endpoint
        self.code = code
        self.text = text


class NotSent(Failed):
    """A call that the endpoint never saw."""


Pems = tuple[bytes | None, bytes | None, bytes | None]


class Client:
    """Calls of one etcd; `endpoints` are tried in the order that the caller chooses."""

    def __init__(self, endpoints: Sequence[addresses.Address], access: etcd_access.Access) -> None:
        self.endpoints = tuple(endpoints)
        self._access = access
        if access.ca_file is None:
            # 1. in plaintext on loopback only
            _require_loopback(self.endpoints)
        self._pems = self._read_files()
        self._channels = [self._open(endpoint) for endpoint in self.endpoints]
        self._methods: dict[tuple[Any, Any], Any] = {}
        self._token: str | None = None
        # 3. by endpoint: the outcome of the login that is under way
        self._logins: dict[int, asyncio.Future[str]] = {}
        self._crowd = crowd.Crowd("etcd/login")
        self._old: list[Any] = []

    def name(self, index: int) -> str:
        return str(self.endpoints[index])

    async def call(self, index: int, message: Any, seconds: float) -> Any:
        """One message for one, from one endpoint."""
        token = await self._authenticated(index, seconds)
        try:
            return await self._call(index, message, seconds, token)
        except Failed as failed:
            # 3. a token that ran out. The call was refused before it did anything.
            if token is None or not (failed.code == "UNAUTHENTICATED" or _OLD_LOGIN in failed.text):
                raise
            if self._token == token:
                self._token = None
        return await self._call(index, message, seconds, await self._authenticated(index, seconds))

    async def watch(self, index: int, create: Any, seconds: float) -> Watching:
        """A stream of watch responses from one endpoint."""
        token = await self._authenticated(index, seconds)
        channel = await self._connected(index, seconds)
        opened = channel.stream_stream(
            messages.WATCH,
            request_serializer=messages.WatchRequest.SerializeToString,
            response_deserializer=messages.WatchResponse.FromString,
        )(metadata=_metadata(token))
        watching = Watching(opened, self.name(index))
        await watching.send(messages.WatchRequest(create_request=create))
        return watching

    async def reload(self) -> bool:
        """Take up changed files; whether there were any."""
        pems = await asyncio.to_thread(self._read_files)
        if pems == self._pems:
            return False
        # 2. new channels; what is under way on the old ones ends there
        self._pems = pems
        self._old += self._channels
        self._methods.clear()
        self._channels = [self._open(endpoint) for endpoint in self.endpoints]
        return True

    async def retire(self) -> None:
        """Close the channels of before the last change of files."""
        old, self._old = self._old, []
        for channel in old:
            await channel.close(_FAREWELL)

    async def close(self) -> None:
        await self._crowd.stop()
        await self.retire()
        for channel in self._channels:
            await channel.close()

    async def _call(self, index: int, message: Any, seconds: float, token: str | None) -> Any:
        channel = await self._connected(index, seconds)
        try:
            return await self._method(channel, type(message))(message, timeout=seconds, metadata=_metadata(token))
        except grpc.aio.AioRpcError as error:
            raise _failed(self.name(index), error) from None
        except asyncio.CancelledError:
            # 2. gRPC says it of a call whose channel was closed, too, and not only of a task that was cancelled
            _require_own_end()
            raise Failed(self.name(index), "CANCELLED", _CLOSED) from None

    def _method(self, channel: Any, kind: Any) -> Any:
        """What calls a method, made once for each channel."""
        method = self._methods.get((channel, kind))
        if method is None:
            path, response = messages.METHODS[kind]
            method = channel.unary_unary(
                path, request_serializer=kind.SerializeToString, response_deserializer=response.FromString
            )
            self._methods[channel, kind] = method
        return method

    async def _connected(self, index: int, seconds: float) -> Any:
        """The channel, once its connection stands (4)."""
        channel = self._channels[index]
        if channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return channel
        try:
            async with asyncio.timeout(seconds):
                while not await self._is_connected(index, channel):
                    # 2. perhaps another one by now
                    channel = self._channels[index]
        except TimeoutError:
            raise NotSent(self.name(index), "UNAVAILABLE", "no connection") from None
        return channel

    async def _is_connected(self, index: int, channel: Any) -> bool:
        """Whether the connection stands, after a while in which it may have come to."""
        state = channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return True
        try:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                raise NotSent(self.name(index), "UNAVAILABLE", await self._why(channel))
            await channel.wait_for_state_change(state)
        except (grpc.aio.UsageError, asyncio.CancelledError) as error:
            # 2. closed meanwhile, or before
            if isinstance(error, asyncio.CancelledError):
                _require_own_end()
            if channel is self._channels[index]:
                raise NotSent(self.name(index), "UNAVAILABLE", _CLOSED) from None
        return False

    async def _why(self, channel: Any) -> str:
        """What gRPC says of a connection that failed: it tells whoever calls."""
        try:
            await self._method(channel, messages.StatusRequest)(messages.StatusRequest(), timeout=1.0)
        except grpc.aio.AioRpcError as error:
            return _in_words(error, "no connection")
        return "no connection"

    async def _authenticated(self, index: int, seconds: float) -> str | None:
        access = self._access
        if access.username is None or access.password_file is None:
            return None
        if self._token is not None:
            return self._token
        outcome = self._logins.get(index)
        if outcome is None:
            outcome = self._logins[index] = asyncio.get_running_loop().create_future()
            self._crowd.start(self._log_in(index, seconds, outcome))
        # Who gives up waiting ends nobody else's login.
        return await asyncio.shield(outcome)

    async def _log_in(self, index: int, seconds: float, outcome: asyncio.Future[str]) -> None:
        try:
            asked = await self._login()
            self._token = str((await self._call(index, asked, seconds, None)).token)
            outcome.set_result(self._token)
        except Failed as failed:
            # 4. whatever it was to be for was not sent
            _fail(outcome, NotSent(failed.endpoint, failed.code, failed.text))
        except errors.HandfastError as error:
            _fail(outcome, error)
        finally:
            del self._logins[index]
            if not outcome.done():
                _fail(outcome, NotSent(self.name(index), "CANCELLED", _CLOSED))

    async def _login(self) -> Any:
        path = pathlib.Path(self._access.password_file or "")
        data = await asyncio.to_thread(files.read_private, path, limit=_FILE_BYTES)
        try:
            password = data.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise errors.Refused(f"{path}: the password is not UTF-8", reason="PasswordUnreadable") from None
        return messages.AuthenticateRequest(name=self._access.username, password=password)

    def _read_files(self) -> Pems:
        access = self._access
        read = [
            None if path is None else reader(pathlib.Path(path), limit=_FILE_BYTES)
            for path, reader in (
                (access.ca_file, files.read),
                (access.cert_file, files.read),
                (access.key_file, files.read_private),
            )
        ]
        return read[0], read[1], read[2]

    def _open(self, endpoint: addresses.Address) -> Any:
        if self._access.ca_file is None:
            return grpc.aio.insecure_channel(str(endpoint), options=_OPTIONS)
        ca, certificate, key = self._pems
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        return grpc.aio.secure_channel(str(endpoint), credentials, options=_OPTIONS)


class Watching:
    """One open stream of watch responses."""

    def __init__(self, call: Any, endpoint: str) -> None:
        self._call = call
        self._cancelled = False
        self.endpoint = endpoint

    async def send(self, message: Any) -> None:
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise _failed(self.endpoint, error) from None

    async def read(self) -> Any:
        """The next response. Not to be wrapped in `asyncio.wait_for`, which was seen to leave it running."""
        try:
            answer = await self._call.read()
        except asyncio.CancelledError:
            # gRPC says it of a stream that was cancelled here, too, and not only of a task that was.
            if not self._cancelled:
                raise
            _require_own_end()
            raise Failed(self.endpoint, "CANCELLED", "the watch was given up") from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise _failed(self.endpoint, error) from None
        if answer is grpc.aio.EOF or answer is None:
            raise Failed(self.endpoint, "UNAVAILABLE", "the watch ended")
        return answer

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()


def _require_own_end() -> None:
    """Return if what was cancelled is a call or a channel, and not the task that waits for it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _fail(outcome: asyncio.Future[str], error: errors.HandfastError) -> None:
    outcome.set_exception(error)
    # Those who waited may all have gone.
    outcome.exception()


def _metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    return () if token is None else (("token", token),)


def _in_words(error: grpc.aio.AioRpcError, otherwise: str) -> str:
    """What is wrong, in the words of etcd or of gRPC. What gRPC says before the cause is left out: it only repeats the endpoint."""
    text = str(error.details() or otherwise)
    return _NO_ANSWER if text == "Deadline Exceeded" else _PREAMBLE.sub("", text)


def _failed(endpoint: str, error: BaseException) -> Failed:
    if isinstance(error, grpc.aio.AioRpcError):
        return Failed(endpoint, error.code().name, _in_words(error, error.code().name.lower()))
    return Failed(endpoint, "UNAVAILABLE", _CLOSED)


def _require_loopback(endpoints: Sequence[addresses.Address]) -> None:
    for endpoint in endpoints:
        if not addresses.is_loopback(endpoint.host.removesuffix(".")):
            raise errors.Refused(
                f"{endpoint}: without TLS etcd is called on loopback only",
                reason="PlaintextNotLoopback",
                hint="name the CA of etcd's certificates with --etcd-ca-file",
            )
