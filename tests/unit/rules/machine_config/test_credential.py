# SPDX-License-Identifier: Apache-2.0
"""Which credential the machines of a pool get, and what is never handed out."""

from __future__ import annotations

import base64
import datetime

import pytest

from handfast.bootstrap import kubeconfig
from handfast.rules.machine_config import credential, names
from handfast.rules.machines import bootstrapper, credentials

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
SERVER = "https://api-int.example:6443"
CA = b"-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----\n"
MARK = {names.REVOKE_AFTER_ROLLOUT: "2026-01-31T12:00:00Z"}
MASTER = credentials.master(NOW)
MASTERS_KUBECONFIG = kubeconfig.build(
    cluster="c", server=SERVER, ca=CA, user="kubelet", client_certificate=MASTER.certificate, client_key=MASTER.key
).encode()
WITHOUT_USER = (
    b"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n"
    b"clusters: [{name: c, cluster: {server: 'https://x'}}]\n"
)
WITH_FILE = (
    b"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
    b"clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers: [{name: u, user: {tokenFile: /etc/shadow}}]\n"
)


def encoded(data):
    return base64.b64encode(data).decode()


def secret(name=bootstrapper.TOKEN_SECRET, token="first.token", account="node-bootstrapper", mark=(), **fields):
    annotations = {"kubernetes.io/service-account.name": account, **dict(mark)}
    return {
        "metadata": {"namespace": bootstrapper.NAMESPACE, "name": name, "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
        "data": {"token": encoded(token.encode()), "ca.crt": encoded(b"secret's ca")},
        **fields,
    }


def following(token="next.token"):
    return secret(names.NEXT_TOKEN_SECRET, token)


def masters(text=MASTERS_KUBECONFIG):
    metadata = {"namespace": bootstrapper.NAMESPACE, "name": "kubelet-bootstrap-kubeconfig"}
    return {"metadata": metadata, "data": {"kubeconfig": encoded(text)}}


def trust(namespace="openshift-config", annotations=(), **metadata):
    named = {"namespace": namespace, "name": "kubelet-bootstrap-kubeconfig", "annotations": dict(annotations)}
    return {"metadata": {**named, **metadata}, "data": {"ca-bundle.crt": "bundle"}}


def place(**fields):
    metadata = {"namespace": bootstrapper.NAMESPACE, "name": "kubeconfig-data"}
    return {"metadata": metadata, "data": {"server": SERVER, "ca-bundle.crt": CA.decode()}, **fields}


def chosen(pool, secrets, config_maps=None):
    return credential.choose(pool, credential.read(secrets, [place()] if config_maps is None else config_maps))


def user_of(config):
    assert config.user is not None
    return config.user


def token_of(one):
    assert isinstance(one, credential.Credential)
    assert one.kind == names.SERVICE_ACCOUNT
    return user_of(kubeconfig.parse(one.kubeconfig.decode())).token


def reason_of(missing):
    assert isinstance(missing, credential.Missing)
    assert missing.sentence
    return missing.reason


@pytest.mark.parametrize("pool", ["worker", "infra"])
def test_workers_get_the_token_with_the_names_that_openshift_uses(pool):
    read = kubeconfig.parse(chosen(pool, [secret(), masters()], [place(), trust()]).kubeconfig.decode())
    assert (read.context, read.cluster.name, user_of(read).name) == ("kubelet", "local", "kubelet")
    assert (read.cluster.server, read.cluster.certificate_authority_data) == (SERVER, CA)
    assert user_of(read).token == "first.token"


def test_the_same_documents_give_the_same_bytes_whatever_their_order():
    one, other = chosen("worker", [secret(), following()]), chosen("worker", [following(), secret()])
    assert one == other
    assert one.digest == other.digest
    assert one.digest.startswith("sha256:")
    assert one.digest != chosen("worker", [secret(token="second.token")]).digest


@pytest.mark.parametrize("pool", ["master", "arbiter"])
@pytest.mark.parametrize("namespace", ["openshift-config", "openshift-config-managed"])
def test_masters_get_the_certificate_while_its_config_map_exists(pool, namespace):
    one = chosen(pool, [secret(), masters()], [place(), trust(namespace)])
    assert one == credential.Credential(names.CERTIFICATE, MASTERS_KUBECONFIG)


@pytest.mark.parametrize(
    "config_maps",
    [
        [place()],
        [place(), trust(deletionTimestamp="2026-01-31T12:00:00Z")],
        [place(), trust(annotations=MARK)],
        [place(), trust(annotations=MARK), trust("openshift-config-managed")],
    ],
    ids=["gone", "being deleted", "marked", "one of two marked"],
)
def test_masters_get_the_service_account_kind_once_the_certificate_is_on_its_way_out(config_maps):
    assert token_of(chosen("master", [secret(), masters()], config_maps)) == "first.token"


def test_masters_get_the_service_account_kind_where_nobody_has_their_kubeconfig():
    assert token_of(chosen("master", [secret()], [place(), trust()])) == "first.token"


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"kind: Deployment",
        WITHOUT_USER,
        WITH_FILE,
    ],
    ids=["not UTF-8", "no kubeconfig", "no user", "a file of the machine"],
)
def test_a_masters_kubeconfig_without_its_certificate_in_it_is_refused(text):
    assert reason_of(chosen("master", [secret(), masters(text)], [place(), trust()])) == credential.MALFORMED


