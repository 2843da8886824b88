# SPDX-License-Identifier: Apache-2.0
"""Roles, bindings and requests of people with certificates, in few words; nothing here is under test."""

from __future__ import annotations

import ssl
from typing import Any

from tests.world import world as worlds

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
PODS = "/api/v1/namespaces/default/pods"


def rule(verbs: str, resources: str, *names: str, group: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**made, "resourceNames": list(names)} if names else made


def paths(verbs: str, *urls: str) -> dict[str, Any]:
    return {"verbs": verbs.split(), "nonResourceURLs": list(urls)}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "apiGroup": GROUP, "name": name}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "apiGroup": GROUP, "name": name}


def binding(name: str, kind: str, role: str, *subjects: dict[str, str]) -> dict[str, Any]:
    reference = {"apiGroup": GROUP, "kind": kind, "name": role}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": list(subjects)}


async def made(world: worlds.World, path: str, document: Any) -> Any:
    answer = await world.request("POST", path, document)
    assert answer.status == 201, answer.body
    return answer.json()


async def grant(world: worlds.World, name: str, *rules: dict[str, Any], space: str = "default") -> None:
    """A role of that name for the user of that name: in one namespace, or everywhere if that is empty."""
    kind = "Role" if space else "ClusterRole"
    roles, bindings = (
        (f"{RBAC}/namespaces/{space}/roles", f"{RBAC}/namespaces/{space}/rolebindings")
        if space
        else (CLUSTER_ROLES, CLUSTER_BINDINGS)
    )
    await made(world, roles, {"metadata": {"name": name}, "rules": list(rules)})
    await made(world, bindings, binding(name, kind, name, user(name)))


async def codes(
    world: worlds.World, context: ssl.SSLContext, *requests: tuple[str, str, int] | tuple[str, str, int, Any]
) -> None:
    """Each request gets its code; a refusal is always a Forbidden."""
    for method, path, code, *body in requests:
        answer = await world.request(method, path, body[0] if body else None, context=context)
        assert answer.status == code, f"{method} {path}: {answer.status} {answer.body!r}"
        if code == 403 and method != "HEAD":
            assert answer.reason == "Forbidden"


async def refused(
    world: worlds.World,
    context: ssl.SSLContext | None,
    method: str,
    path: str,
    body: Any,
    code: int,
    says: str,
    **more: Any,
) -> worlds.Answer:
    """The request is refused in these words, and nothing is written."""
    before = world.server.replica.version
    answer = await world.request(method, path, body, context=context, **more)
    assert (answer.status, says in answer.message) == (code, True), f"{method} {path}: {answer.body!r}"
    await world.server.replica.fresh()
    assert world.server.replica.version == before
    return answer


def applied(kind: str, api_version: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **rest}
