# SPDX-License-Identifier: Apache-2.0
"""The rules for Services, Endpoints and EndpointSlices."""

from __future__ import annotations

import pytest

from handfast.api.validation import validation
from tests.properties import sample_documents
from tests.properties.changed_documents import REMOVED, begin, changed, created, updated

EXTERNAL = {
    "spec|type": "ExternalName",
    "spec|clusterIP": "",
    "spec|clusterIPs": [],
    "spec|ipFamilyPolicy": REMOVED,
    "spec|externalName": "a.b",
}
SLICES = ("discovery.k8s.io", "endpointslices")


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"spec|ports": []}, ["spec.ports: Required value"]),
        ({"spec|ports": [], "spec|clusterIP": "None", "spec|clusterIPs": ["None"]}, []),
        ({"spec|ports|0|name": REMOVED}, ["spec.ports[0].name: Required value"]),
        ({"spec|ports|1|name": "http"}, ['spec.ports[1].name: Duplicate value: "http"']),
        ({"spec|ports|1|name": "H"}, ['spec.ports[1].name: Invalid value: "H": a lowercase RFC 1123 label']),
        ({"spec|ports|1|port": 80}, ['spec.ports[1]: Duplicate value: {"port":80,"protocol":"TCP"}']),
        ({"spec|ports|1|port": 0}, ["spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive"]),
        ({"spec|ports|1|port": REMOVED}, ["spec.ports[1].port: Invalid value: 0: must be between 1 and 65535"]),
        (
            {"spec|ports|1|protocol": "ICMP"},
            ['spec.ports[1].protocol: Unsupported value: "ICMP": supported values: "S'],
        ),
        ({"spec|ports|1|protocol": ""}, ["spec.ports[1].protocol: Required value"]),
        ({"spec|ports|1|targetPort": "Bad_"}, ['spec.ports[1].targetPort: Invalid value: "Bad_": must contain only']),
        ({"spec|ports|1|targetPort": 70000}, ["spec.ports[1].targetPort: Invalid value: 70000: must be between"]),
        ({"spec|ports|1|targetPort": REMOVED}, []),
        (
            {"spec|ports|1|nodePort": 30000},
            ["spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        ({"spec|selector": {"a": "x y"}}, ['spec.selector: Invalid value: "x y"']),
        (
            {"spec|type": "Other"},
            [
                'spec.type: Unsupported value: "Other": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "N'
            ],
        ),
        (
            {"spec|sessionAffinity": "Any"},
            ['spec.sessionAffinity: Unsupported value: "Any": supported values: "Client'],
        ),
        ({"spec|internalTrafficPolicy": "X"}, ['spec.internalTrafficPolicy: Unsupported value: "X"']),
        (
            {"spec|clusterIP": "x", "spec|clusterIPs": ["x"]},
            ['spec.clusterIPs[0]: Invalid value: "x": must be a valid'],
        ),
        ({"spec|clusterIP": "10.0.0.9"}, ['spec.clusterIPs: Invalid value: ["10.96.0.1"]: first value must match']),
        (
            {"spec|type": "NodePort", "spec|clusterIP": "None", "spec|clusterIPs": ["None"]},
            ["spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"],
        ),
        (
            {"spec|externalIPs": ["fe80::1%eth0"]},
            ['spec.externalIPs[0]: Invalid value: "fe80::1%eth0": must be a valid'],
        ),
        (
            {"spec|type": "ExternalName"},
            [
                "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                "spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
                "spec.externalName: Required value",
            ],
        ),
        ({**EXTERNAL, "spec|externalName": "db.example.com."}, []),
        (
            {"spec|clusterIP": ""},
            ['spec.clusterIPs: Invalid value: ["10.96.0.1"]: must be empty when `clusterIP` is not'],
        ),
        ({"spec|clusterIPs": ["10.96.0.1", "fd00::1"]}, []),
        (
            {"spec|clusterIPs": ["10.96.0.1", "10.96.0.2"]},
            ['spec.clusterIPs: Invalid value: ["10.96.0.1","10.96.0.2"]: may specify no more than one IP for each'],
        ),
        (
            {"spec|clusterIPs": ["10.96.0.1", "fd00::1", "x"]},
            [
                'spec.clusterIPs: Invalid value: ["10.96.0.1","fd00::1","x"]: may only hold up to 2 values',
                'spec.clusterIPs[2]: Invalid value: "x": must be a valid IP address',
            ],
        ),
        (
            {"spec|clusterIP": "None", "spec|clusterIPs": ["None", "10.96.0.1"]},
            ['spec.clusterIPs: Invalid value: ["None","10.96.0.1"]: \'None\' must be the first and only value'],
        ),
        ({"spec|type": "NodePort", "spec|ports|1|nodePort": 32767}, []),
        (
            {"spec|type": "NodePort", "spec|ports|1|nodePort": 80},
            [
                "spec.ports[1].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-3"
            ],
        ),
    ],
)
def test_a_wrong_service_has_kubernetes_causes(changes, causes):
    found = created("", "services", changes)
    assert begin(found, causes), found


