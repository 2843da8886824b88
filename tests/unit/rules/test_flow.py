# SPDX-License-Identifier: Apache-2.0
"""Which budget requests fall under."""

from __future__ import annotations

import pytest

from handfast.rules import flow, user_names
from handfast.rules.mesh import control_plane

KNOWN = "system:authenticated"
NODE = ("system:node:n1", ("system:nodes", KNOWN))
BOOTSTRAP = ("system:bootstrap:abcdef", ("system:bootstrappers", KNOWN))


@pytest.mark.parametrize(
    ("name", "groups", "expected"),
    [
        ("admin", ("system:masters", KNOWN), flow.EXEMPT),
        ("system:kube-controller-manager", (KNOWN,), flow.EXEMPT),
        ("system:kube-controller-manager2", (KNOWN,), flow.USER),
        ("alice", ("system:masters2", KNOWN), flow.USER),
        (*NODE, flow.NODE),
        (*BOOTSTRAP, flow.JOIN),
        ("system:serviceaccount:ns:a", ("system:serviceaccounts", KNOWN), flow.SERVICE_ACCOUNT),
        ("system:serviceaccount:ns:a", (KNOWN,), flow.USER),
        ("alice", (KNOWN,), flow.USER),
        ("alice", ("system:serviceaccounts", "system:nodes", KNOWN), flow.USER),
        # Whoever is both pays as one who joins.
        ("system:node:n1", ("system:nodes", "system:bootstrappers", KNOWN), flow.JOIN),
    ],
)
def test_every_caller_has_the_flow_of_the_first_row_that_applies(
    name: str, groups: tuple[str, ...], expected: str
) -> None:
    assert flow.of_caller(name, groups) == expected


def test_the_identity_service_is_told_by_its_whole_name() -> None:
    group = user_names.SERVICE_ACCOUNTS
    own = user_names.service_account_user(control_plane.NAMESPACE, control_plane.IDENTITY)
    assert own == user_names.MESH_IDENTITY
    assert flow.of_caller(own, (group, KNOWN)) == flow.MESH_IDENTITY
    assert flow.of_caller(own, (KNOWN,)) == flow.USER
    assert flow.of_caller("system:serviceaccount:shop:linkerd-identity", (group, KNOWN)) == flow.SERVICE_ACCOUNT
    assert (
        flow.of_resource(flow.MESH_IDENTITY, "create", "authentication.k8s.io", "tokenreviews", "")
        == flow.MESH_IDENTITY
    )


def test_name_alone_is_no_node() -> None:
    assert flow.of_caller("system:node:n1", (KNOWN,)) == flow.USER
    assert flow.of_caller("system:nodes", ("system:nodes", KNOWN)) == flow.USER


def test_a_node_that_recovers_has_the_budget_of_renewals() -> None:
    caller = flow.of_caller("system:node-recovery:n1", ("system:node-recovery", KNOWN))
    assert flow.of_resource(caller, "create", "certificates.k8s.io", "certificatesigningrequests", "") == flow.RENEWAL


def test_only_who_has_not_logged_in_is_anonymous() -> None:
    assert flow.of_caller("system:anonymous", ("system:unauthenticated",)) == flow.ANONYMOUS
    # A certificate may say what it likes; whoever has presented one is counted as somebody.
    assert flow.of_caller("system:anonymous", ("system:unauthenticated", KNOWN)) == flow.USER


@pytest.mark.parametrize(
    ("verb", "group", "plural", "subresource", "expected"),
    [
        *(
            (verb, "certificates.k8s.io", "certificatesigningrequests", "", flow.RENEWAL)
            for verb in sorted(flow._RENEWAL_VERBS)
        ),
        ("delete", "certificates.k8s.io", "certificatesigningrequests", "", flow.NODE),
        ("get", "certificates.k8s.io", "certificatesigningrequests", "status", flow.NODE),
        ("get", "example.com", "certificatesigningrequests", "", flow.NODE),
        ("get", "certificates.k8s.io", "others", "", flow.NODE),
        ("get", "", "pods", "", flow.NODE),
    ],
)
def test_only_a_nodes_certificate_requests_are_renewals(
    verb: str, group: str, plural: str, subresource: str, expected: str
) -> None:
    assert flow.of_resource(flow.of_caller(*NODE), verb, group, plural, subresource) == expected


def test_joins_and_renewals_are_apart() -> None:
    asked = ("create", "certificates.k8s.io", "certificatesigningrequests", "")
    assert flow.of_resource(flow.of_caller(*BOOTSTRAP), *asked) == flow.JOIN
    assert flow.of_resource(flow.of_caller(*NODE), *asked) == flow.RENEWAL
    assert flow.of_resource(flow.USER, *asked) == flow.USER


@pytest.mark.parametrize(
    ("caller", "path", "expected"),
    [
        (flow.ANONYMOUS, "/healthz", flow.HEALTH),
        (flow.ANONYMOUS, "/livez/ping", flow.HEALTH),
        (flow.ANONYMOUS, "/readyz?verbose", flow.HEALTH),
        (flow.ANONYMOUS, "/version", flow.ANONYMOUS),
        (flow.ANONYMOUS, "/livez/../api", flow.ANONYMOUS),
        (flow.ANONYMOUS, "/healthzz", flow.ANONYMOUS),
        (flow.ANONYMOUS, "/apis?path=/healthz", flow.ANONYMOUS),
        (flow.NODE, "/readyz", flow.EXEMPT),
        (flow.JOIN, "/healthz", flow.EXEMPT),
        (flow.USER, "/apis", flow.USER),
    ],
)
def test_health_is_exempt_for_who_has_logged_in(caller: str, path: str, expected: str) -> None:
    assert flow.of_path(caller, path) == expected
