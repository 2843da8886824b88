# SPDX-License-Identifier: Apache-2.0
"""The rules for Ingresses, their classes NetworkPolicies, and ranges and addresses of Services."""

from __future__ import annotations

import pytest

from tests.properties.changed_documents import REMOVED, begin, created, updated

INGRESS = ("networking.k8s.io", "ingresses")
CLASS = ("networking.k8s.io", "ingressclasses")
RANGE, ADDRESS = ("networking.k8s.io", "servicecidrs"), ("networking.k8s.io", "ipaddresses")
POLICY = ("networking.k8s.io", "networkpolicies")
PATH = "spec|rules|0|http|paths|0"
SHOWN = "spec.rules[0].http.paths[0]"
PORT = "spec|ingress|0|ports|0"
PORT_SHOWN = "spec.ingress[0].ports[0]"
PEER = "spec|ingress|0|from|0"
PEER_SHOWN = "spec.ingress[0].from[0]"


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({"spec|rules": []}, ["spec: Invalid value: []: either `defaultBackend` or `rules` must be specified"]),
        (
            {"spec|rules": [], "spec|defaultBackend": {"service": {"name": "a", "port": {"name": "http"}}}},
            [],
        ),
        ({"spec|defaultBackend": {}}, ['spec.defaultBackend: Invalid value: "": resource or service backend is requ']),
        ({"spec|rules|0|host": REMOVED}, []),
        (
            {"spec|rules|0|host": "10.0.0.1"},
            ['spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'],
        ),
        ({"spec|rules|0|host": "*.example.com"}, []),
        (
            {"spec|rules|0|host": "a.*.com"},
            ['spec.rules[0].host: Invalid value: "a.*.com": a wildcard DNS-1123 subdom'],
        ),
        ({"spec|rules|0|host": "A"}, ['spec.rules[0].host: Invalid value: "A": a lowercase RFC 1123 subdomain']),
        ({"spec|rules|0|http": REMOVED}, []),
        ({"spec|rules|0|http": {"paths": []}}, ["spec.rules[0].http.paths: Required value"]),
        ({f"{PATH}|pathType": REMOVED}, [f"{SHOWN}.pathType: Required value: pathType must be specified"]),
        (
            {f"{PATH}|pathType": "X"},
            [
                f'{SHOWN}.pathType: Unsupported value: "X": supported values: "Exact", "ImplementationSpecific", "Prefix"'
            ],
        ),
        ({f"{PATH}|path": "a"}, [f'{SHOWN}.path: Invalid value: "a": must be an absolute path']),
        ({f"{PATH}|path": "/a//b"}, [f"{SHOWN}.path: Invalid value: \"/a//b\": must not contain '//'"]),
        ({f"{PATH}|path": "/a/.."}, [f"{SHOWN}.path: Invalid value: \"/a/..\": cannot end with '/..'"]),
        ({f"{PATH}|pathType": "ImplementationSpecific", f"{PATH}|path": ""}, []),
        (
            {f"{PATH}|pathType": "ImplementationSpecific", f"{PATH}|path": "a"},
            [f'{SHOWN}.path: Invalid value: "a": must be an absolute path'],
        ),
        (
            {f"{PATH}|backend|resource": {"kind": "A", "name": "b"}},
            [f'{SHOWN}.backend: Invalid value: "": cannot set both resource and service backends'],
        ),
        ({f"{PATH}|backend": {"resource": {"kind": "A", "name": "b"}}}, []),
        (
            {f"{PATH}|backend": {"resource": {"apiGroup": "A", "name": "/"}}},
            [
                f'{SHOWN}.backend.resource.apiGroup: Invalid value: "A"',
                f"{SHOWN}.backend.resource.kind: Required value",
                f"{SHOWN}.backend.resource.name: Invalid value: \"/\": may not contain '/'",
            ],
        ),
        ({f"{PATH}|backend|service|name": ""}, [f"{SHOWN}.backend.service.name: Required value"]),
        (
            {f"{PATH}|backend|service|port": {}},
            [f"{SHOWN}.backend: Required value: port name or number is required"],
        ),
        (
            {f"{PATH}|backend|service|port": {"name": "a", "number": 1}},
            [f'{SHOWN}.backend: Invalid value: "": cannot set both port name & port number'],
        ),
        (
            {f"{PATH}|backend|service|port": {"name": "aA"}},
            [f'{SHOWN}.backend.service.port.name: Invalid value: "aA"'],
        ),
        (
            {f"{PATH}|backend|service|port": {"number": 70000}},
            [f"{SHOWN}.backend.service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive"],
        ),
        ({"spec|tls|0|hosts": ["A"]}, ['spec.tls[0].hosts[0]: Invalid value: "A"']),
        ({"spec|tls|0|secretName": "A"}, ['spec.tls[0].secretName: Invalid value: "A"']),
        ({"spec|ingressClassName": "A"}, ['spec.ingressClassName: Invalid value: "A"']),
        (
            {"metadata|annotations": {"kubernetes.io/ingress.class": "b"}},
            [
                'annotations.kubernetes.io/ingress.class: Invalid value: "b": must match `ingressClassName` when both are',
            ],
        ),
    ],
)
def test_what_an_ingress_has_to_be_like(changes, causes):
    assert begin(created(*INGRESS, changes), causes), created(*INGRESS, changes)


