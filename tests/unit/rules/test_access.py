# SPDX-License-Identifier: Apache-2.0
"""Who may do what until RBAC stands beside these rules. The names of the table in `rules/access.py` are here."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import access, decision

ANONYMOUS: dict[str, Any] = {"user": access.ANONYMOUS, "groups": ("system:unauthenticated",)}
ADMIN: dict[str, Any] = {"user": "kubernetes-admin", "groups": (access.MASTERS, "system:authenticated")}
CONTROLLERS: dict[str, Any] = {"user": access.CONTROLLERS, "groups": ("system:authenticated",)}


def path(text: str, verb: str = "get", **who: Any) -> access.Attributes:
    return access.Attributes(verb=verb, is_resource=False, path=text, **who)


def resource(verb: str, plural: str, **rest: Any) -> access.Attributes:
    return access.Attributes(verb=verb, is_resource=True, plural=plural, **rest)


def allowed(asked: access.Attributes) -> bool:
    return isinstance(access.decide(asked), decision.Approve)


OPEN = ["/healthz", "/livez", "/readyz", "/version", "/livez/ping", "/readyz/replica", "/healthz/"]
CLOSED = [
    "/",
    "/api",
    "/apis",
    "/apis/apps",
    "/api/v1",
    "/openapi/v3",
    "/metrics",
    "/debug/pprof",
    "/healthzz",
    "/versions",
    "/Healthz",
    "//healthz",
    "",
    "*",
    "healthz",
    "/health",
    "/api/healthz",
    "/.well-known/openid",
]
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "head", "*"]


class TestAnonymous:
    @pytest.mark.parametrize("verb", ["get", "head"])
    @pytest.mark.parametrize("text", OPEN)
    def test_open_paths_are_read(self, text: str, verb: str) -> None:
        verdict = access.decide(path(text, verb, **ANONYMOUS))
        assert isinstance(verdict, decision.Approve)
        assert verdict.reason == "OpenPath"

    @pytest.mark.parametrize("verb", ["post", "put", "patch", "delete", "options", "connect", "trace", "GET", ""])
    def test_open_paths_are_only_read(self, verb: str) -> None:
        assert not allowed(path("/healthz", verb, **ANONYMOUS))

    @pytest.mark.parametrize("text", CLOSED)
    def test_other_paths_are_closed(self, text: str) -> None:
        assert not allowed(path(text, **ANONYMOUS))

    @pytest.mark.parametrize("verb", VERBS)
    def test_anonymous_is_refused(self, verb: str) -> None:
        for plural in ("secrets", "configmaps", "namespaces", "healthz"):
            for namespace in ("", "default", "kube-public"):
                asked = resource(verb, plural, namespace=namespace, path="/healthz", **ANONYMOUS)
                verdict = access.decide(asked)
                assert isinstance(verdict, decision.NotMine)
                assert verdict.reason == "NoRuleAllows"


class TestUsers:
    @pytest.mark.parametrize(
        ("user", "groups"),
        [
            ("jane", ("developers", "system:authenticated")),
            ("jane", ("system:masters2",)),
            ("jane", ("system:master",)),
            ("jane", ("System:Masters",)),
            ("jane", (" system:masters",)),
            ("jane", ("system:masters\n",)),
            ("jane", ("system:masters,system:authenticated",)),
            ("system:masters", ("system:authenticated",)),
            ("kubernetes-admin", ("system:authenticated",)),
            ("system:kube-controller-manager2", ()),
            ("jane", (access.CONTROLLERS,)),
            ("", ()),
        ],
    )
    def test_unknown_user_is_refused(self, user: str, groups: tuple[str, ...]) -> None:
        assert not allowed(resource("get", "secrets", user=user, groups=groups, namespace="kube-system"))
        assert not allowed(path("/metrics", user=user, groups=groups))

    def test_open_paths_are_open_to_users_too(self) -> None:
        assert allowed(path("/readyz", user="jane", groups=()))


class TestMasters:
    @pytest.mark.parametrize("verb", VERBS)
    def test_everything(self, verb: str) -> None:
        for asked in (resource(verb, "secrets", **ADMIN), path("/metrics", verb, **ADMIN)):
            verdict = access.decide(asked)
            assert isinstance(verdict, decision.Approve)
            assert verdict.reason == "SystemMasters"


def test_controllers() -> None:
    for verb in VERBS:
        verdict = access.decide(resource(verb, "secrets", **CONTROLLERS))
        assert isinstance(verdict, decision.Approve)
        assert verdict.reason == "Controllers"
    for text in ("/api", "/apis", "/apis/apps/v1", "/openapi/v3"):
        assert allowed(path(text, **CONTROLLERS))
        assert not allowed(path(text, "post", **CONTROLLERS))
    for text in ("/metrics", "/debug", "/", "/apiserver", "/openapis"):
        assert not allowed(path(text, **CONTROLLERS))


class TestRefusal:
    @pytest.mark.parametrize(
        ("asked", "sentence"),
        [
            (path("/metrics", user="u", groups=()), 'User "u" cannot get path "/metrics"'),
            (
                resource("list", "secrets", user="u", groups=()),
                'User "u" cannot list resource "secrets" in API group "" at the cluster scope',
            ),
            (
                resource("update", "pods", user="u", groups=(), namespace="a", subresource="status"),
                'User "u" cannot update resource "pods/status" in API group "" in the namespace "a"',
            ),
            (
                resource("get", "deployments", user="u", groups=(), group="apps", namespace="a", name="d"),
                'User "u" cannot get resource "deployments" in API group "apps" in the namespace "a"',
            ),
        ],
    )
    def test_words_of_kubernetes(self, asked: access.Attributes, sentence: str) -> None:
        verdict = access.decide(asked)
        assert isinstance(verdict, decision.NotMine)
        assert verdict.sentence == sentence == access.refusal(asked)
