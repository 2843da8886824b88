# SPDX-License-Identifier: Apache-2.0
"""The machine-config server on real processes: who gets one, who does not, and what stays true when processes die."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import os
import pathlib
import signal
import ssl
import subprocess
from collections.abc import Iterator
from typing import Self

import pytest

from handfast.bootstrap import kubeconfig
from handfast.pki import authority, keys, names
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper, installation
from tests.scenarios import certified, machines_world, up_world
from tests.scenarios import configurations_world as w

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BAD_TLS = (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)
REVOCATIONS = "/apis/handfast.dev/v1alpha1/revocations"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[w.Configured]:
    with w.Configured(tmp_path_factory.mktemp("plane") / "data") as running:
        yield running.ready()


@pytest.fixture(scope="module")
def worker(plane: w.Configured) -> str:
    """The secret of the workers' pool, which is rendered."""
    secret = plane.secret("--pool", "worker")
    assert plane.served("/config/worker", secret).code == 200
    return secret


def test_who_shows_nothing_gets_nothing_and_is_written_down(plane):
    for path in ("/config/worker", "/config/nobodys"):
        answer = plane.client().ask(path)
        assert (answer.code, answer.reason, answer.body) == (401, "NoProof", b"")
    up_world.until(lambda: any(line["status"] == 401 and line["pool"] == "nobodys" for line in plane.lines()))


def test_a_pools_secret_gets_a_configuration_whose_credential_is_good(plane, worker):
    answer = plane.client().ask("/config/worker", worker)
    held = kubeconfig.parse(answer.files["/etc/kubernetes/kubeconfig"])
    assert held.cluster.server == plane.facts["apiserver"]
    modes = {row["path"]: row["mode"] for row in json.loads(answer.body)["storage"]["files"]}
    assert modes["/etc/kubernetes/kubeconfig"] == 0o600
    assert answer.rendering.startswith("rendered-worker-")
    path = plane.directory.parent / "bootstrap.conf"
    path.write_text(answer.files["/etc/kubernetes/kubeconfig"])
    with machines_world.Holder(plane, path) as machine:
        assert machine.ask("GET", certified.PATH)[0] == 200
    up_world.until(lambda: any(line.get("rendering") == answer.rendering for line in plane.lines()), what="a line")
    line = next(line for line in plane.lines() if line.get("rendering") == answer.rendering)
    assert (line["status"], line["proof"], line["user"]) == (200, "pool-secret", "pool worker")


def test_a_secret_is_nowhere_in_the_cluster_the_logs_and_the_audit(plane, worker):
    words = [word for each in plane.objects() for word in machines_world.decoded(each)]
    assert not any(worker.encode() in word for word in words)
    for path in (plane.log, *(plane.directory / "audit").iterdir()):
        assert worker not in path.read_text()


def test_a_secret_of_another_pool_is_403(plane, worker):
    answer = plane.client().ask("/config/master", worker)
    assert (answer.code, answer.reason, answer.body) == (403, "OtherPool", b"")


def test_an_unknown_pool_is_500_for_who_may_ask(plane):
    code, _ = plane.call("POST", w.POOLS, {**_pool("gone")})
    assert code == 201
    secret = plane.secret("--pool", "gone")
    assert plane.call("DELETE", f"{w.POOLS}/gone")[0] == 200
    up_world.until(lambda: plane.client().ask("/config/gone", secret).code == 500, what="a pool that is gone")
    assert plane.client().ask("/config/gone", secret).reason == "UnknownPool"


def _pool(name: str) -> dict[str, object]:
    selector = {"matchLabels": {"machineconfiguration.openshift.io/role": name}}
    nodes = {"matchLabels": {f"{w.LABEL}/{name}": ""}}
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {"machineConfigSelector": selector, "nodeSelector": nodes},
    }


def test_a_rotated_secret_goes_on_for_the_overlap_and_no_longer(plane):
    code, answer = plane.call("POST", w.POOLS, _pool("rotated"))
    assert code == 201, answer
    before = plane.secret("--pool", "rotated")
    assert "IgnitionSecretExists" in plane.operator("machine", "ignition", "--pool", "rotated", code=1)
    # Long enough for a slow machine to use both.
    after = plane.secret("--pool", "rotated", "--rotate", "--overlap", "15s")
    assert plane.served("/config/rotated", after).code == 200
    assert plane.client().ask("/config/rotated", before).code == 200
    up_world.until(lambda: plane.client().ask("/config/rotated", before).code == 401, 40, "the end of the overlap")
    assert plane.client().ask("/config/rotated", before).reason == "SecretEnded"
    assert plane.client().ask("/config/rotated", after).code == 200