def test_the_class_of_an_old_ingress_may_differ_from_its_annotation():
    assert not updated(*INGRESS, {"metadata|annotations": {"kubernetes.io/ingress.class": "b"}})


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        ({"spec|parameters": REMOVED}, []),
        ({"spec|controller": ""}, ["spec.controller: Required value"]),
        ({"spec|controller": "a"}, ['spec.controller: Invalid value: "a": must be a domain-prefixed path']),
        ({"spec|controller": "A/b"}, ['spec.controller: Invalid value: "A": a lowercase RFC 1123 subdomain']),
        ({"spec|controller": "a/" + "b" * 250}, ["spec.controller: Too long: must have at most 250 bytes"]),
        ({"spec|parameters|scope": "X"}, ['spec.parameters.scope: Unsupported value: "X"']),
        (
            {"spec|parameters|scope": "Namespace"},
            ["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
        ),
        ({"spec|parameters|scope": "Namespace", "spec|parameters|namespace": "a"}, []),
        (
            {"spec|parameters|namespace": "a"},
            ["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
        ),
    ],
)
def test_ingress_classes(changes, causes):
    assert begin(created(*CLASS, changes), causes), created(*CLASS, changes)


def test_the_controller_of_a_class_stays():
    assert updated(*CLASS, {"spec|controller": "example.com/other"}) == [
        'spec.controller: Invalid value: "example.com/other": field is immutable'
    ]


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, []),
        (
            {"spec|podSelector": {"matchLabels": {"a b": "c"}}},
            ['spec.podSelector.matchLabels: Invalid value: "a b"'],
        ),
        ({f"{PORT}|protocol": "X"}, [f'{PORT_SHOWN}.protocol: Unsupported value: "X": supported values: "TCP"']),
        (
            {f"{PORT}|port": REMOVED},
            [f"{PORT_SHOWN}.endPort: Invalid value: 90: may not be specified when `port` is not specified"],
        ),
        ({f"{PORT}|port": REMOVED, f"{PORT}|endPort": REMOVED}, []),
        (
            {f"{PORT}|port": "http"},
            [f"{PORT_SHOWN}.endPort: Invalid value: 90: may not be specified when `port` is non-numeric"],
        ),
        ({f"{PORT}|port": "aA", f"{PORT}|endPort": REMOVED}, [f'{PORT_SHOWN}.port: Invalid value: "aA"']),
        (
            {f"{PORT}|port": 95},
            [f"{PORT_SHOWN}.endPort: Invalid value: 95: must be greater than or equal to `port`"],
        ),
        ({f"{PORT}|port": 0, f"{PORT}|endPort": REMOVED}, [f"{PORT_SHOWN}.port: Invalid value: 0: must be between 1"]),
        ({f"{PORT}|endPort": 70000}, [f"{PORT_SHOWN}.endPort: Invalid value: 70000: must be between 1"]),
        ({PEER: {}}, [f"{PEER_SHOWN}: Required value: must specify a peer"]),
        (
            {f"{PEER}|podSelector": {}},
            [f"{PEER_SHOWN}: Forbidden: may not specify both ipBlock and another peer"],
        ),
        ({f"{PEER}|ipBlock": {}}, [f"{PEER_SHOWN}.ipBlock.cidr: Required value"]),
        ({f"{PEER}|ipBlock|cidr": "x"}, [f'{PEER_SHOWN}.ipBlock.cidr: Invalid value: "x": must be a valid CIDR']),
        ({f"{PEER}|ipBlock|except": ["x"]}, [f'{PEER_SHOWN}.ipBlock.except[0]: Invalid value: "x": must be a valid']),
        *(
            (
                {f"{PEER}|ipBlock|except": [other]},
                [f'{PEER_SHOWN}.ipBlock.except[0]: Invalid value: "{other}": must be a strict subset of `cidr`'],
            )
            for other in ("10.0.0.0/8", "11.0.0.0/16", "2001:db8::/64")
        ),
        (
            {"spec|policyTypes": ["Ingress", "Egress", "X"]},
            ['spec.policyTypes: Invalid value: ["Ingress","Egress","X"]: may not specify more than two policyTypes'],
        ),
        ({"spec|policyTypes": ["X"]}, ['spec.policyTypes[0]: Unsupported value: "X": supported values: "Ingress", "']),
    ],
)
def test_network_policies(changes, causes):
    assert begin(created(*POLICY, changes), causes), created(*POLICY, changes)


