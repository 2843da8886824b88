# SPDX-License-Identifier: Apache-2.0
"""Serving certificates by inventory: the cases of the real machine-approver by their names, made right, and the attackers.

The real cases use 127.0.0.1 as a machine's address, which no node is given here: 192.0.2.1 stands for it.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from handfast import errors
from handfast.pki import authority, bundles, keys, names, profiles
from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, inventory, linking, serving
from tests.unit.rules import csr_cases
from tests.unit.rules.csr_cases import HOUR, NOW, SERVING

NODE = "system:node:test"
GROUPS = ["system:nodes", "system:authenticated"]
GOOD = ("IP:192.0.2.1", "IP:10.0.0.1", "DNS:node1", "DNS:node1.local")
ADDRESSES = (
    ("InternalIP", "192.0.2.1"),
    ("ExternalIP", "10.0.0.1"),
    ("InternalDNS", "node1.local"),
    ("ExternalDNS", "node1"),
)
ALL = (*SERVING, "key encipherment")
EXTRA = "99.0.1.1"
PLACE = serving.Place(names.ip_address("192.0.2.1"), 10250)
ROOTS = bundles.TrustBundle.of([csr_cases.ROOT.certificate.der])


def machine(*rows: tuple[str, str], name: str = "m1", node: str = "test") -> inventory.Machine:
    addresses = tuple(inventory.Address(*row) for row in rows)
    return inventory.Machine(
        group=inventory.OPENSHIFT, namespace="fleet", name=name, uid=name, addresses=addresses, node=node
    )


M = machine(*ADDRESSES)


def facts(*sans: str, **rest: Any) -> kubelet.Facts:
    chosen = {"cn": NODE, "user": NODE, "groups": GROUPS, "usages": ALL, **rest}
    return kubelet.read(csr_cases.serving(*(sans or GOOD), **chosen))


def failed(checks: tuple[kubelet.Check, ...]) -> str:
    return next((check.name for check in checks if not check.passed), "")


def reason(checks: tuple[kubelet.Check, ...]) -> str:
    step = serving.verdict(facts(), checks).failed
    return "" if step is None else step.reason


def judged(
    asked_for: kubelet.Facts, *linked: inventory.Machine, egress: tuple[str, ...] = ()
) -> tuple[kubelet.Check, ...]:
    return (*serving.content(asked_for), *serving.by_machine(asked_for, linked, (), egress))


CONTENT = [
    pytest.param({}, "", id="ok"),
    pytest.param({"usages": SERVING}, "", id="ok with ECDSA"),
    pytest.param({"user": "test"}, kubelet.REQUESTER, id="no-node-prefix"),
    pytest.param({"user": "system:node:"}, kubelet.REQUESTER, id="only-node-prefix"),
    pytest.param({"groups": ["system:nodes"]}, serving.GROUPS, id="missing-groups-1"),
    pytest.param({"groups": ["system:authenticated"]}, serving.GROUPS, id="missing-groups-2"),
    pytest.param({"groups": [*GROUPS, "foo-bar"]}, "", id="extra-group"),
    pytest.param({"groups": ["system:authenticated", "system:foo-bar"]}, serving.GROUPS, id="wrong-group"),
    pytest.param({"usages": ()}, kubelet.USAGES, id="usages-missing (1st)"),
    pytest.param({"usages": ("digital signature", "client auth")}, kubelet.USAGES, id="usages-missing (2nd)"),
    pytest.param({"usages": ("key encipherment", "server auth")}, kubelet.USAGES, id="usages-missing-1"),
    pytest.param({"usages": ("digital signature", "key encipherment")}, kubelet.USAGES, id="usage-missing-2"),
    pytest.param({"usages": (*ALL, "signing")}, kubelet.USAGES, id="usage-extra"),
    pytest.param({"usages": (*SERVING, "client auth")}, kubelet.USAGES, id="a foreign third usage"),
    pytest.param({"cn": "system:node:foobar"}, kubelet.REQUESTER, id="csr-cn"),
    pytest.param({"cn": "test"}, kubelet.COMMON_NAME, id="csr-cn-2"),
    pytest.param({"o": ()}, kubelet.ORGANIZATION, id="csr-no-o"),
    pytest.param({"o": ("system:nodes", "bamboo")}, kubelet.ORGANIZATION, id="csr extra O"),
    pytest.param({"sans": (*GOOD, "email:a@b.example")}, kubelet.HAS_SANS, id="an e-mail address"),
    pytest.param({"sans": (*GOOD, "URI:spiffe://a/b")}, kubelet.HAS_SANS, id="a URI"),
    pytest.param(
        {"user": user_names.service_account_user("openshift-machine-config-operator", "node-bootstrapper")},
        kubelet.REQUESTER,
        id="a bootstrap identity",
    ),
]


@pytest.mark.parametrize(("change", "check"), CONTENT)
def test_authorize_csr(change: dict[str, Any], check: str):
    checks = judged(facts(*change.get("sans", ()), **{key: value for key, value in change.items() if key != "sans"}), M)
    assert failed(checks) == check
    assert reason(checks) == (approval.MALFORMED if check else "")


def but(**types: str) -> inventory.Machine:
    """The good Machine, with other addresses of these types."""
    return machine(*((kind, types.get(kind, address)) for kind, address in ADDRESSES))


MACHINE = [
    pytest.param(GOOD, M, "", id="populated and matching"),
    pytest.param((*GOOD, f"IP:{EXTRA}"), M, serving.WITHIN, id="csr-extra-addr"),
    pytest.param(GOOD, but(ExternalIP="10.0.0.2"), serving.WITHIN, id="csr-san-ip-mismatch"),
    pytest.param(GOOD, but(ExternalDNS="node2"), serving.WITHIN, id="csr-san-dns-mismatch"),
    pytest.param(
        ("IP:192.0.2.1", "DNS:node1.local"), but(ExternalDNS="node1.local."), "", id="csr-san-dns-trailing-period"
    ),
    pytest.param(("DNS:NODE1.local",), M, "", id="upper case"),
    pytest.param(("DNS:node1.local.",), M, "", id="a trailing dot of the request's own"),
    pytest.param(("DNS:h",), machine(("Hostname", "h")), "", id="a Hostname"),
    pytest.param(("IP:fd00::1",), machine(("InternalIP", "fd00:0:0:0::1")), "", id="another form of an IPv6 address"),
    pytest.param(("DNS:node1",), machine(("InternalIP", "node1")), serving.WITHIN, id="a name among the addresses"),
    pytest.param(("DNS:*.local",), machine(("InternalDNS", "*.local")), serving.WITHIN, id="a wildcard"),
    pytest.param(GOOD, machine(), serving.KNOWN, id="addresses empty"),
]


@pytest.mark.parametrize(("sans", "linked", "check"), MACHINE)
def test_a_linked_machine_alone_says_what_a_node_may_serve_as(
    sans: tuple[str, ...], linked: inventory.Machine, check: str
):
    assert failed(judged(facts(*sans), linked)) == check


def test_a_mismatch_names_what_differs_and_what_is_allowed():
    checks = judged(facts("DNS:node9", f"IP:{EXTRA}", "IP:192.0.2.1"), M, egress=("99.0.1.2",))
    assert reason(checks) == serving.NOT_ITS_ADDRESS
    assert checks[-1].compared == (
        "the DNS names [node9] are not among the names [node1.local, node1] of Machine fleet/m1; [99.0.1.1] is not among "
        "the addresses [192.0.2.1, 10.0.0.1] of Machine fleet/m1 or the Node's egress IPs [99.0.1.2]"
    )


def test_a_machine_without_addresses_is_waited_for():
    assert reason(judged(facts(), machine())) == serving.NO_ADDRESSES


def egress(*items: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"items": [{"node": node, "egressIP": address} for node, address in items]}}


@pytest.mark.parametrize(
    ("documents", "check"),
    [
        pytest.param([], serving.WITHIN, id="CSR extra address not in egress IPs"),
        pytest.param([egress(("test", EXTRA))], "", id="CSR extra address in egress IPs"),
        pytest.param([egress(("test", "99.0.1.0/24"))], serving.WITHIN, id="CSR extra address in egress CIDRs"),
        pytest.param([egress(("other", EXTRA))], serving.WITHIN, id="an egress IP of another node"),
        pytest.param([egress(), egress(("test", EXTRA))], "", id="additional egress IP"),
        pytest.param([{"spec": {"egressIPs": [EXTRA]}}], serving.WITHIN, id="an egress IP that is not assigned"),
    ],
)
def test_egress_addresses_of_the_node_count(documents: list[dict[str, Any]], check: str):
    assigned = serving.of_egress(documents, "test")
    assert failed(judged(facts(*GOOD, f"IP:{EXTRA}"), M, egress=assigned)) == check


@pytest.mark.parametrize("san", ["DNS:localhost", "DNS:kubernetes.default.svc", "IP:127.0.0.1", "IP:169.254.169.254"])
def test_names_of_everybody_are_nobodys(san: str):
    kind, _, text = san.partition(":")
    loose = machine(("InternalDNS" if kind == "DNS" else "InternalIP", text))
    checks = judged(facts(san), loose)
    assert (failed(checks), reason(checks)) == (kubelet.RESERVED, "ReservedName")


def test_two_machines_that_are_linked_to_one_node_are_none_and_both_are_named():
    checks = judged(facts(), M, machine(*ADDRESSES, name="m2"))
    assert reason(checks) == linking.AMBIGUOUS_LINK
    assert "fleet/m1, Machine fleet/m2" in checks[-1].compared
    assert "no Machine is linked" in serving.by_machine(facts(), (), ())[-1].compared


def test_a_link_to_another_machine_than_the_one_of_that_name_counts_for_nothing():
    victim = machine(("InternalDNS", "node1"), name="m2", node="test")
    own = machine(("InternalDNS", "test"), name="m1", node="")
    checks = serving.by_machine(facts("DNS:node1"), [victim], [own])
    assert reason(checks) == linking.AMBIGUOUS_LINK
    assert "Machine fleet/m2 is linked" in checks[0].compared
    assert reason(serving.by_machine(facts("DNS:node1"), [victim], [victim])) == ""


# --- what the kubelet serves now


def presented(
    cn: str = NODE,
    sans: tuple[str, ...] = GOOD,
    *,
    ca: authority.Authority = csr_cases.ROOT,
    at: datetime.datetime = NOW,
    place: serving.Place = PLACE,
) -> serving.Presented:
    subject = names.Subject(common_name=cn, organizations=("system:nodes",))
    key = keys.generate()
    leaf = ca.issue(key.public, subject, names.Sans.parse(sans), profiles.KUBELET_SERVING, NOW, HOUR)
    return serving.verified(place, [leaf.der], ROOTS, at)


RENEWAL = [
    pytest.param({}, {}, "", id="all good"),
    pytest.param({}, {"sans": tuple(reversed(GOOD))}, "", id="other order"),
    pytest.param({}, {"at": NOW - 24 * HOUR}, serving.SERVED, id="reject expired"),
    pytest.param({}, {"at": NOW + 24 * HOUR}, serving.SERVED, id="expired since"),
    pytest.param({}, {"sans": GOOD[:-1]}, serving.SAME, id="SAN list differs"),
    pytest.param({"sans": GOOD[:-1]}, {}, serving.SAME, id="fewer than are served"),
    pytest.param({"sans": (*GOOD, f"IP:{EXTRA}")}, {}, serving.SAME, id="additional unknown IP"),
    pytest.param({}, {"sans": (*GOOD, "URI:spiffe://a/b")}, serving.SAME, id="a URI that is served"),
    pytest.param(
        {},
        {"ca": authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW)},
        serving.SERVED,
        id="No certificate match",
    ),
    pytest.param(
        {"cn": "system:node:foobar", "user": "system:node:foobar"}, {}, serving.SERVED, id="Request from different node"
    ),
    pytest.param({}, {"cn": "system:node:panda"}, serving.SERVED, id="Unexpected CN"),
    pytest.param({}, {"cn": "test.local"}, serving.SERVED, id="successfull fallback … from incorrect server cert"),
    pytest.param(
        {}, {"place": serving.Place(names.ip_address("192.0.2.77"), 1)}, serving.SERVED, id="a certificate of elsewhere"
    ),
]


@pytest.mark.parametrize(("request_change", "kubelet_change", "check"), RENEWAL)
def test_serving_renewal(request_change: dict[str, Any], kubelet_change: dict[str, Any], check: str):
    changes = {"sans": GOOD, **request_change}
    asked_for = facts(*changes.pop("sans"), **changes)
    checks = (*serving.content(asked_for), *serving.by_kubelet(asked_for, presented(**kubelet_change)))
    assert failed(checks) == check


def test_a_repeated_name_counts_as_often_as_it_is_there():
    one = serving.Served("p", user_names.node_subject("test"), names.Sans(dns=("a", "a")))
    other = serving.Served("p", user_names.node_subject("test"), names.Sans(dns=("b", "a")))
    wanted = facts("DNS:a", "DNS:b")
    assert reason(serving.by_kubelet(wanted, one)) == serving.NOT_AS_SERVED
    assert reason(serving.by_kubelet(wanted, other)) == ""


def test_what_is_new_and_what_is_missing_is_said():
    checks = serving.by_kubelet(facts("DNS:node1", f"IP:{EXTRA}"), presented(sans=("IP:192.0.2.1", "DNS:node1")))
    assert checks[-1].compared.endswith("new: [IP:99.0.1.1]; missing: [IP:192.0.2.1]")


def test_an_unreachable_kubelet_is_told_with_the_machine_that_is_not_linked_yet():
    own = machine(("InternalDNS", "test"), node="")
    checks = serving.by_kubelet(facts(), serving.NotServed("nobody answers"), [own])
    assert reason(checks) == serving.NOT_SERVED
    assert checks[0].compared == (
        "no Machine is linked to the Node, and nobody answers; Machine fleet/m1 has this name and is not linked to the Node"
    )


def node(*rows: tuple[str, str], port: Any = 10250) -> dict[str, Any]:
    addresses = [{"type": kind, "address": address} for kind, address in rows]
    return {"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}


@pytest.mark.parametrize(
    ("there", "place"),
    [
        pytest.param(node(("Hostname", "a"), ("InternalIP", "192.0.2.1")), "192.0.2.1:10250", id="IPv4"),
        pytest.param(node(("InternalIP", "fd00::1"), ("InternalIP", "192.0.2.1")), "[fd00::1]:10250", id="IPv6"),
        pytest.param(node(), "no internal addresses", id="none"),
        pytest.param(node(("Hostname", "a")), "no internal addresses", id="only Hostname"),
        pytest.param(node(("InternalIP", "here")), "'here' is not an IP address", id="no address"),
        pytest.param(node(("InternalIP", "192.0.2.1"), port=0), "on which port", id="no port"),
        pytest.param(node(("InternalIP", "192.0.2.1"), port=65536), "on which port", id="a port too high"),
        pytest.param(node(("InternalIP", "127.0.0.1")), "of every machine", id="loopback"),
        pytest.param(node(("InternalIP", "::ffff:127.0.0.1")), "of every machine", id="loopback in IPv6"),
        pytest.param(node(("InternalIP", "169.254.169.254")), "of every machine", id="a metadata service"),
        pytest.param(node(("InternalIP", "::")), "of every machine", id="unspecified"),
        pytest.param(node(("InternalIP", "224.0.0.1")), "of every machine", id="multicast"),
    ],
)
def test_where_a_kubelet_is(there: dict[str, Any], place: str):
    if place.endswith(":10250"):
        assert str(serving.place_of(there)) == place
        return
    with pytest.raises(errors.Refused, match=place):
        serving.place_of(there)


def test_every_failed_check_says_what_turns_it():
    waiting = serving.verdict(facts(), judged(facts(), machine()), M)
    assert waiting.machine is M
    assert waiting.failed is not None
    assert waiting.failed.waits_for == {approval.MACHINE}
    assert waiting.change == "wait until the Machine has addresses, and see whether its provider reports them"
    final = serving.verdict(facts(), judged(facts("URI:a:b", user="mike"), M))
    assert final.failed is not None
    assert final.failed.waits_for == approval.NOTHING
    away = serving.verdict(facts(), serving.by_kubelet(facts(), serving.NotServed("nobody answers")))
    assert away.change.endswith("or approve it by hand: handfast csr approve csr-1")
    # Whatever is checked, by the Machine or by the kubelet.
    for check in (*judged(facts(), M), *serving.by_kubelet(facts(), presented())):
        assert check.passed
        verdict = serving.verdict(facts(), [dataclasses.replace(check, passed=False)])
        assert verdict.change
        assert verdict.failed is not None
        # What is wrong with the request alone is put right by another request, and by nothing that could be waited for.
        by_another = verdict.change.startswith(("create a new request", "send the request"))
        assert by_another is (verdict.failed.waits_for == approval.NOTHING), check.name
