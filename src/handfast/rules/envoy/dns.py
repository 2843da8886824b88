# SPDX-License-Identifier: Apache-2.0
"""Names that are none of the mesh's: looked up by Envoy, and spoken to in plaintext. Which names these are, `outbound_routes` says.

1. One cluster has them all. Envoy looks a name up with its first request, and forgets what nobody has called for a while: so many names, and no
   more.
2. A name is looked up as it is: no search path of this machine leads it back into the cluster, past the mesh.
3. A name that leads to this machine itself is refused: whoever answers for it does not come round the inbound policy.

| who | holding | tries | stopped by | shown in tests/scenarios/test_envoy_outbound.py |
|---|---|---|---|---|
| who answers DNS | a name that the application calls | have it call ports of its own machine | 3 | test_a_name_that_leads_to_this_machine_is_refused_and_others_are_called |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from handfast.rules.envoy import http, judging, resources

CLUSTER: Final = "dns"
NAME: Final = "envoy.extensions.clusters.dns.v3.DnsCluster"
MOST_NAMES: Final = 1024
_FORGOTTEN: Final = "300s"
_FILTER: Final = "envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig"
_CLUSTER: Final = "envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig"
_RESOLVER: Final = "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"

_RBAC: Final = "envoy.extensions.filters.http.rbac.v3"
_UPSTREAM: Final = "envoy.extensions.rbac.matchers.upstream_ip_port.v3.UpstreamIpPortMatcher"
OWN_ADDRESS: Final = "own-address"
# The unspecified address leads there, too.
_HOME: Final = (("127.0.0.0", 8), ("0.0.0.0", 8), ("::1", 128), ("::", 128), ("::ffff:127.0.0.0", 104))  # noqa: S104  recognised, not bound

Resolvers = Sequence[tuple[str, int]]


def lookup(resolvers: Resolvers = ()) -> dict[str, Any]:
    """How names are looked up; without resolvers, by those of this machine."""
    asked = [resources.address(*each) for each in resolvers]
    # 2. no search path
    options: dict[str, Any] = {"dns_resolver_options": {"no_default_search_domain": True}}
    if asked:
        options |= {"resolvers": asked, "use_resolvers_as_fallback": False}
    resolver = resources.extension("envoy.network.dns_resolver.cares", _RESOLVER, **options)
    return {"dns_lookup_family": "V4_PREFERRED", "typed_dns_resolver_config": resolver}


def filters(resolvers: Resolvers = ()) -> list[resources.Document]:
    """The filters that look names up, and judge what they lead to; both act on routes to `CLUSTER` alone."""
    return [
        resources.extension(
            "envoy.filters.http.dynamic_forward_proxy",
            _FILTER,
            dns_cache_config=_cache(resolvers),
            save_upstream_address=True,
        ),
        resources.extension(judging.RBAC, f"{_RBAC}.RBAC"),
    ]


def per_route() -> dict[str, resources.Document]:
    """What a route to `CLUSTER` is judged by."""
    # 3. not this machine
    home = [_at(*network) for network in _HOME]
    policy = {"permissions": [{"or_rules": {"rules": home}}], "principals": [{"any": True}]}
    rules = {"action": "DENY", "policies": {OWN_ADDRESS: policy}}
    return {judging.RBAC: resources.typed(f"{_RBAC}.RBACPerRoute", rbac={"rules": rules})}


def _at(prefix: str, length: int) -> resources.Document:
    network = {"address_prefix": prefix, "prefix_len": length}
    return {"matcher": resources.extension("envoy.rbac.matchers.upstream_ip_port", _UPSTREAM, upstream_ip=network)}


def cluster(longest: int, resolvers: Resolvers = ()) -> resources.Document:
    """The cluster of all of them."""
    options = resources.typed(
        http.OPTIONS,
        common_http_protocol_options={"max_connection_duration": f"{longest}s"},
        **http.AS_CALLED,
    )
    return {
        "name": CLUSTER,
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "5s",
        # There is no TLS here, whose names Envoy would want to be sure of.
        "cluster_type": resources.extension(
            "envoy.clusters.dynamic_forward_proxy",
            _CLUSTER,
            dns_cache_config=_cache(resolvers),
            allow_insecure_cluster_options=True,
        ),
        "typed_extension_protocol_options": {http.OPTIONS: options},
    }


def _cache(resolvers: Resolvers) -> resources.Document:
    # 1. so many, and so long
    return {"name": CLUSTER, "max_hosts": MOST_NAMES, "host_ttl": _FORGOTTEN, **lookup(resolvers)}
