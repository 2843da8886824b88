# SPDX-License-Identifier: Apache-2.0
"""SPIFFE IDs of certificates, against the name beside them."""

from __future__ import annotations

import pytest

from handfast.pki import names
from handfast.rules.mesh import names as mesh_names
from handfast.rules.mesh import svids

WEB = mesh_names.Account(namespace="shop", name="web", uid="0c6f2d9c-3a5b-4c8e-9d1f-2b7a6e5d4c3b")
MESH = mesh_names.Mesh("cluster.local")
NAME = MESH.name(WEB)


@pytest.mark.parametrize("scheme", mesh_names.Scheme)
def test_the_id_that_the_mesh_writes_is_read(scheme):
    mesh = mesh_names.Mesh("cluster.local", scheme=scheme)
    read = svids.identified(names.Sans(dns=(mesh.name(WEB),), uri=(mesh.spiffe(WEB),)), mesh.name(WEB))
    assert read.text == "spiffe://cluster.local/ns/shop/sa/web"
    assert read.domain_id == "spiffe://cluster.local"


def test_a_certificate_without_exactly_one_id_is_refused():
    with pytest.raises(svids.NoSpiffeID) as refused:
        svids.identified(names.Sans(dns=(NAME,)), NAME)
    assert refused.value.hint == f"turn them on with: {svids.TURN_ON}"
    own = MESH.spiffe(WEB)
    with pytest.raises(svids.WrongSpiffeID, match="2 URIs"):
        svids.identified(names.Sans(dns=(NAME,), uri=(own, own)), NAME)


@pytest.mark.parametrize(
    "text",
    [
        "https://cluster.local/ns/shop/sa/web",
        "cluster.local/ns/shop/sa/web",
        "spiffe://cluster.local",
        "spiffe://cluster.local/ns/shop/sa/web/x",
        "spiffe://cluster.local/ns/shop/sa/web?x",
        "spiffe://cluster.local:80/ns/shop/sa/web",
        "spiffe://cluster.local/ns//sa/web",
        "spiffe:///ns/shop/sa/web",
        "spiffe://local/ns/shop/sa/web",
        "spiffe://CLUSTER.local/ns/shop/sa/web",
        "spiffe://cluster.local/ns/shop/sa/api",
        "spiffe://cluster.local/ns/web/sa/shop",
        "spiffe://cluster.local/ns/shop/sa/eb",
        "spiffe://cluster.local/ns/sho/sa/web",
        "spiffe://other.local/ns/shop/sa/web",
        "spiffe://uster.local/ns/shop/sa/web",
    ],
)
def test_an_id_that_is_not_of_the_name_is_refused(text):
    with pytest.raises(svids.WrongSpiffeID, match="not its SPIFFE ID"):
        svids.identified(names.Sans(uri=(text,)), NAME)
