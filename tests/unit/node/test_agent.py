# SPDX-License-Identifier: Apache-2.0
"""The agent as a whole: what starts when, what it says of itself, when it gives up. With real processes it is shown in
tests/scenarios/test_node_agent.py."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, cast

import prometheus_client
import pytest
import structlog

from handfast import errors
from handfast.api import status
from handfast.bootstrap import kubeconfig
from handfast.client import api, cluster_cache, requests, watch
from handfast.node import agent, certificate_store, configuration_state, identity, report, root_files
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.node import pairing
from tests.unit.pki.making import ca
from tests.world.clock import START, MovableClock, settle

FRESH: dict[str, Any] = {"begins": START - pairing.HOUR, "lasts": 100 * pairing.HOUR}
# A minute is left.
ENDING: dict[str, Any] = {"begins": START - pairing.HOUR, "lasts": pairing.HOUR * 61 / 60}
SERVER = "https://127.0.0.1:1"


class Fake(FakeClient):
    """… with a transport, since watches and switches go there, and a Node whose status may be patched."""

    def __init__(self, transport):
        super().__init__()
        self.transport = transport

    async def patch(self, resource, name, patch, **_):
        found = self._find("patch", resource, name, "")
        found["status"] = patch.get("status", found.get("status"))
        return self._wrote("patch", resource, name, found)


class Machine:
    """A directory, an agent on it, and time."""

    def __init__(self, root):
        self.root = root
        self.clock = MovableClock()
        self.pki = root / "pki"
        self.own = root / "kubelet.conf"
        self.store = certificate_store.CertificateStore(self.pki, certificate_store.CLIENT, self.clock)

    def config(self, server=SERVER, ca=pairing.CA.pem, **user):
        cluster = kubeconfig.Cluster(name="c", server=server, certificate_authority_data=ca)
        who = kubeconfig.User(name="u", **user)
        self.own.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=cluster, user=who)))

    def joined(self, **when):
        """As a join leaves it."""
        self.store.save(pairing.pair(**(when or FRESH)))
        current = str(self.store.current)
        self.config(client_certificate=current, client_key=current)
        return self

    @contextlib.contextmanager
    def agent(self, *, rotate=True, **options):
        places = identity.Places(node="n1", kubeconfig=self.own, directory=self.pki, rotate=rotate)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield agent.Agent(
                agent.Options(places=places, node_ip=("192.0.2.7",), **options),
                listener,
                clock=self.clock,
                chance=lambda: 0.0,
            )

    @contextlib.asynccontextmanager
    async def running(self, **options):
        with self.agent(**options) as made:
            task = asyncio.ensure_future(made.run())
            await self.turns(20)
            try:
                yield made, task
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, errors.HandfastError):
                    await task

    async def turns(self, count, step=0.5):
        """Time passes, and the network goes at its own pace."""
        for _ in range(count):
            await self.clock.advance(step)
            await asyncio.sleep(0.001)
            await settle()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(api, "Client", Fake)
    return Machine(tmp_path)


def objects(made):
    return made.identity.client.objects


class TestRunning:
    async def test_all_parts_start(self, machine, monkeypatch):
        async def follow(_self):
            await asyncio.Event().wait()

        monkeypatch.setattr(watch.Reflector, "_watch", follow)
        async with machine.joined().running() as (made, task):
            await machine.turns(20)
            assert not task.done()
            assert ("nodes", "", "n1") in objects(made)
            owner = objects(made)["leases", "kube-node-lease", "n1"]["metadata"]["ownerReferences"][0]
            assert owner["uid"] == made.registration.uid
            assert made.health.report("readyz") == (True, "ok")
            written = report.read(machine.pki)
            assert written is not None
            assert (written.node, written.phase, written.problems) == ("n1", "running", {})
            assert written.server == SERVER
            assert written.endpoint.startswith("https://127.0.0.1:")
            assert written.next_renewal
        # What it says of itself ends with it.
        assert report.read(machine.pki) is None

    async def test_before_a_certificate_only_static_pods(self, machine, monkeypatch):
        manifests = machine.root / "manifests"
        manifests.mkdir()
        (manifests / "a.yaml").write_text(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
        )
        (manifests / "bad").write_text("x: y")

        async def never(*_, **__):
            raise errors.Unavailable("nobody is there", reason="Unreachable")

        monkeypatch.setattr(requests, "file_and_wait", never)
        machine.joined(begins=START - 2 * pairing.HOUR, lasts=pairing.HOUR)
        async with machine.running(static_pods=manifests, patience=60.0) as (made, task):
            assert [pod.name for pod in made.static_pods.pods] == ["p-n1"]
            assert objects(made) == {}
            well, text = made.health.report("readyz")
            assert not well
            assert "[-]certificate failed: it expired at " in text
            assert "nobody is there" in text
            assert "[-]lease failed: the node is not registered yet" in text
            assert "[-]static-pods failed: bad: " in text
            assert made.report().phase == "waiting for a certificate"
            # Then it gives up, so that somebody starts it again.
            await machine.turns(150)
            assert task.done()
            with pytest.raises(errors.Unavailable) as given_up:
                task.result()
            assert given_up.value.reason == "BootstrapTimeout"

    async def test_a_token_has_no_certificate(self, machine):
        machine.config(token="t")
        async with machine.running(rotate=False) as (made, task):
            await machine.turns(20)
            assert not task.done()
            assert made._certificate() is None
            assert made.report().certificate == ""

    async def test_a_certificate_of_no_use_ends_it(self, machine, monkeypatch):
        async def refuse(*_, **__):
            raise status.StatusError("Unauthorized", "Unauthorized")

        monkeypatch.setattr(requests, "file_and_wait", refuse)
        machine.joined(**ENDING)
        async with machine.running() as (made, task):
            await machine.turns(50, 10.0)
            assert task.done()
            with pytest.raises(errors.Unavailable) as ended:
                task.result()
            assert ended.value.reason == "CertificateExpired"
            assert "the last error: Unauthorized" in ended.value.message
            assert made.identity.keeper.renew_errors > 0

    async def test_not_while_the_server_is_away(self, machine, monkeypatch):
        async def away(*_, **__):
            raise errors.Unavailable("nobody is there", reason="Unreachable")

        monkeypatch.setattr(requests, "file_and_wait", away)
        machine.joined(**ENDING)
        async with machine.running() as (made, task):
            await machine.turns(50, 10.0)
            assert not task.done()
            assert "it expired at " in made.health.report("readyz")[1]


class TestRenewal:
    async def test_asked_for(self, machine, monkeypatch):
        async def answer(_client, key, _wanted, **_):
            return pairing.pair(begins=machine.clock.now(), key=key).certificate_pem

        monkeypatch.setattr(requests, "file_and_wait", answer)
        async with machine.joined().running() as (made, _task):
            before = made.report().certificate
            report.ask_to_rotate(machine.pki)
            await machine.turns(20)
            assert made.report().certificate not in {"", before}

    async def test_refused_where_rotation_is_off(self, machine):
        async with machine.joined().running(rotate=False) as (made, _task):
            report.ask_to_rotate(machine.pki)
            await machine.turns(10)
            assert made.report().last_error == "certificates are not rotated by this agent"
            assert made.report().next_renewal == ""

    async def test_scarce_is_a_problem(self, machine):
        machine.joined(begins=START - 97 * pairing.HOUR, lasts=100 * pairing.HOUR)
        with machine.agent() as made:
            assert "and was not renewed" in made._certificate()
            assert made._not_ready().startswith("certificate: it expires at ")

    async def test_pods_that_are_not_listed(self, machine):
        with machine.joined().agent() as made:
            assert made._not_ready() == "pods: the Pods of this node are not listed yet"
            made.pods.synced = True
            assert made._not_ready() is None


class TestServing:
    async def test_of_the_cluster(self, machine, monkeypatch):
        async def answer(_client, key, wanted, **_):
            return pairing.pair(begins=machine.clock.now(), key=key, sans=wanted.sans).certificate_pem

        monkeypatch.setattr(requests, "file_and_wait", answer)
        async with machine.joined().running(rotate_server=True) as (made, _task):
            assert made.serving is not None
            await machine.turns(40)
            assert made.serving.usable()
            assert made._serving() is None
            assert made.report().serving_not_after
            assert b"kubelet_certificate_manager_server_ttl_seconds" in prometheus_client.generate_latest(made.metrics)

    async def test_none_yet(self, machine, monkeypatch):
        async def refuse(*_, **__):
            raise errors.Refused("denied", reason="RequestDenied")

        monkeypatch.setattr(requests, "file_and_wait", refuse)
        with machine.joined().agent(rotate_server=True) as made:
            assert made._serving() == "there is none in force"
            await made.serving._attempt("now")
            assert made._serving() == "there is none in force: denied"


class TestCluster:
    async def test_a_kubeconfig_that_changes_counts(self, machine):
        async with machine.joined().running() as (made, _task):
            await machine.turns(10)
            machine.own.write_text(machine.own.read_text().replace("127.0.0.1:1", "127.0.0.1:2"))
            with structlog.testing.capture_logs() as lines:
                await machine.turns(70, 1.0)
            assert "the kubeconfig names another server or CA" in [line["event"] for line in lines]
            assert made.report().server == "https://127.0.0.1:2"
            link = made.identity.client.transport._connection
            assert link.server == "https://127.0.0.1:2"
            assert link.cert_pem == made.identity.keeper.current().certificate_pem
            # A renewal does not lead back to where it started.
            await made.identity._switch(made.identity.keeper.current())
            assert made.identity.client.transport._connection.server == "https://127.0.0.1:2"

    async def test_clients_of_the_endpoint_are_judged_by_the_ca_of_now(self, machine):
        async with machine.joined().running() as (made, _task):
            await machine.turns(10)
            current = str(machine.store.current)
            other = ca("another")
            machine.config(ca=other.pem, client_certificate=current, client_key=current)
            await machine.turns(70, 1.0)
            assert made._secure._client_ca == other.pem

    async def test_one_whose_ca_cannot_be_used_changes_nothing(self, machine):
        async with machine.joined().running() as (made, task):
            await machine.turns(10)
            current = str(machine.store.current)
            machine.config(ca=b"no certificate", client_certificate=current, client_key=current)
            with structlog.testing.capture_logs() as lines:
                await machine.turns(70, 1.0)
            assert "the kubeconfig's server or CA cannot be used" in [line["event"] for line in lines]
            assert not task.done()
            assert made.identity.connection().ca_pem == made._secure._client_ca == pairing.CA.pem

    async def test_one_that_cannot_be_read_changes_nothing(self, machine):
        async with machine.joined().running() as (made, _task):
            await machine.turns(10)
            machine.own.write_text("broken: [")
            await machine.turns(70, 1.0)
            assert made.report().server == SERVER

    @pytest.mark.parametrize(("own", "kept"), [(True, True), (False, False)])
    async def test_only_what_a_join_wrote_is_refreshed(self, machine, monkeypatch, own, kept):
        refreshed = []

        async def keep_fresh(path, *_):
            refreshed.append(path)

        monkeypatch.setattr(cluster_cache, "keep_fresh", keep_fresh)
        machine.joined()
        if not own:
            pair = pairing.pair(**FRESH)
            machine.config(client_certificate_data=pair.certificate_pem, client_key_data=pair.key_pem)
        async with machine.running(rotate=False):
            await machine.turns(20)
        assert (refreshed == [machine.own]) is kept

    def test_a_kubeconfig_that_is_none(self, machine):
        with machine.joined().agent() as made:
            machine.own.write_bytes(b"\xff")
            assert not made.identity.wrote_kubeconfig()


def test_the_endpoints_url():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert agent._url(listener) == f"https://127.0.0.1:{listener.getsockname()[1]}"

    class Six:
        def getsockname(self):
            return ("::", 10250, 0, 0)

    assert agent._url(cast("socket.socket", Six())) == "https://[::]:10250"


class TestConfiguration:
    async def test_an_agent_that_follows_has_a_check_and_metrics_and_one_that_does_not_has_neither(self, tmp_path):
        machine = Machine(tmp_path).joined()
        (tmp_path / "root").mkdir()
        root = root_files.Root(tmp_path / "root")
        with machine.agent(machine=configuration_state.Machine(root)) as made:
            assert made.configuration is not None
            assert made.health.ready["configuration"]() is None
            text = prometheus_client.generate_latest(made.metrics).decode()
            assert 'handfast_node_configuration_state{state="Done"} 0.0' in text
            # Its own files lie elsewhere, and only the records are below the root.
            assert made.configuration._own == (configuration_state.DIRECTORY,)
            await made.identity.close()
        root.close()
        with machine.agent() as made:
            assert made.configuration is None
            assert "configuration" not in made.health.ready
            assert "handfast_node_configuration" not in prometheus_client.generate_latest(made.metrics).decode()
            await made.identity.close()

    async def test_what_is_the_agents_own_below_the_root_is_no_configurations(self, tmp_path):
        machine = Machine(tmp_path).joined()
        root = root_files.Root(tmp_path)
        with machine.agent(machine=configuration_state.Machine(root)) as made:
            assert made.configuration is not None
            assert made.configuration._own == ("/kubelet.conf", "/pki", configuration_state.DIRECTORY)
            await made.identity.close()
        root.close()
