# SPDX-License-Identifier: Apache-2.0
"""The order of the authorizers, and the words of a refusal. The names of the table in `rules/access.py` are here."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules import access, decision

ANONYMOUS: dict[str, Any] = {"user": access.ANONYMOUS, "groups": ("system:unauthenticated",)}
ADMIN: dict[str, Any] = {"user": "kubernetes-admin", "groups": (access.MASTERS, "system:authenticated")}
NOBODY_DECIDES = access.Authorizers(())


def path(text: str, verb: str = "get", **who: Any) -> access.Attributes:
    return access.Attributes(verb=verb, is_resource=False, path=text, **who)


def resource(verb: str, plural: str, **rest: Any) -> access.Attributes:
    return access.Attributes(verb=verb, is_resource=True, plural=plural, **rest)


def allowed(attributes: access.Attributes) -> bool:
    return isinstance(NOBODY_DECIDES.decide(attributes), decision.Approve)


OPEN = ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/replica", "/healthz/"]
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
    "/version",
    "/healthz/../metrics",
    "/healthz/%2e%2e/metrics",
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
        verdict = NOBODY_DECIDES.decide(path(text, verb, **ANONYMOUS))
        assert isinstance(verdict, decision.Approve)
        assert verdict.reason == "OpenPath"

    @pytest.mark.parametrize("verb", ["post", "put", "patch", "delete", "options", "connect", "trace", "GET", ""])
    def test_open_paths_are_only_read(self, verb: str) -> None:
        assert not allowed(path("/healthz", verb, **ANONYMOUS))

    @pytest.mark.parametrize("text", CLOSED)
    def test_only_health_is_open(self, text: str) -> None:
        assert not allowed(path(text, **ANONYMOUS))

    @pytest.mark.parametrize("verb", VERBS)
    def test_anonymous_is_refused(self, verb: str) -> None:
        for plural in ("secrets", "configmaps", "namespaces", "healthz"):
            for namespace in ("", "default", "kube-public"):
                asked = resource(verb, plural, namespace=namespace, path="/healthz", **ANONYMOUS)
                verdict = NOBODY_DECIDES.decide(asked)
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
            ("system:kube-controller-manager", ()),
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
    def test_administrators_may_do_everything(self, verb: str) -> None:
        for asked in (resource(verb, "secrets", **ADMIN), path("/metrics", verb, **ADMIN)):
            verdict = NOBODY_DECIDES.decide(asked)
            assert isinstance(verdict, decision.Approve)
            assert verdict.reason == "SystemMasters"


class Said:
    """An authorizer that says one thing, and counts how often it was asked."""

    def __init__(self, verdict: decision.Decision) -> None:
        self.verdict = verdict
        self.asked = 0

    def decide(self, attributes: access.Attributes) -> decision.Decision:
        self.asked += 1
        return self.verdict


YES = decision.Approve("Yes", "allowed by a test", "test")
NO = decision.Deny("No", "never", "test")
SILENT = decision.NotMine("Silent", "", "test")


def unsure(sentence: str) -> decision.NotMine:
    return decision.NotMine("Unsure", sentence, "test")


class TestOrder:
    ASKED = resource("get", "secrets", user="jane", groups=())

    @pytest.mark.parametrize(
        ("rows", "verdict"),
        [
            ([YES, NO], YES),
            ([NO, YES], NO),
            ([unsure("because"), YES], YES),
            ([unsure("because"), NO], NO),
        ],
    )
    def test_the_first_opinion_wins(self, rows: list[decision.Decision], verdict: decision.Decision) -> None:
        said = [Said(row) for row in rows]
        assert access.Authorizers(said).decide(self.ASKED) is verdict
        decided = rows.index(verdict)
        assert [one.asked for one in said] == [1 if number <= decided else 0 for number in range(len(rows))]

    def test_no_opinion_keeps_every_reason(self) -> None:
        rows = [Said(unsure("no relationship")), Said(SILENT), Said(unsure("no role"))]
        verdict = access.Authorizers(rows).decide(self.ASKED)
        assert isinstance(verdict, decision.NotMine)
        assert (verdict.reason, verdict.sentence) == ("Unsure", "no relationship\nno role")

    def test_masters_are_not_asked_about(self) -> None:
        row = Said(NO)
        assert isinstance(access.Authorizers([row]).decide(resource("get", "secrets", **ADMIN)), decision.Approve)
        assert row.asked == 0


class TestScopes:
    LIMITED = resource("get", "secrets", scopes=("user:info",), **ADMIN)

    def test_scopes_limit_administrators(self) -> None:
        row = Said(YES)
        assert access.Authorizers([row], Said(NO)).decide(self.LIMITED) is NO
        assert row.asked == 0

    @pytest.mark.parametrize("verdict", [SILENT, YES])
    def test_scopes_never_give_a_right(self, verdict: decision.Decision) -> None:
        scopes = Said(verdict)
        asked = resource("get", "secrets", user="jane", groups=(), scopes=("user:full",))
        assert isinstance(access.Authorizers([], scopes).decide(asked), decision.NotMine)
        assert scopes.asked == 1

    def test_without_scopes_they_are_not_asked_about(self) -> None:
        scopes = Said(NO)
        assert isinstance(access.Authorizers([], scopes).decide(resource("get", "pods", **ADMIN)), decision.Approve)
        assert scopes.asked == 0

    def test_where_nobody_judges_scopes_they_are_refused(self) -> None:
        verdict = NOBODY_DECIDES.decide(self.LIMITED)
        assert isinstance(verdict, decision.Deny)
        assert verdict.reason == "ScopeLimited"


class TestRefusal:
    @pytest.mark.parametrize(
        ("attributes", "sentence"),
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
    def test_words_of_kubernetes(self, attributes: access.Attributes, sentence: str) -> None:
        verdict = NOBODY_DECIDES.decide(attributes)
        assert isinstance(verdict, decision.NotMine)
        assert access.refusal(attributes, verdict) == sentence
        assert access.refusal(attributes, decision.Deny("No", "never", "test")) == f"{sentence}: never"
