# SPDX-License-Identifier: Apache-2.0
"""The listeners of transparent mode: what is chosen by the original destination, and what leads nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.envoy import inbound, ports, resources, transparent
from handfast.wire import envoy_messages

NAME = "web.ns1.sa.linkerd-identity.linkerd.cluster.local"
PLACE = transparent.Place(host="0.0.0.0", port=4143, own=(4140, 4143))


def redirected(**fields: Any) -> transparent.Redirected:
    chosen: dict[str, Any] = {"place": PLACE, "facts": transparent.every(NAME), **fields}
    return transparent.Redirected(**chosen)


def chains(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By their names, each once."""
    rows = {chain["name"]: chain for chain in document["filter_chains"]}
    assert len(rows) == len(document["filter_chains"])
    return rows


def last(chain: dict[str, Any]) -> str:
    """Where what comes goes: to a cluster, or nowhere."""
    [only] = chain["filters"]
    return str(only["typed_config"].get("cluster"))


def of_envoy(kind: resources.Kind, document: dict[str, Any]) -> None:
    """Return if Envoy's messages have all of it."""
    assert envoy_messages.packed(kind.type_url, document)


@pytest.mark.parametrize("state", [inbound.State.REFUSE, inbound.State.TLS])
def test_one_listener_has_the_chains_of_a_port_for_every_port(state: inbound.State):
    document = transparent.listener(redirected(), state)
    assert document["name"] == "inbound"
    assert document["address"]["socket_address"] == {"address": "0.0.0.0", "port_value": 4143}
    rows = chains(document)
    assert list(rows) == ["identity", "passthrough", "http", "tcp", "own-4143", "own-4140"]
    assert rows["identity"] == inbound.chains(transparent.every(NAME), state)[0]
    assert [row["name"].rpartition(".")[2] for row in document["listener_filters"]] == [
        "original_dst",
        "tls_inspector",
        "http_inspector",
    ]
    of_envoy(resources.Kind.LISTENER, document)


def test_the_proxys_own_ports_lead_nowhere():
    rows = chains(transparent.listener(redirected(), inbound.State.REFUSE))
    for number in (4143, 4140):
        assert rows[f"own-{number}"]["filter_chain_match"] == {"destination_port": number}
        assert last(rows[f"own-{number}"]) == last(rows["identity"])


def test_only_the_addresses_of_the_pod_are_forwarded_to():
    document = transparent.listener(redirected(ips=("192.0.2.7", "fd00::7")), inbound.State.REFUSE)
    ranges = [{"address_prefix": "192.0.2.7", "prefix_len": 32}, {"address_prefix": "fd00::7", "prefix_len": 128}]
    rows = chains(document)
    for name in ("identity", "passthrough", "http", "tcp"):
        assert rows[name]["filter_chain_match"]["prefix_ranges"] == ranges
    assert last(document["default_filter_chain"]) == last(rows["identity"])
    of_envoy(resources.Kind.LISTENER, document)


def test_without_known_addresses_all_are_forwarded_to():
    document = transparent.listener(redirected(), inbound.State.REFUSE)
    assert "default_filter_chain" not in document
    assert "prefix_ranges" not in chains(document)["http"]["filter_chain_match"]


@pytest.mark.parametrize("tcp", [True, False])
def test_a_port_that_differs_has_all_chains_of_its_own(tcp: bool):
    document = transparent.listener(
        redirected(facts=transparent.every(NAME, tcp=tcp), others=(9000,), ips=("192.0.2.7",)), inbound.State.TLS
    )
    rows = chains(document)
    for name in ("identity", "passthrough", "http", "tcp"):
        match = rows[f"{name}-9000"]["filter_chain_match"]
        assert match == {**rows[name]["filter_chain_match"], "destination_port": 9000}
    relays = last(rows["tcp"]), last(rows["tcp-9000"])
    assert relays == (
        (ports.EVERY.cluster, last(rows["own-4143"])) if tcp else (last(rows["own-4143"]), ports.EVERY.cluster)
    )
    assert rows["http-9000"]["filters"] == rows["http"]["filters"]
    of_envoy(resources.Kind.LISTENER, document)


@pytest.mark.parametrize(
    ("opaque", "off"),
    [
        ((), None),
        (((25, 25),), {"destination_port_range": {"start": 25, "end": 26}}),
        (
            ((25, 25), (8000, 8010)),
            {
                "or_match": {
                    "rules": [
                        {"destination_port_range": {"start": 25, "end": 26}},
                        {"destination_port_range": {"start": 8000, "end": 8011}},
                    ]
                }
            },
        ),
    ],
)
def test_on_opaque_ports_nothing_is_detected(opaque: tuple[tuple[int, int], ...], off: dict[str, Any] | None):
    place = transparent.Place(host="192.0.2.7", port=4143, opaque=opaque)
    document = transparent.listener(redirected(place=place), inbound.State.REFUSE)
    first, *inspectors = document["listener_filters"]
    assert "filter_disabled" not in first
    assert [row.get("filter_disabled") for row in inspectors] == [off, off]
    of_envoy(resources.Kind.LISTENER, document)


@pytest.mark.parametrize(("host", "other"), [("0.0.0.0", "::"), ("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_both_versions_of_ip_are_listened_on(host: str, other: str):
    place = transparent.Place(host=host, port=4143, both=True)
    document = transparent.listener(redirected(place=place), inbound.State.REFUSE)
    assert document["additional_addresses"] == [{"address": resources.address(other, 4143)}]
    of_envoy(resources.Kind.LISTENER, document)


def test_an_address_of_its_own_has_no_other():
    place = transparent.Place(host="192.0.2.7", port=4143, both=True)
    assert "additional_addresses" not in transparent.listener(redirected(place=place), inbound.State.REFUSE)


@pytest.mark.parametrize("require_identity", [False, True])
def test_what_the_workload_opens_is_requests_or_bytes_and_bytes_have_no_identity(require_identity: bool):
    manager = {"name": "manager"}
    place = transparent.Place(host="127.0.0.1", port=4140, own=(4143,))
    document = transparent.calling(place, manager, require_identity=require_identity)
    rows = chains(document)
    assert list(rows) == ["http", "tcp", "tls", "own-4140", "own-4143"]
    assert rows["http"]["filters"] == [manager]
    wanted = last(rows["own-4140"]) if require_identity else transparent.ORIGINAL
    assert [last(rows["tcp"]), last(rows["tls"])] == [wanted, wanted]


def test_the_application_is_called_where_it_was_called():
    either, http1 = transparent.application()
    assert [either["name"], http1["name"]] == [ports.EVERY.cluster, ports.EVERY.http1_cluster]
    for cluster in (either, http1, transparent.original()):
        assert cluster["type"] == "ORIGINAL_DST"
        of_envoy(resources.Kind.CLUSTER, cluster)
