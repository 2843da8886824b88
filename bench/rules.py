# SPDX-License-Identifier: Apache-2.0
"""What custom resources cost: a create without rules in CEL and with three, and a GET, beside those of a ConfigMap of the same size.

Each round measures all of them, so that they see the same machine. What many definitions cost is `definitions`.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from bench import load, measure, preload, servers, settings

RULES_LIMIT_RATIO = 1.6
PLAIN_LIMIT_RATIO = 1.2
GET_LIMIT_RATIO = 1.2
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP = "bench.example.com"
_SETTINGS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2000}, "maxProperties": 20}
RULES = [
    {"rule": "self.low <= self.high", "message": "low is to be at most high"},
    {"rule": "self.name.matches('^[a-z][-a-z0-9]*$')"},
    {"rule": "self.tags.all(tag, tag.size() > 0 && self.tags.exists_one(other, other == tag))"},
]


def definition(plural: str, rules: list[dict[str, str]]) -> dict[str, Any]:
    """A definition of objects like those of the bench."""
    spec: dict[str, Any] = {
        "type": "object",
        "properties": {
            "data": _SETTINGS,
            "low": {"type": "integer"},
            "high": {"type": "integer"},
            "name": {"type": "string", "maxLength": 63},
            "tags": {"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 30}},
        },
    }
    if rules:
        spec["x-kubernetes-validations"] = rules
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    kind = plural.capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def _define(plane: servers.Server, plural: str, rules: list[dict[str, str]]) -> None:
    body = msgspec.json.encode(definition(plural, rules))
    status, answer = await load.exchange(plane.port, plane.context, load.send("POST", DEFINITIONS, body))
    if status not in {201, 409}:
        raise load.UnexpectedAnswer(f"the definition was answered with {status} {answer[:300]!r}")


def _creator(plural: str, names: str) -> Callable[[int], bytes]:
    path = f"/apis/{_GROUP}/v1/namespaces/{preload.NAMESPACE}/{plural}"
    document = preload.document("x")
    spec = {"data": document["data"], "low": 1, "high": 5, "name": "measured", "tags": ["a", "b", "c"]}
    shown = {"apiVersion": f"{_GROUP}/v1", "kind": plural.capitalize(), "spec": spec}

    def request(number: int) -> bytes:
        made = {**copy.copy(shown), "metadata": {"name": f"{names}-{number:06d}"}}
        return load.send("POST", path, msgspec.json.encode(made))

    return request


def _configmap(names: str) -> Callable[[int], bytes]:
    return lambda number: load.send("POST", preload.COLLECTION, preload.body(f"{names}-{number:06d}"))


async def rules(pair: settings.Pair, sizes: settings.Sizes) -> list[measure.Figure]:
    """CPU of all processes for a create of each kind."""
    await _define(pair.plane, "plains", [])
    await _define(pair.plane, "ruleds", RULES)
    total, run = sizes.creates, secrets.token_hex(3)
    clients = await load.Clients.open(pair.plane.port, pair.plane.context, 64)
    used: dict[str, list[float]] = {"configmaps": [], "plains": [], "ruleds": []}
    for number in range(-1, sizes.short_rounds):
        for plural, figures in used.items():
            names = f"rules-{run}-{number % 1000}"
            make = _configmap(names) if plural == "configmaps" else _creator(plural, names)
            bodies = [make(index) for index in range(total)]
            async with pair.plane.meter() as meter:
                await clients.run(bodies.__getitem__, total, expect=201)
            # The first round is for warming up.
            if number >= 0:
                figures.append(meter.total)
    read = await _read(pair.plane, clients, sizes, f"rules-{run}-0-000000")
    clients.close()
    plain, ruled = (
        [ours / builtin for ours, builtin in zip(used[plural], used["configmaps"], strict=True)]
        for plural in ("plains", "ruleds")
    )
    return [
        measure.Figure("rules.ratio", "create with three rules: CPU ÷ a ConfigMap's", "×", ruled, RULES_LIMIT_RATIO),
        measure.Figure("rules.plain", "  without rules: CPU ÷ a ConfigMap's", "×", plain, PLAIN_LIMIT_RATIO),
        measure.Figure("rules.get", "  GET of a custom object: CPU ÷ a ConfigMap's", "×", read, GET_LIMIT_RATIO),
        measure.Figure("rules.cpu", "  CPU per create, with rules", "µs", measure.microseconds(used["ruleds"], total)),
    ]


async def _read(plane: servers.Server, clients: load.Clients, sizes: settings.Sizes, name: str) -> list[float]:
    """CPU of a GET of a custom object, in GETs of a ConfigMap."""
    paths = (f"/apis/{_GROUP}/v1/namespaces/{preload.NAMESPACE}/plains/{name}", f"{preload.COLLECTION}/{name}")
    ratios = []
    for number in range(-1, sizes.short_rounds):
        used = []
        for path in paths:
            asks = [load.get(path)] * sizes.gets
            async with plane.meter() as meter:
                await clients.run(asks.__getitem__, sizes.gets)
            used.append(meter.total)
        # The first round is for warming up.
        if number >= 0:
            ratios.append(used[0] / used[1])
    return ratios
