# SPDX-License-Identifier: Apache-2.0
"""The master's credential: what it is, that it is accepted, and that nobody can make a second one from it."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.pki import authority, bundles, certificates, chains, keys, names, pem, profiles
from handfast.rules.machines import bootstrapper, credentials

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
TEN_YEARS = datetime.timedelta(hours=87600)


@pytest.fixture(scope="module")
def credential():
    return credentials.master(NOW)


def leaf(credential):
    return pem.certificates_from_pem(credential.certificate)[0]


def test_it_is_the_bootstrap_identity_with_both_groups(credential):
    verified = chains.verify([leaf(credential)], bundles.TrustBundle.of([credential.signer]), chains.Client(), NOW)
    assert verified.subject.common_name == "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
    assert set(verified.subject.organizations) == {
        "system:serviceaccounts:openshift-machine-config-operator",
        "system:serviceaccounts",
    }
    assert not verified.sans
    assert verified.fingerprint == credential.fingerprint


def test_it_lives_for_ten_years_and_its_signer_as_long(credential):
    signer = certificates.read(credential.signer)
    assert credential.expires - signer.not_before == TEN_YEARS
    assert signer.not_after == credential.expires
    assert signer.subject.common_name == "kubelet-bootstrap-kubeconfig-signer"
    assert signer.subject.other_types == ("OU",)


def test_the_signer_may_sign_leaves_only(credential):
    assert certificates.read(credential.signer).path_length == 0


def test_the_signers_key_is_nowhere_in_what_is_kept(credential):
    # The one key that is kept is the certificate's.
    kept = keys.private_from_pem(credential.key).public.spki
    assert kept == certificates.read(leaf(credential)).public_key.spki
    assert kept != certificates.read(credential.signer).public_key.spki


def test_a_credential_does_not_print_its_key(credential):
    assert "PRIVATE" not in repr(credential)


def test_a_second_signer_stands_beside_the_first(credential):
    second = credentials.master(NOW)
    both = credentials.bundle(second.signer, credentials.bundle(credential.signer))
    assert set(pem.certificates_from_pem(both)) == {credential.signer, second.signer}
    for each in (credential, second):
        chains.verify([leaf(each)], bundles.TrustBundle.from_pem(both), chains.Client(), NOW)


def test_the_config_map_is_the_one_of_the_seed(credential):
    document = credentials.config_map(credentials.bundle(credential.signer))
    assert document["metadata"] == {"name": "kubelet-bootstrap-kubeconfig", "namespace": "openshift-config"}
    assert pem.certificates_from_pem(document["data"]["ca-bundle.crt"].encode()) == [credential.signer]


def test_a_credential_that_the_approver_would_refuse_is_never_made(monkeypatch):
    alone = names.Subject(common_name=bootstrapper.USER, organizations=bootstrapper.GROUPS[:1])
    monkeypatch.setattr(credentials, "_SUBJECT", alone)
    with pytest.raises(errors.Misuse, match=r"system:serviceaccounts:openshift-machine-config-operator is missing"):
        credentials.master(NOW)


def test_a_stranger_is_not_let_in_by_a_signer_of_the_same_name(credential):
    impostor = authority.self_signed_ca(names.Subject(common_name=bootstrapper.SIGNER), keys.generate(), NOW)
    forged = impostor.issue(
        keys.generate().public, certificates.read(leaf(credential)).subject, names.Sans(), profiles.CLIENT, NOW
    )
    with pytest.raises(chains.ChainRefused) as caught:
        chains.verify([forged.der], bundles.TrustBundle.of([credential.signer]), chains.Client(), NOW)
    assert caught.value.reason == "UnknownAuthority"


def test_the_manifest_makes_the_namespace_before_what_is_in_it(credential):
    namespace, config_map = credentials.manifest(credentials.bundle(credential.signer))
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", "openshift-config")
    assert config_map == credentials.config_map(credentials.bundle(credential.signer))
