# SPDX-License-Identifier: Apache-2.0
"""Whom a proxy lets in, from the message to the stream."""

from __future__ import annotations

import pytest

from handfast.mesh import policies
from handfast.mesh.policy import inbound, subjects
from handfast.rules.mesh import names as names_module
from handfast.rules.mesh import views
from handfast.wire import peers, policy_messages
from tests.unit.mesh import cluster_world
from tests.unit.mesh.policy.policy_world import ENDING, WEB, World, names, reading, refused
from tests.world.clock import settle

ROW = {"serviceAccount": {"name": "web"}}


async def test_a_pod_without_a_policy_lets_in_everybody():
    answer = await World().begin().get()
    assert names(answer) == ["all-unauthenticated"]
    assert answer.authorizations[0].authentication.WhichOneof("permit") == "unauthenticated"
    assert answer.labels["name"] == "all-unauthenticated"
    assert answer.protocol.detect.timeout.seconds == 10
    assert not answer.protocol.detect.http_routes


async def test_a_policy_is_told_by_its_identities():
    world = World().begin()
    world.policy(clients=[ROW, {"namespace": "bank"}])
    answer = await world.get()
    (row,) = answer.authorizations
    assert [each.prefix_len for each in (row.networks[0].net, row.networks[1].net)] == [0, 0]
    assert [each.net.ip.WhichOneof("ip") for each in row.networks] == ["ipv4", "ipv6"]
    clients = row.authentication.meshTLS.identities
    assert [each.name for each in clients.identities] == [WEB]
    assert [list(each.parts) for each in clients.suffixes] == [["bank", *ENDING.split(".")]]
    assert row.metadata.resource.name == "p"
    assert (row.labels["group"], row.labels["kind"]) == ("handfast.dev", "meshpolicy")
    assert dict(answer.labels) == {"group": "handfast.dev", "kind": "meshpolicy", "name": "p"}


async def test_a_port_that_is_opaque_is_told_so():
    world = World().begin()
    assert (await world.get(port=5432)).protocol.WhichOneof("kind") == "opaque"
    annotations = {"config.linkerd.io/opaque-ports": "9000"}
    world.put("pods", cluster_world.pod("shop", "db-0", account="db", annotations=annotations))
    assert (await world.get(port=9000)).protocol.WhichOneof("kind") == "opaque"
    assert (await world.get(port=5432)).protocol.WhichOneof("kind") == "detect"


async def test_probes_stay_open_where_clients_are_restricted():
    world = World().begin()
    pod = cluster_world.pod("shop", "db-0", account="db")
    pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/ready", "port": 8080}}
    world.put("pods", pod)
    assert not (await world.get(port=8080)).protocol.detect.http_routes
    world.policy(clients=[])
    probe, rest = (await world.get(port=8080)).protocol.detect.http_routes
    match = probe.rules[0].matches[0]
    assert (match.path.exact, match.method.WhichOneof("type"), match.method.registered) == ("/ready", "registered", 0)
    assert probe.authorizations[0].authentication.WhichOneof("permit") == "unauthenticated"
    assert (rest.rules[0].matches[0].path.prefix, list(rest.authorizations)) == ("/", [])
    assert not (await world.get(port=8081)).protocol.detect.http_routes


@pytest.mark.parametrize("workload", ["", "shop", "shop:", '{"ns":"shop"}', "{"])
async def test_a_token_that_names_no_pod_is_refused(workload):
    code, text = await refused(World().begin().get(workload))
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("Invalid workload")


@pytest.mark.parametrize("port", [0, 65536])
async def test_a_port_that_is_none_is_refused(port):
    assert await refused(World().begin().get(port=port)) == ("INVALID_ARGUMENT", f"Invalid port: {port}")


async def test_a_pod_that_is_not_there_is_not_found():
    code, text = await refused(World().begin().get("shop:db-1"))
    assert code == "NOT_FOUND"
    assert "shop/db-1" in text


async def test_nobody_is_told_anything_before_all_is_known():
    world = World()
    assert await refused(world.get()) == ("UNAVAILABLE", "the policies were not listed")
    world.policy_informer.end()
    assert await refused(world.get()) == ("UNAVAILABLE", "the cluster was not listed")
    world.sync()
    assert await refused(world.get()) == ("UNAVAILABLE", "there is no linkerd-config in namespace linkerd")
    world.configure()
    assert (await refused(world.get()))[0] == "NOT_FOUND"


async def test_policies_that_may_not_be_read_are_not_taken_for_none():
    world = World()
    world.policy_informer.refused("meshpolicies is forbidden")
    world.sync()
    world.configure()
    assert await refused(world.get()) == ("UNAVAILABLE", "meshpolicies is forbidden")
    with pytest.raises(policies.NotKnown, match="forbidden"):
        world.policies.compiled(views.Pod())


async def test_a_stream_has_every_change_and_nothing_twice():
    world = World().begin()
    async with world.watching() as stream:
        assert [names(each) for each in stream.messages] == [["all-unauthenticated"]]
        world.policy(clients=[ROW])
        await settle()
        world.policy(clients=[ROW])
        world.policy("other", "bank", clients=[])
        world.put("pods", cluster_world.pod("shop", "api-0", account="api"))
        await settle()
        assert [names(each) for each in stream.messages[1:]] == [["p"]]
        # The Pod is no longer one that the policy is about.
        world.policy(clients=[ROW], targets={"podSelector": {"matchLabels": {"app": "db"}}})
        world.put("pods", cluster_world.pod("shop", "db-0", account="db", labels={"app": "x"}))
        await settle()
        assert names(stream.messages[2]) == ["all-unauthenticated"]
        world.forget()
        await settle()
        assert len(stream.messages) == 3
        world.remove("pods", "shop", "db-0")
        await settle()
        assert stream.refusal is not None
        assert stream.refusal.code == "NOT_FOUND"
    assert len(world.inbound._subjects) == 0


