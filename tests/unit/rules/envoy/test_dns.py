# SPDX-License-Identifier: Apache-2.0
"""Names of others are looked up in bounds, and nobody comes back to this machine by one."""

import ipaddress

from handfast.rules.envoy import dns, judging


def test_all_names_are_in_one_cluster_and_so_many_at_most():
    cluster = dns.cluster(60, [("192.0.2.53", 53)])
    cache = cluster["cluster_type"]["typed_config"]["dns_cache_config"]
    assert (cluster["name"], cache["max_hosts"]) == (dns.CLUSTER, dns.MOST_NAMES)
    first, _ = dns.filters([("192.0.2.53", 53)])
    # Envoy wants both to be the same.
    assert first["typed_config"]["dns_cache_config"] == cache
    assert first["typed_config"]["save_upstream_address"]


def test_no_search_path_is_used():
    options = dns.lookup()["typed_dns_resolver_config"]["typed_config"]
    assert options["dns_resolver_options"]["no_default_search_domain"]
    assert "resolvers" not in options


def test_this_machine_is_refused_by_every_spelling():
    rules = dns.per_route()[judging.RBAC]["rbac"]["rules"]
    (permission,) = rules["policies"][dns.OWN_ADDRESS]["permissions"]
    rows = [row["matcher"]["typed_config"]["upstream_ip"] for row in permission["or_rules"]["rules"]]
    networks = [ipaddress.ip_network(f"{row['address_prefix']}/{row['prefix_len']}") for row in rows]
    for own in ("127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"):
        assert any(ipaddress.ip_address(own) in network for network in networks), own
    assert not any(ipaddress.ip_address("10.0.0.1") in network for network in networks)
    assert rules["action"] == "DENY"
