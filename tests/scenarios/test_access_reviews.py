# SPDX-License-Identifier: Apache-2.0
"""SubjectAccessReview, SelfSubjectAccessReview and SelfSubjectRulesReview say what really happens, over real TLS.

A table of people and requests is asked both ways: as a review, and as the request itself.
"""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from tests.scenarios.granting import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
    codes,
    grant,
    made,
    paths,
    rule,
)
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

# Who, in which groups, and what they may: rules in the namespace default, rules everywhere.
PEOPLE: tuple[tuple[str, tuple[str, ...], tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]], ...] = (
    ("nothing", (), (), ()),
    ("reader", (), (rule("get list watch", "configmaps"),), ()),
    ("named", (), (rule("get update", "configmaps", "a"), rule("get", "secrets", "s")), ()),
    ("pods", (), (rule("*", "pods"),), (rule("list", "nodes"),)),
    ("statuses", (), (rule("get", "pods/status */scale"),), (paths("get", "/metrics", "/openapi/*"),)),
    ("wild", (), (), ({"verbs": ["*"], "apiGroups": [""], "resources": ["*"]},)),
    ("admin", ("system:masters",), (), ()),
    # Half a node is none: RBAC alone speaks for the second.
    ("system:node:n1", ("system:nodes",), (), ()),
    ("system:node:n1", (), (), ()),
)
# A request, and the same as attributes of a review.
REQUESTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("GET", CONFIG_MAPS, {"verb": "list", "resource": "configmaps", "namespace": "default"}),
    ("GET", f"{CONFIG_MAPS}/a", {"verb": "get", "resource": "configmaps", "namespace": "default", "name": "a"}),
    ("GET", f"{CONFIG_MAPS}/b", {"verb": "get", "resource": "configmaps", "namespace": "default", "name": "b"}),
    ("DELETE", f"{CONFIG_MAPS}/b", {"verb": "delete", "resource": "configmaps", "namespace": "default", "name": "b"}),
    ("POST", CONFIG_MAPS, {"verb": "create", "resource": "configmaps", "namespace": "default"}),
    ("GET", f"{SECRETS}/s", {"verb": "get", "resource": "secrets", "namespace": "default", "name": "s"}),
    ("GET", "/api/v1/namespaces/kube-system/configmaps",
        {"verb": "list", "resource": "configmaps", "namespace": "kube-system"}),
    ("GET", "/api/v1/nodes", {"verb": "list", "resource": "nodes"}),
    ("GET", "/api/v1/nodes/n1", {"verb": "get", "resource": "nodes", "name": "n1"}),
    ("GET", "/api/v1/nodes/n2", {"verb": "get", "resource": "nodes", "name": "n2"}),
    ("GET", f"{PODS}/p", {"verb": "get", "resource": "pods", "namespace": "default", "name": "p"}),
    ("GET", f"{PODS}/p/status",
        {"verb": "get", "resource": "pods", "subresource": "status", "namespace": "default", "name": "p"}),
    ("DELETE", PODS, {"verb": "deletecollection", "resource": "pods", "namespace": "default"}),
    ("GET", "/apis/apps/v1/namespaces/default/deployments/d/scale",
        {"verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale", "namespace": "default",
         "name": "d"}),
    ("GET", "/apis/apps/v1/deployments", {"verb": "list", "group": "apps", "resource": "deployments"}),
    ("GET", "/metrics", {"verb": "get", "path": "/metrics"}),
    ("GET", "/openapi/v2", {"verb": "get", "path": "/openapi/v2"}),
    ("GET", "/healthz", {"verb": "get", "path": "/healthz"}),
    ("GET", "/version", {"verb": "get", "path": "/version"}),
)  # fmt: skip
REVIEWS = "/apis/authorization.k8s.io/v1"


def _in_rules(status: Any, attributes: dict[str, str]) -> bool:
    """Whether the rules of a SelfSubjectRulesReview allow a request: a second reading of RBAC, made for this test."""
    if "path" in attributes:
        return any(
            {attributes["verb"], "*"} & set(row["verbs"])
            and any(url == attributes["path"] or (url[-1] == "*" and attributes["path"].startswith(url[:-1]))
                    for url in row["nonResourceURLs"])
            for row in status["nonResourceRules"]
        )  # fmt: skip
    resource, subresource = attributes["resource"], attributes.get("subresource")
    wanted = {f"{resource}/{subresource}", f"*/{subresource}", "*"} if subresource else {resource, "*"}
    return any(
        {attributes["verb"], "*"} & set(row["verbs"])
        and {attributes.get("group", ""), "*"} & set(row["apiGroups"])
        and wanted & set(row["resources"])
        and (not row.get("resourceNames") or attributes.get("name") in row["resourceNames"])
        for row in status["resourceRules"]
    )


