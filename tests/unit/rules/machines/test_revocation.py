# SPDX-License-Identifier: Apache-2.0
"""What is deleted to revoke a bootstrap credential, and which requests came by it."""

from __future__ import annotations

import pytest

from handfast.api import signing_requests
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper, revocation


def request(username: str = bootstrapper.USER, *ids: str, conditions: tuple[str, ...] = ()) -> signing_requests.Request:
    rows = [signing_requests.condition(kind, "r", "m", "2026-01-31T12:00:00Z") for kind in conditions]
    return signing_requests.Request(
        metadata=signing_requests.Meta(name="csr"),
        spec=signing_requests.Spec(username=username, extra={user_names.CREDENTIAL_ID: list(ids)} if ids else None),
        status=signing_requests.Status(conditions=rows),
    )


@pytest.mark.parametrize(
    ("username", "ids", "kind"),
    [
        (bootstrapper.USER, ("X509SHA256=ab",), "master"),
        (bootstrapper.USER, ("JTI=1",), "requested"),
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
    assert revocation.MASTERS == (
        ("ConfigMap", "openshift-config", "kubelet-bootstrap-kubeconfig"),
        ("ConfigMap", "openshift-config-managed", "kubelet-bootstrap-kubeconfig"),
        ("Secret", "openshift-machine-config-operator", "kubelet-bootstrap-kubeconfig"),
    )


def test_every_secret_with_a_token_of_the_account_is_the_workers():
    of_account = {"name": "second", "annotations": {"kubernetes.io/service-account.name": "node-bootstrapper"}}
    of_another = {"name": "third", "annotations": {"kubernetes.io/service-account.name": "default"}}
    assert revocation.is_shared(of_account)
    assert not revocation.is_shared(of_another)
    assert not revocation.is_shared({"name": "bare"})
    assert revocation.secret(of_account) == ("Secret", "openshift-machine-config-operator", "second")


def test_requests_by_tokens_of_single_machines_are_denied_only_where_everything_goes():
    assert revocation.kinds("worker", everything=False) == {"worker"}
    assert revocation.kinds("worker", everything=True) == {"worker", "requested"}