@pytest.mark.parametrize(
    ("resource", "changes", "causes"),
    [
        (RANGE, {}, []),
        (RANGE, {"spec|cidrs": []}, ["spec.cidrs: Required value: at least one CIDR required"]),
        (RANGE, {"spec|cidrs": ["10.0.0.0/8"] * 3}, ["spec.cidrs: Invalid value: "]),
        (RANGE, {"spec|cidrs": ["10.0.0.0"]}, ['spec.cidrs[0]: Invalid value: "10.0.0.0": must be a valid CIDR value']),
        (RANGE, {"spec|cidrs": ["10.0.0.0/8", "10.1.0.0/16"]}, ["spec.cidrs: Invalid value: "]),
        (ADDRESS, {}, []),
        (ADDRESS, {"metadata|name": "web"}, ['metadata.name: Invalid value: "web": must be a valid IP address']),
        (ADDRESS, {"metadata|name": "::0"}, ['metadata.name: Invalid value: "::0": must be in canonical form ("::")']),
        (ADDRESS, {"metadata|name": "fe80::42:1dff:fe84:f9e2"}, []),
        (ADDRESS, {"spec|parentRef": REMOVED}, ["spec.parentRef: Required value"]),
        (ADDRESS, {"spec|parentRef|resource": REMOVED}, ["spec.parentRef.resource: Required value"]),
        (ADDRESS, {"spec|parentRef|name": "a/b"}, ['spec.parentRef.name: Invalid value: "a/b"']),
        (ADDRESS, {"spec|parentRef|namespace": ".."}, ['spec.parentRef.namespace: Invalid value: ".."']),
        (ADDRESS, {"spec|parentRef|group": "X"}, ['spec.parentRef.group: Invalid value: "X"']),
    ],
)
def test_ranges_and_addresses(resource, changes, causes):
    group, plural = resource
    assert begin(created(group, plural, changes), causes)


def test_a_range_may_get_a_second_family_and_an_address_stays_with_its_parent():
    both = {"spec|cidrs": ["192.0.2.0/24", "2001:db8::/64"]}
    assert updated(*RANGE, both, before={"spec|cidrs": ["192.0.2.0/24"]}) == []
    changed = updated(*RANGE, both, before={"spec|cidrs": ["198.51.100.0/24"]})
    assert begin(changed, ["spec.cidrs: Invalid value: "])
    moved = updated(*ADDRESS, {"spec|parentRef": {"resource": "services", "name": "other"}})
    assert begin(moved, ["spec.parentRef: Invalid value: "])