def test_a_machines_secret_is_its_own_and_ends_with_its_first_certificate(plane, worker):
    plane.operator("machine", "create", "own", "--dns", "own.example", "--mac", "52:54:00:00:00:01", "--serial", "S1")
    plane.operator("machine", "create", "other", "--dns", "other.example", "--mac", "52:54:00:00:00:02")
    secret, client = plane.secret("own"), plane.client()
    answer = plane.served("/config/worker", secret)
    assert answer.files["/etc/hostname"] == "own.example\n"
    assert client.ask("/config/worker?mac=52-54-00-00-00-01&serial=S1", secret).code == 200
    refused = client.ask("/config/worker?mac=52:54:00:00:00:02", secret)
    assert (refused.code, refused.reason) == (403, "OtherMachine")
    assert client.ask("/config/master", secret).reason == "OtherPool"
    assert client.ask("/config/worker?mac=52:54:00:00:00:02", worker).files["/etc/hostname"] == "other.example\n"
    path = f"{machines_world.MACHINES}/own"
    document = plane.call("GET", path)[1]
    document["metadata"]["annotations"]["machines.handfast.dev/approved-key"] = "ab" * 32
    assert plane.call("PUT", path, document)[0] == 200
    up_world.until(lambda: client.ask("/config/worker", secret).code == 401, what="the end of the secret")
    assert client.ask("/config/worker", secret).reason == "MachineHasJoined"
    assert "MachineHasJoined" in plane.operator("machine", "ignition", "own", "--rotate", code=1)
    plane.operator("machine", "readmit", "own")
    up_world.until(lambda: client.ask("/config/worker", secret).reason == "UnknownSecret", what="a secret that is gone")


def test_a_machine_that_was_made_anew_needs_a_new_secret(plane, worker):
    assert worker
    plane.operator("machine", "create", "twice", "--dns", "twice.example")
    secret, client = plane.secret("twice"), plane.client()
    assert plane.served("/config/worker", secret).code == 200
    assert plane.call("DELETE", f"{machines_world.MACHINES}/twice")[0] == 200
    plane.operator("machine", "create", "twice", "--dns", "twice.example")
    up_world.until(lambda: client.ask("/config/worker", secret).reason == "NoMachine", what="another Machine")
    again = plane.secret("twice")
    up_world.until(lambda: client.ask("/config/worker", again).code == 200, what="the new secret")
    plane.operator("machine", "delete", "twice")
    up_world.until(lambda: client.ask("/config/worker", again).reason == "UnknownSecret", what="no secret")


def test_a_node_gets_the_configuration_of_its_own_pool(plane, worker):
    assert worker
    client = plane.client(plane.node("n1", "worker"))
    up_world.until(lambda: client.ask("/config/worker").code == 200, what="a node that is known")
    assert "/etc/hostname" not in client.ask("/config/worker").files
    refused = client.ask("/config/master")
    assert (refused.code, refused.reason) == (403, "OtherPool")
    up_world.until(lambda: any(line.get("user") == "system:node:n1" for line in plane.lines()), what="a line")


def test_a_revoked_node_is_refused_on_a_connection_that_is_open(plane, worker):
    assert worker
    client = plane.client(plane.node("n2", "worker"))
    up_world.until(lambda: client.ask("/config/worker").code == 200, what="a node that is known")
    with contextlib.closing(client.connection()) as connection:
        assert client.ask("/config/worker", on=connection).code == 200
        body = {
            "apiVersion": "handfast.dev/v1alpha1",
            "kind": "Revocation",
            "metadata": {"name": "n2"},
            "spec": {"node": "n2"},
        }
        assert plane.call("POST", REVOCATIONS, body)[0] == 201
        up_world.until(lambda: client.ask("/config/worker", on=connection).code == 401, what="a revocation")
        assert client.ask("/config/worker", on=connection).reason == "Revoked"


