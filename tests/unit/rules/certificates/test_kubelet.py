# SPDX-License-Identifier: Apache-2.0
"""Which requests are those of nodes; whether the requester may have them approved is the controller's test."""

from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.pki import names
from handfast.rules.certificates import kubelet
from tests.unit.rules.csr_cases import CLIENT, KUBELET_SERVING, NODE, NODES, SERVING, csr, serving

LEGACY = "kubernetes.io/legacy-unknown"
APISERVER_CLIENT = "kubernetes.io/kube-apiserver-client"
BOOTSTRAPPER = "system:bootstrap:abcdef"


def kinds(document: dict[str, Any], addresses: tuple[str, ...] | None = None) -> list[str]:
    return [found.permission for found in kubelet.candidates(kubelet.read(document), addresses)]


# What differs from a good request, and the check that sees it.
BAD = [
    pytest.param({"cn": "mike"}, "common name", id="CN mike"),
    pytest.param({"cn": "system:nodes:a"}, "common name", id="CN that only looks alike"),
    pytest.param({"cn": "system:serviceaccount:a:b"}, "common name", id="CN of a service account"),
    pytest.param({"cn": "system:node:"}, "common name", id="no name"),
    pytest.param({"cn": "system:node:a/b"}, "common name", id="a name that is a path"),
    pytest.param({"cn": "system:node:a\nrequester   admin"}, "common name", id="a name with lines"),
    pytest.param({"cn": "system:node:\x1b[2Ja"}, "common name", id="a name that steers a terminal"),
    pytest.param({"cn": "system:node:A"}, "common name", id="a name in capitals"),
    pytest.param({"cn": "system:node:" + "a" * 254}, "common name", id="a name too long"),
    pytest.param({"o": ()}, "organization", id="no organization"),
    pytest.param({"o": ("system:master",)}, "organization", id="organization system:master"),
    pytest.param({"o": ("system:masters",)}, "organization", id="organization system:masters"),
    pytest.param({"o": ("system:nodes", "system:masters")}, "organization", id="one organization more"),
    pytest.param({"others": (("2.5.4.11", "admins"),)}, "organization", id="an organizational unit"),
    pytest.param({"others": (("1.2.3.4", "x"),)}, "organization", id="an attribute that nobody knows"),
    pytest.param({"usages": (*CLIENT, "key encipherment", "server auth")}, "usages", id="extra server auth"),
    pytest.param({"usages": ("client auth",)}, "usages", id="no digital signature"),
    pytest.param({"usages": ("signing", "client auth")}, "usages", id="another word for digital signature"),
    pytest.param({"usages": ()}, "usages", id="no usages"),
    pytest.param({"sans": ("DNS:a",)}, "no alternative names", id="DNS name"),
    pytest.param({"sans": ("IP:192.0.2.1",)}, "no alternative names", id="address"),
    pytest.param({"sans": ("email:a@b.example",)}, "no alternative names", id="e-mail address"),
    pytest.param({"sans": ("URI:spiffe://a/b",)}, "no alternative names", id="URI"),
]
SIGNERS = [
    pytest.param(KUBELET_SERVING, "selfnodeserver", id="the serving signer"),
    pytest.param(LEGACY, None, id="the legacy signer"),
    pytest.param(APISERVER_CLIENT, None, id="the client signer"),
    pytest.param("example.com/own", None, id="a foreign signer"),
    pytest.param("", None, id="no signer"),
]


@pytest.mark.parametrize("usages", [CLIENT, (*CLIENT, "key encipherment")])
def test_good_for_both_recognisers(usages: tuple[str, ...]):
    found = kubelet.candidates(kubelet.read(csr(usages=usages)))[0]
    assert found.permission == "selfnodeclient"
    assert found.message == "Auto approving self kubelet client certificate after SubjectAccessReview."
    assert all(check.passed for check in found.checks)
    assert kinds(csr(usages=usages)) == ["selfnodeclient", "nodeclient"]


@pytest.mark.parametrize("user", [BOOTSTRAPPER, NODE])
@pytest.mark.parametrize(("change", "check"), BAD)
def test_node_client(change: dict[str, Any], check: str, user: str):
    facts = kubelet.read(csr(user=user, **change))
    assert kubelet.candidates(facts) == ()
    assert [made.name for made in kubelet.checks(facts, "nodeclient") if not made.passed] == [check]


