# SPDX-License-Identifier: Apache-2.0
"""What machines that join ask for and wait for: cluster-info, read by strangers and signed by tokens.

Strangers come from as many addresses of the loopback network as it takes to stay within the limits of each. Where a
changed cluster-info is signed anew, its publisher is off: it would put the change right.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import itertools
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from bench import load, measure, preload, requests, servers, settings
from handfast.assembly import config
from handfast.bootstrap import cluster_info as info
from handfast.bootstrap import tokens
from handfast.controllers.joining import bootstrap_signer, token_cleaner
from handfast.controllers.joining import cluster_info as publisher
from handfast.datadir import layout
from handfast.runtime import tls

CONNECTION_LIMIT_RATIO = 1.15
SIGNING_LIMIT_MILLISECONDS = 100.0
GROWTH_LIMIT_MIB = 20.0
PATH = f"/api/v1/namespaces/{info.NAMESPACE}/configmaps/{info.NAME}"
SECRETS = f"/api/v1/namespaces/{tokens.NAMESPACE}/secrets"
_CONNECTIONS = 16
_WATCH = f"/api/v1/namespaces/{info.NAMESPACE}/configmaps?watch=true&fieldSelector=metadata.name%3D{info.NAME}"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
# So many seconds before they expire tokens are made whose end is measured: enough to make them, and for quiet.
_UNTIL_EXPIRY = 5.0


def _sources() -> Iterator[str]:
    """Addresses of the loopback network, none of them twice."""
    return (f"127.{a}.{b}.{c}" for a, b, c in itertools.product(range(1, 255), repeat=3))


async def _stranger(server: servers.Server, source: str) -> load.Connection:
    loop = asyncio.get_running_loop()
    made = await loop.create_connection(
        load.Connection,
        load.HOST,
        server.port,
        ssl=server.context,
        server_hostname=load.HOST,
        local_addr=(source, 0),
    )
    return made[1]


async def cluster_info(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    """cluster-info without a credential, beside a floor that serves the same bytes."""
    body = await load.fetch(pair.plane.port, pair.plane.context, PATH)
    nobody = tls.client_context(pair.plane.place.ca_certificate.read_bytes(), None, None)
    plane = dataclasses.replace(pair.plane, context=nobody)
    sources = _sources()
    async with servers.floor(pair.plane, body) as started:
        floor = dataclasses.replace(started, context=nobody)
        sides = ((floor, load.get("/object")), (plane, load.get(PATH)))
        new: tuple[list[float], list[float]] = ([], [])
        kept: tuple[list[float], list[float]] = ([], [])
        for number in range(sizes.many_rounds + 1):
            for (server, ask), connections, answers in zip(sides, new, kept, strict=True):
                used = (
                    await _new_connections(server, ask, sizes.strangers_connections, sources),
                    await _kept(server, ask, sizes.strangers_gets, sources),
                )
                # The first round warms up.
                if number:
                    connections.append(used[0])
                    answers.append(used[1])
    floors, gets = (measure.microseconds(used, 1) for used in kept)
    ratios = [ours / least for least, ours in zip(*new, strict=True)]
    return [
        measure.Figure(
            "cluster_info.connection",
            "cluster-info, new connection: CPU ÷ the floor's",
            "×",
            ratios,
            CONNECTION_LIMIT_RATIO,
        ),
        measure.Figure("cluster_info.connection_cpu", "  CPU per connection", "µs", measure.microseconds(new[1], 1)),
        measure.Figure("cluster_info.connection_floor", "  the floor's", "µs", measure.microseconds(new[0], 1)),
        *requests.above_floor("cluster_info.get", "cluster-info, kept connection", gets, floors),
        measure.Figure("cluster_info.get_cpu", "  CPU per GET", "µs", gets),
        measure.Figure("cluster_info.get_floor", "  the floor's", "µs", floors),
    ]


async def _new_connections(server: servers.Server, ask: bytes, total: int, sources: Iterator[str]) -> float:
    """CPU seconds per connection with one GET, from its beginning to its end."""
    numbers = iter(range(total))

    async def work() -> None:
        for _ in numbers:
            connection = await _stranger(server, next(sources))
            await load.Clients([connection]).run(lambda _: ask, 1)
            connection.close()

    async with server.meter() as meter:
        await asyncio.gather(*(work() for _ in range(8)))
    return meter.total / total


async def _kept(server: servers.Server, ask: bytes, total: int, sources: Iterator[str]) -> float:
    """CPU seconds per GET on open connections."""
    clients = load.Clients([await _stranger(server, next(sources)) for _ in range(_CONNECTIONS)])
    async with server.meter() as meter:
        await clients.run(lambda _: ask, total)
    clients.close()
    return meter.total / total


async def discovery(run: settings.Run) -> list[measure.Figure]:
    """From `up` on a new directory to a signature, and from a new token to its signature."""
    starts = [await _first_signature(run.directory / f"first-{number}") for number in range(run.sizes.starts)]
    async with servers.plane(run.directory / "signing") as plane:
        times = await _signed_after(plane, run.sizes.new_tokens, "s")
        # The first round warms up.
        expiry = [await _expire(plane, run.sizes.expiring_tokens) for _ in range(run.sizes.rounds + 1)][1:]
    cpu, controllers = (measure.microseconds([row[index] for row in expiry], 1) for index in range(2))
    return [
        measure.Figure("discovery.start", "`up` on a new directory to a signed cluster-info", "s", starts),
        *_times("discovery.signed", "new token to its signature", times),
        measure.Figure("discovery.expiry", "CPU per token that expires, of few tokens", "µs", cpu),
        measure.Figure("discovery.expiry_controllers", "  of it the controllers'", "µs", controllers),
    ]


def _times(name: str, title: str, seconds: list[float]) -> list[measure.Figure]:
    return [
        measure.Figure(f"{name}_p99", f"{title}, p99", "ms", [measure.percentile(seconds, 0.99) * 1e3]),
        measure.Figure(f"{name}_p50", "  p50", "ms", [measure.percentile(seconds, 0.5) * 1e3]),
    ]


async def _first_signature(directory: pathlib.Path) -> float:
    begun = time.monotonic()
    async with servers.launched(directory) as process:
        while not (directory / "endpoints.json").exists():
            await asyncio.sleep(0.01)
            if process.returncode is not None:
                raise load.UnexpectedAnswer(f"`handfast up` ended with {process.returncode}")
        server = servers.described(directory)
        while not await _has_signature(server):
            # Each look is a handshake, which the server pays for.
            await asyncio.sleep(0.03)
        taken = time.monotonic() - begun
        await servers.wait_ready(process, directory)
        return taken


async def _has_signature(server: servers.Server) -> bool:
    try:
        body = await load.fetch(server.port, server.context, PATH)
    except load.UnexpectedAnswer:
        return False
    return info.SIGNATURE_PREFIX.encode() in body


async def _signed_after(plane: servers.Server, total: int, prefix: str) -> list[float]:
    """Seconds from sending a new token to seeing its signature in a watch; each is deleted again before the next."""
    watchers = load.Watchers()
    await watchers.open(plane.port, plane.context, load.get(await _from_now_on(plane)), 1)
    connection: load.Connection = await load.connect(plane.port, plane.context)
    times = []
    for number in range(total):
        token = _token(prefix, number)
        body = msgspec.json.encode(tokens.secret_document(token, usages=tokens.USAGES))
        begun = time.perf_counter()
        await _expect(connection, load.send("POST", SECRETS, body), 201)
        await watchers.until(2 * number + 1)
        times.append(time.perf_counter() - begun)
        await _expect(connection, load.delete(f"{SECRETS}/{tokens.secret_name(token.id)}"), 200)
        await watchers.until(2 * number + 2)
    connection.close()
    watchers.close()
    return times


async def _from_now_on(plane: servers.Server) -> str:
    document = msgspec.json.decode(await load.fetch(plane.port, plane.context, PATH))
    return f"{_WATCH}&resourceVersion={document['metadata']['resourceVersion']}"


async def _expect(connection: load.Connection, request: bytes, status: int) -> None:
    if (answered := await connection.request(request)) != status:
        raise load.UnexpectedAnswer(f"{request[:80]!r} was answered with {answered}, not {status}")


def _token(prefix: str, number: int) -> tokens.Token:
    """One of a series; series with different first letters have nothing in common."""
    digits = ""
    for _ in range(5):
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return tokens.Token(prefix + digits, "0123456789abcdef")


async def many_tokens(run: settings.Run) -> list[measure.Figure]:
    """Many tokens of which some sign: what they occupy, what signing all anew costs, and what expiry costs."""
    sizes = run.sizes
    directory = run.directory / "tokens"
    _fill(directory, sizes.tokens, sizes.signing_tokens)
    async with servers.plane(directory) as plane:
        await _until_signed(plane, sizes.signing_tokens)
        # The first round warms up.
        await _sign_anew(plane, 0)
        await _expire(plane, sizes.expiring_tokens)
        before, rounds, expiry = _memory(plane), [], []
        for number in range(sizes.rounds):
            rounds.append(await _sign_anew(plane, number + 1))
            expiry.append(await _expire(plane, sizes.expiring_tokens))
        after = _memory(plane)
        # Last: each of these writes all signatures twice, of which the server keeps a history.
        times = await _signed_after(plane, sizes.new_tokens, "s")
    title = f"{sizes.tokens} tokens, {sizes.signing_tokens} sign: "
    cpu, controllers, writes = ([row[index] for row in rounds] for index in range(3))
    return [
        measure.Figure(
            "tokens.sign",
            f"{title}CPU of signing all",
            "ms",
            [value * 1e3 for value in cpu],
            SIGNING_LIMIT_MILLISECONDS,
        ),
        measure.Figure("tokens.sign_controllers", "  of it the controllers'", "ms", [v * 1e3 for v in controllers]),
        measure.Figure("tokens.writes", "  writes", "", writes, 1.0),
        *_times("tokens.signed", "  a new token beside them to its signature", times),
        measure.Figure(
            "tokens.expiry", "  CPU per token that expires", "µs", measure.microseconds([row[0] for row in expiry], 1)
        ),
        measure.Figure(
            "tokens.expiry_controllers",
            "  of it the controllers'",
            "µs",
            measure.microseconds([row[1] for row in expiry], 1),
        ),
        *(
            measure.Figure(f"tokens.memory.{role}", f"  PSS of the {role}", "MiB", [size])
            for role, size in after.items()
        ),
        measure.Figure(
            "tokens.growth",
            "  growth of PSS over the rounds",
            "MiB",
            [sum(after.values()) - sum(before.values())],
            GROWTH_LIMIT_MIB,
        ),
    ]


def _memory(plane: servers.Server) -> dict[str, float]:
    return {role: measure.pss(pid) / measure.MIB for role, pid in plane.pids.items()}


async def _until_signed(plane: servers.Server, least: int, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        # The first token of the cluster signs, too.
        while (await load.fetch(plane.port, plane.context, PATH)).count(info.SIGNATURE_PREFIX.encode()) < least:
            await asyncio.sleep(0.2)
    await plane.settle()


async def _sign_anew(plane: servers.Server, number: int) -> tuple[float, float, float]:
    """Change what is signed: CPU seconds of all and of the controllers, the change included, and the writes after it."""
    document: dict[str, Any] = msgspec.json.decode(await load.fetch(plane.port, plane.context, PATH))
    document["data"][info.KUBECONFIG_KEY] += f"# {number}\n"
    change = load.send("PUT", PATH, msgspec.json.encode(document))
    watchers = load.Watchers()
    await watchers.open(plane.port, plane.context, load.get(await _from_now_on(plane)), 1)
    connection: load.Connection = await load.connect(plane.port, plane.context)
    async with plane.meter() as meter:
        await _expect(connection, change, 200)
        await watchers.until(2)
    connection.close()
    watchers.close()
    return meter.total, meter.used["controllers"], float(watchers.events - 1)


async def _expire(plane: servers.Server, total: int) -> tuple[float, float]:
    """CPU seconds per token that is deleted because it expired: of all processes, and of the controllers."""
    expires = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=_UNTIL_EXPIRY)
    made = [_token("e", number) for number in range(total)]
    clients = await load.Clients.open(plane.port, plane.context, _CONNECTIONS)
    bodies = [
        msgspec.json.encode(tokens.secret_document(each, expiration=expires, usages=("authentication",)))
        for each in made
    ]
    await clients.run(lambda number: load.send("POST", SECRETS, bodies[number]), total, expect=201)
    await asyncio.sleep(_left(expires) - 1.0)
    async with plane.meter() as meter:
        await asyncio.sleep(_left(expires) + 0.3)
    asks = [load.get(f"{SECRETS}/{tokens.secret_name(each.id)}") for each in made]
    await clients.run(asks.__getitem__, total, expect=404)
    clients.close()
    return meter.total / total, meter.used["controllers"] / total


def _left(until: datetime.datetime) -> float:
    left = (until - datetime.datetime.now(datetime.UTC)).total_seconds()
    if left < 0:
        raise load.UnexpectedAnswer("tokens expired before the server was quiet: this machine is too busy")
    return left


def _fill(directory: pathlib.Path, count: int, signing: int) -> None:
    """A data directory whose store holds tokens, of which the first ones sign; the publisher is off in it."""
    preload.write(directory, (_stored(number, signing) for number in range(count)))
    names = ["*", bootstrap_signer.NAME, token_cleaner.NAME, f"-{publisher.NAME}"]
    layout.Layout.at(directory).config.write_text(config.template({"controllers": names}))


def _stored(number: int, signing: int) -> preload.Stored:
    usages = tokens.USAGES if number < signing else ("authentication",)
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1, seconds=number)
    return ("", "v1", "secrets"), tokens.secret_document(_token("t", number), expiration=expires, usages=usages)
