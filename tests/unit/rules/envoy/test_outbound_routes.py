# SPDX-License-Identifier: Apache-2.0
"""Routes of what an application sends, and the headers of the mesh."""

import re

import pytest

from handfast.rules.envoy import dns, http, outbound_routes
from tests.unit.rules.envoy import tried

DOMAIN = "svc.cluster.local"


def document(**facts):
    return outbound_routes.document(outbound_routes.Routing(domains=(DOMAIN,), own_ports=(4140, 4191), **facts))


def hosts(**facts):
    """Routes by host, without those of authorities that are too long."""
    rows = {host["name"]: host["routes"] for host in document(**facts)["virtual_hosts"]}
    return {name: [row for row in routes if not is_too_long(row)] for name, routes in rows.items()}


def is_too_long(row):
    return row.get("direct_response", {}).get("body") == {"inline_string": outbound_routes.BAD}


def refusals(rows):
    return [row["direct_response"]["body"]["inline_string"] for row in rows if "direct_response" in row]


def test_headers_of_answers_are_as_they_were_tried():
    expected, seen = tried.tried("rds-outbound"), document(identity_headers=True)
    assert seen["response_headers_to_add"] == expected["response_headers_to_add"]
    assert seen["response_headers_to_remove"] == expected["response_headers_to_remove"]


def test_without_identity_headers_no_answer_says_who_it_is_from():
    seen = document()
    assert seen["response_headers_to_remove"] == [http.SERVER_ID]
    assert "response_headers_to_add" not in seen
    assert refusals(hosts()["mesh"]) == []


def test_names_of_the_mesh_are_asked_for_whatever_their_port_and_dot():
    seen = document()
    (mesh,) = (host for host in seen["virtual_hosts"] if host["name"] == "mesh")
    assert mesh["domains"] == [f"*.{DOMAIN}", f"*.{DOMAIN}."]
    assert seen["ignore_port_in_host_matching"]
    *_, tunnel, rest = mesh["routes"]
    assert tunnel["route"]["cluster_header"] == outbound_routes.TCP_CLUSTER
    assert tunnel["route"]["upgrade_configs"] == [{"upgrade_type": "CONNECT", "connect_config": {}}]
    assert rest["route"] == {"cluster_header": outbound_routes.HTTP_CLUSTER, "timeout": "0s"}


@pytest.mark.parametrize("name", ["mesh", "all"])
def test_an_authority_longer_than_a_name_and_a_port_is_refused_first(name):
    (routes,) = (host["routes"] for host in document()["virtual_hosts"] if host["name"] == name)
    assert [is_too_long(row) for row in routes[:3]] == [True, True, False]
    assert ["connect_matcher" in row["match"] for row in routes[:2]] == [True, False]
    pattern = routes[0]["match"]["headers"][0]["string_match"]["safe_regex"]["regex"]
    longest = f"{'x' * 253}.:65535"
    assert (re.fullmatch(pattern, longest), bool(re.fullmatch(pattern, f"x{longest}"))) == (None, True)


def test_without_a_destination_service_every_name_is_looked_up():
    seen = outbound_routes.document(outbound_routes.Routing())
    assert [host["name"] for host in seen["virtual_hosts"]] == ["home", "all"]
    *_, tunnel, rest = seen["virtual_hosts"][-1]["routes"]
    assert (tunnel["route"]["cluster"], rest["route"]["cluster"]) == (dns.CLUSTER, dns.CLUSTER)
    assert tunnel["typed_per_filter_config"] == rest["typed_per_filter_config"] == dns.per_route()


def test_where_an_identity_is_required_nothing_goes_without_one():
    rows = hosts(require_identity=True, identity_headers=True)
    assert outbound_routes.IDENTITY_REQUIRED in refusals(rows["mesh"])
    assert not [row for row in rows["all"] if "cluster" in row.get("route", {})]
    assert not [row for row in rows["all"] + rows["mesh"] if "upgrade_configs" in row.get("route", {})]


@pytest.mark.parametrize(
    ("authority", "number"),
    [
        ("10.0.0.1", True),
        ("10.0.0.1:80", True),
        ("127.1", True),
        ("2130706433:80", True),
        ("0x7f000001", True),
        ("a.0X7f", True),
        ("[::1]:80", True),
        ("1.2.3.4.:80", True),
        ("web2:80", False),
        ("web.shop:8080", False),
        ("example.com", False),
        ("x0x7f.example", False),
    ],
)
def test_what_might_be_an_address_is_never_looked_up(authority, number):
    first = hosts()["all"][0]
    (header,) = first["match"]["headers"]
    assert header["name"] == ":authority"
    assert bool(re.fullmatch(header["string_match"]["safe_regex"]["regex"], authority)) == number


def test_the_own_ports_are_refused_under_any_name():
    rows = [row for row in hosts()["all"] if "direct_response" in row]
    assert refusals(rows) == [dns.OWN_ADDRESS, dns.OWN_ADDRESS]
    pattern = rows[1]["match"]["headers"][0]["string_match"]["safe_regex"]["regex"]
    assert re.fullmatch(pattern, "any.example:4140")
    assert re.fullmatch(pattern, "any.example:04191")
    assert re.fullmatch(pattern, "any.example:+4191")
    assert not re.fullmatch(pattern, "any.example:80")


@pytest.mark.parametrize(("headers", "refused"), [(False, []), (True, [outbound_routes.UNREADABLE])])
def test_what_was_redirected_goes_where_it_was_going_and_tunnels_go_on_as_they_are(headers, refused):
    seen = hosts(redirected=True, identity_headers=headers)
    assert list(seen) == ["all"]
    *first, tunnel, rest = seen["all"]
    assert refusals(first) == refused
    assert tunnel["match"] == {"connect_matcher": {}}
    assert tunnel["route"]["upgrade_configs"] == [{"upgrade_type": "CONNECT"}]
    assert [row["route"]["cluster_header"] for row in (tunnel, rest)] == [outbound_routes.HTTP_CLUSTER] * 2


def test_another_endpoint_is_tried_only_where_nothing_was_sent():
    for host in document()["virtual_hosts"]:
        assert host["retry_policy"]["retry_on"] == "connect-failure,refused-stream"
        assert host["retry_policy"]["num_retries"] == 1
