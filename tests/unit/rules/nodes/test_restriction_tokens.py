# SPDX-License-Identifier: Apache-2.0
"""Tokens that nodes ask for: the rows of Kubernetes' own table. Making tokens is tested elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api import objects
from handfast.rules import access, decision
from handfast.rules.nodes import restricted_write
from tests.unit.rules import node_cases
from tests.unit.rules.node_cases import CREATE, DELETE, UPDATE

ACCOUNTS = ("", "serviceaccounts")
NOT_BOUND = "node requested token not bound to a pod"
DRIVER = "com.example.csi.mydriver"
CLAIM = ("core/persistentvolumeclaims/", "ns", "pvclaim")
MADE_CLAIM = ("core/persistentvolumeclaims/", "ns", "myephemeralpod-myvol")
VOLUME = ("core/persistentvolumes/", "", "pvname")


def token(*audiences: str, **bound: Any) -> objects.Document:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "mypod", "uid": "pod-uid", **bound}
    return {
        "metadata": {"namespace": "ns"},
        "spec": {"audiences": list(audiences), "boundObjectRef": reference},
    }


def asks(document: objects.Document | None, **facts: Any) -> restricted_write.Write:
    given = {"operation": CREATE, "subresource": "token", "namespace": "ns", "name": "mysa", **facts}
    return node_cases.write(given.pop("operation"), ACCOUNTS, document=document, **given)


def no(attributes: access.Attributes) -> decision.Decision:
    return decision.NotMine("Test", "no", "test")


def driver(name: str = DRIVER, audience: str = "foo") -> node_cases.Objects:
    return {
        ("storage.k8s.io/csidrivers/", "", name): {
            "metadata": {"name": name},
            "spec": {"tokenRequests": [{"audience": "first"}, {"audience": audience}]},
        }
    }


def a_pod(name: str, *volumes: objects.Document) -> objects.Document:
    return node_cases.pod(name, "mynode", volumes=[{"name": "myvol", **volume} for volume in volumes])


def wants(*audiences: str | None) -> objects.Document:
    tokens = [{"path": "t", **({} if audience is None else {"audience": audience})} for audience in audiences]
    return {"projected": {"sources": [{"serviceAccountToken": found} for found in tokens]}}


@pytest.mark.parametrize(
    "document, sentence",
    [
        pytest.param({"spec": {}}, NOT_BOUND, id="unbound"),
        pytest.param({"spec": {"boundObjectRef": None}}, NOT_BOUND, id="null"),
        pytest.param(None, NOT_BOUND, id="no document"),
        pytest.param(token(kind="Secret"), NOT_BOUND, id="bound to a Secret"),
        pytest.param(token(kind="Node", name="mynode"), NOT_BOUND, id="bound to a Node"),
        pytest.param(token(apiVersion="v2"), NOT_BOUND, id="another API version"),
        pytest.param(token(name=""), NOT_BOUND, id="no name"),
        pytest.param(
            token(uid=""), "node requested token with a pod binding without a uid", id="bound to pod without uid"
        ),
        pytest.param(token(name="gone"), 'pod "gone" not found', id="bound to nonexistant pod"),
        pytest.param(
            token(uid="old-uid"),
            "the UID in the bound object reference (old-uid) does not match the UID in record. "
            "The object might have been deleted and then recreated",
            id="bound to a pod that was replaced",
        ),
        pytest.param(
            token(name="otherpod"),
            "node requested token bound to a pod scheduled on a different node",
            id="bound to pod scheduled on another node",
        ),
        pytest.param(
            token(name="unboundpod"),
            "node requested token bound to a pod scheduled on a different node",
            id="bound to pod scheduled nowhere",
        ),
        pytest.param(token("a", "b"), "node may only request 0 or 1 audiences", id="two audiences"),
    ],
)
def test_a_token_is_bound_to_a_pod_of_the_node(document: Any, sentence: str) -> None:
    assert node_cases.said(node_cases.decide(asks(document))) == sentence


def test_a_pod_that_is_gone_is_said_to_be() -> None:
    verdict = node_cases.decide(asks(token(name="gone")))
    assert isinstance(verdict, decision.Missing)
    assert (verdict.kind, verdict.name) == ("pod", "gone")


@pytest.mark.parametrize(
    "facts", [{"operation": UPDATE}, {"operation": DELETE}, {"subresource": ""}], ids=["update", "delete", "account"]
)
def test_other_writes_of_accounts_are_left_to_the_authorizer(facts: Any) -> None:
    assert isinstance(node_cases.decide(asks(None, **facts)), decision.Approve)


FOO = 'system:node:mynode is not authorized to request tokens for audience "foo"'
BAR = 'system:node:mynode is not authorized to request tokens for audience "bar"'
NOTHING = 'system:node:mynode is not authorized to request tokens for audience ""'
BOUND_CLAIM: node_cases.Objects = {CLAIM: {"spec": {"volumeName": "pvname"}}}
BY_CLAIM = {"persistentVolumeClaim": {"claimName": "pvclaim"}}
EPHEMERAL: objects.Document = {"ephemeral": {"volumeClaimTemplate": {}}}
CSI_VOLUME: node_cases.Objects = {VOLUME: {"spec": {"csi": {"driver": DRIVER}}}}
AZURE_VOLUME: node_cases.Objects = {VOLUME: {"spec": {"azureFile": {"shareName": "s", "secretName": "x"}}}}
PLAIN_VOLUME: node_cases.Objects = {VOLUME: {"spec": {"hostPath": {"path": "/x"}}}}
NO_CLAIM = 'error validating audience "foo": persistentvolumeclaim "pvclaim" not found'
NO_VOLUME = 'error validating audience "foo": persistentvolume "pvname" not found'
NO_DRIVER = f'error validating audience "foo": csidriver.storage.k8s.io "{DRIVER}" not found'


@pytest.mark.parametrize(
    "volumes, audiences, more, sentence",
    [
        pytest.param([wants(None)], [], {}, "", id="projected without audience, none asked"),
        pytest.param([wants("")], [""], {}, "", id="projected with empty audience, empty asked"),
        pytest.param([wants("foo")], ["foo"], {}, "", id="projected audience"),
        pytest.param([wants("other", "foo")], ["foo"], {}, "", id="the second of two projected"),
        pytest.param([{"emptyDir": {}}, wants("foo")], ["foo"], {}, "", id="in the second volume"),
        pytest.param([wants("foo")], ["bar"], {}, BAR, id="another than projected"),
        pytest.param([wants("foo")], [], {}, NOTHING, id="the API's own, though only another is projected"),
        pytest.param([wants("foo")], ["fo"], {}, FOO.replace("foo", "fo"), id="a prefix"),
        pytest.param([], ["foo"], {}, FOO, id="no volumes"),
        pytest.param([{"projected": {"sources": [{"secret": {"name": "foo"}}]}}], ["foo"], {}, FOO, id="no token"),
        pytest.param([{"csi": {"driver": DRIVER}}], ["foo"], driver(), "", id="csi driver wants it"),
        pytest.param([{"csi": {"driver": DRIVER}}], ["bar"], driver(), BAR, id="csi driver wants another"),
        pytest.param([{"csi": {"driver": DRIVER}}], ["foo"], {}, NO_DRIVER, id="csi driver not found"),
        pytest.param([BY_CLAIM], ["foo"], {**driver(), **BOUND_CLAIM, **CSI_VOLUME}, "", id="pvc, pv, csi driver"),
        pytest.param([BY_CLAIM], ["bar"], {**driver(), **BOUND_CLAIM, **CSI_VOLUME}, BAR, id="pvc, another audience"),
        pytest.param([BY_CLAIM], ["foo"], {**driver(), **CSI_VOLUME}, NO_CLAIM, id="pvc not found"),
        pytest.param([BY_CLAIM], ["foo"], {**driver(), **BOUND_CLAIM}, NO_VOLUME, id="pv not found"),
        pytest.param([BY_CLAIM], ["foo"], {**BOUND_CLAIM, **PLAIN_VOLUME}, FOO, id="pv without a driver"),
        pytest.param(
            [EPHEMERAL],
            ["foo"],
            {**driver(), MADE_CLAIM: {"spec": {"volumeName": "pvname"}}, **CSI_VOLUME},
            "",
            id="ephemeral, pvc, pv, csi driver",
        ),
        pytest.param(
            [EPHEMERAL],
            ["bar"],
            {**driver(), MADE_CLAIM: {"spec": {"volumeName": "pvname"}}, **CSI_VOLUME},
            BAR,
            id="ephemeral, another audience",
        ),
        pytest.param(
            [BY_CLAIM, {"csi": {"driver": DRIVER}}], ["foo"], driver(), "", id="pvc not found, but csi wants it"
        ),
        pytest.param(
            [BY_CLAIM, {"csi": {"driver": DRIVER}}],
            ["foo"],
            {},
            'error validating audience "foo": [persistentvolumeclaim "pvclaim" not found, '
            f'csidriver.storage.k8s.io "{DRIVER}" not found]',
            id="neither found",
        ),
        pytest.param([BY_CLAIM, BY_CLAIM], ["foo"], {}, NO_CLAIM, id="said once"),
        pytest.param(
            [BY_CLAIM], ["foo"], {**driver("file.csi.azure.com"), **BOUND_CLAIM, **AZURE_VOLUME}, "", id="in-tree pv"
        ),
        pytest.param(
            [{"azureFile": {"shareName": "s", "secretName": "x"}}],
            ["foo"],
            driver("file.csi.azure.com"),
            "",
            id="in-tree inline volume",
        ),
    ],
)
def test_an_audience_is_one_that_the_volumes_of_the_pod_ask_for(
    volumes: Any, audiences: Any, more: Any, sentence: str
) -> None:
    document = a_pod("myephemeralpod", *volumes)
    found = node_cases.cluster(document, more=more)
    verdict = node_cases.decide(asks(token(*audiences, name="myephemeralpod")), found, no)
    assert node_cases.said(verdict) == sentence


def test_the_authorizer_may_allow_an_audience() -> None:
    asked: list[access.Attributes] = []

    def yes(attributes: access.Attributes) -> decision.Decision:
        asked.append(attributes)
        return decision.Approve("Test", "yes", "test")

    assert isinstance(node_cases.decide(asks(token("foo")), ask=yes), decision.Approve)
    assert asked == [
        access.Attributes(
            user="system:node:mynode",
            groups=("system:nodes", "system:authenticated"),
            verb="request-serviceaccounts-token-audience",
            is_resource=True,
            version="v1",
            plural="foo",
            namespace="ns",
            name="mysa",
        )
    ]


def test_a_denial_of_the_authorizer_is_a_refusal() -> None:
    verdict = node_cases.decide(asks(token("foo")), ask=lambda _: decision.Deny("Test", "no", "test"))
    assert node_cases.said(verdict) == FOO
