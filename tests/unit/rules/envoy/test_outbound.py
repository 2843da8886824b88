# SPDX-License-Identifier: Apache-2.0
"""The outbound listener, clusters and endpoints are as they were tried, but for what is named here."""

import re

import pytest

from handfast.rules.envoy import dns, http, outbound, outbound_routes, resources
from tests.unit.rules.envoy import tried

ENDPOINTS = [outbound.Endpoint("10.0.0.7", 4143, tried.IDENTITY), outbound.Endpoint("10.0.0.8", 8080)]
OTHER = "vote.ns1.sa.linkerd-identity.linkerd.cluster.local"


def destination(**facts):
    return outbound.Destination(**{"name": "web", "identities": (tried.IDENTITY,), "certified": True, **facts})


def manager(**facts):
    listener = outbound.listener(outbound.Facts(host="127.0.0.1", port=4140, **facts))
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


@pytest.mark.parametrize(("certified", "state"), [(False, "anonymous"), (True, "mtls")])
def test_a_context_shows_the_own_certificate_as_it_was_tried(certified, state):
    before = tried.tried(f"cds-outbound-{state}")["transport_socket_matches"][0]["transport_socket"]["typed_config"]
    context = outbound.cluster(destination(certified=certified))["transport_socket"]["typed_config"]
    secret = "tls_certificate_sds_secret_configs"
    assert context["common_tls_context"].get(secret) == before["common_tls_context"].get(secret)
    assert context["sni"] == tried.IDENTITY
    anchors = context["common_tls_context"]["combined_validation_context"]["validation_context_sds_secret_config"]
    assert anchors == before["common_tls_context"]["validation_context_sds_secret_config"]


def test_each_name_has_a_context_and_what_fits_none_is_not_spoken_to_in_plaintext():
    for identities in ((), (tried.IDENTITY,), (tried.IDENTITY, OTHER)):
        cluster = outbound.cluster(destination(identities=identities))
        *meshed, plain = cluster["transport_socket_matches"]
        assert plain["match"] == {"l5d": "/"}
        assert [row["match"]["l5d"] for row in meshed] == (list(identities) if len(identities) > 1 else [])
        assert cluster["transport_socket"]["name"] == "envoy.transport_sockets.tls"
        assert cluster["transport_socket"]["typed_config"]["sni"] == (identities or ("",))[0]


def test_endpoints_say_who_they_are():
    document = outbound.endpoints("web", ENDPOINTS)
    meshed, plain = document["endpoints"][0]["lb_endpoints"]
    assert document["cluster_name"] == "web"
    assert meshed["endpoint"]["hostname"] == tried.IDENTITY
    assert meshed["metadata"]["filter_metadata"] == {
        "envoy.transport_socket_match": {"l5d": tried.IDENTITY},
        "envoy.lb": {"identity": tried.IDENTITY},
    }
    assert plain["metadata"]["filter_metadata"] == {"envoy.transport_socket_match": {"l5d": "/"}}


def test_where_an_identity_is_required_nobody_is_called_without_one():
    (rows,) = outbound.endpoints("web", ENDPOINTS, require_identity=True)["endpoints"]
    assert [row["endpoint"]["hostname"] for row in rows["lb_endpoints"]] == [tried.IDENTITY]


def test_the_listener_asks_for_clusters_and_names_them_itself():
    typed = manager()
    assert typed["http_filters"][0]["typed_config"]["odcds"]["source"] == resources.source()
    (early,) = typed["early_header_mutation_extensions"]
    rows = {row["append"]["header"]["key"]: row["append"] for row in early["typed_config"]["mutations"]}
    assert rows[outbound_routes.HTTP_CLUSTER]["header"]["value"] == "http/%REQ(:AUTHORITY)%"
    assert rows[outbound_routes.TCP_CLUSTER]["header"]["value"] == "tcp/%REQ(:AUTHORITY)%"
    assert {row["append_action"] for row in rows.values()} == {"OVERWRITE_IF_EXISTS_OR_ADD"}
    assert {row["upgrade_type"] for row in typed["upgrade_configs"]} == {"websocket", "CONNECT"}


