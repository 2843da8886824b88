# SPDX-License-Identifier: Apache-2.0
"""Webhooks configured in a served world, and the real HTTPS servers they lead to; nothing here is under test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.scenarios import granting
from tests.unit.apiserver import hooking
from tests.world import world as worlds

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NAMESPACES = "/api/v1/namespaces"
MUTATING, VALIDATING = hooking.MUTATING, hooking.VALIDATING
SIDECAR = {"name": "sidecar", "image": "proxy"}
FAILS = "an admission webhook fails"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def rules(*resources: str, operations: str = "CREATE UPDATE", group: str = "") -> list[dict[str, Any]]:
    return [
        {
            "operations": operations.split(),
            "apiGroups": [group],
            "apiVersions": ["*"],
            "resources": list(resources) or ["configmaps"],
            "scope": "*",
        }
    ]


async def install(world: worlds.World, kind: str, *webhooks: dict[str, Any], name: str = "config") -> None:
    """Configure webhooks; those that name no rules get ConfigMaps, created and updated."""
    for webhook in webhooks:
        if webhook["rules"][0]["apiGroups"] == ["*"]:
            webhook["rules"] = rules()
    document = hooking.configuration(kind, *webhooks, name=name)
    await granting.made(world, f"{CONFIGURATIONS}/{kind.lower()}s", document)


async def uninstall(world: worlds.World, kind: str, name: str = "config") -> None:
    answer = await world.request("DELETE", f"{CONFIGURATIONS}/{kind.lower()}s/{name}")
    assert answer.status == 200, answer.body


@contextlib.asynccontextmanager
async def serving(answer: hooking.Answer | None = None, *names: str) -> AsyncIterator[hooking.Server]:
    async with hooking.Server(hooking.serving(*(names or ("127.0.0.1",))), answer) as server:
        yield server


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


async def refused(world: worlds.World, method: str, path: str, body: Any, code: int, says: str) -> worlds.Answer:
    """Refused in these words, and nothing is written."""
    return await granting.refused(world, None, method, path, body, code, says)