async def test_settings_rename_everybody():
    world = World().begin()
    world.policy(clients=[ROW])
    async with world.watching() as stream:
        world.configure(trust_domain="example.org")
        await settle()
        rows = stream.messages[1].authorizations[0].authentication.meshTLS.identities.identities
        assert [each.name for each in rows] == [WEB.replace("cluster.local", "example.org")]


async def test_where_names_have_uids_an_account_made_anew_is_another():
    world = World().begin(scheme=names_module.Scheme.UID)
    world.policy(clients=[ROW])
    async with world.watching() as stream:
        assert names(stream.messages[0]) == []
        for uid in ("u1", "u2"):
            world.put("serviceaccounts", {"metadata": {"namespace": "shop", "name": "web", "uid": uid}})
            await settle()
        world.put("serviceaccounts", {"metadata": {"namespace": "shop", "name": "web", "uid": "u2"}})
        world.remove("serviceaccounts", "shop", "web")
        await settle()
        rows = [
            [each.name for row in message.authorizations for each in row.authentication.meshTLS.identities.identities]
            for message in stream.messages
        ]
        assert rows == [[], [f"u1.{WEB}"], [f"u2.{WEB}"], []]


async def test_many_streams_of_one_port_share_one_computation():
    world = World().begin()
    world.policy(clients=[ROW])
    before = subjects.COMPUTED._value.get()
    async with world.watching() as first, world.watching() as second:
        assert first.messages[0] is second.messages[0]
        await world.get()
        world.policy(clients=[])
        await settle()
        assert first.messages[1] is second.messages[1]
    assert subjects.COMPUTED._value.get() - before == 2


async def test_pods_that_the_same_policies_are_about_share_their_rules():
    world = World().begin()
    world.policy(clients=[ROW])
    world.put("pods", cluster_world.pod("shop", "db-1", account="db"))
    pods = [world.cluster.pod("shop", name) for name in ("db-0", "db-1")]
    one, other = (world.policies.compiled(pod) for pod in pods if pod is not None)
    assert one is other
    # So they get one message, on every port that no policy names.
    messages = [await world.get(f"shop:{name}", port) for name in ("db-0", "db-1") for port in (80, 81)]
    assert all(message is messages[0] for message in messages)
    world.policy(clients=[])
    assert await world.get("shop:db-1", 80) is not messages[0]


async def test_there_are_so_many_streams_and_no_more():
    world = World().begin()
    world.inbound._subjects._most = 1
    async with world.watching() as first, world.watching() as second:
        assert len(first.messages) == 1
        assert second.refusal is not None
        assert (second.refusal.code, second.refusal.retry_ms) == ("RESOURCE_EXHAUSTED", 5000)
    async with world.watching() as again:
        assert len(again.messages) == 1


async def test_one_client_does_not_take_all_streams():
    world = World().begin()
    world.inbound._subjects._most_of_one = 1
    message = policy_messages.PortSpec(workload="shop:db-0", port=5433)
    streams = [world.inbound.watch(message, peers.Peer(where)) for where in ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1")]
    async with reading(streams[0]) as mine, reading(streams[1]) as again, reading(streams[2]) as other:
        assert len(mine.messages) == len(other.messages) == 1
        assert again.refusal is not None
        assert again.refusal.code == "RESOURCE_EXHAUSTED"
    assert not world.inbound._subjects._of_one


async def test_messages_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr(inbound, "MOST_MESSAGES", 4)
    world = World().begin()
    world.policy(clients=[])
    for number in range(20):
        pod = cluster_world.pod("shop", "db-0", account="db")
        path = f"/{'x' * 500 * number}"
        pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": path, "port": 8080}}
        world.put("pods", pod)
        probe, _ = (await world.get(port=8080)).protocol.detect.http_routes
        assert probe.rules[0].matches[0].path.exact == path
        assert len(world.inbound._messages) <= 4
    assert all(sum(map(len, key[2])) <= 4096 for key in world.inbound._messages)


async def test_what_policies_come_to_is_not_kept_for_every_mixture_of_labels(monkeypatch):
    monkeypatch.setattr(policies, "MOST_COMPILED", 4)
    world = World().begin()
    for number in range(4):
        world.policy(f"p{number}", targets={"podSelector": {"matchLabels": {f"l{number}": "yes"}}}, clients=[])
    for mixture in range(16):
        labels = {f"l{number}": "yes" for number in range(4) if mixture & 1 << number}
        world.put("pods", cluster_world.pod("shop", "db-0", account="db", labels=labels))
        assert names(await world.get()) == ([] if mixture else ["all-unauthenticated"])
        assert len(world.policies._compiled["shop"]) <= 4


async def test_a_policy_that_cannot_be_read_closes():
    world = World().begin()
    world.policy(targets={"ports": "all"}, clients=[{"unauthenticated": True}])
    assert names(await world.get()) == []


async def test_a_process_that_ends_ends_its_streams():
    world = World().begin()
    async with world.watching() as stream:
        world.inbound.close()
        world.outbound.close()
        await settle()
        assert (len(stream.messages), stream.refusal) == (1, None)
    assert len(world.inbound._subjects) == 0


async def test_without_settings_there_are_no_names():
    with pytest.raises(policies.NotKnown):
        World().policies.naming  # noqa: B018 - asking is what is refused


def test_the_methods_are_those_of_the_protocol():
    world = World()
    assert [method.name for method in world.inbound.methods()] == ["GetPort", "WatchPort"]
    assert [method.name for method in world.outbound.methods()] == ["Get", "Watch"]
