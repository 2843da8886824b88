# SPDX-License-Identifier: Apache-2.0
"""How the services of the mesh log in: private files, made once, that lead to the CA and to the token."""

import datetime as dt
import stat

import pytest

from handfast import errors
from handfast.client import connection
from handfast.datadir import layout, preparation
from handfast.rules.mesh import control_plane
from handfast.runtime.addresses import Address

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def place(tmp_path):
    return layout.Layout.at(tmp_path / "data")


def prepare(place, port=6443, **changes):
    return preparation.prepare(place, server=Address("127.0.0.1", port), now=NOW, mesh=True, **changes)


def test_every_account_has_a_kubeconfig_that_names_its_token_and_the_ca(place):
    prepare(place)
    for account in control_plane.ACCOUNTS:
        place.mesh_token(account).write_text("t")
        read = connection.load(str(place.mesh_kubeconfig(account)))
        assert (read.server, read.token_file) == ("https://127.0.0.1:6443", str(place.mesh_token(account)))
        assert read.ca_pem == place.ca_certificate.read_bytes()
        assert (read.cert_pem, read.token) == (None, None)


def test_nobody_else_can_open_them(place):
    prepare(place)
    assert stat.S_IMODE(place.mesh.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.mesh.iterdir()} == {0o600}


def test_a_second_start_changes_nothing_and_another_port_is_taken_up(place):
    prepare(place)
    assert prepare(place, again=True) == []
    assert ("mesh/linkerd-identity.conf", "renewed") in prepare(place, port=7443)
    assert connection.load(str(place.mesh_kubeconfig("linkerd-identity"))).server == "https://127.0.0.1:7443"


def test_the_certificate_of_older_versions_is_removed(place):
    preparation.prepare(place, server=Address("127.0.0.1", 6443), now=NOW)
    place.former_identity_kubeconfig.write_text("old")
    assert ("identity.conf", "removed") in prepare(place)
    assert not place.former_identity_kubeconfig.exists()


def test_what_a_killed_start_left_over_is_removed(place):
    prepare(place)
    left = place.mesh / ".linkerd-identity.token.x.tmp"
    left.write_text("half")
    prepare(place, again=True)
    assert left.exists()
    prepare(place)
    assert not left.exists()


def test_a_directory_that_others_may_write_to_is_refused(place):
    prepare(place)
    place.mesh.chmod(0o777)
    with pytest.raises(errors.Refused):
        prepare(place)
