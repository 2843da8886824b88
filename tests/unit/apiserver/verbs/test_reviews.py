# SPDX-License-Identifier: Apache-2.0
"""Questions asked as objects, answered by the authenticator and authorizers of requests."""

from __future__ import annotations

import datetime
from typing import Any, cast

import pytest
from aiohttp import web

from handfast.api import objects, status
from handfast.apiserver import calls, identity, request
from handfast.apiserver.access import authn
from handfast.apiserver.verbs import reviews
from handfast.pki import bundles
from handfast.rules import access, decision
from handfast.rules.rbac import policy
from tests.unit.pki.making import NOW
from tests.world.clock import MovableClock

GROUP = "authorization.k8s.io"
JANE = identity.User("jane", ("developers", "system:authenticated"), uid="7", extra={"example.com/k": ("v",)})
MASTER = identity.User("root", ("system:masters", "system:authenticated"))
NODE = identity.User("system:node:a", ("system:nodes", "system:authenticated"))


class Tokens:
    def remembers(self, token: str) -> bool:
        return token == "good"

    def authenticate(
        self, token: str, audiences: tuple[str, ...], now: datetime.datetime
    ) -> identity.TokenVerdict | None:
        if token == "good":
            return identity.TokenVerdict(identity.User("joe", ("robots",), uid="9"), audiences)
        if token == "expired":
            raise identity.Unauthorized("Expired", "service account token has expired")
        return None


class Recorder:
    """Allows what `decide` says, and remembers the questions."""

    def __init__(self, verdict: decision.Decision) -> None:
        self.verdict = verdict
        self.questions: list[access.Attributes] = []

    def decide(self, attributes: access.Attributes) -> decision.Decision:
        self.questions.append(attributes)
        return self.verdict


YES = decision.Approve("Test", "RBAC: allowed by a test", "test")
NO = decision.Deny("Test", "never", "test")
UNSURE = decision.NotMine("Test", "", "test")


class Reviewer:
    """One questioner."""

    def __init__(self, user: identity.User = JANE, verdict: decision.Decision = UNSURE) -> None:
        self.recorder = Recorder(verdict)
        self.policy = policy.Policy()
        authenticator = authn.Authenticator(
            bundles.TrustBundle.of([]), [authn.TokenRow(Tokens(), explains=True)], audiences=("api",)
        )
        self.reviews = reviews.Reviews(
            authenticator, access.Authorizers([self.recorder]), self.policy, MovableClock(NOW)
        )
        self.user = user
        self.noted = ""

    def ask(self, group: str, plural: str, document: objects.Document, namespace: str = "") -> dict[str, Any]:
        info = request.RequestInfo("create", "", True, group, "v1", namespace, plural)
        call = calls.Call(cast("web.BaseRequest", None), "1", info, user=self.user)
        answer = self.reviews.answer(call, (group, plural), document)
        self.noted = call.noted
        found: dict[str, Any] = answer["status"]
        return found

    def access(self, plural: str, spec: dict[str, Any], namespace: str = "", /, **metadata: Any) -> dict[str, Any]:
        return self.ask(GROUP, plural, {"metadata": metadata, "spec": spec}, namespace)


class TestTokenReview:
    @staticmethod
    def review(reviewer: Reviewer, **spec: Any) -> dict[str, Any]:
        return reviewer.ask("authentication.k8s.io", "tokenreviews", {"metadata": {}, "spec": spec})

    def test_a_good_token_is_reviewed_as_its_user(self) -> None:
        found = self.review(Reviewer(), token="good")
        assert found == {
            "authenticated": True,
            "user": {"username": "joe", "uid": "9", "groups": ["robots", "system:authenticated"]},
            "audiences": ["api"],
        }
        assert self.review(Reviewer(), token="good", audiences=["a", "b"])["audiences"] == ["a", "b"]

    def test_a_token_that_nobody_knows_is_refused_and_noted(self) -> None:
        reviewer = Reviewer()
        assert self.review(reviewer, token="garbage") == {"user": {}, "error": "invalid bearer token"}
        assert reviewer.noted.startswith("UnknownToken")

    def test_an_expired_token_is_explained(self) -> None:
        told = "[invalid bearer token, service account token has expired]"
        assert self.review(Reviewer(), token="expired") == {"user": {}, "error": told}

    def test_the_spec_comes_back_with_its_token_because_typed_clients_require_it(self) -> None:
        document = {"metadata": {}, "spec": {"token": "good", "audiences": ["a"]}}
        Reviewer().ask("authentication.k8s.io", "tokenreviews", document)
        assert document["spec"] == {"token": "good", "audiences": ["a"]}

    @pytest.mark.parametrize("spec", [{}, {"token": ""}, {"token": None}])
    def test_no_token(self, spec: dict[str, Any]) -> None:
        with pytest.raises(status.StatusError, match="token is required for TokenReview in authentication") as caught:
            self.review(Reviewer(), **spec)
        assert caught.value.code == 400

    def test_no_spec(self) -> None:
        with pytest.raises(status.StatusError, match="token is required for TokenReview in authentication") as caught:
            Reviewer().ask("authentication.k8s.io", "tokenreviews", {"metadata": {}})
        assert caught.value.code == 400


