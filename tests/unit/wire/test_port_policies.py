# SPDX-License-Identifier: Apache-2.0
"""Answers of the policy service, as an agent understands them."""

import pytest

from handfast.mesh.policy import answers
from handfast.rules.envoy import judging
from handfast.rules.mesh import policy
from handfast.wire import channel, policy_messages, port_policies, server
from tests.unit.wire import greeting

Permits = judging.Permits
EVERYWHERE = {"net": {"ip": {"ipv4": 0}, "prefix_len": 0}}
ANYONE = {"networks": [EVERYWHERE], "authentication": {"unauthenticated": {}}}
GET = {"registered": 0}


def permit(**client):
    return policy.Permit(policy="shop/db", row=0, **client)


def of_rules(*, probes=(), is_opaque=False, audited=None, **rules):
    rows = policy.PortRules(port=80, enforced=policy.Rules(**rules), audited=audited)
    return port_policies.read(answers.inbound(rows, is_opaque=is_opaque, probes=probes), 80)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, Permits(anyone=True)),
        ({"needs_identity": True}, Permits(identified=True)),
        ({"restricted": True}, Permits()),
        (
            {"restricted": True, "permits": (permit(identity="a.b"), permit(suffix=".c.d"))},
            Permits(names=frozenset({"a.b"}), suffixes=(".c.d",)),
        ),
        ({"restricted": True, "permits": (permit(anyone=True),)}, Permits(anyone=True)),
        ({"audited": policy.Rules(restricted=True)}, Permits(anyone=True)),
    ],
)
@pytest.mark.parametrize("is_opaque", [False, True])
def test_what_our_service_answers_is_understood(rules, expected, is_opaque):
    assert of_rules(is_opaque=is_opaque, **rules).permits == expected


def test_probes_are_open_where_not_everybody_may():
    assert of_rules(restricted=True, probes=("/b", "/a")) == judging.PortJudgement(
        port=80, permits=Permits(), open_paths=("/a", "/b")
    )
    assert of_rules(probes=("/a",)).open_paths == ()


@pytest.mark.parametrize(
    "networks",
    [
        [],
        [{}],
        [{"net": {"ip": {"ipv4": 167772160}, "prefix_len": 8}}],
        [{**EVERYWHERE, "except": [{"ip": {"ipv4": 1}, "prefix_len": 32}]}],
    ],
)
def test_what_goes_by_networks_lets_in_nobody(networks):
    row = {"networks": networks, "authentication": {"unauthenticated": {}}}
    assert port_policies.read(policy_messages.Server(authorizations=[row]), 80).permits == Permits()


@pytest.mark.parametrize("authentication", [{}, {"meshTLS": {}}, {"meshTLS": {"unauthenticated": {}}}])
def test_what_is_not_understood_lets_in_nobody(authentication):
    row = {"networks": [EVERYWHERE], "authentication": authentication}
    assert port_policies.read(policy_messages.Server(authorizations=[row]), 80).permits == Permits()


@pytest.mark.parametrize("identities", [{"identities": [{"name": "*.b"}]}, {"suffixes": [{"parts": ["a b"]}]}])
def test_a_name_that_no_certificate_has_is_refused(identities):
    row = {"networks": [EVERYWHERE], "authentication": {"meshTLS": {"identities": identities}}}
    with pytest.raises(port_policies.BadPolicy):
        port_policies.read(policy_messages.Server(authorizations=[row]), 80)


def paths(*matches, authorizations=(ANYONE,)):
    route = {"authorizations": authorizations, "rules": [{"matches": matches}]}
    answer = policy_messages.Server(protocol={"detect": {"http_routes": [route]}})
    return port_policies.read(answer, 80).open_paths


def test_only_whole_paths_for_get_that_everybody_may_ask_are_open():
    good = {"path": {"exact": "/a"}, "method": GET}
    assert paths(good) == ("/a",)
    for match in (
        {"path": {"prefix": "/"}, "method": GET},
        {"path": {"regex": ".*"}, "method": GET},
        {"path": {"exact": "/a"}},
        {"path": {"exact": "/a"}, "method": {"registered": 1}},
        {"path": {"exact": "/a"}, "method": {"unregistered": "GETX"}},
        {"path": {"exact": "a"}, "method": GET},
        {"path": {"exact": "/\u00e4"}, "method": GET},
        {"path": {"exact": "/\n"}, "method": GET},
        {"path": {"exact": "/" + "a" * port_policies.MOST_PATH}, "method": GET},
    ):
        assert paths(match) == ()
    assert paths(good, authorizations=()) == ()
    assert paths(*({"path": {"exact": f"/{number}"}, "method": GET} for number in range(65))) == ()


async def test_each_change_is_told_until_the_service_ends_it():
    async def watch(message, _peer):
        assert (message.workload, message.port) == ("shop:web", 80)
        yield answers.inbound(policy.PortRules(port=80, enforced=policy.Rules()), is_opaque=False, probes=())
        yield answers.inbound(
            policy.PortRules(port=80, enforced=policy.Rules(restricted=True)), is_opaque=False, probes=()
        )
        raise server.Refusal("NOT_FOUND", "no such Pod")

    method = server.Stream("WatchPort", policy_messages.PortSpec, policy_messages.Server, watch)
    services = {policy_messages.INBOUND_SERVICE: [method]}
    seen: list[bool] = []

    async def follow(address):
        async with channel.opened(address, anchors=None, server_name="", clock=greeting.CLOCK) as opened:
            async for row in port_policies.watch(opened, "shop:web", 80):
                seen.append(row.tcp)  # noqa: PERF401 - what came before the refusal counts

    async with server.Server(services, clock=greeting.CLOCK).on(greeting.LOOPBACK) as address:
        with pytest.raises(channel.Failed, match="no such Pod"):
            await follow(address)
    assert seen == [True, False]
