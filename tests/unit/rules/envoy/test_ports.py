# SPDX-License-Identifier: Apache-2.0
"""How the resources of a port are called."""

from handfast.rules.envoy import ports


def test_each_port_has_resources_of_its_own_and_all_of_them_together_too():
    assert _names(ports.Port(number=80, application=8080)) == [
        "inbound-80",
        "inbound-80",
        "inbound-plaintext-80",
        "application-80",
        "application-http1-80",
    ]
    assert _names(ports.EVERY) == ["inbound", "inbound", "inbound-plaintext", "application", "application-http1"]


def _names(port):
    return [port.listener, port.routes, port.plaintext_routes, port.cluster, port.http1_cluster]
