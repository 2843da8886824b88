# SPDX-License-Identifier: Apache-2.0
"""What servers say of themselves in their Leases."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.rules import server_leases

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)


def lease(**more: Any) -> dict[str, Any]:
    notes = {server_leases.VERSION: "1.2.3", server_leases.FORMS: "1-2", server_leases.APPLIED: "41"}
    notes |= {server_leases.LAG: "7", server_leases.UNCERTAIN: "1", server_leases.COMPACTED: "2026-11-17T11:00:00Z"}
    return {
        "metadata": {"name": "apiserver-1", "labels": {server_leases.LABEL: "kube-apiserver"}, "annotations": notes},
        "spec": {"holderIdentity": "me", "renewTime": "2026-11-17T11:59:00Z", "leaseDurationSeconds": 180, **more},
    }


def test_a_server_is_read_as_it_wrote():
    server = server_leases.read(lease())
    assert server is not None
    assert (server.name, server.holder, server.version, server.forms) == ("apiserver-1", "me", "1.2.3", "1-2")
    assert (server.applied, server.lag, server.uncertain) == (41, 7, 1)
    assert (server.compacted, server.renewed) == ("2026-11-17T11:00:00Z", "2026-11-17T11:59:00Z")
    assert server.is_alive(NOW)
    assert not server.is_alive(NOW + datetime.timedelta(minutes=2))


def test_a_lease_of_somebody_else_is_no_server():
    assert server_leases.read({}) is None
    assert server_leases.read({"metadata": {"labels": {server_leases.LABEL: 7}}}) is None


@pytest.mark.parametrize("more", [{"renewTime": "then"}, {"renewTime": "9999-12-31T23:59:59Z"}, {"renewTime": None}])
def test_a_lease_without_an_end_is_nobodys_life(more: dict[str, Any]):
    server = server_leases.read(lease(leaseDurationSeconds=1 << 62, **more))
    assert server is not None
    assert not server.is_alive(NOW)


@pytest.mark.parametrize("said", ["", "-1", "1e9", "٣", "9" * 20, 7, None])
def test_what_is_no_number_is_none(said: object):
    assert server_leases.number(said) == 0
