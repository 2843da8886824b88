# SPDX-License-Identifier: Apache-2.0
"""Messages of policy by their field numbers, against octets that were written by hand."""

from __future__ import annotations

import pytest

from handfast.wire import policy_messages

VECTORS = {
    "PortSpec": (policy_messages.PortSpec(workload="a:b", port=80), "0a03613a621050"),
    "TrafficSpec": (policy_messages.TrafficSpec(source_workload="w", authority="x"), "0a01771a0178"),
    # A protocol that is detected within ten seconds, and a label.
    "Server": (
        policy_messages.Server(protocol={"detect": {"timeout": {"seconds": 10}}}, labels={"name": "x"}),
        "0a060a040a02080a22090a046e616d65120178",
    ),
    "Server, opaque": (policy_messages.Server(protocol={"opaque": {}}), "0a021200"),
    # Everybody, from every IPv4 address.
    "Authz": (
        policy_messages.Authz(
            networks=[{"net": {"ip": {"ipv4": 0}}}],
            authentication={"unauthenticated": {}},
            metadata={"default": "d"},
        ),
        "0a090a070a050d00000000" + "12020a00" + "22030a0164",
    ),
    # One name, one ending of two parts, and any name.
    "Authz, identities": (
        policy_messages.Authz(
            authentication={
                "meshTLS": {"identities": {"identities": [{"name": "n"}], "suffixes": [{"parts": ["a", "b"]}, {}]}}
            }
        ),
        "1213" + "1211" + "120f" + "0a030a016e" + "12060a01610a0162" + "1200",
    ),
    # GET has the number 0, and is written all the same.
    "HttpRoute": (
        policy_messages.HttpRoute(
            rules=[{"matches": [{"path": {"exact": "/x"}, "method": {"registered": policy_messages.GET}}]}]
        ),
        "220c0a0a0a040a022f7822020800",
    ),
    "OutboundPolicy": (
        policy_messages.OutboundPolicy(
            protocol={
                "opaque": {
                    "routes": [
                        {
                            "rules": [
                                {
                                    "backends": {
                                        "first_available": {
                                            "backends": [
                                                {"backend": {"balancer": {"discovery": {"dst": {"path": "p"}}}}}
                                            ]
                                        }
                                    }
                                }
                            ]
                        }
                    ]
                }
            }
        ),
        "0a17" + "1215" + "0a13" + "1a11" + "0a0f" + "120d" + "0a0b" + "0a09" + "1a07" + "0a05" + "0a03" + "0a0170",
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_a_message_is_written_as_the_numbers_say(case):
    message, octets = VECTORS[case]
    assert message.SerializeToString().hex() == octets
    assert type(message).FromString(bytes.fromhex(octets)) == message
