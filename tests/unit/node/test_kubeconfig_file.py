# SPDX-License-Identifier: Apache-2.0
"""A node's kubeconfig: what is read of it, and the one that is written. Which one counts is tested in test_bootstrap.py."""

from __future__ import annotations

import stat

import pytest

from handfast import errors
from handfast.client import connection
from handfast.node import kubeconfig_file
from handfast.runtime import files
from tests.unit.node import pairing

CLUSTER = connection.Connection(
    server="https://192.0.2.1:6443",
    others=("https://192.0.2.2:6443",),
    cluster_id="an-id",
    ca_pem=pairing.CA.pem,
    tls_server_name="api.example",
    token="secret",
)


def test_written_and_read(tmp_path):
    path, current = tmp_path / "etc" / "kubelet.conf", tmp_path / "current.pem"
    pair = pairing.pair()
    current.write_bytes(pair.pem)
    kubeconfig_file.write(path, CLUSTER, current)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"secret" not in path.read_bytes()
    found, trouble = kubeconfig_file.loaded(path)
    assert trouble is None
    assert found is not None
    assert kubeconfig_file.bare(found) == kubeconfig_file.bare(CLUSTER)
    assert kubeconfig_file.pair_of(found) == pair
    assert not kubeconfig_file.has_token(found)
    assert kubeconfig_file.leads_to(path, current)
    assert not kubeconfig_file.leads_to(path, tmp_path / "other.pem")


def test_no_credential_is_left_in_bare():
    assert kubeconfig_file.has_token(CLUSTER)
    assert not kubeconfig_file.has_token(kubeconfig_file.bare(CLUSTER))


@pytest.mark.parametrize("data", [None, b"broken: [", b"\xff"])
def test_one_that_cannot_be_read(tmp_path, data):
    path = tmp_path / "kubelet.conf"
    if data is not None:
        path.write_bytes(data)
    found, trouble = kubeconfig_file.loaded(path)
    assert found is None
    assert trouble is not None
    assert not kubeconfig_file.leads_to(path, tmp_path)


def test_one_that_may_not_be_read_is_raised(tmp_path, monkeypatch):
    def forbid(*_, **__):
        raise errors.Refused("no", reason="PermissionDenied")

    monkeypatch.setattr(files, "read", forbid)
    monkeypatch.setattr(connection, "load", forbid)
    with pytest.raises(errors.Refused, match="no"):
        kubeconfig_file.loaded(tmp_path / "kubelet.conf")


def test_a_pair_that_is_none():
    pair = pairing.pair()
    assert kubeconfig_file.pair_of(CLUSTER) is None
    broken = connection.Connection(server="https://a", ca_pem=None, cert_pem=b"no", key_pem=pair.key_pem)
    assert kubeconfig_file.pair_of(broken) is None
