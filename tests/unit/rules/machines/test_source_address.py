# SPDX-License-Identifier: Apache-2.0
"""The address that the server writes on a request: on which, and over whatever else was there."""

from __future__ import annotations

import pytest

from handfast.rules.machines import bootstrapper, source_address
from tests.unit.rules.csr_cases import KUBELET_CLIENT, KUBELET_SERVING

OTHER = {"authentication.kubernetes.io/credential-id": ("JTI=a",)}
FORGED = {source_address.KEY: ("10.0.0.66",)}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("FD00:0::1", "fd00::1"),
        ("", ""),
        ("unix", ""),
    ],
)
def test_a_bootstrap_identitys_request_is_stamped_with_the_address_of_its_connection(address: str, shown: str):
    extra = source_address.stamped(OTHER, KUBELET_CLIENT, bootstrapper.USER, address)
    assert source_address.of(extra) == shown
    assert extra["authentication.kubernetes.io/credential-id"] == ["JTI=a"]


@pytest.mark.parametrize(
    ("signer", "user"),
    [
        (KUBELET_SERVING, bootstrapper.USER),
        (None, bootstrapper.USER),
        (KUBELET_CLIENT, "system:node:a"),
        (KUBELET_CLIENT, "system:node-recovery:a"),
        (KUBELET_CLIENT, "system:bootstrap:abcdef"),
    ],
)
def test_the_requests_of_others_stay_as_kubernetes_has_them(signer: str | None, user: str):
    assert source_address.stamped({}, signer, user, "10.0.0.1") == {}
    assert source_address.stamped(FORGED, signer, user, "10.0.0.1") == {}


def test_a_value_of_somebody_elses_is_dropped():
    assert source_address.stamped(FORGED, KUBELET_CLIENT, bootstrapper.USER, "") == {}
    stamped = source_address.stamped(FORGED, KUBELET_CLIENT, bootstrapper.USER, "10.0.0.1")
    assert stamped == {source_address.KEY: ["10.0.0.1"]}


def test_two_addresses_are_none():
    assert source_address.of({source_address.KEY: ("10.0.0.1", "10.0.0.2")}) == ""