def test_certificates_of_strangers_and_of_the_past_do_not_get_in(plane):
    now = datetime.datetime.now(datetime.UTC)
    stranger = authority.self_signed_ca(names.Subject(common_name="handfast-ca"), keys.generate(), now)
    subject = user_names.node_subject("n1")
    hour = datetime.timedelta(hours=1)
    own = keys.private_from_pem((plane.directory / "pki" / "ca.key").read_bytes())
    once = authority.self_signed_ca(names.Subject(common_name="handfast-ca"), own, now - hour)
    over = w.pair(plane.directory, subject, once, life=hour / 6, ago=hour)
    for pair in (w.pair(plane.directory, subject, stranger), over):
        with pytest.raises(BAD_TLS):
            plane.client(pair).ask("/config/worker")
    for subject in (names.Subject(common_name="system:node:n1"), names.Subject(common_name="kubernetes-admin")):
        answer = plane.client(w.pair(plane.directory, subject)).ask("/config/worker")
        assert (answer.code, answer.reason) == (401, "NotANode")
    gone = plane.client(w.pair(plane.directory, user_names.node_subject("gone"))).ask("/config/worker")
    assert (gone.code, gone.reason) == (401, "NoNode")


def test_a_credential_that_was_revoked_is_not_served_again(plane, worker):
    before = plane.client().ask("/config/worker", worker)
    assert plane.call("DELETE", machines_world.SECRET)[0] == 200
    seen = []

    def renewed() -> bool:
        answer = plane.client().ask("/config/worker", worker)
        seen.append(answer.code)
        return bool(answer.code == 200 and answer.rendering != before.rendering)

    up_world.until(renewed, 60, "a new rendering")
    after = plane.client().ask("/config/worker", worker)
    paths = ("/etc/kubernetes/kubeconfig",)
    assert [after.files[path] for path in paths] != [before.files[path] for path in paths]
    assert set(seen) <= {200, 503}


def test_killed_processes_change_nothing(plane, worker):
    client = plane.client()
    before = plane.pids()
    for role in ("machine-config", "apiserver"):
        os.kill(before[role], signal.SIGKILL)
        up_world.until(lambda role=role: plane.pids().get(role, before[role]) != before[role], what=f"a new {role}")
        up_world.until(lambda: _code(client, worker) == 200, 60, "a configuration")


def _code(client: w.Client, secret: str) -> int:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return client.ask("/config/worker", secret).code
    return 0


class Before:
    """`handfast serve machine-config --bootstrap-dir` as a real process."""

    def __init__(self, directory: pathlib.Path, *more: object) -> None:
        self.port = machines_world.free_port()
        words = [
            *up_world.COMMAND,
            *("serve", "machine-config", "--dir", directory, "--bootstrap-dir", directory / "machines"),
            *(
                "--machine-config-listen",
                f"127.0.0.1:{self.port}",
                "--machine-config-admin-listen",
                "127.0.0.1:0",
                *more,
            ),
        ]
        self.process = subprocess.Popen(list(map(str, words)), env=up_world.environment(), stderr=subprocess.PIPE)
        self.client = w.Client(f"https://127.0.0.1:{self.port}", (directory / "pki" / "ca.crt").read_bytes())

    def __enter__(self) -> Self:
        def heard() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.client.ask("/healthz").code == 200
            return False

        up_world.until(heard, what="the server before the cluster")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


def test_masters_are_served_before_the_cluster_and_the_cluster_goes_on_from_there(tmp_path):
    directory, port = tmp_path / "data", machines_world.free_port()
    done = up_world.run("init", "--dir", directory, "--machines", "--listen", f"127.0.0.1:{port}", "-o", "json")
    assert done.returncode == 0, done.stderr
    boot = directory / "machines"
    done = up_world.run(
        *("machine", "ignition", "--pool", "master", "--bootstrap-dir", boot, "--dir", directory),
        *("--url", "https://127.0.0.1:22623", "--out", tmp_path / "master.ign"),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "master.ign").stat().st_mode & 0o777 == 0o600
    url, secret = w.pointed((tmp_path / "master.ign").read_text())
    assert url == "https://127.0.0.1:22623/config/master"
    with Before(directory) as server:
        first = server.client.ask("/config/master", secret)
        assert first.files["/etc/kubernetes/kubeconfig"] == (boot / "kubeconfig-kubelet").read_text()
        assert server.client.ask("/config/master").code == 401
        assert server.client.ask("/config/worker", secret).reason == "OtherPool"
        (boot / "kubeconfig-kubelet").rename(boot / "away")
        assert server.client.ask("/config/master", secret).code == 404
        (boot / "away").rename(boot / "kubeconfig-kubelet")
    with w.Configured(directory, "--listen", f"127.0.0.1:{port}") as plane:
        plane.ready()
        manifest = (boot / "ignition-pool-master.yaml").read_text()
        _apply_secret(plane, manifest, secret)
        assert plane.served("/config/master", secret).rendering == first.rendering


