# SPDX-License-Identifier: Apache-2.0
"""What a ConfigMap gives as a source of client CAs."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pytest

from handfast.rules.machines import bootstrapper, client_ca_sources
from tests.unit.pki.making import NOW, SERVER, ca, leaf

FIRST, SECOND = ca("first"), ca("second")
SERVING = leaf(FIRST, SERVER)
KEY_PEM = "-----BEGIN EC PRIVATE KEY-----\nTOPSECRET\n-----END EC PRIVATE KEY-----\n"


def source(text: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", **metadata}, "data": {"ca-bundle.crt": text}}


def text(*made: Any) -> str:
    return "".join(one.pem.decode() for one in made)


def given(content: client_ca_sources.Content) -> list[bytes]:
    return [each.der for each in content.certificates]


def test_the_sources_are_those_of_the_operator_in_its_order():
    assert client_ca_sources.ALL == (
        ("openshift-config", "admin-kubeconfig-client-ca"),
        ("openshift-config-managed", "csr-controller-ca"),
        ("openshift-kube-apiserver-operator", "kube-apiserver-to-kubelet-client-ca"),
        ("openshift-kube-apiserver-operator", "kube-control-plane-signer-ca"),
        ("openshift-kube-apiserver", "user-client-ca"),
        # As the seed says, and as the product does.
        ("openshift-config", "kubelet-bootstrap-kubeconfig"),
        ("openshift-config-managed", "kubelet-bootstrap-kubeconfig"),
        ("openshift-kube-apiserver-operator", "node-system-admin-ca"),
    )
    assert set(client_ca_sources.BOOTSTRAP) == set(bootstrapper.CONFIG_MAPS)
    assert not set(client_ca_sources.BOOTSTRAP) & set(client_ca_sources.UNSCOPED)
    assert client_ca_sources.key(client_ca_sources.ALL[0]) == "openshift-config/admin-kubeconfig-client-ca"


def test_each_certificate_is_given_once_in_its_order():
    content = client_ca_sources.read(source("# ours\n" + text(SECOND, FIRST, SECOND)))
    assert given(content) == [SECOND.der, FIRST.der]
    assert content.problems == ()
    assert len(content.fingerprints) == 2


@pytest.mark.parametrize("document", [source(None), source(""), source(" \n"), {"metadata": {}}, {"data": None}])
def test_nothing_in_it_is_no_mistake(document: dict[str, Any]):
    assert client_ca_sources.read(document) == client_ca_sources.Content()


def test_one_that_is_being_deleted_gives_nothing():
    document = source(text(FIRST), deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.com/keep"])
    assert client_ca_sources.read(document) == client_ca_sources.Content()


@pytest.mark.parametrize("name", ["ca-bundle.crt", "ca.key"])
def test_a_private_key_in_binary_data_counts_as_well(name: str):
    document = source(text(FIRST))
    document["binaryData"] = {"other": "AP8=", "broken": "A", name: base64.b64encode(KEY_PEM.encode()).decode()}
    content = client_ca_sources.read(document)
    assert given(content) == []
    assert [problem.reason for problem in content.problems] == ["PrivateKeyInClientCASource"]
    assert client_ca_sources.private_keys(document) == (f"binaryData[{name}]",)
    del document["binaryData"][name]
    assert given(client_ca_sources.read(document)) == [FIRST.der]


@pytest.mark.parametrize("key", ["ca-bundle.crt", "ca.key"])
def test_with_a_private_key_it_gives_nothing_and_the_key_is_not_shown(key: str):
    document = source(text(FIRST))
    document["data"][key] = text(FIRST) + KEY_PEM
    content = client_ca_sources.read(document)
    assert given(content) == []
    ((problem),) = content.problems
    assert problem.reason == "PrivateKeyInClientCASource"
    assert "TOPSECRET" not in problem.sentence


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (text(SECOND)[:200], "PEM block 2 (CERTIFICATE): no END line"),
        (
            "-----BEGIN CERTIFICATE-----\nTOPSECRET!\n-----END CERTIFICATE-----\n",
            "PEM block 2 (CERTIFICATE): not base64",
        ),
        (SERVING.pem.decode(), "certificate 2 is left out: the certificate is not one of a CA"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 2 is left out: "),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "expected CERTIFICATE, found PUBLIC KEY"),
    ],
)
def test_what_is_broken_takes_no_other_with_it(bad: str, says: str):
    content = client_ca_sources.read(source(text(FIRST) + bad))
    assert given(content) == [FIRST.der]
    (problem,) = content.problems
    assert problem.reason == "ClientCASourceUnreadable"
    assert says in problem.sentence
    assert "TOPSECRET" not in problem.sentence


def test_what_a_broken_edit_took_away_is_not_given_any_more():
    content = client_ca_sources.read(source(text(FIRST).replace("M", "!", 1) + text(SECOND)))
    assert given(content) == [SECOND.der]


@pytest.mark.parametrize("words", ["hello", "\ud800", "-----BEGIN CERTIFICATE-----"])
def test_text_without_any_certificate_is_a_mistake(words: str):
    content = client_ca_sources.read(source(words))
    assert given(content) == []
    assert len(content.problems) == 1


def test_what_cannot_be_used_is_left_out_with_a_reason():
    content = client_ca_sources.read(source(text(FIRST, SECOND)))
    (gone,) = {one.fingerprint for one in content.certificates if one.der == FIRST.der}
    left = content.leaving_out(frozenset({gone}), "it cannot be used for TLS")
    assert given(left) == [SECOND.der]
    assert left.problems[0].sentence == f"the certificate with SHA-256 {gone} is left out: it cannot be used for TLS"
    assert content.leaving_out(frozenset(), "x") == content


def test_a_bootstrap_ca_has_the_name_of_its_signer():
    signer, further = ca(bootstrapper.SIGNER), ca(bootstrapper.SIGNER)
    content = client_ca_sources.read_bootstrap(source(text(signer, FIRST, further)), NOW)
    assert given(content) == [signer.der, further.der]
    (problem,) = content.problems
    assert problem.reason == "BootstrapCAMisnamed"
    assert "is left out: a CA of bootstrap credentials has the common name" in problem.sentence


def test_a_bootstrap_config_map_gives_until_its_end():
    signer = ca(bootstrapper.SIGNER)
    document = source(text(signer))
    document["data"]["revoke-at"] = "2026-01-31T12:00:00Z"
    end = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    assert given(client_ca_sources.read_bootstrap(document, end - datetime.timedelta(seconds=1))) == [signer.der]
    assert client_ca_sources.read_bootstrap(document, end) == client_ca_sources.Content()


def test_an_end_that_is_no_instant_is_a_mistake_and_nothing_is_given():
    document = source(text(ca(bootstrapper.SIGNER)))
    document["data"]["revoke-at"] = "TOPSECRET"
    content = client_ca_sources.read_bootstrap(document, NOW)
    assert given(content) == []
    (problem,) = content.problems
    assert problem.sentence == "revoke-at: it is no instant, as in 2027-01-31T12:00:00Z: the CAs beside it do not count"
