# SPDX-License-Identifier: Apache-2.0
"""The masters' bootstrap credential is revoked by deleting its ConfigMap, while a thousand connections are open with it.

Nine in ten ask who they are again and again, and one in ten watches certificate requests. Times count from when the DELETE is sent.
Each round has a signer and a credential of its own. Limits of the server are lifted: all connections are one user's, from one address.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from dataclasses import dataclass, field

import msgspec

from bench import joins, load, machines, measure, servers, settings
from handfast.api import resources
from handfast.client import api
from handfast.rules.machines import bootstrapper, credentials
from handfast.runtime import tls

LIMIT_MILLISECONDS = 1000.0
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ASK = load.send("POST", _REVIEWS, b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}')
_WATCH = load.get(f"{api.path(resources.SIGNING_REQUESTS)}?watch=true&resourceVersion=0")
_CONFIG_MAPS = f"/api/v1/namespaces/{bootstrapper.CONFIG_NAMESPACE}/configmaps"
_CONFIG_MAP = f"{_CONFIG_MAPS}/{bootstrapper.CONFIG_MAP}"
_PAUSE_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


@dataclass(slots=True)
class _Round:
    """When the DELETE was sent and answered, and of each connection when it was served last."""

    sent: float = 0.0
    answered: float = float("inf")
    served: list[float] = field(default_factory=list)
    # Answers to requests that were sent after the DELETE was answered.
    too_late: int = 0


async def revocation(run: settings.Run) -> list[measure.Figure]:
    sizes = run.sizes
    async with servers.plane(run.directory / "revocation", *machines.FLAGS) as plane:
        await machines.worker_token(plane)
        await _delete(plane)
        rounds = [await _round(plane, sizes.open_connections) for _ in range(sizes.rounds)]
    after = [[max(0.0, at - one.sent) * 1e3 for at in one.served] for one in rounds]
    everyone = [milliseconds for row in after for milliseconds in row]
    return [
        measure.Figure(
            "revocation.p99",
            f"ConfigMap deleted, {sizes.open_connections} connections: the last answer to each, p99",
            "ms",
            [measure.percentile(everyone, 0.99)],
            LIMIT_MILLISECONDS,
        ),
        measure.Figure(
            "revocation.last", "  to the last of them", "ms", [max(row) for row in after], LIMIT_MILLISECONDS
        ),
        measure.Figure(
            "revocation.too_late",
            "  requests sent after the DELETE's answer, and served",
            "",
            [float(one.too_late) for one in rounds],
            0.0,
        ),
        measure.Figure(
            "revocation.delete", "  the DELETE itself", "ms", [(one.answered - one.sent) * 1e3 for one in rounds]
        ),
    ]


async def _delete(plane: servers.Server) -> None:
    joins.require(await load.exchange(plane.port, plane.context, load.delete(_CONFIG_MAP)), 200)


async def _trust(plane: servers.Server) -> ssl.SSLContext:
    """A new credential that counts."""
    fresh = credentials.master(datetime.datetime.now(datetime.UTC))
    body = msgspec.json.encode(credentials.config_map(credentials.bundle(fresh.signer)))
    joins.require(await load.exchange(plane.port, plane.context, load.send("POST", _CONFIG_MAPS, body)), 201)
    context = tls.client_context(plane.place.ca_certificate.read_bytes(), fresh.certificate, fresh.key)
    async with asyncio.timeout(_LONGEST_SECONDS):
        while True:
            try:
                status, _ = await load.exchange(plane.port, context, _ASK)
            except (OSError, asyncio.IncompleteReadError):
                # Its CA is not trusted yet, not even in a handshake.
                status = 0
            if status == 201:
                return context
            await asyncio.sleep(0.05)


async def _round(plane: servers.Server, count: int) -> _Round:
    context = await _trust(plane)
    watching = count // 10
    asking = [await load.connect(plane.port, context) for _ in range(count - watching)]
    streams = [
        await asyncio.open_connection(load.HOST, plane.port, ssl=context, server_hostname=load.HOST)
        for _ in range(watching)
    ]
    seen = _Round()
    async with asyncio.timeout(_LONGEST_SECONDS), asyncio.TaskGroup() as group:
        for number, connection in enumerate(asking):
            group.create_task(_ask(connection, seen, _PAUSE_SECONDS * number / len(asking)))
        for reader, writer in streams:
            group.create_task(_watch(reader, writer, seen))
        await asyncio.sleep(2 * _PAUSE_SECONDS)
        seen.sent = time.perf_counter()
        await _delete(plane)
        seen.answered = time.perf_counter()
    await plane.settle()
    if len(seen.served) != count:
        raise load.UnexpectedAnswer(f"{len(seen.served)} of {count} connections were served")
    return seen


async def _ask(connection: load.Connection, seen: _Round, wait: float) -> None:
    """Ask at a fixed pace until it is refused."""
    last = 0.0
    await asyncio.sleep(wait)
    while True:
        begun = time.perf_counter()
        try:
            status = await connection.request(_ASK)
        except load.UnexpectedAnswer:
            # The server closed it.
            break
        if status == 401:
            break
        if status != 201:
            raise load.UnexpectedAnswer(f"a question was answered with {status}")
        last = time.perf_counter()
        seen.too_late += begun > seen.answered
        await asyncio.sleep(max(0.0, begun + _PAUSE_SECONDS - last))
    connection.close()
    if last:
        seen.served.append(last)


async def _watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: _Round) -> None:
    """Watch until the server ends it."""
    writer.write(_WATCH)
    head = await reader.readuntil(b"\r\n\r\n")
    if head[9:12] != b"200":
        raise load.UnexpectedAnswer(f"a watch was answered with {head[:60]!r}")
    while (line := await reader.readline()) and line != b"0\r\n":
        pass
    seen.served.append(time.perf_counter())
    writer.close()
