# SPDX-License-Identifier: Apache-2.0
"""Scopes over real TLS: a credential that is limited to some of what its user may do, also where that is everything.

Proves that requests and reviews say the same, that the refusal names the scope, that only who may impersonate scopes can set
one, and that no certificate carries one. The rules themselves are tested with `rules.rbac.scopes`.
"""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict

from handfast.rules import access
from tests.scenarios.granting import CONFIG_MAPS, SECRETS, grant, made, rule
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

REVIEWS = "/apis/authorization.k8s.io/v1"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ELSEWHERE = "/api/v1/namespaces/kube-system/configmaps"
EXTRA = f"userextras/{access.SCOPES}"
# Scope -> the requests that it allows to somebody who may do everything.
ALLOWED = {
    ("user:full",): {CONFIG_MAPS, ELSEWHERE, SECRETS, "/metrics", "/version"},
    ("user:info",): {"/version"},
    ("role:view:default",): {CONFIG_MAPS, "/version"},
    ("role:view:*",): {CONFIG_MAPS, ELSEWHERE, "/version"},
    ("role:edit:default",): {CONFIG_MAPS, "/version"},
    ("role:edit:default:!",): {CONFIG_MAPS, SECRETS, "/version"},
    ("role:cluster-admin:*",): {"/version"},
    ("role:absent:*", "nonsense"): {"/version"},
    ("nonsense", "role:view:default"): {CONFIG_MAPS, "/version"},
}
PATHS = (CONFIG_MAPS, ELSEWHERE, SECRETS, "/metrics", "/version")


def acting(user: str, *scopes: str, group: str = "") -> Any:
    rows = [("Impersonate-User", user), *((f"Impersonate-Extra-{access.SCOPES}", scope) for scope in scopes)]
    return CIMultiDict([*rows, *([("Impersonate-Group", group)] if group else [])])


def about(path: str) -> dict[str, Any]:
    if not path.startswith("/api/"):
        return {"nonResourceAttributes": {"verb": "get", "path": path}}
    _, _, _, _, namespace, plural = path.split("/")
    return {"resourceAttributes": {"verb": "list", "namespace": namespace, "resource": plural}}


@pytest.mark.parametrize("scopes", list(ALLOWED), ids=",".join)
async def test_administrators_are_limited_too_and_reviews_say_the_same(
    world: worlds.World, scopes: tuple[str, ...]
) -> None:
    for path in PATHS:
        headers = acting("root", *scopes, group=access.MASTERS)
        answer = await world.get(path, headers=headers)
        assert answer.status == (200 if path in ALLOWED[scopes] else 403), (path, answer.body)
        spec = {"user": "root", "groups": [access.MASTERS], "extra": {access.SCOPES: list(scopes)}, **about(path)}
        review = (await made(world, f"{REVIEWS}/subjectaccessreviews", {"spec": spec}))["status"]
        assert review["allowed"] is (answer.status == 200), (path, review)
        if answer.status == 403:
            assert review["denied"] is True
            assert review["reason"] in answer.message
            assert f"scopes [{' '.join(scopes)}] prevent this action" in review["reason"]


async def test_scopes_give_no_rights(world: worlds.World) -> None:
    answer = await world.get(CONFIG_MAPS, headers=acting("jane", "user:full"))
    assert answer.status == 403
    await grant(world, "jane", rule("list", "configmaps"))
    assert (await world.get(CONFIG_MAPS, headers=acting("jane", "role:view:default"))).status == 200
    refused = await world.get(CONFIG_MAPS, headers=acting("jane", "role:view:other"))
    assert refused.status == 403
    assert refused.message == (
        'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default": '
        "scopes [role:view:other] prevent this action: role:view:other counts in the namespace other only"
    )


@pytest.mark.parametrize(
    ("scope", "review", "code"),
    [
        ("user:info", WHO_AM_I, 201),
        ("user:info", f"{REVIEWS}/selfsubjectaccessreviews", 403),
        ("user:check-access", WHO_AM_I, 403),
        ("user:check-access", f"{REVIEWS}/selfsubjectaccessreviews", 201),
        ("user:check-access", f"{REVIEWS}/selfsubjectrulesreviews", 201),
        ("user:check-access", f"{REVIEWS}/subjectaccessreviews", 403),
    ],
)
async def test_what_one_may_ask_of_oneself(world: worlds.World, scope: str, review: str, code: int) -> None:
    body = {} if review == WHO_AM_I else {"spec": {"namespace": "default"}}
    if "access" in review:
        body = {"spec": about(CONFIG_MAPS)}
    answer = await world.request("POST", review, body, headers=acting("root", scope, group=access.MASTERS))
    assert answer.status == code, answer.body
    if review == WHO_AM_I and code == 201:
        assert answer.json()["status"]["userInfo"]["extra"] == {access.SCOPES: [scope]}
    elif code == 201:
        status = answer.json()["status"]
        # A review of oneself is of oneself with one's scopes.
        assert status.get("denied") is True or status["evaluationError"].startswith("the scopes")


async def test_only_who_may_impersonate_scopes_sets_one(world: worlds.World) -> None:
    await grant(world, "alice", rule("impersonate", "users", "bob"), space="")
    alice = world.context_for("alice")
    assert (await world.get("/version", context=alice, headers=acting("bob"))).status == 200
    refused = await world.get("/version", context=alice, headers=acting("bob", "user:info"))
    assert (refused.status, f'cannot impersonate resource "{EXTRA}"' in refused.message) == (403, True)
    extra = rule("impersonate", EXTRA, "user:info", group="authentication.k8s.io")
    await grant(world, "alice-more", extra, space="")
    await made(
        world,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "alice-scopes"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "alice-more"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
        },
    )
    assert (await world.get("/version", context=alice, headers=acting("bob", "user:info"))).status == 200
    assert (await world.get("/version", context=alice, headers=acting("bob", "user:full"))).status == 403


async def test_certificates_carry_no_scopes(world: worlds.World) -> None:
    odd = world.context_for("jane", "user:info", access.SCOPES, f"{access.SCOPES}=user:info")
    answer = await world.request("POST", WHO_AM_I, {}, context=odd)
    assert set(answer.json()["status"]["userInfo"]["extra"]) == {"authentication.kubernetes.io/credential-id"}


async def test_what_needs_a_second_right_is_limited_as_well(world: worlds.World) -> None:
    """Changing the client CAs asks for `trust` besides `patch`: a scope that has only the second is not enough."""
    role = {"metadata": {"name": "half"}, "rules": [rule("get patch trust", "configmaps")]}
    await made(world, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    bundle = f"{ELSEWHERE}/extension-apiserver-authentication"
    patch = {"data": {"requestheader-allowed-names": "[]"}}
    for scope, code in (("role:half:kube-system", 403), ("role:half:kube-system:!", 200), ("user:full", 200)):
        headers = acting("root", scope, group=access.MASTERS)
        headers["Content-Type"] = "application/merge-patch+json"
        answer = await world.request("PATCH", bundle, patch, headers=headers)
        assert answer.status == code, answer.body
        assert ('needs the verb "trust"' in answer.message) is (code == 403)
