# SPDX-License-Identifier: Apache-2.0
"""A verdict becomes a yes or Kubernetes' 403."""

from __future__ import annotations

import pytest

from handfast.api import status
from handfast.apiserver import identity, request
from handfast.apiserver.access import authz
from handfast.rules import access

JANE = identity.User("jane", ("developers", "system:authenticated"))
ADMIN = identity.User("kubernetes-admin", ("system:masters", "system:authenticated"))


NOBODY_DECIDES = access.Authorizers(())


def test_every_fact_reaches_the_rules() -> None:
    info = request.parse("PUT", "/apis/apps/v1/namespaces/a/deployments/d/status")
    assert authz.attributes(JANE, info) == access.Attributes(
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


def test_only_scopes_are_taken_from_extra() -> None:
    extra = {"scopes.authorization.openshift.io": ("user:info",), "authentication.kubernetes.io/credential-id": ("X",)}
    scoped = identity.User("jane", JANE.groups, extra=extra)
    info = request.parse("GET", "/version")
    assert authz.attributes(scoped, info).scopes == ("user:info",)
    assert authz.attributes(JANE, info).scopes == ()


@pytest.mark.parametrize(
    ("target", "name", "fields"),
    [
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dn", "", (("spec.nodeName", "n"),)),
        ("/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn", "n", (("metadata.name", "n"),)),
        ("/api/v1/nodes?fieldSelector=metadata.name!%3Dn", "", ()),
        ("/api/v1/nodes/a?fieldSelector=metadata.name%3Dn", "a", ()),
    ],
)
def test_selectors_count(target: str, name: str, fields: tuple[tuple[str, str], ...]) -> None:
    asked = authz.attributes(JANE, request.parse("GET", target))
    assert (asked.name, asked.fields) == (name, fields)


def allowed(user: identity.User, method: str, target: str) -> str:
    return authz.require(NOBODY_DECIDES, authz.attributes(user, request.parse(method, target))).reason


def test_the_first_opinion_allows() -> None:
    assert allowed(ADMIN, "DELETE", "/api/v1/nodes") == "SystemMasters"
    assert allowed(identity.ANONYMOUS, "GET", "/livez") == "OpenPath"


@pytest.mark.parametrize(
    ("user", "method", "target", "message"),
    [
        (
            identity.ANONYMOUS,
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
        (identity.ANONYMOUS, "GET", "//healthz", 'forbidden: User "system:anonymous" cannot get path "//healthz"'),
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
def test_a_refusal_is_a_403_in_the_words_of_kubernetes(
    user: identity.User, method: str, target: str, message: str
) -> None:
    with pytest.raises(status.StatusError) as caught:
        allowed(user, method, target)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (403, "Forbidden", message)