def test_self_subject_review() -> None:
    found = Reviewer().ask("authentication.k8s.io", "selfsubjectreviews", {"metadata": {}, "status": {"userInfo": {}}})
    assert found == {
        "userInfo": {
            "username": "jane",
            "uid": "7",
            "groups": ["developers", "system:authenticated"],
            "extra": {"example.com/k": ["v"]},
        }
    }


RESOURCE = {"verb": "get", "resource": "pods", "namespace": "a", "name": "p"}


class TestAccessReview:
    def test_the_authorizers_are_asked_with_what_the_review_says(self) -> None:
        reviewer = Reviewer(verdict=YES)
        spec = {
            "user": "bob",
            "groups": ["g"],
            "resourceAttributes": {**RESOURCE, "group": "apps", "version": "v1", "subresource": "status"},
        }
        assert reviewer.access("subjectaccessreviews", spec) == {"allowed": True, "reason": "RBAC: allowed by a test"}
        assert reviewer.recorder.questions == [
            access.Attributes("bob", ("g",), "get", True, "", "apps", "v1", "pods", "status", "a", "p")
        ]

    def test_a_path_is_asked_for_as_no_resource(self) -> None:
        reviewer = Reviewer()
        spec = {"groups": ["g"], "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
        assert reviewer.access("subjectaccessreviews", spec) == {"allowed": False}
        assert reviewer.recorder.questions == [access.Attributes("", ("g",), "get", False, "/metrics")]

    def test_a_denial_is_told_with_its_reason(self) -> None:
        spec = {"user": "bob", "resourceAttributes": RESOURCE}
        assert Reviewer(verdict=NO).access("subjectaccessreviews", spec) == {
            "allowed": False,
            "denied": True,
            "reason": "never",
        }

    @pytest.mark.parametrize("extra", [None, {}, {"example.com/k": ["v"]}, {access.SCOPES: None}, {access.SCOPES: []}])
    def test_extra_without_scopes_limits_nothing(self, extra: Any) -> None:
        reviewer = Reviewer(verdict=YES)
        spec = {"user": "bob", "extra": extra, "resourceAttributes": RESOURCE}
        assert reviewer.access("subjectaccessreviews", spec)["allowed"] is True
        assert reviewer.recorder.questions[0].scopes == ()

    @pytest.mark.parametrize(
        "about", [{"resourceAttributes": RESOURCE}, {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}]
    )
    def test_scopes_limit_a_review_as_they_limit_the_request(self, about: Any) -> None:
        limited = {"allowed": False, "denied": True}
        spec = {"user": "bob", "extra": {access.SCOPES: ["user:info"]}, **about}
        scoped = identity.User("jane", (), extra={access.SCOPES: ("user:info",)})
        for found in (
            Reviewer(verdict=YES).access("subjectaccessreviews", spec),
            Reviewer(scoped, YES).access("selfsubjectaccessreviews", about),
        ):
            assert found.pop("reason")
            assert found == limited

    def test_every_version_is_meant_without_one(self) -> None:
        reviewer = Reviewer()
        reviewer.access("subjectaccessreviews", {"user": "bob", "resourceAttributes": RESOURCE})
        assert reviewer.recorder.questions[0].version == "*"

    @pytest.mark.parametrize(
        ("selector", "fields"),
        [
            ({"rawSelector": "spec.nodeName=n"}, (("spec.nodeName", "n"),)),
            (
                {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
                (("spec.nodeName", "n"),),
            ),
            ({"requirements": [{"key": "a", "operator": "In", "values": ["n", "m"]}]}, ()),
            ({"requirements": [{"key": "a", "operator": "NotIn", "values": ["n"]}]}, ()),
            ({"requirements": [{"operator": "In", "values": ["n"]}]}, ()),
            ({}, ()),
        ],
    )
    def test_equalities_of_a_field_selector_are_asked_with(
        self, selector: dict[str, Any], fields: tuple[tuple[str, str], ...]
    ) -> None:
        reviewer = Reviewer()
        attributes = {**RESOURCE, "fieldSelector": selector}
        reviewer.access("subjectaccessreviews", {"user": "bob", "resourceAttributes": attributes})
        assert reviewer.recorder.questions[0].fields == fields

    def test_a_review_of_oneself_asks_in_the_callers_name(self) -> None:
        reviewer = Reviewer(verdict=YES)
        assert reviewer.access("selfsubjectaccessreviews", {"resourceAttributes": RESOURCE})["allowed"] is True
        assert (reviewer.recorder.questions[0].user, reviewer.recorder.questions[0].groups) == (JANE.name, JANE.groups)

    @pytest.mark.parametrize(
        ("plural", "spec", "metadata", "field"),
        [
            ("subjectaccessreviews", {"resourceAttributes": RESOURCE}, {}, "spec.user"),
            ("subjectaccessreviews", {"user": "b"}, {}, "spec.resourceAttributes"),
            (
                "subjectaccessreviews",
                {"user": "b", "resourceAttributes": RESOURCE, "nonResourceAttributes": {"path": "/"}},
                {},
                "spec.nonResourceAttributes",
            ),
            ("subjectaccessreviews", {"user": "b", "resourceAttributes": RESOURCE}, {"name": "n"}, "metadata"),
            ("selfsubjectaccessreviews", {"resourceAttributes": RESOURCE}, {"labels": {"a": "b"}}, "metadata"),
            ("selfsubjectaccessreviews", {}, {}, "spec.resourceAttributes"),
            (
                "localsubjectaccessreviews",
                {"user": "b", "nonResourceAttributes": {"path": "/"}},
                {},
                "spec.nonResourceAttributes",
            ),
            (
                "localsubjectaccessreviews",
                {"user": "b", "resourceAttributes": {**RESOURCE, "namespace": "other"}},
                {},
                "spec.resourceAttributes.namespace",
            ),
            ("localsubjectaccessreviews", {"resourceAttributes": RESOURCE}, {}, "spec.user"),
        ],
    )
    def test_an_incomplete_or_contradictory_review_names_the_field(
        self, plural: str, spec: dict[str, Any], metadata: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(status.StatusError) as caught:
            Reviewer().access(plural, spec, "a", **metadata)
        assert caught.value.code == 422
        assert [cause.field for cause in caught.value.causes] == [field]

    def test_a_local_review_is_answered_in_its_namespace(self) -> None:
        reviewer = Reviewer(verdict=YES)
        spec = {"user": "bob", "resourceAttributes": RESOURCE}
        assert reviewer.access("localsubjectaccessreviews", spec, "a", namespace="a")["allowed"] is True
        assert [question.namespace for question in reviewer.recorder.questions] == ["a"]


class TestRulesReview:
    @staticmethod
    def rules(reviewer: Reviewer, namespace: str = "a") -> dict[str, Any]:
        return reviewer.access("selfsubjectrulesreviews", {"namespace": namespace})

    def test_rules_that_scopes_limit_are_said_to_be_incomplete(self) -> None:
        extra = {access.SCOPES: ("user:info",)}
        for user, errors in (
            (identity.User("jane", (), extra=extra), ["the scopes of the credential limit these rules"]),
            (
                identity.User(NODE.name, NODE.groups, extra=extra),
                [
                    "node authorizer does not support user rule resolution",
                    "the scopes of the credential limit these rules",
                ],
            ),
        ):
            found = Reviewer(user).access("selfsubjectrulesreviews", {"namespace": "a"})
            assert (found["incomplete"], found["evaluationError"]) == (True, "; ".join(errors))

    def test_the_rules_of_a_user_are_those_of_the_bound_roles(self) -> None:
        reviewer = Reviewer()
        reviewer.policy.set_role(
            "",
            "reader",
            {
                "rules": [
                    {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]},
                    {"verbs": ["get"], "nonResourceURLs": ["/x"]},
                ]
            },
        )
        reviewer.policy.set_binding(
            "",
            "readers",
            {
                "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
            },
        )
        assert self.rules(reviewer) == {
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
            "incomplete": False,
        }

    def test_masters_may_do_everything(self) -> None:
        found = self.rules(Reviewer(MASTER))
        assert found["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        assert found["nonResourceRules"] == [{"verbs": ["*"], "nonResourceURLs": ["*"]}]

    def test_the_rules_of_a_node_are_incomplete_and_say_why(self) -> None:
        found = self.rules(Reviewer(NODE))
        assert found["incomplete"] is True
        assert found["evaluationError"] == "node authorizer does not support user rule resolution"

    def test_without_a_namespace(self) -> None:
        with pytest.raises(status.StatusError, match="no namespace on request"):
            self.rules(Reviewer(), "")
