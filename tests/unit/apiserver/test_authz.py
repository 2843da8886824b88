# SPDX-License-Identifier: Apache-2.0
"""A verdict becomes a yes or Kubernetes' 403."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.apiserver import authn, authz, request
from handfast.rules import access, decision

JANE = authn.User("jane", ("developers", "system:authenticated"))
ADMIN = authn.User("kubernetes-admin", ("system:masters", "system:authenticated"))


def test_every_fact_reaches_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    info = request.parse("PUT", "/apis/apps/v1/namespaces/a/deployments/d/status")
    asked: list[access.Attributes] = []

    def decide(attributes: access.Attributes) -> decision.Approve:
        asked.append(attributes)
        return decision.Approve("Test", "yes", "test")

    monkeypatch.setattr(access, "decide", decide)
    assert authz.authorise(JANE, info).reason == "Test"
    assert asked[0] == access.Attributes(
        user="jane",
        groups=JANE.groups,
        verb="update",
        is_resource=True,
        path="/apis/apps/v1/namespaces/a/deployments/d/status",
        group="apps",
        version="v1",
        plural="deployments",
        subresource="status",
        namespace="a",
        name="d",
    )


def test_allowed() -> None:
    assert authz.authorise(ADMIN, request.parse("DELETE", "/api/v1/nodes")).reason == "SystemMasters"
    assert authz.authorise(authn.ANONYMOUS, request.parse("GET", "/livez")).reason == "OpenPath"


@pytest.mark.parametrize(
    ("user", "method", "target", "message"),
    [
        (
            authn.ANONYMOUS,
            "GET",
            "/api/v1/namespaces/default/secrets/s",
            (
                'secrets "s" is forbidden: User "system:anonymous" cannot get resource "secrets" in API group "" '
                'in the namespace "default"'
            ),
        ),
        (
            JANE,
            "GET",
            "/apis/apps/v1/deployments?watch=1",
            (
                'deployments.apps is forbidden: User "jane" cannot watch resource "deployments" in API group "apps" '
                "at the cluster scope"
            ),
        ),
        (JANE, "GET", "/metrics", 'forbidden: User "jane" cannot get path "/metrics"'),
        (authn.ANONYMOUS, "GET", "//healthz", 'forbidden: User "system:anonymous" cannot get path "//healthz"'),
        (
            JANE,
            "DELETE",
            "/api/v1/namespaces/a",
            (
                'namespaces "a" is forbidden: User "jane" cannot delete resource "namespaces" in API group "" '
                'in the namespace "a"'
            ),
        ),
    ],
)
def test_refused(user: authn.User, method: str, target: str, message: str) -> None:
    with pytest.raises(status.StatusError) as caught:
        authz.authorise(user, request.parse(method, target))
    assert (caught.value.code, caught.value.reason, caught.value.message) == (403, "Forbidden", message)
