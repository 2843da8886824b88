# SPDX-License-Identifier: Apache-2.0
"""An agent's stream. The names of the table in `mesh/agents/watching.py` are here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from handfast import errors
from handfast.mesh import policies
from handfast.mesh.agents import watching
from handfast.rules.mesh import issuer, observed, reports
from handfast.wire import server
from tests.unit.mesh.agents.agents_world import ANCHORS, NAME, NOW, WEB, Agent, World, agent, peer
from tests.unit.rules.mesh.issued_cases import HOUR, entry, sha
from tests.world.clock import settle

USER = "system:serviceaccount:shop:web"


def world(*rows: Any) -> World:
    made = World()
    made.issue(*(rows or (WEB,)))
    made.know()
    made.running_pod()
    return made


async def refused(work: Any) -> tuple[str, str]:
    with pytest.raises(server.Refusal) as refusal:
        await work
    return refusal.value.code, refusal.value.message


async def test_it_is_one_method_of_its_service():
    ((name, methods),) = world().watching.services().items()
    assert (name, [method.name for method in methods]) == ("handfast.mesh.v1.Agent", ["Watch"])
    assert isinstance(methods[0], server.Duplex)


async def test_an_agent_is_told_anchors_deny_list_and_policy():
    async with world().running() as made, agent(made) as one:
        made.policy("shop", "p", clients=[{"namespace": "team"}])
        made.revoke(user="system:serviceaccount:shop:db")
        await made.tick()
        update = await one.update()
    assert update.anchors == ANCHORS
    assert list(update.deny.names) == [NAME.replace("web", "db")]
    permit = update.policy.ports[0].enforced.permits[0]
    assert (permit.suffix, permit.policy) == (".team.sa.linkerd-identity.linkerd.cluster.local", "shop/p")


async def test_an_anonymous_client_is_told_nothing():
    async with world().running() as made:
        one = Agent(made, peer(None))
        assert (await refused(one.update()))[0] == "UNAUTHENTICATED"
        late = Agent(made, peer(entry(lives=-HOUR)))
        assert (await refused(late.update()))[0] == "UNAUTHENTICATED"


async def test_who_is_not_in_the_ledger_is_told_nothing():
    async with world().running() as made:
        one = Agent(made, peer(entry(number=9)))
        waiting = asyncio.ensure_future(refused(one.update()))
        await settle()
        await made.clock.advance(6)
        assert (await waiting)[0] == "PERMISSION_DENIED"


async def test_a_certificate_that_comes_a_moment_later_is_waited_for():
    async with world().running() as made, agent(made, entry(number=2)) as one:
        waiting = asyncio.ensure_future(one.update())
        await settle()
        made.issue(entry(number=2))
        assert (await waiting).version


async def test_nothing_is_told_while_not_everything_is_known():
    made = World()
    made.issue(WEB)
    async with made.running():
        await made.tick()
        code, text = await refused(Agent(made, peer()).update())
    assert code == "UNAVAILABLE"
    assert "the Revocations are not known" in text


async def test_who_says_nothing_first_is_refused():
    async with world().running() as made:
        waiting = asyncio.ensure_future(refused(Agent(made, peer()).update()))
        await settle()
        await made.clock.advance(11)
        assert (await waiting)[0] == "INVALID_ARGUMENT"


async def test_a_change_comes_with_a_larger_version():
    async with world().running() as made, agent(made) as one:
        first = await one.update()
        waiting = asyncio.ensure_future(one.update())
        await settle()
        made.revoke(pod={"namespace": "shop", "name": "db-1"})
        await made.tick()
        assert not waiting.done(), "it names nobody who has a certificate"
        made.issue(entry("db", number=3, pod="shop/db-1/u-3/n1"))
        await made.tick()
        second = await waiting
        assert second.version > first.version
        assert list(second.deny.certificates) == [bytes.fromhex(sha("db 3"))]
        waiting = asyncio.ensure_future(one.update())
        await settle()
        made.undo()
        await made.tick()
        assert list((await waiting).deny.certificates) == []


async def test_a_policy_of_its_own_pod_comes_at_once_and_others_do_not():
    async with world().running() as made, agent(made) as one:
        first = await one.update()
        waiting = asyncio.ensure_future(one.update())
        await settle()
        made.policy("prod", "p", clients=[])
        made.policy("shop", "db", targets={"serviceAccounts": ["db"]}, clients=[])
        await made.tick()
        assert not waiting.done()
        made.policy("shop", "web", targets={"podSelector": {"matchLabels": {"a": "b"}}}, clients=[])
        await made.tick()
        assert not waiting.done()
        made.running_pod(labels={"a": "b"})
        second = await waiting
        assert second.version > first.version
        assert second.policy.ports[0].enforced.restricted


async def test_a_version_never_goes_back_for_an_agent():
    ahead = reports.version_at(NOW) + 60_000
    async with world().running() as made, agent(made, acknowledged=ahead) as one:
        assert made.announcement.version < ahead
        assert (await one.update()).version == ahead + 1
        made.revoke(user="system:serviceaccount:shop:db")
        await made.tick()
        assert (await one.update()).version == ahead + 2


async def test_a_version_from_the_future_is_refused():
    async with world().running() as made, agent(made, acknowledged=2**63) as one:
        assert (await refused(one.update()))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("spec", [{"user": USER}, {"pod": {"namespace": "shop", "name": "web-1"}}, {"node": "n1"}])
async def test_who_is_revoked_is_told_and_then_ended(spec):
    async with world().running() as made, agent(made) as one:
        await one.update()
        made.revoke(**spec)
        waiting = asyncio.ensure_future(one.update())
        await made.tick()
        assert list((await waiting).deny.certificates) == [bytes.fromhex(WEB.certificate)]
        assert await refused(one.update()) == ("PERMISSION_DENIED", "this certificate is revoked")
        assert (await refused(Agent(made, peer()).update()))[0] == "PERMISSION_DENIED"


async def test_the_stream_ends_with_its_certificate():
    async with world().running() as made, agent(made) as one:
        await one.update()
        waiting = asyncio.ensure_future(refused(one.update()))
        await made.clock.advance(HOUR.total_seconds() + 10)
        assert (await waiting)[0] == "UNAUTHENTICATED"


async def test_a_report_about_a_neighbour_ends_the_stream():
    async with world().running() as made, agent(made) as one:
        await one.update()
        one.report(pod={"namespace": "shop", "name": "web-2"})
        assert await refused(one.update()) == ("PERMISSION_DENIED", "the certificate is not that of Pod shop/web-2")
        assert made.workload("web-2") is None
    async with agent(made, pod={"namespace": "prod", "name": "web-1"}) as another:
        assert (await refused(another.update()))[0] == "PERMISSION_DENIED"


async def test_reports_become_the_object_of_the_pod():
    async with world().running() as made, agent(made) as one:
        update = await one.update()
        one.report(
            acknowledged=update.version,
            pod={"namespace": "shop", "name": "web-1"},
            edges=[{"direction": "inbound", "peer": "a.b", "port": 8080, "secured": True, "count": 3}],
        )
        await settle()
        await made.clock.advance(11)
        status = made.workload()["status"]
        assert (status["acknowledged"], status["current"]) == (update.version, update.version)
        assert (status["identity"], status["certificate"]["sha256"]) == (NAME, WEB.certificate)
        assert [edge["peer"] for edge in status["edges"]] == ["a.b"]
        # The next certificate, which has just been issued, at once.
        one.report(certificate={"sha256": bytes.fromhex(sha("web 2"))})
        await settle()
        made.issue(entry(number=2, lives=2 * HOUR))
        await made.tick()
        status = made.workload()["status"]
        assert (status["certificate"]["sha256"], len(status["edges"])) == (sha("web 2"), 1)


@pytest.mark.parametrize("there", ["another", "none"])
async def test_nothing_is_written_for_a_pod_that_is_not_there(there):
    made = world()
    made.remove("pods", "shop", "web-1")
    if there == "another":
        made.running_pod(uid="u-2")
    async with made.running(), agent(made) as one:
        await one.update()
        await made.tick()
    assert made.workload() is None


@pytest.mark.parametrize("there", ["another", "none"])
async def test_a_pod_that_is_not_there_lets_in_nobody(there):
    made = world()
    made.remove("pods", "shop", "web-1")
    if there == "another":
        made.running_pod(uid="u-2")
    async with made.running(), agent(made) as one:
        (rules,) = (await one.update()).policy.ports
        assert (rules.port, rules.enforced.restricted, len(rules.enforced.permits)) == (0, True, 0)
        # It comes a moment later.
        made.running_pod()
        assert not (await one.update()).policy.ports[0].enforced.restricted


async def test_policies_that_cannot_be_read_let_in_nobody_on_a_new_stream(monkeypatch):
    def unavailable(*_: object) -> None:
        raise errors.Unavailable("the policies are not known")

    made = world()
    async with made.running():
        monkeypatch.setattr(policies.Policies, "compiled", unavailable)
        async with agent(made) as one:
            (rules,) = (await one.update()).policy.ports
            assert (rules.port, rules.enforced.restricted, len(rules.enforced.permits)) == (0, True, 0)


async def test_a_pod_that_is_deleted_while_it_runs_keeps_its_policy():
    made = world()
    made.policy("shop", "p", clients=[{"serviceAccount": {"name": "api"}}])
    async with made.running(), agent(made) as one:
        before = (await one.update()).policy
        assert before.ports[0].enforced.restricted
        made.remove("pods", "shop", "web-1")
        made.revoke(user="system:serviceaccount:shop:db")
        await made.tick()
        assert (await one.update()).policy == before


async def test_a_certificate_of_no_pod_watches_and_reports_nothing():
    own = entry(number=5, pod="")
    async with world(own).running() as made, agent(made, own) as one:
        update = await one.update()
        assert not update.HasField("policy")
        one.report(acknowledged=update.version)
        await made.tick()
        assert not [key for key in made.api.objects if key[0] == "meshworkloads"]


async def test_which_anchors_an_agent_has_is_what_it_was_sent():
    def roots() -> list[str]:
        return list(made.workload()["status"]["anchors"])

    def digests(text: str) -> list[str]:
        return [anchor.fingerprint for anchor in issuer.read_anchors(text.encode()).anchors]

    # It says that it has the newest there can be; by which anchors, nobody knows.
    async with world().running() as made, agent(made, acknowledged=reports.version_at(NOW)) as one:
        first = await one.update()
        await made.tick()
        assert roots() == []
        one.report(acknowledged=first.version)
        await made.tick()
        # Soon, and not as often as it likes.
        await made.clock.advance(observed.ANCHORS_SECONDS)
        await made.tick()
        assert roots() == digests(ANCHORS)
        both = ANCHORS + issuer.generate(NOW).anchors.decode()
        made.anchor(both)
        await made.tick()
        second = await one.update()
        assert roots() == digests(ANCHORS)
        # Another change, with the same anchors, comes before it says anything.
        made.revoke(user="system:serviceaccount:shop:db")
        await made.tick()
        third = await one.update()
        assert third.version > second.version
        one.report(acknowledged=third.version)
        # Without waiting for the next write of anything else.
        await made.tick()
        await made.clock.advance(observed.ANCHORS_SECONDS)
        await made.tick()
        assert roots() == digests(both)


async def test_that_an_agent_acknowledges_nothing_is_seen():
    async with world().running() as made, agent(made) as one:
        await one.update()
        made.revoke(user="system:serviceaccount:shop:db")
        await made.tick()
        update = await one.update()
        await made.clock.advance(21)
        assert made.workload()["status"]["current"] == update.version
        assert made.workload()["status"]["acknowledged"] == 0


async def test_what_was_never_sent_is_not_acknowledged():
    async with world().running() as made, agent(made) as one:
        update = await one.update()
        one.report(acknowledged=update.version + 1)
        assert (await refused(one.update()))[0] == "INVALID_ARGUMENT"


async def test_the_oldest_stream_makes_room():
    async with world().running() as made:
        ours = [Agent(made, peer()) for _ in range(watching.MAX_OF_ONE + 1)]
        for one in ours:
            one.report()
            await one.update()
        assert await refused(ours[0].update()) == ("ABORTED", "a newer stream of the same workload took its place")
        # Those that are to end and do not read it count, too, up to a bound.
        more = [Agent(made, peer()) for _ in range(watching.MAX_OF_ONE)]
        for one in more:
            one.report()
            await one.update()
        last = Agent(made, peer())
        last.report()
        assert (await refused(last.update()))[0] == "RESOURCE_EXHAUSTED"
        for one in (*ours, *more):
            await one.close()


async def test_streams_that_say_nothing_are_counted_too():
    async with world().running() as made:
        silent = [Agent(made, peer()) for _ in range(20)]
        waiting = [asyncio.ensure_future(refused(one.update())) for one in silent]
        await settle()
        assert sum(each.done() for each in waiting) == 20 - 2 * watching.MAX_OF_ONE
        assert {each.result()[0] for each in waiting if each.done()} == {"RESOURCE_EXHAUSTED"}
        await made.clock.advance(11)
        await asyncio.gather(*waiting)
        async with agent(made) as one:
            assert (await one.update()).version


async def test_there_are_so_many_streams_and_no_more(monkeypatch):
    monkeypatch.setattr(watching, "MAX_STREAMS", 1)
    other = entry("db", number=2, pod="shop/db-1/u-2/n1")
    async with world(WEB, other).running() as made, agent(made) as one:
        await one.update()
        second = Agent(made, peer(other, NAME.replace("web", "db")))
        second.report()
        assert (await refused(second.update()))[0] == "RESOURCE_EXHAUSTED"


async def test_who_reads_slowly_gets_the_newest():
    async with world().running() as made, agent(made) as one:
        await one.update()
        for number in range(5):
            made.revoke(f"r{number}", user=f"system:serviceaccount:shop:a{number}")
            await made.tick()
        update = await one.update()
        assert len(update.deny.names) == 5
        assert update.version == made.announcement.version


async def test_reports_are_read_no_faster_than_they_may_come():
    async with world().running() as made, agent(made) as one:
        await one.update()
        for _ in range(30):
            one.report()
        waiting = asyncio.ensure_future(one.update())
        await settle()
        read = one.read
        assert read < 20
        await made.clock.advance(2)
        assert read < one.read <= read + 5
        waiting.cancel()
        await settle()


async def test_a_report_is_decoded_with_its_bounds():
    edge = {"direction": "inbound", "port": 1}
    async with world().running() as made, agent(made, edges=[edge] * 300) as one:
        assert (await refused(one.update()))[0] == "INVALID_ARGUMENT"
    async with made.running(), agent(made, pod={"namespace": "x" * 70_000}) as one:
        assert (await refused(one.update()))[0] == "INVALID_ARGUMENT"


async def test_every_stream_ends_when_the_process_stops():
    async with world().running() as made, agent(made) as one:
        await one.update()
        made.watching.close()
        assert (await refused(one.update()))[0] == "UNAVAILABLE"


async def test_while_policies_are_not_known_what_was_told_counts():
    async with world().running() as made, agent(made) as one:
        made.policy("shop", "p", clients=[])
        first = await one.update()
        assert first.policy.ports[0].enforced.restricted
        made.cluster._mesh = None
        made.revoke(user="system:serviceaccount:shop:db")
        waiting = asyncio.ensure_future(one.update())
        await made.tick()
        made.issue(entry("db", number=3))
        await made.tick()
        assert (await waiting).policy == first.policy


async def test_pods_of_the_same_rules_share_what_is_encoded(monkeypatch):
    monkeypatch.setattr(watching, "_MOST_ENCODED", 1)
    other = entry(number=2, pod="shop/web-2/u-2/n1")
    made = world(WEB, other)
    made.running_pod("web-2", "u-2", labels={"a": "b"})
    async with made.running(), agent(made) as one, agent(made, other) as two:
        first, second = await one.update(), await two.update()
        assert len(made.watching._encoded) == 1
        assert first.policy == second.policy
        made.policy("shop", "p", targets={"podSelector": {"matchLabels": {"a": "b"}}}, clients=[])
        assert (await two.update()).policy.ports[0].enforced.restricted
        assert len(made.watching._encoded) == 1
