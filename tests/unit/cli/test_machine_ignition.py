# SPDX-License-Identifier: Apache-2.0
"""`handfast machine ignition`: what is printed, what is kept, and what is refused before anything is made."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from handfast.cli import connecting, main, output
from handfast.client import connection
from handfast.datadir import endpoints, layout, preparation
from handfast.pki import authority, keys, names
from handfast.rules.machine_config import ignition_secrets
from handfast.rules.machine_config import names as config_names
from handfast.rules.machines import bootstrapper
from handfast.runtime.addresses import Address
from tests.unit.cli.fleet_api import FleetApi
from tests.world.clock import MovableClock

NOW = MovableClock().now()
CA = authority.self_signed_ca(names.Subject(common_name="ca"), keys.generate(), NOW).pem
FLEET = "openshift-machine-api"


class Server(FleetApi):
    """A cluster that is reached as `api.example`."""

    ca: bytes | None = CA

    @property
    def connection(self) -> connection.Connection:
        return connection.Connection(server="https://api.example:6443", ca_pem=self.ca)


@pytest.fixture
def server(monkeypatch):
    made = Server()
    made.put("machineconfigpools", "worker")
    monkeypatch.setattr(connecting, "connected", made.connected)
    return made


def run(*words: object) -> int:
    return int(output.run(main.command, ["machine", "ignition", *map(str, words), "--kubeconfig", "k"]))


def pointer(text: str) -> tuple[str, str, bytes]:
    """URL, secret and CA of a pointer configuration."""
    ignition = json.loads(text)["ignition"]
    (merge,) = ignition["config"]["merge"]
    (header,) = merge["httpHeaders"]
    (ca,) = ignition["security"]["tls"]["certificateAuthorities"]
    return merge["source"], header["value"].removeprefix("Bearer "), base64.b64decode(ca["source"].rpartition(",")[2])


def kept(server: Server, name: str) -> list[str]:
    document: dict[str, Any] = server.objects["secrets", bootstrapper.NAMESPACE, name]
    return [entry.digest for entry in ignition_secrets.read(document)]


def test_a_pools_pointer_leads_to_the_host_of_the_api_server(server, capsys):
    assert run("--pool", "worker") == 0
    shown = capsys.readouterr()
    url, secret, ca = pointer(shown.out)
    assert (url, ca) == ("https://api.example:22623/config/worker", CA)
    assert kept(server, "ignition-pool-worker") == [ignition_secrets.digest(secret)]
    assert secret not in shown.err


OTHER = authority.self_signed_ca(names.Subject(common_name="other"), keys.generate(), NOW).pem


def _told(server: Server, ca: bytes) -> None:
    data = {config_names.SERVER_KEY: "https://api-int.example:6443", config_names.CA_KEY: ca.decode()}
    server.put("configmaps", config_names.KUBECONFIG_DATA, bootstrapper.NAMESPACE, data=data)


@pytest.mark.parametrize("own", [CA + OTHER, None])
def test_where_machines_reach_the_api_server_counts_before_the_operators_own_way(server, capsys, monkeypatch, own):
    monkeypatch.setattr(Server, "ca", own)
    _told(server, OTHER)
    assert run("--pool", "worker") == 0
    url, _, ca = pointer(capsys.readouterr().out)
    assert (url, ca) == ("https://api-int.example:22623/config/worker", OTHER)


@pytest.mark.parametrize("ca", [OTHER, CA + OTHER])
def test_a_ca_that_the_operator_does_not_trust_is_not_handed_to_machines(server, capsys, tmp_path, ca):
    _told(server, ca)
    assert run("--pool", "worker") == 1
    assert "reason: OtherServerCA" in capsys.readouterr().err
    assert not [key for key in server.objects if key[0] == "secrets"]
    (tmp_path / "ca").write_bytes(OTHER)
    assert run("--pool", "worker", "--server-ca", tmp_path / "ca") == 0


def test_a_machines_pointer_is_for_the_pool_of_its_role(server, capsys):
    labels = {"machine.openshift.io/cluster-api-machine-role": "master"}
    server.put("machines", "m1", FLEET, metadata={"labels": labels}, spec={}, status={})
    assert run("m1", "--url", "config.example") == 0
    url, secret, _ = pointer(capsys.readouterr().out)
    assert url == "https://config.example:22623/config/master"
    assert kept(server, "ignition-machine-m1") == [ignition_secrets.digest(secret)]


def test_a_machine_may_be_of_another_pool(server, capsys):
    server.put("machines", "w1", FLEET, spec={}, status={})
    assert run("w1", "--pool", "infra") == 0
    assert pointer(capsys.readouterr().out)[0].endswith("/config/infra")
    assert run("w1", "--rotate") == 0
    assert pointer(capsys.readouterr().out)[0].endswith("/config/worker")


def test_a_file_is_for_its_owner_alone(server, capsys, tmp_path):
    path = tmp_path / "worker.ign"
    assert run("--pool", "worker", "--out", path) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    _, secret, _ = pointer(path.read_text())
    assert kept(server, "ignition-pool-worker") == [ignition_secrets.digest(secret)]
    assert secret not in "".join(capsys.readouterr())


def test_a_secret_is_shown_once(server, capsys):
    assert run("--pool", "worker") == 0
    assert run("--pool", "worker") == 1
    assert "reason: IgnitionSecretExists" in capsys.readouterr().err
    assert run("--pool", "worker", "--rotate", "--overlap", "1h") == 0
    assert len(kept(server, "ignition-pool-worker")) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name a machine, or a pool with --pool"),
        (["--pool", "worker", "--overlap", "1h"], "--overlap goes with --pool and --rotate"),
        (["w1", "--rotate", "--overlap", "1h"], "--overlap goes with --pool and --rotate"),
        (["--pool", "worker", "--rotate", "--overlap", "nonsense"], "is no duration"),
        (["--pool", "master", "--bootstrap-dir", "b"], "--bootstrap-dir goes with --pool and --url"),
        (["w1", "--bootstrap-dir", "b", "--url", "x"], "--bootstrap-dir goes with --pool and --url"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_made(server, capsys, words, sentence):
    assert run(*words) == 2
    assert sentence in capsys.readouterr().err
    assert server.calls == []


@pytest.mark.parametrize("url", ["http://config.example", "https://config.example/?a=b"])
def test_an_url_that_is_none_is_refused_before_anything_is_made(server, capsys, url):
    assert run("--pool", "worker", "--url", url) == 1
    assert "reason: BadEndpoint" in capsys.readouterr().err
    assert server.calls == []


def test_a_ca_that_is_none_is_refused_before_anything_is_made(server, capsys, tmp_path):
    (tmp_path / "ca").write_text("nonsense")
    assert run("--pool", "worker", "--server-ca", tmp_path / "ca") == 1
    assert server.calls == []
    (tmp_path / "ca").write_bytes(CA)
    assert run("--pool", "worker", "--server-ca", tmp_path / "ca") == 0


def test_without_any_ca_nothing_is_made(server, capsys, monkeypatch):
    monkeypatch.setattr(Server, "ca", None)
    assert run("--pool", "worker") == 1
    assert "reason: NoServerCA" in capsys.readouterr().err
    assert server.calls == []


def test_the_port_is_that_of_the_control_plane_here(server, capsys, tmp_path, monkeypatch):
    there = endpoints.Endpoints(
        apiserver="https://a:1", controllers_admin="b", services={"machineConfig": "https://a:1234"}, supervisor=1
    )
    endpoints.write(tmp_path, there)
    monkeypatch.setattr(connecting, "connected", lambda _: server.connected("k"))
    assert output.run(main.command, ["machine", "ignition", "--pool", "worker", "--dir", str(tmp_path)]) == 0
    assert pointer(capsys.readouterr().out)[0] == "https://api.example:1234/config/worker"


class TestBeforeTheCluster:
    def test_the_digest_is_in_the_directory(self, server, capsys, tmp_path):
        data, boot = tmp_path / "data", tmp_path / "boot"
        preparation.prepare(layout.Layout.at(data), server=Address("127.0.0.1", 6443), now=NOW)
        words = ("--pool", "master", "--bootstrap-dir", boot, "--url", "config.example", "--dir", data)
        assert run(*words) == 0
        url, secret, ca = pointer(capsys.readouterr().out)
        assert url == "https://config.example:22623/config/master"
        assert ca == (data / "pki" / "ca.crt").read_bytes()
        assert secret not in (boot / "ignition-pool-master.yaml").read_text()
        assert run(*words) == 1
        assert run(*words, "--rotate") == 0
        assert server.calls == []

    def test_without_a_ca_nothing_is_made(self, server, capsys, tmp_path):
        assert run("--pool", "master", "--bootstrap-dir", tmp_path / "b", "--url", "x", "--dir", tmp_path) == 1
        assert "reason: NoServerCA" in capsys.readouterr().err
        assert server.calls == []