def test_what_was_compared_is_shown():
    facts = kubelet.read(csr(o=("system:masters",), sans=("DNS:a.example", "IP:192.0.2.1"), signer=LEGACY))
    compared = {made.name: made.compared for made in kubelet.checks(facts, "nodeclient")}
    assert compared["signer"] == f"{LEGACY} is to be kubernetes.io/kube-apiserver-client-kubelet"
    assert compared["organization"] == "[system:masters] is to be [system:nodes]"
    assert compared["no alternative names"] == "it has [DNS:a.example, IP:192.0.2.1], and is to have none"
    bare = {made.name: made.compared for made in kubelet.checks(kubelet.read(csr(o=())), "nodeclient")}
    assert bare["organization"] == "none is to be [system:nodes]"
    assert bare["no alternative names"] == "it has none"


@pytest.mark.parametrize(("signer", "permission"), SIGNERS)
def test_other_signers(signer: str, permission: str | None):
    facts = kubelet.read(csr(signer=signer))
    assert kubelet.candidates(facts) == ()
    assert kubelet.widest_permission(signer) == permission
    assert not kubelet.checks(facts, "nodeclient")[0].passed


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param({"user": "joe"}, ["nodeclient"], id="requestor joe"),
        pytest.param({"cn": "system:node:b"}, ["nodeclient"], id="CN of another node"),
        pytest.param({"user": ""}, ["nodeclient"], id="no requestor"),
        pytest.param({"user": "system:node:A"}, ["nodeclient"], id="requestor in capitals"),
        pytest.param({"user": "mike", "cn": "mike"}, [], id="oneself, but no node"),
    ],
)
def test_a_renewal_is_sent_by_the_user_that_it_names(change: dict[str, Any], found: list[str]):
    assert kinds(csr(**change)) == found
    if found:
        first = kubelet.candidates(kubelet.read(csr(**change)))[0]
        assert first.message == "Auto approving kubelet client certificate after SubjectAccessReview."


ADDRESSES = ("a.example", "192.0.2.1", "2001:DB8:0::1", "*.example")
SERVING_CASES = [
    pytest.param({}, ["DNS:a.example"], "", id="a name"),
    pytest.param({}, ["DNS:A.Example", "IP:192.0.2.1", "IP:2001:db8::1"], "", id="all, written otherwise"),
    pytest.param({"usages": (*SERVING, "key encipherment")}, ["IP:192.0.2.1"], "", id="an RSA key"),
    pytest.param({}, [], "alternative names", id="no name"),
    pytest.param({}, ["DNS:b.example"], "node addresses", id="another's name"),
    pytest.param({}, ["DNS:a.example", "IP:192.0.2.2"], "node addresses", id="another's address beside"),
    pytest.param({}, ["DNS:*.example"], "node addresses", id="a wildcard, even if it is reported"),
    pytest.param({}, ["DNS:x.a.example"], "node addresses", id="a name below its own"),
    pytest.param({}, ["DNS:a.example", "email:a@a.example"], "alternative names", id="an e-mail address"),
    pytest.param({}, ["DNS:a.example", "URI:spiffe://a/b"], "alternative names", id="a SPIFFE id"),
    pytest.param({"user": "joe"}, ["DNS:a.example"], "requester", id="sent by someone else"),
    pytest.param({"user": BOOTSTRAPPER}, ["DNS:a.example"], "requester", id="sent with a token"),
    pytest.param({"cn": "system:node:b"}, ["DNS:a.example"], "requester", id="in another node's name"),
    pytest.param({"cn": "mike", "user": "mike"}, ["DNS:a.example"], "common name", id="by no node"),
    pytest.param({"o": ("system:masters",)}, ["DNS:a.example"], "organization", id="with another group"),
    pytest.param({"usages": CLIENT}, ["DNS:a.example"], "usages", id="for a client"),
    pytest.param({"usages": (*SERVING, "client auth")}, ["DNS:a.example"], "usages", id="for a client too"),
]


@pytest.mark.parametrize(("change", "sans", "check"), SERVING_CASES)
def test_a_serving_request_fails_at_the_one_check_that_it_breaks(change: dict[str, Any], sans: list[str], check: str):
    facts = kubelet.read(serving(*sans, **change))
    recognised = kubelet.candidates(facts, ADDRESSES)
    made = kubelet.checks(facts, "selfnodeserver", ADDRESSES)
    assert [found.name for found in made if not found.passed] == ([check] if check else [])
    message = "Auto approving self kubelet serving certificate after SubjectAccessReview."
    assert recognised == (() if check else (kubelet.Recognised("selfnodeserver", message, made),))