def _apply_secret(plane: w.Configured, manifest: str, secret: str) -> None:
    import yaml

    path = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}/secrets"
    code, answer = plane.call("POST", path, yaml.safe_load(manifest))
    assert code == 201, answer
    up_world.until(
        lambda: plane.client().ask("/config/master", secret).code == 200, what="the server to have seen the Secret"
    )


def test_a_network_that_was_named_needs_no_other_proof(tmp_path):
    directory = tmp_path / "data"
    port = machines_world.free_port()
    done = up_world.run("init", "--dir", directory, "--machines", "--listen", f"127.0.0.1:{port}", "-o", "json")
    assert done.returncode == 0, done.stderr
    with Before(directory, "--machine-config-trusted-networks", "127.0.0.0/8") as server:
        assert server.client.ask("/config/master").code == 200
        refused = server.client.ask("/config/worker")
        assert (refused.code, refused.reason) == (500, "NotBeforeTheCluster")


def test_a_data_directory_of_the_release_before_gets_what_is_missing(tmp_path):
    directory = tmp_path / "data"
    with w.Configured(directory) as plane:
        plane.ready()
        _as_before(plane)
        plane.stop()
    place = directory / "pki"
    for path in (place / "machine-config.crt", place / "machine-config.key", directory / "machine-config.conf"):
        path.unlink()
    with w.Configured(directory) as plane:
        plane.ready()
        assert plane.served("/config/worker", plane.secret("--pool", "worker")).code == 200


def _as_before(plane: w.Configured) -> None:
    """Take away what the release before did not have."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for path in (f"{rbac}/clusterroles", f"{rbac}/clusterrolebindings", f"{rbac}/rolebindings", f"{rbac}/roles"):
        for each in plane.call("GET", path)[1]["items"]:
            meta = each["metadata"]
            if meta["name"] == user_names.MACHINE_CONFIG_SERVER:
                space = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
                target = f"{rbac}{space}/{path.rpartition('/')[2]}/{meta['name']}"
                assert plane.call("DELETE", target)[0] == 200
    path = f"/api/v1/namespaces/{installation.MARKER_NAMESPACE}/configmaps/{installation.MARKER}"
    marker = plane.call("GET", path)[1]
    del marker["data"][installation.CONFIGURATIONS]
    assert plane.call("PUT", path, marker)[0] == 200


@pytest.mark.parametrize(
    ("words", "reason", "sentence"),
    [
        (["--machine-config-trusted-networks", "any"], "", "would hand out the bootstrap credential to everybody"),
        (["--machine-config-trusted-networks", "10.0.0.1/8"], "", "has host bits set"),
        (["--bootstrap-dir", "none"], "BadBootstrapDirectory", "there is no directory"),
        (["--bootstrap-dir", ".", "--kubeconfig", "x"], "", "do not go together"),
        (["--tls-cert-file", "x"], "", "are given together"),
    ],
)
def test_what_is_typed_wrongly_is_said(tmp_path, words, reason, sentence):
    directory = tmp_path / "data"
    if reason:
        assert up_world.run("init", "--dir", directory, "--machines", "-o", "json").returncode == 0
    done = up_world.run("serve", "machine-config", "--dir", directory, "--machine-config-listen", "127.0.0.1:0", *words)
    assert done.returncode in {1, 2}
    assert sentence in done.stderr
    assert reason in done.stderr


def test_the_rights_that_it_needs_elsewhere_are_printed():
    done = up_world.run("serve", "machine-config", "--print-manifest")
    assert done.returncode == 0
    assert "handfast-machine-config-server" in done.stdout
    assert "create" not in done.stdout
