# SPDX-License-Identifier: Apache-2.0
"""Which identity a Pod has on a port. A wrong "none" would mean plaintext: it is looked for everywhere."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import msgspec
import pytest

from handfast.rules.mesh import meshed, names, views
from tests.unit.rules.mesh import mesh_pods

MESH = names.Mesh("cluster.local")
FACTS = meshed.Facts(mesh=MESH)
NAME = "web.shop.sa.linkerd-identity.linkerd.cluster.local"
LABEL = "linkerd.io/control-plane-ns"
SAYS = "linkerd.io/identity"


def standing(document: dict[str, Any], port: int = 8080, facts: meshed.Facts = FACTS) -> meshed.Standing:
    return meshed.standing(mesh_pods.view(document), port, facts)


def withheld(document: dict[str, Any], facts: meshed.Facts = FACTS) -> meshed.Reason:
    with pytest.raises(meshed.Withheld) as refused:
        standing(document, facts=facts)
    assert "shop/a" in refused.value.message
    return refused.value.why


def changed(**meta: dict[str, str | None]) -> dict[str, Any]:
    """A Pod of the mesh with other labels or annotations; None takes one away."""
    document = mesh_pods.meshed("shop", "a")
    for kind, values in meta.items():
        there = {**document["metadata"].get(kind, {}), **values}
        document["metadata"][kind] = {key: value for key, value in there.items() if value is not None}
    return document


def proxy_of(document: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in document["spec"]["initContainers"] if row["name"] == "linkerd-proxy")


def test_a_pod_as_the_injector_leaves_it_has_the_name_of_its_account():
    assert standing(mesh_pods.meshed("shop", "a")) == meshed.Standing(identity=NAME, protocol=meshed.Protocol.H2)


def test_a_pod_that_nobody_injected_has_none():
    assert standing(mesh_pods.plain("shop", "a")) == meshed.PLAIN


def test_a_pod_without_an_identity_by_wish_has_none():
    document = mesh_pods.injected(mesh_pods.plain("shop", "a"), identity=False)
    assert standing(document) == meshed.PLAIN


def test_the_name_is_that_of_the_account_and_nothing_else():
    document = mesh_pods.meshed("shop", "a", account="other")
    for row in proxy_of(document)["env"]:
        if row["name"] in views.NAMES:
            row["value"] = "admin.kube-system.sa.linkerd-identity.linkerd.cluster.local"
    document["metadata"]["labels"]["linkerd.io/workload-ns"] = "kube-system"
    assert standing(document).identity == NAME.replace("web.", "other.")


def test_a_label_alone_is_withheld():
    document = mesh_pods.plain("shop", "a", labels={LABEL: "linkerd"})
    assert withheld(document) is meshed.Reason.PROXY_MISSING


def test_each_of_the_four_alone_or_missing_is_withheld():
    """All sixteen ways; with none of them it is no Pod of the mesh, and with all of them it has its name."""
    whole = mesh_pods.meshed("shop", "a")
    results = {}
    for parts in itertools.product((False, True), repeat=4):
        has_label, says, has_proxy, is_named = parts
        document = copy.deepcopy(whole)
        if not has_label:
            document["metadata"]["labels"] = {}
        if not says:
            document["metadata"]["annotations"] = {}
        if not is_named:
            proxy_of(document)["env"] = []
        if not has_proxy:
            document["spec"]["initContainers"] = []
        try:
            results[parts] = standing(document).identity
        except meshed.Withheld as refused:
            results[parts] = refused.why
    assert results.pop((True,) * 4) == NAME
    assert {results.pop((False, False, False, is_named)) for is_named in (False, True)} == {""}
    assert set(results.values()) == {meshed.Reason.PROXY_MISSING, meshed.Reason.IDENTITY_UNCLEAR}


@pytest.mark.parametrize(
    "document",
    [
        changed(annotations={SAYS: "disabled"}),
        changed(annotations={SAYS: "off"}),
        changed(labels={LABEL: "elsewhere"}),
        changed(labels={LABEL: None}, annotations={SAYS: "disabled"}),
    ],
)
def test_no_label_and_no_annotation_makes_a_pod_of_the_mesh_plain(document):
    assert withheld(document) is meshed.Reason.IDENTITY_UNCLEAR


def test_a_pod_of_another_control_plane_has_none_here():
    document = changed(labels={LABEL: "elsewhere"})
    for row in proxy_of(document)["env"]:
        if row["name"] == "L5D_NS":
            row["value"] = "elsewhere"
    assert standing(document) == meshed.PLAIN
    assert standing(mesh_pods.plain("shop", "a", labels={LABEL: "elsewhere"}, annotations={SAYS: "enabled"})) == (
        meshed.PLAIN
    )


def test_an_account_that_can_have_no_name_is_withheld():
    document = mesh_pods.meshed("shop", "a")
    document["spec"]["serviceAccountName"] = "we.b"
    assert withheld(document) is meshed.Reason.NO_NAME


def test_an_account_whose_uid_is_not_known_is_withheld_where_names_have_one():
    facts = meshed.Facts(mesh=names.Mesh("cluster.local", scheme=names.Scheme.UID))
    document = mesh_pods.meshed("shop", "a")
    assert withheld(document, facts) is meshed.Reason.NO_NAME
    assert standing(document, facts=meshed.Facts(mesh=facts.mesh, uid="u1")).identity == f"u1.{NAME}"


def test_a_revoked_account_is_withheld():
    assert withheld(mesh_pods.meshed("shop", "a"), meshed.Facts(mesh=MESH, revoked=True)) is meshed.Reason.REVOKED


def test_where_identities_are_switched_off_nobody_is_spoken_to_in_plaintext():
    facts = meshed.Facts(mesh=MESH, enabled=False)
    assert withheld(mesh_pods.meshed("shop", "a"), facts) is meshed.Reason.SWITCHED_OFF
    assert standing(mesh_pods.plain("shop", "a"), facts=facts) == meshed.PLAIN


SKIP = "config.linkerd.io/skip-inbound-ports"


@pytest.mark.parametrize(("port", "is_skipped"), [(8080, True), (9005, True), (80, False), (4191, False)])
def test_a_port_that_is_skipped_has_no_identity(port, is_skipped):
    document = mesh_pods.meshed("shop", "a", annotations={SKIP: "8080,9000-9010"})
    assert (standing(document, port) == meshed.PLAIN) == is_skipped


def test_an_annotation_alone_leads_past_no_proxy():
    document = changed(annotations={SKIP: "1-65535"})
    assert standing(document).identity == NAME
    taken_away = mesh_pods.meshed("shop", "a", annotations={SKIP: "8080"})
    del taken_away["metadata"]["annotations"][SKIP]
    assert standing(taken_away) == meshed.PLAIN


@pytest.mark.parametrize(("port", "is_skipped"), [(8080, True), (7777, True), (80, False)])
def test_without_a_container_that_redirects_the_annotation_counts(port, is_skipped):
    document = changed(annotations={SKIP: "8080,metrics,nonsense,0"})
    document["spec"]["initContainers"] = [proxy_of(document)]
    document["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": 7777}, {"containerPort": 1}]
    assert (standing(document, port) == meshed.PLAIN) == is_skipped


@pytest.mark.parametrize(
    ("annotation", "port", "protocol"),
    [
        (None, 8080, meshed.Protocol.H2),
        (None, 3306, meshed.Protocol.OPAQUE),
        ("", 3306, meshed.Protocol.H2),
        ("8080", 8080, meshed.Protocol.OPAQUE),
        ("8080", 3306, meshed.Protocol.H2),
        ("data", 5000, meshed.Protocol.OPAQUE),
    ],
)
def test_an_opaque_port_is_hinted_as_one(annotation, port, protocol):
    document = changed(annotations={"config.linkerd.io/opaque-ports": annotation})
    document["spec"]["containers"][0]["ports"] = [{"name": "data", "containerPort": 5000}]
    assert standing(document, port).protocol is protocol


def test_an_opaque_port_of_a_service_may_be_named():
    service = msgspec.convert(
        {
            "metadata": {"annotations": {"config.linkerd.io/opaque-ports": "db"}},
            "spec": {"ports": [{"name": "db", "port": 5000}, {"port": 80}]},
        },
        views.Service,
    )
    assert meshed.is_opaque(service, 5000)
    assert not meshed.is_opaque(service, 80)


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("0.0.0.0:4143", 4143),
        ("[2001:db8::94]:8080", 8080),
        ("0.0.0.0:1111", 1111),
        ("", 0),
        ("nothing", 0),
        ("0.0.0.0:99999", 0),
        ("0.0.0.0:٨٠", 0),
    ],
)
def test_the_inbound_port_is_that_of_the_proxy(address, port):
    document = mesh_pods.meshed("shop", "a")
    for row in proxy_of(document)["env"]:
        if row["name"] == views.INBOUND:
            row["value"] = address
    assert standing(document, 3306).inbound_port == port


def test_a_port_that_is_not_opaque_is_called_where_it_is():
    assert standing(mesh_pods.meshed("shop", "a")).inbound_port == 0


@pytest.mark.parametrize("port", [4190, 4191])
def test_the_proxys_own_ports_have_an_identity_and_no_transport(port):
    own = standing(mesh_pods.meshed("shop", "a"), port)
    assert (own.identity, own.inbound_port) == (NAME, 0)
