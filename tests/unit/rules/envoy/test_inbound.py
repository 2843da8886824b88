# SPDX-License-Identifier: Apache-2.0
"""The inbound listener is as it was tried, in each state."""

import dataclasses

import pytest

from handfast import errors
from handfast.rules.envoy import inbound, judging, observing, ports, refusals
from tests.unit.rules.envoy import tried

PORT = ports.Port(number=4143, application=8080)
FACTS = inbound.Facts(host="127.0.0.1", port=PORT, identity=tried.IDENTITY, longest=8640)
State = inbound.State


def chains(document):
    return {chain["name"]: chain for chain in document["filter_chains"]}


def managers(document):
    filters = [one["typed_config"] for chain in document["filter_chains"] for one in chain["filters"]]
    return [one for one in filters if one["@type"].endswith(".HttpConnectionManager")]


@pytest.mark.parametrize("state", [State.REFUSE, State.TLS])
def test_it_is_as_it_was_tried(state):
    expected = tried.bare(tried.tried(f"lds-inbound-{state}"))
    listener = inbound.listener(FACTS, state)
    # Since then: nobody shares the port, each has a name of its own, who is refused is counted, and nothing ends for being idle.
    assert listener.pop("enable_reuse_port") is False
    assert (listener.pop("name"), expected.pop("name")) == (PORT.listener, "inbound")
    assert tried.bare(_of_one_port(listener)) == expected


def _of_one_port(listener):
    for chain in listener["filter_chains"]:
        relay = chain["filters"][0]["typed_config"]
        if relay.get("cluster") == "nowhere":
            chain["filters"] = [tried.RESET]
        elif relay.get("cluster"):
            assert (relay["cluster"], relay.pop("idle_timeout")) == (PORT.cluster, "0s")
            relay["cluster"] = "application"
            assert (len(relay.pop("access_log")), relay.pop("access_log_options")) == (
                1,
                {"flush_access_log_on_connected": True},
            )
    return listener


def test_what_is_passed_on_is_told_with_the_reason_that_it_is_not_secured():
    listener = inbound.listener(FACTS, State.TLS)
    assert [manager["access_log"] for manager in managers(listener)] == [[observing.requests()]] * 2
    for name, unsecured in (("passthrough", observing.FOREIGN_TLS), ("tcp", observing.NOT_HTTP)):
        relay = chains(listener)[name]["filters"][0]["typed_config"]
        assert relay["access_log"] == observing.connections(unsecured)["access_log"]
    assert "access_log" not in inbound.reset("x")["typed_config"]


@pytest.mark.parametrize("state", [State.REFUSE, State.TLS])
def test_the_chain_of_the_own_name_is_replaced_and_never_missing(state):
    """Without it the ClientHello would reach the application."""
    own = inbound.listener(FACTS, state)["filter_chains"][0]
    assert own["filter_chain_match"]["server_names"] == [tried.IDENTITY]
    assert ("transport_socket" in own) == (state is State.TLS)


def test_a_plain_proxy_has_the_other_chains_alone():
    facts = inbound.Facts(host="127.0.0.1", port=PORT)
    plain, refusing = inbound.listener(facts, State.PLAIN), inbound.listener(FACTS, State.REFUSE)
    assert [*chains(plain)] == [*chains(refusing)][1:] == ["passthrough", "http", "tcp"]


@pytest.mark.parametrize(("identity", "state"), [("", State.REFUSE), ("", State.TLS), ("a.b", State.PLAIN)])
def test_a_state_that_does_not_go_with_the_identity_is_our_mistake(identity, state):
    with pytest.raises(errors.Misuse):
        inbound.listener(inbound.Facts(host="127.0.0.1", port=PORT, identity=identity), state)


def test_routes_and_what_is_judged_are_never_in_the_listener():
    listener = inbound.listener(FACTS, State.TLS)
    named = [manager["rds"]["route_config_name"] for manager in managers(listener)]
    assert named == [PORT.routes, PORT.plaintext_routes]
    for manager in managers(listener):
        assert "route_config" not in manager
        names = [one["name"] for one in manager["http_filters"]]
        assert names[1:] == [judging.LUA, judging.RBAC, "envoy.filters.http.router"]
        assert [*manager["http_filters"][2]["typed_config"]] == ["@type"]


def test_a_connection_ends_in_its_safe_form():
    served, plaintext = managers(inbound.listener(FACTS, State.TLS))
    assert served["common_http_protocol_options"] == {"max_connection_duration": "8640s"}
    assert served["http1_safe_max_connection_duration"] is True
    # No certificate made it.
    assert "common_http_protocol_options" not in plaintext


@pytest.mark.parametrize("state", [State.REFUSE, State.TLS])
def test_where_not_everybody_may_come_in_bytes_without_a_name_reach_nobody(state):
    before, after = inbound.listener(FACTS, state), inbound.listener(dataclasses.replace(FACTS, tcp=False), state)
    for name, figure in (("passthrough", refusals.TLS), ("tcp", refusals.TCP)):
        assert chains(after)[name] == {**chains(before)[name], "filters": [inbound.reset(figure)]}
    for name in ("identity", "http"):
        assert chains(after)[name] == chains(before)[name]


@pytest.mark.parametrize("tcp", [True, False])
def test_an_opaque_port_waits_for_nothing_and_has_one_chain(tcp):
    port = ports.Port(number=25, application=2525, opaque=True)
    listener = inbound.listener(dataclasses.replace(FACTS, port=port, tcp=tcp), State.TLS)
    assert "listener_filters" not in listener
    (chain,) = listener["filter_chains"]
    assert chain["filter_chain_match"] == {}
    assert (chain["filters"][0]["typed_config"].get("cluster") == "application-25") == tcp


def test_nothing_is_passed_on_when_a_client_hello_is_late():
    assert "continue_on_listener_filters_timeout" not in inbound.listener(FACTS, State.TLS)
