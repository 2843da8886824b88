# SPDX-License-Identifier: Apache-2.0
"""Requests about access beside the floor: as nodes, reviews of access and of tokens, new tokens.

Every station is on and no limit is lifted: nodes have a budget each, so there are several, with a connection each. What
an answer says is looked at before the rounds: a refusal is quicker, and would mean nothing.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bench import aims, identities, load, measure, preload, servers, settings

CONNECTIONS = 16
# Microseconds of CPU per operation on a quiet machine.
GET_NODE_AIM = 200.0
ACCESS_REVIEW_AIM = 200.0
TOKEN_REVIEW_AIM = 350.0
TOKEN_REQUEST_AIM = 400.0

_NODES = "/api/v1/nodes"
_ACCOUNTS = f"/api/v1/namespaces/{preload.NAMESPACE}/serviceaccounts"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCOUNT = "default"


@dataclass(slots=True)
class _Operation:
    """One kind of request: who sends it, how it looks by client and number, and what its rounds came to."""

    name: str
    title: str
    aim: float
    status: int
    clients: Sequence[load.Clients]
    make: Callable[[int, int], bytes]
    used: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def run(self, total: int) -> None:
        each = total // len(self.clients)
        await asyncio.gather(
            *(
                clients.run(functools.partial(self.make, who), each, expect=self.status)
                for who, clients in enumerate(self.clients)
            )
        )


class _Tokens:
    """A supply of bodies that each hold another token: one that was seen before is remembered by the server."""

    def __init__(self, make: Callable[[int], Sequence[str]]) -> None:
        self._make = make
        self._bodies: list[bytes] = []

    def refill(self, count: int) -> None:
        self._bodies = [_review("TokenReview", {"token": token}) for token in self._make(count)]

    def take(self, _who: int, _number: int) -> bytes:
        return load.send("POST", _TOKEN_REVIEWS, self._bodies.pop())


def _review(kind: str, spec: Mapping[str, Any]) -> bytes:
    group = "authentication" if kind.startswith("Token") else "authorization"
    return msgspec.json.encode({"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec})


async def access(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    plane, total = pair.plane, sizes.access
    issuer = identities.Issuer(plane)
    account = await _ask(plane, load.get(f"{_ACCOUNTS}/{_ACCOUNT}"), 200)
    uid = account["metadata"]["uid"]
    tokens = _Tokens(lambda count: issuer.tokens(preload.NAMESPACE, _ACCOUNT, uid, count))
    operations = await _operations(plane, issuer, tokens)
    floor = await load.Clients.open(pair.floor.port, pair.floor.context, CONNECTIONS)
    floors: list[float] = []
    for number in range(sizes.short_rounds + 1):
        tokens.refill(total)
        async with pair.floor.meter() as meter:
            await floor.run(lambda _: load.get("/object"), total)
        # The first round warms up.
        if number:
            floors.append(meter.total / total)
        for operation in operations:
            async with plane.meter() as meter:
                begun = time.perf_counter()
                await operation.run(total)
                seconds = time.perf_counter() - begun
            if number:
                operation.used.append(meter.total / total)
                operation.rates.append(total / seconds)
    floor.close()
    for clients in {id(clients): clients for operation in operations for clients in operation.clients}.values():
        clients.close()
    return [
        *(figure for operation in operations for figure in _figures(operation, floors)),
        measure.Figure("access.floor", "a GET on the floor", "µs", measure.microseconds(floors, 1)),
    ]


async def _operations(plane: servers.Server, issuer: identities.Issuer, tokens: _Tokens) -> list[_Operation]:
    contexts = [issuer.context(f"system:node:{_node(who)}", "system:nodes") for who in range(CONNECTIONS)]
    for who, context in enumerate(contexts):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _node(who)}}
        await _ask(plane, load.send("POST", _NODES, msgspec.json.encode(body)), 201)
        review = load.send("POST", _ACCESS_REVIEWS, _access_review(who))
        answer = await load.exchange(plane.port, context, review)
        _require(b'"allowed":true' in answer[1], answer)
    tokens.refill(1)
    answer = await load.exchange(plane.port, plane.context, tokens.take(0, 0))
    _require(b'"authenticated":true' in answer[1], answer)

    nodes = [await load.Clients.open(plane.port, context, 1) for context in contexts]
    admin = [await load.Clients.open(plane.port, plane.context, CONNECTIONS)]
    reads = [load.get(f"{_NODES}/{_node(who)}") for who in range(CONNECTIONS)]
    reviews = [load.send("POST", _ACCESS_REVIEWS, _access_review(who)) for who in range(CONNECTIONS)]
    request = load.send("POST", f"{_ACCOUNTS}/{_ACCOUNT}/token", _review("TokenRequest", {"expirationSeconds": 3600}))
    return [
        _Operation("node_get", "GET own Node as a node", GET_NODE_AIM, 200, nodes, lambda who, _: reads[who]),
        _Operation(
            *("access_review", "SelfSubjectAccessReview as a node", ACCESS_REVIEW_AIM, 201, nodes),
            lambda who, _: reviews[who],
        ),
        _Operation("token_review", "TokenReview of distinct tokens", TOKEN_REVIEW_AIM, 201, admin, tokens.take),
        _Operation("token_request", "TokenRequest", TOKEN_REQUEST_AIM, 201, admin, lambda _who, _number: request),
    ]


def _figures(operation: _Operation, floors: Sequence[float]) -> list[measure.Figure]:
    ratios = [ours / least for ours, least in zip(operation.used, floors, strict=True)]
    name, limit = f"access.{operation.name}", aims.gets(operation.aim)
    return [
        measure.Figure(name, f"{operation.title}: CPU ÷ a GET's on the floor", "×", ratios, limit),
        measure.Figure(f"{name}.cpu", "  CPU", "µs", measure.microseconds(operation.used, 1)),
        measure.Figure(f"{name}.rate", "  per second", "/s", operation.rates),
    ]


def _node(who: int) -> str:
    return f"bench-node-{who:02d}"


def _access_review(who: int) -> bytes:
    attributes = {"verb": "get", "resource": "nodes", "name": _node(who)}
    return _review("SelfSubjectAccessReview", {"resourceAttributes": attributes})


async def _ask(plane: servers.Server, request: bytes, status: int) -> Any:
    """The answer to the administrator, decoded."""
    answer = await load.exchange(plane.port, plane.context, request)
    _require(answer[0] == status, answer)
    return msgspec.json.decode(answer[1])


def _require(good: bool, answer: tuple[int, bytes]) -> None:
    if not good:
        raise load.UnexpectedAnswer(f"the answer was {answer[0]} {answer[1][:300]!r}")
