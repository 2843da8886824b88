# SPDX-License-Identifier: Apache-2.0
"""Where a proxy listens."""

import pytest

from handfast.rules.mesh import proxy_environment, proxy_listening

P = "LINKERD2_PROXY_"


def test_the_variables_say_where_it_listens():
    listening = proxy_listening.read(
        {
            f"{P}INBOUND_LISTEN_ADDR": "0.0.0.0:4143",
            f"{P}OUTBOUND_LISTEN_ADDR": "127.0.0.1:4140",
            f"{P}ADMIN_LISTEN_ADDR": "[::]:4191",
            f"{P}INBOUND_IPS": "10.0.0.7,fd00::7",
            f"{P}INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION": "25,8000-8010",
            f"{P}IDENTITY_HEADERS": "enabled",
        }
    )
    assert (listening.inbound, listening.outbound, listening.admin) == ("0.0.0.0:4143", "127.0.0.1:4140", "[::]:4191")
    assert listening.identity_headers
    assert listening.require_pod_ip(None) == "10.0.0.7"
    assert listening.require_pod_ip("10.0.0.8") == "10.0.0.8"
    numbers = [(port.number, port.application, port.opaque) for port in listening.ports([(25, 2525), (80, 80)])]
    assert numbers == [(25, 2525, True), (80, 80, False)]


def test_what_is_not_set_is_for_the_caller_to_choose():
    listening = proxy_listening.read({})
    assert listening == proxy_listening.Listening()
    with pytest.raises(proxy_environment.Invalid, match="--pod-ip"):
        listening.require_pod_ip(None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INBOUND_LISTEN_ADDR", ""),
        ("INBOUND_LISTEN_ADDR", "4143"),
        ("OUTBOUND_LISTEN_ADDR", "localhost:4140"),
        ("ADMIN_LISTEN_ADDR", "0.0.0.0:0"),
        ("INBOUND_IPS", "10.0.0.7,pod"),
        ("INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", "25,smtp"),
        ("INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", "8010-8000"),
        ("IDENTITY_HEADERS", "yes"),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_variable(name, value):
    with pytest.raises(proxy_environment.Invalid, match=f"{P}{name}") as refused:
        proxy_listening.read({f"{P}{name}": value})
    assert refused.value.reason == "BadProxyListen"


def test_a_port_leads_to_the_same_number_or_to_another():
    assert proxy_listening.parse_ports(["80", "8080:18080"]) == [(80, 80), (8080, 18080)]


@pytest.mark.parametrize(
    "texts", [["0"], ["80:0"], ["65536"], ["80:65536"], ["127.0.0.1:80"], ["80:"], [""], ["80", "80:81"]]
)
def test_what_is_no_port_is_refused(texts):
    with pytest.raises(ValueError, match=r"PORT|twice"):
        proxy_listening.parse_ports(texts)