def test_a_token_that_is_to_be_revoked_gives_way_to_the_next():
    assert token_of(chosen("worker", [secret(mark=MARK), following()])) == "next.token"
    # Nobody is without a credential while the next one is made.
    assert token_of(chosen("worker", [secret(mark=MARK), following("")])) == "first.token"


def test_the_next_token_bridges_the_time_without_the_other():
    assert token_of(chosen("worker", [following()])) == "next.token"
    assert token_of(chosen("worker", [secret(token=""), following()])) == "next.token"
    assert token_of(chosen("worker", [secret(), following()])) == "first.token"


def test_without_any_token_it_is_told_who_makes_one():
    nothing = chosen("worker", [])
    assert reason_of(nothing) == credential.NO_TOKEN
    assert "node-bootstrapper-token has no token: node-bootstrapper-token-controller makes it" in nothing.sentence


@pytest.mark.parametrize(
    "document",
    [
        secret(account="default"),
        secret(type="Opaque"),
        secret(token="two words"),
        secret(data={"token": "no base64"}),
        secret(metadata={**secret()["metadata"], "deletionTimestamp": "2026-01-31T12:00:00Z"}),
    ],
    ids=["another account", "another type", "no token", "no base64", "being deleted"],
)
def test_a_token_of_another_account_is_never_handed_out(document):
    assert reason_of(chosen("worker", [document])) == credential.NO_TOKEN


@pytest.mark.parametrize("server", ["", "http://api-int.example", "https://user:word@api-int.example", "https://"])
def test_a_server_without_tls_is_refused(server):
    missing = chosen("worker", [secret()], [place(data={"server": server, "ca-bundle.crt": "ca"})])
    assert reason_of(missing) == credential.NO_SERVER
    assert "word@" not in missing.sentence


def test_the_ca_is_that_of_the_config_map_in_either_form_or_that_of_the_secret():
    def ca(**fields):
        one = chosen("worker", [secret()], [place(**fields)])
        return kubeconfig.parse(one.kubeconfig.decode()).cluster.certificate_authority_data

    assert ca(data={"server": SERVER}, binaryData={"ca-bundle.crt": encoded(b"binary")}) == b"binary"
    assert ca(data={"server": SERVER, "ca-bundle.crt": "text"}) == b"text"
    assert ca(data={"server": SERVER}) == b"secret's ca"


def test_without_a_ca_no_token_goes_out():
    bare = secret(data={"token": encoded(b"first.token")})
    assert reason_of(chosen("worker", [bare], [place(data={"server": SERVER})])) == credential.NO_CA


def test_nothing_secret_is_printed():
    seen = credential.read([secret(), following(), masters()], [place(), trust()])
    for value in (seen, seen.shared, credential.choose("worker", seen), credential.choose("master", seen)):
        assert "first.token" not in repr(value)
        assert "next.token" not in repr(value)
        assert MASTERS_KUBECONFIG[-40:].decode() not in repr(value)
        assert "kubeconfig=" not in repr(value)
