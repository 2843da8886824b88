# SPDX-License-Identifier: Apache-2.0
"""The default roles and bindings of a real server, changed by an operator over its API, and after a restart.

Proves: what is missing comes back and counts, what was added stays, and what was protected is left alone.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from handfast.rules.rbac import defaults
from tests.scenarios import refusals
from tests.scenarios.granting import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, RBAC, binding, group, made, rule, user
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

AUTOUPDATE = defaults.AUTOUPDATE


def path(default: defaults.Default) -> str:
    space = f"/namespaces/{default.namespace}" if default.namespace else ""
    return f"{RBAC}{space}/{default.plural}/{default.name}"


async def read(world: worlds.World, url: str) -> Any:
    answer = await world.get(url)
    assert answer.status == 200, answer.body
    return answer.json()


async def change(world: worlds.World, url: str, body: dict[str, Any]) -> None:
    answer = await world.request("PATCH", url, body, headers={"Content-Type": refusals.MERGE})
    assert answer.status == 200, answer.body


async def delete(world: worlds.World, url: str) -> None:
    assert (await world.request("DELETE", url)).status == 200


async def everything(world: worlds.World) -> dict[str, Any]:
    """All roles and bindings as they are stored."""
    plurals = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
    return {plural: (await read(world, f"{RBAC}/{plural}"))["items"] for plural in plurals}


async def test_a_restart_changes_nothing_by_itself(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        before = await everything(world)
        for default in defaults.documents():
            found = await read(world, path(default))
            assert found["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
            assert found["metadata"]["annotations"][AUTOUPDATE] == "true"
    async with worlds.world(tmp_path / "d") as world:
        # The resourceVersions too.
        assert await everything(world) == before


async def test_what_was_deleted_comes_back(tmp_path: pathlib.Path) -> None:
    async with worlds.world(tmp_path / "d") as world:
        jane = world.context_for("jane")
        assert (await world.get("/api", context=jane)).status == 200
        for url in (f"{CLUSTER_ROLES}/system:discovery", f"{CLUSTER_BINDINGS}/system:discovery"):
            await delete(world, url)
        for default in defaults.documents():
            if default.namespace == "kube-system":
                await delete(world, path(default))
        assert (await world.get("/api", context=jane)).status == 403
    async with worlds.world(tmp_path / "d") as world:
        assert (await world.get("/api", context=world.context_for("jane"))).status == 200
        for default in defaults.documents():
            await read(world, path(default))


async def test_what_is_missing_is_added_and_what_was_added_stays(tmp_path: pathlib.Path) -> None:
    extra = rule("get", "frobs", group="example.com")
    role, bound = f"{CLUSTER_ROLES}/system:discovery", f"{CLUSTER_BINDINGS}/system:discovery"
    async with worlds.world(tmp_path / "d") as world:
        default = (await read(world, role))["rules"]
        await change(world, role, {"rules": [extra], "metadata": {"labels": {"mine": "yes"}, "annotations": None}})
        await change(world, bound, {"subjects": [user("jane")]})
    async with worlds.world(tmp_path / "d") as world:
        found = await read(world, role)
        assert found["rules"][0] == extra
        urls = {url for row in found["rules"][1:] for url in row["nonResourceURLs"]}
        assert urls == {url for row in default for url in row["nonResourceURLs"]}
        assert found["metadata"]["labels"] == {"mine": "yes", "kubernetes.io/bootstrapping": "rbac-defaults"}
        assert found["metadata"]["annotations"] == {AUTOUPDATE: "true"}
        subjects = (await read(world, bound))["subjects"]
        assert subjects == [user("jane"), group("system:authenticated")]
        # And it counts: joe is let in by the group that is back.
        assert (await world.get("/api", context=world.context_for("joe"))).status == 200


async def test_what_is_protected_is_left_alone(tmp_path: pathlib.Path) -> None:
    role, bound = f"{CLUSTER_ROLES}/system:basic-user", f"{CLUSTER_BINDINGS}/system:public-info-viewer"
    protected = {"metadata": {"annotations": {AUTOUPDATE: "false"}}}
    async with worlds.world(tmp_path / "d") as world:
        assert (await world.get("/version", context=world.anonymous_context())).status == 200
        await change(world, role, {**protected, "rules": []})
        await change(world, bound, {**protected, "subjects": [group("system:authenticated")]})
        # An aggregated one keeps the rules it has, too.
        await change(world, f"{CLUSTER_ROLES}/view", {**protected, "rules": []})
        before = [await read(world, url) for url in (role, bound, f"{CLUSTER_ROLES}/view")]
        assert (await world.get("/version", context=world.anonymous_context())).status == 403
    async with worlds.world(tmp_path / "d") as world:
        assert [await read(world, url) for url in (role, bound, f"{CLUSTER_ROLES}/view")] == before
        assert (await world.get("/version", context=world.anonymous_context())).status == 403


async def test_a_binding_to_another_role_is_made_anew(tmp_path: pathlib.Path) -> None:
    bound = f"{CLUSTER_BINDINGS}/system:basic-user"
    async with worlds.world(tmp_path / "d") as world:
        await delete(world, bound)
        mighty = binding("system:basic-user", "ClusterRole", "cluster-admin", group("system:authenticated"))
        await made(world, CLUSTER_BINDINGS, mighty)
        assert (await world.get("/api/v1/secrets", context=world.context_for("jane"))).status == 200
    async with worlds.world(tmp_path / "d") as world:
        assert (await read(world, bound))["roleRef"]["name"] == "system:basic-user"
        assert (await world.get("/api/v1/secrets", context=world.context_for("jane"))).status == 403


async def test_the_roles_for_people(tmp_path: pathlib.Path) -> None:
    """view, edit and admin, bound in a namespace, before any controller has run."""
    base = "/api/v1/namespaces/default"
    async with worlds.world(tmp_path / "d") as world:
        for name in ("view", "edit", "admin"):
            await made(world, BINDINGS, binding(name, "ClusterRole", name, user(name)))
        expected = {
            # configmaps read, configmaps written, secrets read, bindings read, another namespace
            "view": (200, 403, 403, 403, 403),
            "edit": (200, 201, 200, 403, 403),
            "admin": (200, 201, 200, 200, 403),
        }
        for name, wanted in expected.items():
            context = world.context_for(name)
            found = (
                (await world.get(f"{base}/configmaps", context=context)).status,
                (
                    await world.request(
                        "POST", f"{base}/configmaps", {"metadata": {"generateName": "c-"}}, context=context
                    )
                ).status,
                (await world.get(f"{base}/secrets", context=context)).status,
                (await world.get(BINDINGS, context=context)).status,
                (await world.get("/api/v1/namespaces/kube-system/configmaps", context=context)).status,
            )
            assert found == wanted, name