def test_the_longest_name_of_a_node():
    name = ".".join(["a" * 63] * 4)[:253]
    assert kinds(csr(cn=f"system:node:{name}")) == ["nodeclient"]
    made = kubelet.checks(kubelet.read(csr(cn=f"system:node:{name}a")), "nodeclient")
    why = "what follows system:node: is no name of a node: must be no more than 253 bytes"
    assert [found for found in made if not found.passed] == [kubelet.Check("common name", False, why)]


NEVER = [
    "IP:127.0.0.1",
    "IP:127.8.8.8",
    "IP:::1",
    "IP:::ffff:127.0.0.1",
    "IP:0.0.0.0",
    "IP:::",
    "IP:169.254.169.254",
    "IP:fe80::1",
    "IP:224.0.0.1",
    "IP:ff02::1",
    "DNS:127.0.0.1",
    "DNS:localhost",
    "DNS:LocalHost.",
    "DNS:a.localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.",
    "DNS:Kubernetes.Default.Svc.Cluster.Local",
    "DNS:webhook.team.svc",
    # What the caller says is another's.
    "IP:192.0.2.9",
    "IP:::ffff:192.0.2.9",
    "DNS:api.example",
    "DNS:API.example.",
]
RESERVED = frozenset({"192.0.2.9", "Api.example", ""})


@pytest.mark.parametrize("name", NEVER)
def test_never_a_nodes(name: str):
    # However much it is reported.
    addresses = (*ADDRESSES, name.partition(":")[2])
    facts = kubelet.read(serving("DNS:a.example", name))
    made = kubelet.checks(facts, "selfnodeserver", addresses, RESERVED)
    (failed,) = [found for found in made if not found.passed]
    assert failed.name == "reserved names"
    text = name.partition(":")[2] if name.startswith("DNS") else str(names.ip_address(name.partition(":")[2]))
    assert failed.compared.startswith(f"[{text}] is of every machine")
    assert kubelet.candidates(facts, addresses, RESERVED) == ()


def test_what_is_reserved_for_others_leaves_the_rest():
    facts = kubelet.read(serving("DNS:a.example", "IP:192.0.2.1"))
    (found,) = kubelet.candidates(facts, ADDRESSES, RESERVED)
    assert found.checks[-2] == kubelet.Check("reserved names", True, "none is known to be another's")


@pytest.mark.parametrize("addresses", [None, ()])
def test_serving_without_a_node(addresses: tuple[str, ...] | None):
    facts = kubelet.read(serving("DNS:a.example"))
    assert kubelet.candidates(facts, addresses) == ()
    made = kubelet.checks(facts, "selfnodeserver", addresses)
    assert [found.name for found in made if not found.passed] == ["node addresses"]


def test_facts_are_read_as_the_server_wrote_them_down():
    document = csr(uid="u", extra={"key": ["a", "b"], "odd": 1}, expirationSeconds=600)
    facts = kubelet.read(document)
    assert (facts.name, facts.uid, facts.username, facts.expiration_seconds) == ("csr-1", "u", NODE, 600)
    assert facts.groups == ("system:nodes", "system:authenticated")
    assert facts.extra == {"key": ("a", "b"), "odd": ()}
    assert facts.request.subject.organizations == NODES
    assert facts.node_name == "a"
    assert kubelet.read(csr(cn="mike")).node_name == ""


@pytest.mark.parametrize("value", [None, True, "600", 600.5])
def test_a_duration_that_is_no_number_is_none(value: Any):
    assert kubelet.read(csr(expirationSeconds=value)).expiration_seconds is None


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (None, "MalformedPEM"),
        ({}, "MalformedPEM"),
        (csr(request="%"), "MalformedRequest"),
        (csr(request=""), "MalformedPEM"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(document: dict[str, Any] | None, reason: str):
    with pytest.raises(errors.Refused) as caught:
        kubelet.read(document)
    assert caught.value.reason == reason


def test_permissions_of_signers():
    assert kubelet.permissions("kubernetes.io/kube-apiserver-client-kubelet") == ("selfnodeclient", "nodeclient")
    assert kubelet.permissions(KUBELET_SERVING) == ("selfnodeserver",)
    assert kubelet.permissions(LEGACY) == ()


def test_an_unknown_permission_is_a_bug():
    with pytest.raises(errors.Misuse, match="selfnodeclient, nodeclient, selfnodeserver"):
        kubelet.checks(kubelet.read(csr()), "nodeserver")
