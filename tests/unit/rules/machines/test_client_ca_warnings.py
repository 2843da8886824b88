# SPDX-License-Identifier: Apache-2.0
"""What an operator is told of the sources of client CAs."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.pki import certificates
from handfast.rules.machines import bootstrapper, client_ca_sources, client_ca_warnings
from tests.unit.pki.making import NOW, Made, ca

SIGNER, OTHER = ca("signer"), ca("other")
CONFIG, MANAGED = client_ca_sources.BOOTSTRAP
USERS = ("openshift-kube-apiserver", "user-client-ca")
HOUR = datetime.timedelta(hours=1)


def content(*made: Made, text: str = "") -> client_ca_sources.Content:
    whole = "".join(one.pem.decode() for one in made) + text
    return client_ca_sources.read({"metadata": {}, "data": {"ca-bundle.crt": whole}})


def told(contents: Any, *unscoped: Made) -> list[tuple[Any, str]]:
    said = client_ca_warnings.of(contents, [one.der for one in unscoped])
    return [(warned.place, warned.reason) for warned in said]


def test_nothing_is_said_where_nothing_is_wrong():
    assert told({CONFIG: content(SIGNER), MANAGED: content(OTHER), USERS: content(OTHER)}, ca("x")) == []
    assert told({}) == []


def test_what_is_wrong_with_a_source_is_said_of_it():
    contents = {USERS: content(text="broken"), CONFIG: content(SIGNER)}
    (warned,) = client_ca_warnings.of(contents, [])
    assert (warned.place, warned.reason) == (USERS, "ClientCASourceUnreadable")
    assert warned.sentence == "as a source of client CAs: no CERTIFICATE block in the PEM input"


def test_a_bootstrap_ca_in_both_places_is_said_of_both():
    contents = {CONFIG: content(SIGNER, OTHER), MANAGED: content(SIGNER)}
    said = client_ca_warnings.of(contents, [])
    assert [(warned.place, warned.reason) for warned in said] == [
        (CONFIG, "BootstrapCAInTwoPlaces"),
        (MANAGED, "BootstrapCAInTwoPlaces"),
    ]
    assert "openshift-config-managed/kubelet-bootstrap-kubeconfig, too" in said[0].sentence
    assert certificates.fingerprint(SIGNER.der) in said[0].sentence


def test_a_bootstrap_ca_without_a_limit_is_said_by_its_key():
    again = ca("the same key", key=SIGNER.key)
    assert told({CONFIG: content(SIGNER, OTHER)}, again) == [(CONFIG, "BootstrapCANotScoped")]


@pytest.mark.parametrize("namespace", ["default", "kube-system", bootstrapper.NAMESPACE])
def test_a_wrong_namespace_is_named_with_the_right_one(namespace: str):
    warned = client_ca_warnings.wrong_namespace((namespace, "kubelet-bootstrap-kubeconfig"))
    assert warned is not None
    assert warned.reason == "ClientCASourceInWrongNamespace"
    assert f"in the namespace {namespace} is read by nobody" in warned.sentence
    assert "the one in openshift-config (or openshift-config-managed); make it there" in warned.sentence


@pytest.mark.parametrize("place", [CONFIG, MANAGED, ("default", "user-client-ca")])
def test_right_places_and_other_names_are_not(place: tuple[str, str]):
    assert client_ca_warnings.wrong_namespace(place) is None


def test_the_condition_changes_its_time_with_its_answer():
    good = client_ca_warnings.condition({USERS: content(OTHER)}, (), NOW)
    assert (good.type, good.status, good.reason, good.message) == ("SourcesReadable", "True", "AsExpected", "")
    later = client_ca_warnings.condition({USERS: content(SIGNER)}, (good,), NOW + HOUR)
    assert later == good
    bad = client_ca_warnings.condition({USERS: content(text="broken")}, (good,), NOW + HOUR)
    assert (bad.status, bad.reason) == ("False", "ClientCASourceUnreadable")
    assert bad.message == "openshift-kube-apiserver/user-client-ca: no CERTIFICATE block in the PEM input"
    assert bad.last_transition_time != good.last_transition_time
