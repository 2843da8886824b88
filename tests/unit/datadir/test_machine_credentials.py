# SPDX-License-Identifier: Apache-2.0
"""The master's credential on disk: modes, order, a second one, and what is refused."""

import datetime
import stat

import pytest
import yaml

from handfast import errors
from handfast.bootstrap import kubeconfig
from handfast.datadir import machine_credentials
from handfast.pki import authority, bundles, chains, keys, names, pem
from handfast.runtime import files

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
SERVER = "https://api-int.example:6443"


@pytest.fixture(scope="module")
def server_ca():
    return authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(), NOW).pem


def certificate(path):
    user = kubeconfig.parse(path.read_text()).user
    assert user is not None
    assert user.client_certificate_data is not None
    return pem.certificates_from_pem(user.client_certificate_data)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_a_machine_needs_is_written(tmp_path, server_ca):
    kept = machine_credentials.create(tmp_path / "out", SERVER, server_ca, NOW)
    read = kubeconfig.parse(kept.kubeconfig.read_text())
    assert (read.context, read.cluster.server) == ("kubelet", SERVER)
    assert read.cluster.certificate_authority_data == server_ca
    namespace, manifest = yaml.safe_load_all(kept.manifest.read_text())
    assert namespace["metadata"]["name"] == manifest["metadata"]["namespace"]
    assert manifest["data"]["ca-bundle.crt"] == kept.bundle.read_text()
    chains.verify(
        certificate(kept.kubeconfig), bundles.TrustBundle.from_pem(kept.bundle.read_bytes()), chains.Client(), NOW
    )
    assert (mode(tmp_path / "out"), mode(kept.kubeconfig)) == (0o700, 0o600)
    assert machine_credentials.first(tmp_path / "out") == kept


def test_a_second_one_stands_beside_the_first_and_both_are_trusted(tmp_path):
    first = machine_credentials.create(tmp_path, SERVER, None, NOW)
    before = first.kubeconfig.read_bytes()
    second = machine_credentials.create(tmp_path, SERVER, None, NOW)
    assert (first.kubeconfig.name, second.kubeconfig.name) == ("kubeconfig-kubelet", "kubeconfig-kubelet-2")
    assert first.kubeconfig.read_bytes() == before
    assert (first.signers, second.signers) == (1, 2)
    trusted = bundles.TrustBundle.from_pem(second.bundle.read_bytes())
    for each in (first, second):
        chains.verify(certificate(each.kubeconfig), trusted, chains.Client(), NOW)


def test_no_private_key_but_the_certificates_own_is_on_disk(tmp_path):
    kept = machine_credentials.create(tmp_path, SERVER, None, NOW)
    with_keys = [path for path in tmp_path.iterdir() if b"client-key-data" in path.read_bytes()]
    assert with_keys == [kept.kubeconfig]
    assert not [path for path in tmp_path.iterdir() if b"PRIVATE KEY" in path.read_bytes()]


def test_what_was_cut_short_before_the_kubeconfig_is_no_credential(tmp_path, monkeypatch):
    written = []

    def cut(path, data, *, mode=0o600):
        if path.name == machine_credentials.KUBECONFIG_FILE:
            raise errors.Unavailable("no space left")
        written.append(path.name)
        real(path, data, mode=mode)

    real = files.write_atomically
    monkeypatch.setattr(files, "write_atomically", cut)
    with pytest.raises(errors.Unavailable):
        machine_credentials.create(tmp_path, SERVER, None, NOW)
    assert written == [machine_credentials.BUNDLE_FILE, machine_credentials.MANIFEST_FILE]
    assert machine_credentials.first(tmp_path) is None
    monkeypatch.undo()
    assert machine_credentials.create(tmp_path, SERVER, None, NOW).kubeconfig.name == "kubeconfig-kubelet"


def test_a_bundle_that_cannot_be_read_is_named_and_nothing_is_written(tmp_path):
    (tmp_path / machine_credentials.BUNDLE_FILE).write_text("-----BEGIN CERTIFICATE-----\nno\n")
    with pytest.raises(errors.Refused) as refused:
        machine_credentials.create(tmp_path, SERVER, None, NOW)
    assert machine_credentials.BUNDLE_FILE in refused.value.message
    assert [path.name for path in tmp_path.iterdir()] == [machine_credentials.BUNDLE_FILE]


def test_a_directory_that_others_may_write_to_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(errors.Refused) as refused:
        machine_credentials.create(shared, SERVER, None, NOW)
    assert refused.value.reason == "DirectoryNotPrivate"
    assert not list(shared.iterdir())


def test_what_is_no_ca_of_a_server_is_refused(tmp_path):
    with pytest.raises(errors.Refused) as refused:
        machine_credentials.create(tmp_path, SERVER, b"not a certificate", NOW)
    assert refused.value.reason == "MalformedPEM"
    assert not list(tmp_path.iterdir())


def test_that_a_credential_counted_is_remembered_in_the_directory(tmp_path):
    machine_credentials.create(tmp_path, SERVER, None, NOW)
    assert not machine_credentials.has_counted(tmp_path)
    machine_credentials.note_counted(tmp_path)
    assert machine_credentials.has_counted(tmp_path)


def test_there_is_an_end_to_how_many_a_directory_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_credentials, "_MOST", 1)
    machine_credentials.create(tmp_path, SERVER, None, NOW)
    with pytest.raises(errors.Refused) as refused:
        machine_credentials.create(tmp_path, SERVER, None, NOW)
    assert refused.value.reason == "TooManyCredentials"


def test_a_kubeconfig_without_a_certificate_is_refused(tmp_path):
    path = tmp_path / machine_credentials.KUBECONFIG_FILE
    files.write_atomically(path, kubeconfig.render(kubeconfig.parse(_anonymous())).encode())
    with pytest.raises(errors.Refused) as refused:
        machine_credentials.first(tmp_path)
    assert str(path) in refused.value.message


def _anonymous():
    return (
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'https://a:1'}}]\n"
    )
