# SPDX-License-Identifier: Apache-2.0
"""Where a workload is: addresses and ports of its own."""

import ipaddress
import socket

import pytest

from handfast import errors
from handfast.node import workload_places
from handfast.rules.mesh import workload_pod
from handfast.runtime import claims, routes

SERVER = "https://127.0.0.1:6443"


def port(number: int = 8080) -> workload_pod.Port:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return workload_pod.Port(number, probe.getsockname()[1])


def test_two_workloads_do_not_share_an_address_or_a_port():
    with claims.Claims() as first, claims.Claims() as second:
        # Of the same UID, as after a rare accident: the second moves on.
        one = workload_places.find("uid", SERVER, "", (port(),), first)
        two = workload_places.find("uid", SERVER, "", (port(),), second)
        assert one.ip != two.ip
        assert ipaddress.ip_address(two.ip).is_loopback
        assert len({one.outbound, two.outbound, one.admin, two.admin}) == 4
        assert (one.host_ip, one.outbound.host) == ("127.0.0.1", "127.0.0.1")
        with claims.Claims() as third, pytest.raises(errors.Refused) as refused:
            workload_places.find("other", SERVER, one.ip, (port(),), third)
        assert refused.value.reason == "AddressInUse"


def test_an_address_that_leads_to_the_api_server_is_the_pods(monkeypatch):
    monkeypatch.setattr(routes, "source", lambda _host: "192.0.2.9")
    with claims.Claims() as held:
        assert workload_places.find("uid", "https://192.0.2.1:6443", "", (), held).ip == "192.0.2.9"


def test_an_address_of_another_machine_is_refused():
    with claims.Claims() as held, pytest.raises(errors.Refused) as refused:
        workload_places.find("uid", SERVER, "192.0.2.1", (port(),), held)
    assert (refused.value.reason, "--pod-ip" in (refused.value.hint or "")) == ("AddressNotAvailable", True)


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken, claims.Claims() as held:
        number = taken.getsockname()[1]
        with pytest.raises(errors.Refused, match="another process listens there"):
            workload_places.find("uid", SERVER, "", (workload_pod.Port(8080, number),), held)


def test_a_proxy_and_its_application_do_not_share_a_port():
    number = port().application
    with claims.Claims() as held, pytest.raises(errors.Refused, match="this workload"):
        workload_places.find("uid", SERVER, "127.0.0.1", (workload_pod.Port(number, number),), held)


def test_where_the_usual_ports_are_taken_others_are_found(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken, claims.Claims() as held:
        monkeypatch.setattr(workload_places, "OUTBOUND", taken.getsockname()[1])
        monkeypatch.setattr(workload_places, "_NEIGHBOURS", 1)
        places = workload_places.find("uid", SERVER, "", (), held)
        assert places.outbound.port != taken.getsockname()[1]


def test_where_nothing_is_free_it_is_told(monkeypatch):
    monkeypatch.setattr(claims.Claims, "take", lambda _self, _name: False)
    with claims.Claims() as held:
        with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.0"):
            workload_places.find("uid", SERVER, "", (), held)
        with pytest.raises(errors.Unavailable, match="no port"):
            workload_places.find("uid", SERVER, "127.0.0.9", (), held)
