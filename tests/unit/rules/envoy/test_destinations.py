# SPDX-License-Identifier: Apache-2.0
"""One destination, by what is known of it and what is required."""

import pytest

from handfast.rules.envoy import destinations, dns, outbound, outbound_routes, resources
from tests.unit.rules.envoy import tried

KIND = resources.Kind
MESHED = outbound.Endpoint("10.0.0.7", 8080, tried.IDENTITY)
PLAIN = outbound.Endpoint("10.0.0.8", 8080)
BOTH = destinations.Standing((MESHED, PLAIN))


def told(name, standing, **mode):
    documents = dict(destinations.documents(name, standing, destinations.Mode(**mode)))
    cluster, endpoints = documents[KIND.CLUSTER], documents.get(KIND.ENDPOINTS)
    rows = [] if endpoints is None else endpoints["endpoints"][0]["lb_endpoints"]
    hosts = [row["endpoint"]["address"]["socket_address"]["address"] for row in rows]
    return cluster, hosts, cluster["metadata"]["filter_metadata"]["handfast"]["why"]


def test_requests_go_to_everybody_and_only_the_meshed_have_tls():
    cluster, hosts, _ = told("http/web", BOTH, certified=True)
    assert hosts == ["10.0.0.7", "10.0.0.8"]
    assert cluster["transport_socket"]["typed_config"]["sni"] == tried.IDENTITY
    assert cluster == outbound.cluster(
        outbound.Destination(name="http/web", identities=(tried.IDENTITY,), meshed=False, certified=True)
    )
    meshed, _, _ = told("http/web", destinations.Standing((MESHED,)), longest=60)
    assert meshed == outbound.cluster(
        outbound.Destination(name="http/web", identities=(tried.IDENTITY,), meshed=True, longest=60)
    )


def test_tunnels_go_to_everybody_without_tls():
    cluster, hosts, _ = told("tcp/web", BOTH, certified=True)
    assert hosts == ["10.0.0.7", "10.0.0.8"]
    assert "transport_socket" not in cluster
    documents = dict(destinations.documents("tcp/web", BOTH, destinations.Mode()))
    rows = documents[KIND.ENDPOINTS]["endpoints"][0]["lb_endpoints"]
    assert not [row for row in rows if "hostname" in row["endpoint"]]


@pytest.mark.parametrize("standing", [BOTH, destinations.Standing((PLAIN,)), destinations.Standing(by_dns=("a.b", 80))])
def test_where_an_identity_is_required_nobody_is_called_in_plaintext(standing):
    cluster, hosts, why = told("http/web", standing, require_identity=True)
    assert hosts == (["10.0.0.7"] if MESHED in standing.endpoints else [])
    assert why == outbound_routes.IDENTITY_REQUIRED
    assert cluster["type"] == ("EDS" if hosts else "STATIC")
    _, hosts, why = told("tcp/web", standing, require_identity=True)
    assert (hosts, why) == ([], outbound_routes.IDENTITY_REQUIRED)


def test_who_is_not_there_says_why_and_has_no_tls():
    for why in (destinations.ASLEEP, destinations.UNKNOWN, destinations.BAD, destinations.NOT_ASKED):
        for required in (True, False):
            cluster, hosts, said = told("http/web", destinations.Standing(why=why), require_identity=required)
            assert (hosts, said) == ([], why)
            assert "transport_socket" not in cluster


def test_where_nobody_is_nobody_comes_who_would_be_called_in_plaintext():
    """Envoy tells endpoints to the cluster that goes, as well as to the one with TLS that takes its place."""
    ((kind, cluster),) = destinations.documents("http/web", destinations.Standing(), destinations.Mode(certified=True))
    assert (kind, cluster["type"]) == (KIND.CLUSTER, "STATIC")
    assert "eds_cluster_config" not in cluster
    assert "endpoints" not in cluster["load_assignment"]


def test_a_name_of_dns_is_looked_up():
    documents = destinations.documents(
        "http/ext", destinations.Standing(by_dns=("ext.example", 80)), destinations.Mode()
    )
    ((kind, cluster),) = documents
    assert kind is KIND.CLUSTER
    assert cluster["cluster_type"]["name"] == "envoy.clusters.dns"


def test_what_leads_home_is_called_with_an_identity_or_not_at_all():
    home = destinations.Standing((MESHED, PLAIN), is_home=True)
    assert told("http/127.0.0.1", home)[1:] == (["10.0.0.7"], dns.OWN_ADDRESS)
    assert told("tcp/127.0.0.1", home)[1:] == ([], dns.OWN_ADDRESS)