def test_the_address_of_a_service_stays():
    other = {"spec|clusterIP": "10.0.0.9", "spec|clusterIPs": ["10.0.0.9"]}
    assert updated("", "services", other) == [
        'spec.clusterIPs[0]: Invalid value: ["10.0.0.9"]: may not change once set'
    ]
    assert updated("", "services", {"spec|clusterIP": REMOVED, "spec|clusterIPs": REMOVED}) == []
    assert updated("", "services", EXTERNAL) == []
    assert updated("", "services", {**other, "spec|type": "ClusterIP"}, before=EXTERNAL) == []
    assert updated("", "services", {"spec|clusterIP": "None", "spec|clusterIPs": ["None"]}) == [
        'spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set'
    ]


def test_a_service_that_was_made_without_an_address_gets_none_later():
    none = {"spec|clusterIP": REMOVED, "spec|clusterIPs": REMOVED}
    kind, document = sample_documents.kind("", "services"), changed("", "services", none)
    causes = validation.update(kind, changed("", "services", {}), document)
    assert [cause.message for cause in causes] == ['Invalid value: ["10.96.0.1"]: may not change once set']
    assert validation.update(kind, changed("", "services", none), document) == []


def test_a_second_address_comes_and_goes():
    two = {"spec|clusterIPs": ["10.96.0.1", "fd00::1"]}
    assert updated("", "services", two) == []
    dual = {**two, "spec|ipFamilyPolicy": "PreferDualStack"}
    one = {"spec|clusterIPs": ["10.96.0.1"]}
    assert updated("", "services", {**one, "spec|ipFamilyPolicy": "SingleStack"}, before=dual) == []
    assert updated("", "services", one, before=dual) == [
        "spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be set to 'SingleStack' when releasing the secondary clusterIP"
    ]
    assert updated("", "services", {"spec|clusterIPs": ["10.96.0.1", "fd00::2"]}, before=dual) == [
        'spec.clusterIPs[1]: Invalid value: ["10.96.0.1","fd00::2"]: may not change once set'
    ]


def test_a_node_port_outside_the_range_stays_where_it_was():
    before = {"spec|type": "NodePort", "spec|ports|1|nodePort": 80}
    assert updated("", "services", {}, before=before) == []
    found = updated("", "services", {"spec|ports|0|nodePort": 81}, before=before)
    assert begin(found, ["spec.ports[0].nodePort: Invalid value: 81: provided port is not in the valid range."])


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"subsets|0|addresses": []}, ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"]),
        ({"subsets|0|addresses": [{"ip": "127.0.0.1"}]}, []),
        (
            {"subsets|0|addresses": [{"ip": "a"}]},
            ['subsets[0].addresses[0].ip: Invalid value: "a": must be a valid IP'],
        ),
        (
            {"subsets|0|notReadyAddresses": [{"ip": "0.0.0.0"}]},
            ['subsets[0].notReadyAddresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)'],
        ),
        (
            {"subsets|0|addresses|0|ip": "169.254.1.1"},
            ['subsets[0].addresses[0].ip: Invalid value: "169.254.1.1": may'],
        ),
        (
            {"subsets|0|addresses|0|ip": "224.0.0.1"},
            ['subsets[0].addresses[0].ip: Invalid value: "224.0.0.1": may not'],
        ),
        ({"subsets|0|ports|0|port": 0}, ["subsets[0].ports[0].port: Invalid value: 0: must be between"]),
        (
            {"subsets|0|ports|1": {"port": 81, "protocol": "TCP"}},
            ["subsets[0].ports[0].name: Required value", "subsets[0].ports[1].name: Required value"],
        ),
    ],
)
def test_wrong_endpoints_have_kubernetes_causes(changes, causes):
    found = created("", "endpoints", changes)
    assert begin(found, causes), found


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"addressType": REMOVED}, ["addressType: Required value"]),
        ({"addressType": "IP"}, ['addressType: Unsupported value: "IP": supported values: "FQDN", "IPv4", "IPv6"']),
        (
            {"addressType": "IPv6"},
            [
                'endpoints[0].addresses[0]: Invalid value: "10.0.0.7": must be an IPv6 address',
                'endpoints[1].addresses[0]: Invalid value: "127.0.0.1": must be an IPv6 address',
            ],
        ),
        (
            {"addressType": "FQDN", "endpoints|0|addresses": ["a_b"]},
            ['endpoints[0].addresses[0]: Invalid value: "a_b"'],
        ),
        ({"endpoints|0|addresses": []}, ["endpoints[0].addresses: Required value: must contain at least 1 address"]),
        (
            {"endpoints|0|addresses": ["10.0.0.1"] * 101},
            ["endpoints[0].addresses: Too many: 101: must have at most 100 items"],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"]}] * 1001},
            ["endpoints: Too many: 1001: must have at most 1000 items"],
        ),
        ({"ports|1|name": "http"}, ['ports[1].name: Duplicate value: "http"']),
        ({"ports|1|protocol": "X"}, ['ports[1].protocol: Unsupported value: "X"']),
        ({"ports|0|port": 65536}, ["ports[0].port: Invalid value: 65536: must be between"]),
        (
            {"ports": [{"name": f"p{index}", "protocol": "TCP"} for index in range(101)]},
            ["ports: Too many: 101: must have at most 100 items"],
        ),
    ],
)
def test_a_wrong_endpointslice_has_kubernetes_causes(changes, causes):
    found = created(*SLICES, changes)
    assert begin(found, causes), found


def test_the_type_of_a_slice_stays():
    changes = {"addressType": "IPv6", "endpoints": []}
    assert updated(*SLICES, changes) == ['addressType: Invalid value: "IPv6": field is immutable']