class TestReviewsAgree:
    async def _world_of_people(self, world: worlds.World) -> None:
        for name, _, here, everywhere in PEOPLE:
            if here:
                await grant(world, name, *here)
            if everywhere:
                await grant(world, name, *everywhere, space="")

    async def test_with_what_happens(self, world: worlds.World) -> None:
        await self._world_of_people(world)
        for name, groups, _, _ in PEOPLE:
            await self._reviews(world, name, groups)

    async def _reviews(self, world: worlds.World, name: str, groups: tuple[str, ...]) -> None:
        context = world.context_for(name, *groups)
        for method, path, attributes in REQUESTS:
            key = "nonResourceAttributes" if "path" in attributes else "resourceAttributes"
            about = {"spec": {"user": name, "groups": [*groups, "system:authenticated"], key: attributes}}
            other = await world.request("POST", f"{REVIEWS}/subjectaccessreviews", about)
            own = await world.request(
                "POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {key: attributes}}, context=context
            )
            assert (other.status, own.status) == (201, 201), (other.body, own.body)
            # A dry run, so that no request changes what the next one finds.
            url = path if method == "GET" else f"{path}?dryRun=All"
            body = {"metadata": {"generateName": "x-"}} if method == "POST" else None
            real = await world.request(method, url, body, context=context)
            allowed = real.status != 403
            shown = f"{name}: {method} {path}: {real.status}"
            assert own.json()["status"] == other.json()["status"], shown
            assert own.json()["status"]["allowed"] is allowed, shown
            if not allowed:
                assert "denied" not in own.json()["status"], shown

    async def test_rules_with_what_happens(self, world: worlds.World) -> None:
        await self._world_of_people(world)
        for name, groups, _, _ in PEOPLE:
            if "system:nodes" not in groups:
                await self._rules(world, name, groups)
        # What a node may read depends on its Pods; the answer says that it is not all.
        found = await self._rules_of(world, world.context_for("system:node:n1", "system:nodes"))
        assert found["incomplete"] is True
        assert found["evaluationError"] == "node authorizer does not support user rule resolution"

    async def _rules(self, world: worlds.World, name: str, groups: tuple[str, ...]) -> None:
        context = world.context_for(name, *groups)
        status = await self._rules_of(world, context)
        assert status["incomplete"] is False
        for method, path, attributes in REQUESTS:
            # The review is of one namespace; of what has none it tells what holds everywhere.
            if (
                attributes.get("namespace", "default") != "default"
                or "/nodes" in path
                or path.endswith("s/deployments")
            ):
                continue
            url = path if method == "GET" else f"{path}?dryRun=All"
            body = {"metadata": {"generateName": "x-"}} if method == "POST" else None
            allowed = (await world.request(method, url, body, context=context)).status != 403
            # Health is open to everyone by no rule.
            assert (_in_rules(status, attributes) or path == "/healthz") is allowed, f"{name}: {method} {path}"

    async def _rules_of(self, world: worlds.World, context: ssl.SSLContext) -> Any:
        wanted = {"spec": {"namespace": "default"}}
        answer = await world.request("POST", f"{REVIEWS}/selfsubjectrulesreviews", wanted, context=context)
        assert answer.status == 201, answer.body
        return answer.json()["status"]

    async def test_who_may_ask(self, world: worlds.World) -> None:
        jane = world.context_for("jane")
        about = {"spec": {"user": "joe", "resourceAttributes": {"verb": "list", "resource": "pods"}}}
        # Anyone who has logged in may ask about themselves; about others, only whom RBAC lets.
        await codes(
            world,
            jane,
            ("POST", f"{REVIEWS}/subjectaccessreviews", 403, about),
            ("POST", f"{REVIEWS}/namespaces/default/localsubjectaccessreviews", 403, about),
            ("POST", f"{REVIEWS}/selfsubjectaccessreviews", 201, {"spec": {"resourceAttributes": {"verb": "get"}}}),
            ("POST", f"{REVIEWS}/selfsubjectrulesreviews", 201, {"spec": {"namespace": "default"}}),
            ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", 201, {}),
        )
        stranger = world.anonymous_context()
        await codes(world, stranger, ("POST", f"{REVIEWS}/selfsubjectaccessreviews", 403, {"spec": {}}))

    async def test_local_reviews(self, world: worlds.World) -> None:
        await self._world_of_people(world)
        path = f"{REVIEWS}/namespaces/default/localsubjectaccessreviews"
        for name, allowed in (("reader", True), ("nothing", False)):
            attributes = {"verb": "list", "resource": "configmaps", "namespace": "default"}
            found = await made(
                world,
                path,
                {"metadata": {"namespace": "default"}, "spec": {"user": name, "resourceAttributes": attributes}},
            )
            assert found["status"]["allowed"] is allowed
