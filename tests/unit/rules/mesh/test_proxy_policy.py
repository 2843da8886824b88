# SPDX-License-Identifier: Apache-2.0
"""What a proxy's variables say of policy."""

import pytest

from handfast.rules.mesh import proxy_environment, proxy_policy

POD = {"K8S_NS": "shop", "K8S_POD": "web-1"}


def test_without_variables_everybody_may_call_and_nobody_is_asked():
    assert proxy_policy.read({}) == proxy_policy.ProxyPolicy(default="all-unauthenticated")


def test_an_injected_pod_is_known_by_its_variables():
    workload = '{"ns": "shop", "pod": "web-1"}'
    variables = {
        **POD,
        proxy_policy.WORKLOAD: workload,
        proxy_policy.DEFAULT: "deny",
        proxy_policy.PORTS: "8080, 80,8080",
    }
    assert proxy_policy.read(variables) == proxy_policy.ProxyPolicy(
        default="deny", workload=workload, pod=("shop", "web-1"), ports=(80, 8080)
    )


@pytest.mark.parametrize("variables", [POD, {proxy_policy.WORKLOAD: "shop:web-1"}])
def test_either_says_which_pod_it_is(variables):
    read = proxy_policy.read(variables)
    assert read.pod == ("shop", "web-1")
    assert read.workload


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({proxy_policy.DEFAULT: "cluster-authenticated"}, "BadDefaultPolicy"),
        ({proxy_policy.DEFAULT: ""}, "BadDefaultPolicy"),
        ({proxy_policy.WORKLOAD: "nonsense"}, "InvalidWorkload"),
        ({"K8S_NS": "a b", "K8S_POD": "x"}, "InvalidWorkload"),
        ({proxy_policy.PORTS: "http"}, "BadInboundPorts"),
        ({proxy_policy.PORTS: "0"}, "BadInboundPorts"),
        ({proxy_policy.PORTS: "70000"}, "BadInboundPorts"),
        ({proxy_policy.PORTS: "²"}, "BadInboundPorts"),
    ],
)
def test_what_cannot_be_read_is_refused(variables, reason):
    with pytest.raises(proxy_environment.Invalid) as refused:
        proxy_policy.read(variables)
    assert refused.value.reason == reason


def test_a_pod_that_is_half_known_is_not_known():
    assert proxy_policy.read({"K8S_NS": "shop"}).pod == ("", "")
