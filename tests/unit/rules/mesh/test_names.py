# SPDX-License-Identifier: Apache-2.0
"""Names of workloads: one scheme for everybody, composed and parsed back, and nobody is read as somebody else."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.rules.mesh import control_plane, names

WEB = names.Account(namespace="shop", name="web")
UID = "2c345c34-241f-11e9-bd44-80fa5b5b38db"
MESHES = [names.Mesh("cluster.local", "linkerd", scheme) for scheme in names.Scheme]


def with_uid(account):
    return names.Account(namespace=account.namespace, name=account.name, uid=UID)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (names.Scheme.ACCOUNT, "web.shop.sa.linkerd-identity.linkerd.cluster.local"),
        (names.Scheme.SHIPPED, "web.shop.serviceaccount.identity.linkerd.cluster.local"),
        (names.Scheme.UID, f"{UID}.web.shop.sa.linkerd-identity.linkerd.cluster.local"),
    ],
)
def test_a_name_is_as_its_scheme_says(scheme, expected):
    mesh = names.Mesh("cluster.local", scheme=scheme)
    assert mesh.name(with_uid(WEB)) == expected
    composed = names.downward(scheme, UID)
    variables = {"K8S_SA": "web", "K8S_NS": "shop", "L5D_NS": "linkerd", "TRUST_DOMAIN": "cluster.local"}
    for name, value in variables.items():
        composed = composed.replace(f"$({name})", value)
    assert composed == expected


def test_the_services_have_the_names_of_the_seed():
    mesh = names.Mesh("cluster.local")
    assert mesh.service(control_plane.CONTROLLER) == (
        "linkerd-controller.linkerd.sa.linkerd-identity.linkerd.cluster.local"
    )
    assert mesh.service(control_plane.IDENTITY) == "linkerd-identity.linkerd.sa.linkerd-identity.linkerd.cluster.local"


def test_the_linkerd_vector_is_composed():
    mesh = names.Mesh("trust.domain", "linkerd", names.Scheme.SHIPPED)
    account = names.Account(namespace="ns", name="serviceaccount-name")
    assert mesh.name(account) == "serviceaccount-name.ns.serviceaccount.identity.linkerd.trust.domain"


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh.scheme)
@pytest.mark.parametrize("name", ["web", "sa", "linkerd-identity", "serviceaccount", "identity", "cluster", "0"])
@pytest.mark.parametrize("namespace", ["shop", "sa", "linkerd", "local"])
def test_a_name_is_parsed_to_the_account_that_it_was_composed_from(mesh, name, namespace):
    uid = UID if mesh.scheme is names.Scheme.UID else ""
    account = names.Account(namespace=namespace, name=name, uid=uid)
    assert mesh.account(mesh.name(account)) == account


def test_an_account_made_anew_has_another_name():
    mesh = names.Mesh("cluster.local", scheme=names.Scheme.UID)
    anew = names.Account(namespace="shop", name="web", uid="44fbcb79-241f-11e9-bd44-80fa5b5b38db")
    assert mesh.name(with_uid(WEB)) != mesh.name(anew)
    with pytest.raises(names.NoUid, match="shop/web is not known") as refused:
        mesh.name(WEB)
    assert "webhook" in str(refused.value.hint)


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh.scheme)
def test_an_account_with_a_dot_gets_no_name(mesh):
    for ask in (mesh.name, mesh.spiffe):
        with pytest.raises(names.NotALabel, match=r"service account 'a\.b' is not a label") as refused:
            ask(names.Account(namespace="c", name="a.b", uid=UID))
        assert "dots" in str(refused.value.hint)


@pytest.mark.parametrize(
    "account",
    [
        names.Account(namespace="shop", name=""),
        names.Account(namespace="", name="web"),
        names.Account(namespace="Shop", name="web"),
        names.Account(namespace="shop", name="a" * 64),
        names.Account(namespace="shop", name="*"),
        names.Account(namespace="shop\n", name="web"),
    ],
)
def test_what_is_no_label_gets_no_name(account):
    with pytest.raises(names.NotALabel):
        MESHES[0].name(account)


def test_a_uid_is_a_label_too():
    with pytest.raises(names.NotALabel, match=r"UID 'a\.b'"):
        MESHES[2].name(names.Account(namespace="shop", name="web", uid="a.b"))
    with pytest.raises(names.NotALabel, match="UID ''"):
        names.downward(names.Scheme.UID)


def test_a_name_has_at_most_253_characters():
    ending = len("..sa.linkerd-identity.linkerd.") + 63 + 63
    fits = ".".join(["d" * 60, "d" * (MAX - ending - 61)])
    longest = names.Account(namespace="n" * 63, name="a" * 63)
    name = names.Mesh(fits).name(longest)
    assert len(name) == MAX
    assert names.Mesh(fits).account(name) == longest
    with pytest.raises(names.TooLong, match="would have 254 characters; at most 253 are allowed"):
        names.Mesh(f"{fits}d").name(longest)
    with pytest.raises(names.NotAnIdentity):
        names.Mesh(f"{fits}d").account(f"{name}d")


MAX = names.MAX_LENGTH


@pytest.mark.parametrize(
    "name",
    [
        "",
        "web.shop",
        "web.shop.sa.linkerd-identity.linkerd.cluster.local.",
        "Web.shop.sa.linkerd-identity.linkerd.cluster.local",
        "*.shop.sa.linkerd-identity.linkerd.cluster.local",
        "shop.sa.linkerd-identity.linkerd.cluster.local",
        "x.web.shop.sa.linkerd-identity.linkerd.cluster.local",
        ".shop.sa.linkerd-identity.linkerd.cluster.local",
        "sa.linkerd-identity.linkerd.cluster.local",
        ".sa.linkerd-identity.linkerd.cluster.local",
        "web.shop.serviceaccount.identity.linkerd.cluster.local",
        "web.shop.sa.linkerd-identity.linkerd.other.example",
        "web.shop.sa.linkerd-identity.other.cluster.local",
        "web.shopXsa.linkerd-identity.linkerd.cluster.local",
    ],
)
def test_what_is_no_name_of_this_mesh_is_refused(name):
    with pytest.raises(names.NotAnIdentity) as refused:
        MESHES[0].account(name)
    assert "sa.linkerd-identity.linkerd.cluster.local" in str(refused.value.hint)


def test_a_spiffe_id_says_the_same():
    assert MESHES[0].spiffe(WEB) == "spiffe://cluster.local/ns/shop/sa/web"


@pytest.mark.parametrize(
    "domain", ["", "Cluster.local", "a..b", ".", "a.", "a_b", "x" * 64, "a." * 127, "mesh.1", "42"]
)
def test_a_trust_domain_is_an_rfc_1123_name_that_is_no_address(domain):
    with pytest.raises(names.NotALabel, match="trust domain") as refused:
        names.Mesh(domain)
    assert isinstance(refused.value, errors.Refused)


def test_the_control_plane_is_in_a_namespace():
    with pytest.raises(names.NotALabel, match=r"control plane namespace 'a\.b'"):
        names.Mesh("cluster.local", "a.b")
