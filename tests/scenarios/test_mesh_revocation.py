# SPDX-License-Identifier: Apache-2.0
"""An identity of the mesh is taken back: the API, Certify and the agents refuse it; and what agents may watch and report.

On real processes: `handfast up`, `serve identity`, `serve destination`, and agents that know nothing but field numbers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest

from handfast.pki import bundles, chains, keys, pairs, pem
from handfast.runtime import clock as clocks
from tests.scenarios import agents_world, mesh_world, up_world
from tests.scenarios.agents_world import Workload
from tests.scenarios.mesh_world import identity_of
from tests.world import agent_client, mesh_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
until = up_world.until


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[agents_world.World]:
    with agents_world.world(tmp_path_factory.mktemp("revocation")) as world:
        yield world


@contextlib.contextmanager
def watching(world: agents_world.World, workload: Workload, first: bytes = b"") -> Iterator[agent_client.Agent]:
    """An agent that was told something."""
    with world.destination.watch(workload.pair, first) as agent:
        until(lambda: agent.updates, 20, f"the first update; it ended with {agent.ended}")
        yield agent


def test_an_agent_is_told_the_anchors_that_its_own_certificate_leads_to(world):
    web = Workload(world, "told", "web")
    with watching(world, web) as agent:
        anchors = bundles.TrustBundle.of(pem.certificates_from_pem(agent.last.anchors.encode()))
        chains.verify(web.pair.chain, anchors, chains.Client(), clocks.SystemClock().now())
        assert agent.last.policy


def test_a_revoked_account_is_refused_everywhere_and_comes_back(world):
    web, db = Workload(world, "shop", "web"), Workload(world, "shop", "db")
    with watching(world, db) as neighbour, watching(world, web) as own:
        before = neighbour.last.version
        told = world.revoke("shop/web", "--reason", "taken over")
        assert (told["revoked"], told["changed"], told["exists"]) == (True, True, True)
        assert [row["sha256"] for row in told["certificates"]] == [web.leaf.fingerprint]
        assert told["certificates"][0]["pod"] == "shop/web-1"
        # The neighbour is told, by name and by certificate; who is revoked is told, and its stream ends.
        until(lambda: web.name in neighbour.last.names, 20, "the name")
        until(lambda: web.digest in neighbour.last.certificates, 20, "the digest")
        assert db.name not in neighbour.last.names
        assert neighbour.last.version > before
        until(lambda: own.ended, 20, "the end of its stream")
        assert own.code == "PERMISSION_DENIED"
        assert web.digest in own.last.certificates
        # Neither certificates nor the API.
        until(lambda: not web.can_renew(), 20, "the refusal of Certify")
        assert not web.may_use_the_api()
        assert db.can_renew()
        with world.destination.watch(web.pair) as again:
            until(lambda: again.ended, 20, "a refusal")
            assert again.code == "PERMISSION_DENIED"
            assert not again.updates
        # Twice is once, and undone it is as before.
        assert world.revoke("shop/web")["changed"] is False
        undone = world.revoke("shop/web", "--undo")
        assert (undone["revoked"], undone["changed"], undone["namedBy"]) == (False, True, [])
        until(lambda: web.name not in neighbour.last.names, 20, "the name to go")
        assert web.digest not in neighbour.last.certificates
        until(web.can_renew, 20, "the next certificate")
        assert web.may_use_the_api()
        assert world.revoke("shop/web", "--undo")["changed"] is False


def test_a_revoked_pod_is_refused_and_its_neighbour_of_the_same_account_is_not(world):
    first, second = Workload(world, "pods", "web", "web-1"), Workload(world, "pods", "web", "web-2")
    with watching(world, second) as neighbour:
        told = world.revoke("--pod", "pods/web-1")
        assert told["pod"]["uid"]
        until(lambda: first.digest in neighbour.last.certificates, 20, "the digest")
        assert second.digest not in neighbour.last.certificates
        assert first.name not in neighbour.last.names
        until(lambda: not first.can_renew(), 20, "the refusal of Certify")
        assert not first.may_use_the_api()
        assert second.can_renew()
        assert second.may_use_the_api()
        assert neighbour.ended is None
        # Gone from the API it is still known by the ledger; the next of its name is another Pod.
        assert world.plane.call("DELETE", "/api/v1/namespaces/pods/pods/web-1?gracePeriodSeconds=0")[0] == 200
        again = world.revoke("--pod", "pods/web-1")
        assert (again["changed"], again["exists"]) == (False, False)
        anew = Workload(world, "pods", "web", "web-1")
        assert anew.digest not in neighbour.last.certificates
        assert world.revoke("--pod", "pods/web-1", "--undo")["changed"] is True
        until(lambda: first.digest not in neighbour.last.certificates, 20, "the digest to go")


def test_one_certificate_is_refused_by_its_serial_number(world):
    web = Workload(world, "serial", "web")
    stolen = web.leaf
    web.renew()
    with watching(world, web) as agent:
        told = world.revoke("--serial", stolen.serial.upper(), "--expires", "12h")
        assert [row["serial"] for row in told["certificates"]] == [stolen.serial]
        assert told["expires"]
        until(lambda: bytes.fromhex(stolen.fingerprint) in agent.last.certificates, 20, "the digest")
        assert web.digest not in agent.last.certificates
        assert agent.ended is None
        assert web.can_renew()
        world.revoke("--serial", stolen.serial, "--undo")
        until(lambda: bytes.fromhex(stolen.fingerprint) not in agent.last.certificates, 20, "the digest to go")


def test_a_revoked_node_takes_the_certificates_of_its_pods_with_it(world):
    web, db = Workload(world, "nodes", "web"), Workload(world, "nodes", "db")
    done = up_world.run("node", "revoke", "n1", "--dir", world.plane.directory)
    assert done.returncode == 0, done.stderr
    # All Pods of this test are on that node: so nobody is left to watch, and the objects tell.
    try:
        until(lambda: not web.can_renew(), 20, "the refusal of Certify")
        with world.destination.watch(db.pair) as agent:
            until(lambda: agent.ended, 20, "a refusal")
            assert agent.ended == ("PERMISSION_DENIED", "this certificate is revoked")
    finally:
        up_world.run("node", "revoke", "n1", "--undo", "--dir", world.plane.directory)
    until(web.can_renew, 20, "the next certificate")


def test_a_revocation_ends_by_itself(world):
    web, db = Workload(world, "brief", "web"), Workload(world, "brief", "db")
    with watching(world, db) as neighbour:
        world.revoke("brief/web", "--expires", "4s")
        # On a slow machine it may be over before the command is.
        until(lambda: any(web.name in update.names for update in neighbour.updates), 20, "the name")
        until(lambda: web.name not in neighbour.last.names, 20, "its end")
        until(web.can_renew, 20, "the next certificate")
        world.revoke("brief/web", "--undo")


def test_an_account_made_anew_does_not_get_back_what_it_had(world):
    old = Workload(world, "anew", "web")
    assert world.plane.call("DELETE", "/api/v1/namespaces/anew/serviceaccounts/web")[0] == 200
    assert not old.can_renew()
    world.plane.account("anew", "web")
    assert not old.can_renew(), "the token is that of an account with another UID"
    new = Workload(world, "anew", "web", "web-2")
    assert new.can_renew()


def test_who_is_nobody_is_told_nothing(world):
    with world.destination.watch(None) as agent:
        until(lambda: agent.ended, 20, "a refusal")
        assert agent.code == "UNAUTHENTICATED"
        assert not agent.updates


def test_reports_become_the_workload_of_the_pod_and_go_with_it(world):
    web = Workload(world, "reports", "web")
    peer = identity_of("reports", "db")
    with watching(world, web, agent_client.report(pod=("reports", "web-1"))) as agent:
        edge = agent_client.edge("inbound", peer, 8080, secured=True, count=3)
        agent.report(agent_client.report(agent.last.version, sha256=web.digest, edges=[edge]))
        until(lambda: web.observed().get("acknowledged") == agent.last.version, 30, "the acknowledgement")
        status = web.observed()
        assert (status["identity"], status["certificate"]["serial"]) == (web.name, web.leaf.serial)
        assert status["edges"] == [{"direction": "inbound", "peer": peer, "port": 8080, "secured": True, "count": 3}]
        # The next certificate of the same Pod.
        web.renew()
        agent.report(agent_client.report(sha256=web.digest))
        until(lambda: web.observed()["certificate"]["sha256"] == web.leaf.fingerprint, 30, "the next certificate")
    table = _table(world, "/apis/handfast.dev/v1alpha1/namespaces/reports/meshworkloads")
    assert table[:2] == ["web-1", web.name]
    assert world.plane.call("DELETE", "/api/v1/namespaces/reports/pods/web-1?gracePeriodSeconds=0")[0] == 200
    until(lambda: not web.observed(), 30, "the garbage collector")


def _table(world: agents_world.World, path: str) -> list[Any]:
    """The first row of a list, as kubectl prints it."""
    with contextlib.closing(world.plane.connection(world.plane.context())) as connection:
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        connection.request("GET", path, headers={"Accept": accept})

        return list(json.loads(connection.getresponse().read())["rows"][0]["cells"])


def test_nobody_reports_about_somebody_elses_pod(world):
    web, db = Workload(world, "else", "web"), Workload(world, "else", "db")
    neighbour = Workload(world, "else", "web", "web-2")
    for pod in (db.pod, neighbour.pod):
        with world.destination.watch(web.pair, agent_client.report(pod=("else", pod))) as agent:
            until(lambda: agent.ended, 20, "a refusal")
            assert agent.ended == ("PERMISSION_DENIED", f"the certificate is not that of Pod else/{pod}")
    with watching(world, web) as agent:
        agent.report(agent_client.report(sha256=db.digest))
        until(lambda: agent.ended, 20, "a refusal")
        assert agent.code == "PERMISSION_DENIED"
    assert not db.observed()
    assert not neighbour.observed()


def test_after_a_restart_agents_go_on_from_the_version_they_have(world):
    web = Workload(world, "restart", "web")
    with agents_world.Destination(world.plane, "one") as one:
        one.ready()
        with one.watch(web.pair) as agent:
            until(lambda: agent.updates, 20, "the first update")
            had = agent.last.version
            one.process.terminate()
            until(lambda: agent.ended, 20, "the end")
        assert agent.code in {"UNAVAILABLE", "CANCELLED"}
    with agents_world.Destination(world.plane, "one") as again:
        again.ready()
        with again.watch(web.pair, agent_client.report(had)) as agent:
            until(lambda: agent.updates, 20, "the next update")
            assert agent.last.version > had
        # Whoever has a version of another replica, whose clock is ahead, is sent a larger one all the same.
        with again.watch(web.pair, agent_client.report(had + 600_000)) as agent:
            until(lambda: agent.updates, 20, "the next update")
            assert agent.last.version > had + 600_000


def test_under_load_nothing_is_issued_once_the_revocation_is_seen(world):
    web, db = Workload(world, "load", "web"), Workload(world, "load", "db")
    with watching(world, db) as neighbour, concurrent.futures.ThreadPoolExecutor(8) as pool:
        stop: list[bool] = []
        calls = [0] * 8

        def ask(number: int) -> list[str]:
            """Certificates, until told to stop; after each: whether the Revocation was seen before it was asked for."""
            late = []
            while not stop:
                seen = web.name in neighbour.last.names
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answer = world.identity.certify(web.name, web.token)
                    if seen:
                        late.append(answer.leaf.hex())
                calls[number] += 1
            return late

        running = [pool.submit(ask, number) for number in range(8)]
        try:
            world.revoke("load/web")
            until(lambda: web.name in neighbour.last.names, 20, "the name")
            until(lambda: not web.can_renew(), 20, "the refusal of Certify")
            # Who asked before that may get one yet.
            done = list(calls)
            until(lambda: all(now > then for now, then in zip(calls, done, strict=True)), 60, "the last before that")
            before = len(world.identity.lines("issued certificate"))
            for _ in range(20):
                assert not web.can_renew()
            assert len(world.identity.lines("issued certificate")) == before
        finally:
            stop.append(True)
        assert [late for one in running for late in one.result(60)] == []
        # Whatever was issued until then is on the list, each by its digest.
        issued = {
            bytes.fromhex(line["sha256"])
            for line in world.identity.lines("issued certificate")
            if line["identity"] == web.name
        }
        until(lambda: issued <= set(neighbour.last.certificates), 20, "every digest")
    world.revoke("load/web", "--undo")


def test_up_with_a_mesh_has_the_agents_door(tmp_path):
    with mesh_world.Plane(tmp_path / "data", "--mesh", *mesh_world.FREE) as plane:
        plane.ready()
        token, name, key = plane.workload("shop", "web", "web-1"), identity_of("shop", "web"), keys.generate()
        target, answers = plane.facts["identity"], []

        def certify() -> bool:
            message = mesh_client.certify_request(name, token, mesh_world.csr(name, key))
            with contextlib.suppress(grpc.aio.AioRpcError):
                answers.append(asyncio.run(mesh_client.call(target, mesh_client.CERTIFY, message)))
            return bool(answers)

        until(certify, 30, "the first certificate")
        answer = mesh_client.certified(answers[0])
        pair = pairs.Pair((answer.leaf, *answer.intermediates), key)
        agents: list[agent_client.Agent] = []

        def told() -> bool:
            """Whether an agent is; one that comes before the door has its certificate tries again."""
            if not agents or agents[-1].ended is not None:
                agents.append(agents_world.watch(plane, plane.facts["agents"], pair))
            return bool(agents[-1].updates)

        with contextlib.ExitStack() as stack:
            until(told, 40, "the first update")
            agent = stack.enter_context(agents[-1])
            done = up_world.run("mesh", "revoke", "shop/web", "--dir", plane.directory)
            assert done.returncode == 0, done.stderr
            assert "1 in force, until " in done.stdout
            until(lambda: agent.ended, 20, "the end of its stream")
            assert (agent.code, name in agent.last.names) == ("PERMISSION_DENIED", True)


def test_mesh_accounts_may_not_write_workloads_but_the_controller(world):
    body: dict[str, Any] = {
        "spec": {
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "group": "handfast.dev",
                "resource": "meshworkloads",
                "verb": "create",
                "namespace": "shop",
            },
        }
    }
    allowed = {}
    for account in ("linkerd-identity", "linkerd-controller", "linkerd-proxy-injector"):
        body["spec"]["user"] = f"system:serviceaccount:{mesh_world.NAMESPACE}:{account}"
        answer = world.plane.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        allowed[account] = answer["status"]["allowed"]
    assert [account for account, yes in allowed.items() if yes] == ["linkerd-controller"]
