# SPDX-License-Identifier: Apache-2.0
"""What is deleted to revoke a bootstrap credential, and which requests came by it."""

from __future__ import annotations

import pytest

from handfast.api import signing_requests
from handfast.rules.machines import bootstrapper, revocation


def request(username: str = bootstrapper.USER, *ids: str, conditions: tuple[str, ...] = ()) -> signing_requests.Request:
    rows = [signing_requests.condition(kind, "r", "m", "2026-01-31T12:00:00Z") for kind in conditions]
    return signing_requests.Request(
        metadata=signing_requests.Meta(name="csr"),
        spec=signing_requests.Spec(username=username, extra={revocation.CREDENTIAL_ID: list(ids)} if ids else None),
        status=signing_requests.Status(conditions=rows),
    )


@pytest.mark.parametrize(
    ("username", "ids", "kind"),
    [
        (bootstrapper.USER, ("X509SHA256=ab",), "master"),
        (bootstrapper.USER, ("JTI=1",), "worker"),
        (bootstrapper.USER, (), "worker"),
        ("system:bootstrap:abcdef", ("X509SHA256=ab",), None),
    ],
)
def test_a_request_says_by_which_credential_it_came(username, ids, kind):
    assert revocation.kind_of(request(username, *ids)) == kind


@pytest.mark.parametrize(("conditions", "pending"), [((), True), (("Approved",), False), (("Denied",), False)])
def test_only_what_nobody_decided_is_pending(conditions, pending):
    assert revocation.is_pending(request(conditions=conditions)) is pending


def test_the_masters_trust_goes_from_both_namespaces_and_first():
    assert revocation.TARGETS["master"] == (
        ("ConfigMap", "openshift-config", "kubelet-bootstrap-kubeconfig"),
        ("ConfigMap", "openshift-config-managed", "kubelet-bootstrap-kubeconfig"),
        ("Secret", "openshift-machine-config-operator", "kubelet-bootstrap-kubeconfig"),
    )


def test_the_workers_token_goes_as_the_seed_says():
    assert revocation.TARGETS["worker"] == (("Secret", "openshift-machine-config-operator", "node-bootstrapper-token"),)