@pytest.mark.parametrize("honoured", [True, False])
def test_a_required_identity_is_read_before_every_header_of_the_mesh_is_gone(honoured):
    names = [each["name"].rpartition(".")[2] for each in manager(identity_headers=honoured)["http_filters"]]
    assert ("header_to_metadata" in names) == honoured
    # The route is chosen by headers that go with the others: not before the cluster is there.
    assert names[0] == "on_demand"
    assert names[-2:] == ["header_mutation", "router"]
    assert ("lb_subset_config" in outbound.cluster(destination(identity_headers=honoured))) == honoured


def test_an_endpoint_of_another_name_is_no_way_out():
    (only,) = outbound.cluster(destination(identity_headers=True))["lb_subset_config"]["subset_selectors"]
    assert only == {"keys": ["identity"], "fallback_policy": "NO_FALLBACK"}


def test_what_is_meshed_rides_on_http2_and_says_what_it_was():
    options = outbound.cluster(destination(meshed=True))["typed_extension_protocol_options"][http.OPTIONS]
    assert "http2_protocol_options" in options["explicit_http_config"]
    (mark,) = options["http_filters"][0]["typed_config"]["mutations"]["request_mutations"]
    assert mark["append"]["header"] == {"key": http.ORIGINAL_PROTOCOL, "value": "%PROTOCOL%"}


@pytest.mark.parametrize("meshed", [True, False])
def test_a_connection_has_an_end(meshed):
    cluster = outbound.cluster(destination(meshed=meshed, longest=60))
    options = cluster["typed_extension_protocol_options"][http.OPTIONS]
    assert options["common_http_protocol_options"] == {"max_connection_duration": "60s"}
    assert ("use_downstream_protocol_config" in options) == (not meshed)


def test_why_nobody_is_left_is_with_the_cluster():
    reason = destination(why=outbound_routes.IDENTITY_REQUIRED)
    for cluster in (
        outbound.cluster(reason),
        outbound.tunnel(reason),
        outbound.empty(reason),
        outbound.by_dns(reason, "a.example", 80),
    ):
        assert cluster["metadata"]["filter_metadata"]["handfast"] == {"why": outbound_routes.IDENTITY_REQUIRED}


def test_a_tunnel_has_no_tls_of_ours():
    assert "transport_socket" not in outbound.tunnel(destination())
    assert "transport_socket_matches" not in outbound.tunnel(destination())


def test_a_name_of_elsewhere_is_looked_up_without_a_search_path():
    cluster = outbound.by_dns(destination(), "a.example", 8080)
    assert cluster["cluster_type"]["typed_config"] == resources.typed(dns.NAME, respect_dns_ttl=True, **dns.lookup())
    (locality,) = cluster["load_assignment"]["endpoints"]
    assert locality["lb_endpoints"] == [{"endpoint": {"address": resources.address("a.example", 8080)}}]


@pytest.mark.parametrize(
    ("name", "is_gone"),
    [
        ("l5d-proxy-error", False),
        ("l5d-server-id", False),
        ("l5d-", True),
        ("l5d-proxy-erro", True),
        ("l5d-proxy-errors", True),
        ("l5d-server-ie", True),
        ("l5d-client-id", True),
        ("l5d-x", True),
        ("content-type", False),
    ],
)
def test_of_an_answer_only_the_reason_and_the_proved_name_stay(name, is_gone):
    *_, strip, _ = manager()["http_filters"]
    (gone,) = strip["typed_config"]["mutations"]["response_mutations"]
    pattern = gone["remove_on_match"]["key_matcher"]["safe_regex"]["regex"]
    assert bool(re.fullmatch(pattern, name)) == is_gone
