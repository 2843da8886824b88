# SPDX-License-Identifier: Apache-2.0
"""Every door to a node's certificate is listed, with what closes it; and nothing that is none."""

from __future__ import annotations

import datetime

import pytest

from handfast.bootstrap import token_views, tokens
from handfast.pki import authority, certificates, keys, names
from handfast.rules.machines import bootstrapper, credential_end, doors

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
TOKEN = tokens.parse("abcdef.0123456789abcdef")
GROUP = "certificates.k8s.io"
SUBJECT = {"kind": "Group", "name": "system:nodes"}


def role(*rules):
    return {
        "rules": [
            {"apiGroups": [GROUP], "resources": [resource], "verbs": verbs.split(), "resourceNames": list(named)}
            for resource, verbs, *named in rules
        ]
    }


def binding(*subjects):
    return {"metadata": {"name": "b"}, "subjects": list(subjects)}


def test_a_token_that_logs_in_is_a_door_without_its_secret():
    view = token_views.View(token=TOKEN, usages=("authentication",), groups=("system:bootstrappers:x",), expires=NOW)
    door = doors.of_token(view)
    assert door is not None
    assert (door.kind, door.name, door.until) == ("bootstrap token", "abcdef", "2026-01-31T12:00:00Z")
    assert door.close == "handfast token delete abcdef"
    assert TOKEN.secret not in repr(door)


def test_a_token_without_an_end_says_so_and_one_that_only_signs_is_no_door():
    lasting = doors.of_token(token_views.View(token=TOKEN, usages=("authentication",)))
    assert lasting is not None
    assert lasting.until == "for ever"
    assert doors.of_token(token_views.View(token=TOKEN, usages=("signing",))) is None


@pytest.mark.parametrize(
    ("scoped", "opens", "close"),
    [(True, "nobody else", "revoke --kind master"), (False, "vouches for anyone", "ca rotate")],
)
def test_a_ca_says_for_whom_it_vouches(scoped, opens, close):
    ca = authority.self_signed_ca(names.Subject(common_name="a ca"), keys.generate(), NOW).certificate
    door = doors.of_authority(certificates.read(ca.der), scoped=scoped)
    assert door.name.startswith("a ca ")
    assert opens in door.opens
    assert close in door.close


def test_the_shared_token_and_that_of_one_machine_are_told_apart():
    shared, second = doors.of_secret({"name": bootstrapper.TOKEN_SECRET}), doors.of_secret({"name": "second"})
    own = doors.of_secret({"name": "node-bootstrapper-m1"}, machine="fleet/m1")
    assert shared.close == second.close == "handfast machine credentials revoke --kind worker"
    assert shared.opens == second.opens
    assert own.opens.endswith("with the token of Machine fleet/m1")
    assert own.close.endswith("delete secret node-bootstrapper-m1")


@pytest.mark.parametrize(
    ("rules", "opens"),
    [
        ([("certificatesigningrequests", "create")], "files requests"),
        ([("certificatesigningrequests/nodeclient", "create")], "has first certificates approved without a Machine"),
        ([("certificatesigningrequests/selfnodeclient", "create")], "has its next certificate approved"),
        (
            [
                ("certificatesigningrequests/approval", "update"),
                ("signers", "approve", "kubernetes.io/kube-apiserver-client-kubelet"),
            ],
            "approves requests",
        ),
        (
            [
                ("certificatesigningrequests/status", "update"),
                ("signers", "sign", "kubernetes.io/kube-apiserver-client-kubelet"),
            ],
            "signs requests",
        ),
    ],
)
def test_a_binding_says_what_it_is_good_for(rules, opens):
    door = doors.of_binding(binding(SUBJECT), role(*rules))
    assert door is not None
    assert door.opens == f"Group system:nodes: {opens}"
    assert door.close == "kubectl delete clusterrolebinding b"


def test_a_binding_names_a_service_account_with_its_namespace():
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "n"}
    door = doors.of_binding(binding(subject), role(("certificatesigningrequests", "create")))
    assert door is not None
    assert door.opens.startswith("ServiceAccount n/a: ")


@pytest.mark.parametrize(
    ("bound", "rules"),
    [
        (binding(SUBJECT), role(("certificatesigningrequests", "get list"))),
        (binding(), role(("certificatesigningrequests", "create"))),
        # Half of what approving takes approves nothing.
        (binding(SUBJECT), role(("certificatesigningrequests/approval", "update"))),
    ],
)
def test_what_leads_to_no_certificate_is_no_door(bound, rules):
    assert doors.of_binding(bound, rules) is None


def test_doors_are_listed_by_kind_and_name():
    one, two = doors.of_secret({"name": "b"}), doors.of_secret({"name": "a"})
    token = doors.of_token(token_views.View(token=TOKEN, usages=("authentication",)))
    assert doors.ordered([one, None, two, token]) == (token, two, one)


def test_the_end_of_a_credential_is_told_and_one_that_cannot_be_read_is_over():
    ca = authority.self_signed_ca(names.Subject(common_name="masters"), keys.generate(), NOW)
    certificate = certificates.read(ca.certificate.der)
    end = credential_end.parse("2026-02-01T00:00:00Z")
    assert doors.of_authority(certificate, scoped=True, end=end).until == "2026-02-01T00:00:00Z"
    unreadable = credential_end.of({"data": {credential_end.KEY: "soon"}})
    assert doors.of_authority(certificate, scoped=True, end=unreadable).until == "it has ended: revoke-at is no instant"


def test_a_secret_for_configurations_says_what_it_fetches_and_what_closes_it():
    whole = doors.of_configuration("ignition-pool-worker", "worker", "", None)
    assert (whole.opens, whole.until) == ("fetches the configuration of the pool worker", "until it is rotated")
    assert whole.close.startswith("handfast machine ignition --pool worker --rotate; or kubectl")
    own = doors.of_configuration("ignition-machine-w1", "worker", "fleet/w1", None)
    assert own.until == "until its first certificate"
    assert own.close == "kubectl --namespace openshift-machine-config-operator delete secret ignition-machine-w1"
    before = doors.of_configuration(
        "ignition-pool-worker", "worker", "", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    )
    assert (before.until, before.close[:7]) == ("2026-01-01T00:00:00Z", "kubectl")
