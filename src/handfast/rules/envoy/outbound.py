# SPDX-License-Identifier: Apache-2.0
"""The outbound listener, and the clusters with their endpoints. Which endpoints there are, and who they are, is the destination service's to say.

1. An endpoint with an identity is reached by TLS, and shows exactly that name; one without in plaintext. Both may be in one cluster. There is a
   context of TLS for each name: Envoy's own comparison would take a wildcard for it. What fits none is spoken to in TLS, never in plaintext.
2. The own certificate is shown only while there is one in force: a cluster has two forms, and the certificate is in one of them.
3. Between meshed endpoints requests ride on HTTP/2, and `l5d-orig-proto` says what they were. That is for clusters whose endpoints all have an
   identity: others might not understand it.
4. With `require_identity` an endpoint without an identity is left out. Where none is left, requests fail, and the answer says why.
5. A connection to an endpoint ends gracefully after `longest` seconds. Those of the application have no end: no certificate made them.
6. Where `l5d-require-id` is honoured, only an endpoint of that name is called, in every cluster: those of DNS have none.
7. Every `l5d-…` of the application's is gone before a request leaves, after it was read here; and every one of an answer, but for two (`stripping`).
8. Names that are none of the mesh's are DNS's (`dns`), all in one cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast.rules.envoy import dns, http, outbound_routes, resources, stripping, tls

NAME: Final = "outbound"
# What clusters of requests and of tunnels are named, before the authority.
HTTP: Final = "http/"
TCP: Final = "tcp/"
# Where a request of explicit mode goes.
AUTHORITY: Final = "%REQ(:AUTHORITY)%"
NO_ENDPOINT: Final = "no-endpoint"
NOT_RESOLVED: Final = "name-not-resolved"
_UNAVAILABLE: Final = 503
_EARLY: Final = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
_TO_METADATA: Final = "envoy.extensions.filters.http.header_to_metadata.v3.Config"
_CODEC: Final = "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"
_SOCKET: Final = "envoy.transport_socket_match"
_BALANCING: Final = "envoy.lb"
_OWN: Final = "handfast"
# No name is that: an endpoint of such a name would be spoken to in plaintext.
_PLAIN: Final = {"l5d": "/"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address, and the name it proves; empty: it is spoken to in plaintext."""

    host: str
    port: int
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Where it listens, and by what a destination is named."""

    host: str
    port: int
    identity_headers: bool = False
    destination: str = AUTHORITY
    resolvers: tuple[tuple[str, int], ...] = ()


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster: the names that its endpoints prove (`meshed`: all of them do), and whether the own certificate is in force.

    `why` is what an answer says where no endpoint is left.
    """

    name: str
    identities: tuple[str, ...] = ()
    meshed: bool = False
    certified: bool = False
    longest: int = 3600
    identity_headers: bool = False
    why: str = NO_ENDPOINT


def listener(facts: Facts) -> resources.Document:
    return {
        "name": NAME,
        "address": resources.address(facts.host, facts.port),
        "traffic_direction": "OUTBOUND",
        # A second Envoy of this user is told that the port is taken.
        "enable_reuse_port": False,
        "filter_chains": [{"filters": [manager(facts)]}],
    }


def manager(facts: Facts) -> resources.Document:
    """What does requests, by the routes of `outbound_routes`."""
    manager = http.manager(http.OUTBOUND, outbound_routes.OUTBOUND, list(_filters(facts)), None)
    typed = manager["typed_config"]
    typed["upgrade_configs"] = [*typed["upgrade_configs"], {"upgrade_type": "CONNECT"}]
    typed["early_header_mutation_extensions"] = [_named(facts.destination)]
    replies = typed["local_reply_config"]["mappers"]
    # 4. why
    typed["local_reply_config"] = {
        "mappers": [_without_endpoint(), http.judged(dns.OWN_ADDRESS), *replies, _unavailable()]
    }
    return manager


def _named(destination: str) -> resources.Document:
    """The headers that routes name clusters by, whatever the application sent."""
    rows = ((outbound_routes.HTTP_CLUSTER, HTTP), (outbound_routes.TCP_CLUSTER, TCP))
    mutations = [{"append": http.header(key, f"{prefix}{destination}")} for key, prefix in rows]
    return resources.extension("envoy.http.early_header_mutation.header_mutation", _EARLY, mutations=mutations)


def _filters(facts: Facts) -> Iterable[resources.Document]:
    yield resources.extension(
        "envoy.filters.http.on_demand",
        "envoy.extensions.filters.http.on_demand.v3.OnDemand",
        odcds={"source": resources.source(), "timeout": "5s"},
    )
    # 8. the names of others
    yield from dns.filters(facts.resolvers)
    if facts.identity_headers:
        # 6. an endpoint of that name
        value = {"metadata_namespace": _BALANCING, "key": "identity", "type": "STRING"}
        rule = {"header": outbound_routes.REQUIRE_ID, "on_header_present": value, "remove": True}
        yield resources.extension("envoy.filters.http.header_to_metadata", _TO_METADATA, request_rules=[rule])
    # 7. read, and gone
    yield stripping.requests_and_answers()


