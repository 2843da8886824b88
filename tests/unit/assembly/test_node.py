# SPDX-License-Identifier: Apache-2.0
"""The agent as a process: one owner of a directory, its options, and a certificate that was used once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from handfast import errors
from handfast.api import status
from handfast.assembly import node, node_config
from handfast.bootstrap import kubeconfig
from handfast.client import api, connection, requests
from handfast.node import agent, certificate_store, identity
from tests.unit.controllers.fake_api import FakeClient, failing
from tests.unit.node import pairing
from tests.world import tls_cluster
from tests.world.clock import START, MovableClock, settle

FRESH: dict[str, Any] = {"begins": START - pairing.HOUR, "lasts": 100 * pairing.HOUR}


class Machine:
    def __init__(self, root, monkeypatch):
        self.root = root
        self.clock = MovableClock()
        self.client = FakeClient()
        self.where = identity.Places(
            node="n1",
            kubeconfig=root / "kubelet.conf",
            bootstrap_kubeconfig=root / "bootstrap.conf",
            directory=root / "pki",
        )
        self.config(self.where.bootstrap_kubeconfig)
        monkeypatch.setattr(api, "Client", self.connected)
        monkeypatch.setattr(requests, "file_and_wait", self.issue)

    def connected(self, transport):
        self.client.transport = transport
        return self.client

    async def issue(self, _client, key, _wanted, **_):
        return pairing.pair(begins=START, key=key).certificate_pem

    def config(self, path, ca=pairing.CA.pem):
        cluster = kubeconfig.Cluster(name="c", server="https://127.0.0.1:1", certificate_authority_data=ca)
        user = kubeconfig.User(name="u", token="t")
        path.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=cluster, user=user)))

    def store(self):
        return certificate_store.CertificateStore(self.where.directory, certificate_store.CLIENT, self.clock)

    async def obtain(self, seconds=9):
        """While time passes."""
        task = asyncio.ensure_future(node.obtain(self.where, seconds, clock=self.clock))
        while not task.done():
            await settle(25)
            await self.clock.advance(0.25)
        return task.result()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


class TestObtain:
    async def test_a_new_one(self, machine):
        found = await machine.obtain()
        assert (found.is_new, found.node_existed) == (True, False)
        assert machine.store().load() == found.pair
        assert machine.where.kubeconfig.exists()

    async def test_one_that_is_there_is_tried(self, machine):
        machine.store().save(pairing.pair(**FRESH))
        machine.client.put("nodes", "n1")
        found = await machine.obtain()
        assert (found.is_new, found.node_existed) == (False, True)

    @pytest.mark.parametrize("reason", ["Unauthorized", "Forbidden"])
    async def test_one_of_another_cluster(self, machine, reason):
        machine.store().save(pairing.pair(**FRESH))
        machine.client.before = failing(status.StatusError(reason, "no"))
        with pytest.raises(errors.Refused) as refused:
            await machine.obtain()
        assert refused.value.reason == "CertificateRefused"
        assert "may be another cluster's" in refused.value.message
        assert "kubelet-client-current.pem" in str(refused.value.hint)

    async def test_a_new_one_that_is_not_accepted(self, machine):
        machine.client.before = failing(status.StatusError("Unauthorized", "no"))
        with pytest.raises(errors.Refused) as refused:
            await machine.obtain()
        assert "have certificates signed by the CA that the API server trusts" in str(refused.value.hint)

    @pytest.mark.parametrize("reason", ["Unauthorized", "Forbidden"])
    async def test_a_refusal_of_the_clusters_own_certificate_may_pass(self, machine, reason):
        """Before that the Node of this name is looked at."""
        left = [status.StatusError(reason, "no") for _ in range(3)]

        def refuse(*_):
            if left:
                raise left.pop()

        machine.client.before = refuse
        assert (await machine.obtain()).is_new

    async def test_it_is_believed_after_half_a_minute(self, machine):
        machine.client.before = failing(status.StatusError("Unauthorized", "no"))
        begun = machine.clock.monotonic()
        with pytest.raises(errors.Refused) as refused:
            await machine.obtain(300)
        assert refused.value.reason == "CertificateRefused"
        assert 10 < machine.clock.monotonic() - begun < 35

    async def test_the_ca_that_signed_is_named_where_it_is_not_the_clusters(self, machine, monkeypatch):
        machine.client.before = failing(status.StatusError("Unauthorized", "no"))
        with pytest.raises(errors.Refused) as refused:
            await machine.obtain()
        assert "signed by" not in refused.value.message
        # The same name, and another key: only the pin tells them apart.
        other = tls_cluster.Authority(name="other", now=START - pairing.HOUR)
        machine.config(machine.where.kubeconfig, other.pem)
        with pytest.raises(errors.Refused) as refused:
            await machine.obtain()
        assert (
            f"it was signed by {pairing.pair(**FRESH).leaf.issuer}, and should have been by " in refused.value.message
        )
        assert f"the cluster's CA, CN=other ({other.pin})" in refused.value.message

    async def test_other_answers_are_themselves(self, machine):
        machine.client.before = failing(status.StatusError("InternalError", "broken"))
        with pytest.raises(status.StatusError, match="broken"):
            await machine.obtain()

    @pytest.mark.parametrize(
        "trouble",
        [
            status.StatusError("TooManyRequests", "later", retry_after=3),
            errors.Unavailable("reset", reason="Unreachable"),
        ],
    )
    async def test_a_server_that_is_busy_is_asked_again(self, machine, trouble):
        """As behind an address that many share: the certificate is there, and only its first use is put off."""
        # At its first use, and when the Node of this name is looked at before.
        left = [trouble, trouble]

        def busy(*_):
            if left:
                raise left.pop()

        machine.client.before = busy
        begun = machine.clock.monotonic()
        assert (await machine.obtain()).is_new
        assert machine.clock.monotonic() - begun >= (3 if isinstance(trouble, status.StatusError) else 1)

    @pytest.mark.parametrize(
        "trouble",
        [
            status.StatusError("TooManyRequests", "later", retry_after=30),
            errors.Unavailable("reset", reason="Unreachable"),
        ],
    )
    async def test_a_server_that_stays_busy_is_given_up(self, machine, trouble):
        machine.client.before = failing(trouble)
        with pytest.raises(type(trouble)) as caught:
            await machine.obtain()
        assert caught.value is trouble

    async def test_a_living_node_of_this_name_is_told_of_before_anything_is_asked_for(self, machine):
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
        machine.client.put("nodes", "n1", status={"conditions": [ready]})

        def on_waiting(reason: str, message: str) -> None:
            raise requests.NotWaitedFor(message, reason=reason)

        with pytest.raises(requests.NotWaitedFor, match="Ready since 2030-01-01T00:00:00Z") as refused:
            await node.obtain(machine.where, 9, clock=machine.clock, on_waiting=on_waiting)
        assert refused.value.reason == "NodeIsAlive"
        assert not machine.store().has_pending_key()
        # A dry run says the same, before the server is asked what it would do.
        asked = connection.load(str(machine.where.bootstrap_kubeconfig))
        with pytest.raises(requests.NotWaitedFor, match="Ready since 2030-01-01T00:00:00Z"):
            await node.rehearse(machine.where, asked, clock=machine.clock, on_waiting=on_waiting)
        assert not machine.where.directory.joinpath("kubelet-client-current.pem").exists()
        # Whoever does not mind waits, as a kubelet does.
        assert (await machine.obtain()).node_existed
        # With a certificate of its own, it is that node.
        assert not (await node.obtain(machine.where, 9, clock=machine.clock, on_waiting=on_waiting)).is_new

    async def test_a_dead_node_of_this_name_is_not_waited_for(self, machine):
        def on_waiting(reason: str, message: str) -> None:
            raise AssertionError(f"{reason}: {message}")

        machine.client.put("nodes", "n1", status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
        assert (await node.obtain(machine.where, 9, clock=machine.clock, on_waiting=on_waiting)).node_existed

    async def test_a_token_is_no_certificate(self, machine):
        machine.config(machine.where.kubeconfig)
        with pytest.raises(errors.Refused) as refused:
            await machine.obtain()
        assert refused.value.reason == "NoCertificate"


def test_one_owner(tmp_path):
    with node.owned(tmp_path / "pki"):
        with pytest.raises(errors.Refused) as refused, node.owned(tmp_path / "pki"):
            pytest.fail("two owners")
        assert refused.value.reason == "DirectoryInUse"
        assert "--cert-dir" in str(refused.value.hint)
    with node.owned(tmp_path / "pki"):
        pass


async def test_the_agent_runs_with_what_the_configuration_says(machine, monkeypatch):
    made: list[Any] = []

    class Agent:
        def __init__(self, options, listener, *, clock):
            made.append((options, listener.getsockname()[1], clock))

        async def run(self):
            made.append("ran")

    monkeypatch.setattr(agent, "Agent", Agent)
    found = node_config.resolve(
        {
            "kubeconfig": str(machine.where.kubeconfig),
            "cert_dir": str(machine.where.directory),
            "node_name": "N1",
            "node_ip": "192.0.2.1",
            "rotate_certificates": "true",
            "rotate_server_certificates": "true",
            "static_pods_dir": "/manifests",
            "listen": "127.0.0.1:0",
            "feature_gates": "Other=true",
        },
        {},
    )
    with structlog.testing.capture_logs() as lines:
        await node.run(found, clock=machine.clock)
    (options, port, clock), ran = made
    assert (options.places.node, options.places.rotate, options.rotate_server) == ("n1", True, True)
    assert (options.node_ip, str(options.static_pods)) == (("192.0.2.1",), "/manifests")
    assert (port > 0, clock, ran) == (True, machine.clock, "ran")
    assert [line["event"] for line in lines] == [
        "feature gate Other is not known and was ignored",
        "the node agent starts",
    ]


class TestMachineBelow:
    def test_nothing_is_opened_where_no_configuration_is_followed(self, tmp_path):
        with node.machine_below(node_config.resolve({"root": str(tmp_path / "none")}, {})) as machine_state:
            assert machine_state is None

    def test_the_records_are_there_before_the_agent_starts(self, tmp_path):
        resolved = node_config.resolve({"root": str(tmp_path), "machine_config": "true"}, {})
        with node.machine_below(resolved) as machine_state:
            assert machine_state is not None
            assert (tmp_path / "var/lib/handfast/configuration/kept").is_dir()

    @pytest.mark.parametrize(("name", "words"), [("file", "a part of this path is a file"), ("none", "no such file")])
    def test_a_root_that_cannot_be_used_is_refused_with_the_flag(self, tmp_path, name, words):
        (tmp_path / "file").write_text("")
        resolved = node_config.resolve({"root": str(tmp_path / name), "machine_config": "true"}, {})
        with pytest.raises(errors.Refused, match=words) as caught, node.machine_below(resolved):
            pass
        assert "name another directory with --root" in (caught.value.hint or "")

    def test_a_root_that_cannot_be_written_is_refused_before_the_agent_starts(self, tmp_path, monkeypatch):
        def read_only(*_, **__):
            raise OSError(30, "Read-only file system")

        resolved = node_config.resolve({"root": str(tmp_path), "machine_config": "true"}, {})
        monkeypatch.setattr("os.mkdir", read_only)
        with pytest.raises(errors.Refused, match="read-only file system"), node.machine_below(resolved):
            pass