def _without_endpoint() -> resources.Document:
    flagged = {"response_flag_filter": {"flags": ["UH"]}}
    why = http.header(http.ERROR_HEADER, f"%METADATA(CLUSTER:{_OWN}:why)%")
    return {"filter": flagged, "headers_to_add": [why]}


def _unavailable() -> resources.Document:
    comparison = {"op": "EQ", "value": {"default_value": _UNAVAILABLE, "runtime_key": "handfast.unavailable"}}
    return {
        "filter": {"status_code_filter": {"comparison": comparison}},
        "headers_to_add": [http.header(http.ERROR_HEADER, "%RESPONSE_CODE_DETAILS%")],
    }


def cluster(destination: Destination) -> resources.Document:
    """A cluster whose endpoints are told by themselves."""
    # 1. by what the endpoint is; 2. with the own certificate or without
    contexts = {name: tls.upstream(name, certified=destination.certified) for name in destination.identities}
    first = next(iter(contexts.values()), None)
    matches = [
        {"name": name, "match": {"l5d": name}, "transport_socket": context} for name, context in contexts.items()
    ]
    plain = {"name": "plain", "match": dict(_PLAIN), "transport_socket": _raw()}
    return {
        **_common(destination),
        "type": "EDS",
        "eds_cluster_config": {"eds_config": resources.source()},
        "transport_socket_matches": [*(matches if len(matches) > 1 else ()), plain],
        "transport_socket": first or tls.upstream("", certified=False),
    }


def tunnel(destination: Destination) -> resources.Document:
    """A cluster whose endpoints are spoken to in plaintext, whoever they are."""
    return {
        **_called(destination),
        "type": "EDS",
        "eds_cluster_config": {"eds_config": resources.source()},
        "connect_timeout": "1s",
        "metadata": _why(destination.why),
    }


def empty(destination: Destination) -> resources.Document:
    """A cluster that has no endpoints, and takes none: those that come are for the cluster that takes its place."""
    return {
        **_called(destination),
        "type": "STATIC",
        "load_assignment": {"cluster_name": destination.name},
        "connect_timeout": "1s",
        "metadata": _why(destination.why),
    }


def by_dns(destination: Destination, host: str, port: int) -> resources.Document:
    """A cluster of what DNS says, in plaintext."""
    endpoint = {"endpoint": {"address": resources.address(host, port)}}
    return {
        **_common(destination),
        "cluster_type": resources.extension("envoy.clusters.dns", dns.NAME, respect_dns_ttl=True, **dns.lookup()),
        "load_assignment": {"cluster_name": destination.name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _common(destination: Destination) -> resources.Document:
    document = {
        **_called(destination),
        # With the handshake, which a busy machine may not end within a second.
        "connect_timeout": "5s",
        "metadata": _why(destination.why),
        "typed_extension_protocol_options": {http.OPTIONS: _protocols(destination)},
    }
    if destination.identity_headers:
        # 6. of that name, or nobody
        only = {"keys": ["identity"], "fallback_policy": "NO_FALLBACK"}
        document["lb_subset_config"] = {"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [only]}
    return document


def _called(destination: Destination) -> resources.Document:
    # A dot would end the label of its figures: there would be figures named after destinations.
    return {"name": destination.name, "alt_stat_name": destination.name.replace(".", "_")}


def _why(why: str) -> resources.Document:
    return {"filter_metadata": {_OWN: {"why": why}}}


def _protocols(destination: Destination) -> resources.Document:
    # 5. ends gracefully
    longest = {"max_connection_duration": f"{destination.longest}s"}
    if not destination.meshed:
        return resources.typed(http.OPTIONS, common_http_protocol_options=longest, **http.AS_CALLED)
    # 3. on HTTP/2, and marked
    mark = {"append": http.header(http.ORIGINAL_PROTOCOL, "%PROTOCOL%")}
    return resources.typed(
        http.OPTIONS,
        common_http_protocol_options=longest,
        explicit_http_config=dict(http.HTTP2),
        http_filters=[
            resources.mutation(request_mutations=[mark]),
            resources.extension("envoy.filters.http.upstream_codec", _CODEC),
        ],
    )


def _raw() -> resources.Document:
    return resources.extension(
        "envoy.transport_sockets.raw_buffer", "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
    )


def endpoints(name: str, known: Iterable[Endpoint], *, require_identity: bool = False) -> resources.Document:
    """The endpoints of a cluster."""
    # 4. nobody without an identity
    rows = [_endpoint(each) for each in known if each.identity or not require_identity]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": rows}]}


def _endpoint(each: Endpoint) -> resources.Document:
    endpoint: dict[str, Any] = {"address": resources.address(each.host, each.port)}
    if not each.identity:
        return {"endpoint": endpoint, "metadata": {"filter_metadata": {_SOCKET: dict(_PLAIN)}}}
    return {
        "endpoint": {**endpoint, "hostname": each.identity},
        "metadata": {"filter_metadata": {_SOCKET: {"l5d": each.identity}, _BALANCING: {"identity": each.identity}}},
    }
