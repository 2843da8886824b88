# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh run` on real processes: a command gets the identity of its account, a proxy and a token, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from handfast.pki import certificates
from tests.scenarios import mesh_world, run_world, test_mesh_up, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAME = mesh_world.identity_of("shop", "web")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mesh_world.Plane]:
    with run_world.plane(tmp_path_factory.mktemp("run")) as plane:
        run_world.service(plane)
        yield plane


def test_a_command_runs_with_the_identity_of_its_account(plane, tmp_path):
    secrets = {"HANDFAST_TOKEN": "secret-of-mine", "KUBECONFIG": str(plane.directory / "admin.conf")}
    with run_world.server(plane, tmp_path, variables=secrets, credentials=()) as run:
        run.ready()
        assert run.ip.startswith("127.")
        # It has the Pod's name and its proxy, and no way to the credentials of whoever started it.
        assert (run.environment["POD_NAMESPACE"], run.environment["http_proxy"][:17]) == ("shop", "http://127.0.0.1:")
        assert not [name for name in run.environment if name.startswith(("HANDFAST_", "LINKERD2_", "KUBECONFIG"))]
        # TLS for its name is served at the Pod's address, and the slices follow.
        der, version = run_world.certificate_at(plane, run.ip, NAME)
        assert (certificates.read(der).sans.dns, version) == ((NAME,), "TLSv1.3")
        up_world.until(lambda: run_world.endpoints(plane).get(run.ip) is True, 30, "the endpoint")
        pod = run.pod()
        assert pod["status"]["phase"] == "Running"
        assert pod["metadata"]["labels"]["app"] == "web"
        # Keys and token are in memory, and their owner's alone.
        directory = run.directory()
        assert {oct(path.stat().st_mode & 0o777) for path in directory.rglob("*") if path.is_file()} <= {
            "0o400",
            "0o600",
        }
        token = next((directory / "tokens").iterdir()).read_text()
        claims = json.loads(_decoded(token.split(".")[1]))
        assert claims["aud"] == ["identity.l5d.io"]
        assert claims["kubernetes.io"]["pod"]["name"] == run.name
        name, address = run.name, run.ip
        assert run.stop() == 128 + signal.SIGTERM
    assert name not in run_world.pods(plane)
    assert not directory.exists()
    assert not run_world.listens(address)
    assert token not in run.text()
    up_world.until(lambda: address not in run_world.endpoints(plane), 30, "the endpoint's end")


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_the_exit_code_is_that_of_the_command(plane):
    words = ("mesh", "run", "--dir", plane.directory, "--service-account", "shop/web")
    done = up_world.run(*words, "--", "sh", "-c", "echo out; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n"), done.stderr
    assert not [name for name in run_world.pods(plane) if name.startswith("web-")]


def test_two_pods_of_one_account_have_one_name_and_two_keys(plane, tmp_path):
    with run_world.server(plane, tmp_path) as first, run_world.server(plane, tmp_path) as second:
        shown = [run_world.certificate_at(plane, run.ready().ip, NAME)[0] for run in (first, second)]
        one, two = map(certificates.read, shown)
        assert one.sans.dns == two.sans.dns == (NAME,)
        assert one.public_key.fingerprint != two.public_key.fingerprint
        assert first.ip != second.ip
        assert first.environment["http_proxy"] != second.environment["http_proxy"]


def test_after_kill_9_nothing_serves_and_the_next_start_cleans_up(plane, tmp_path):
    with run_world.server(plane, tmp_path) as run:
        run.ready()
        name, address, directory = run.name, run.ip, run.directory()
        # The launcher became the proxy; beside it Envoy and the application.
        up_world.until(lambda: len(run.descendants()) == 3, what="its children")
        children = run.descendants()
        run.process.kill()
        run.process.wait()
        up_world.until(lambda: not any(map(up_world.alive, children)), what="the children's end")
        # The first thread of a process may have ended while others still hold its sockets.
        up_world.until(lambda: not run_world.listens(address), 30, "the end of its sockets")
    assert directory.exists()
    assert name in run_world.pods(plane)
    with run_world.server(plane, tmp_path) as run:
        assert run.environment
        assert not directory.exists()
        assert name not in run_world.pods(plane)


def test_a_pod_that_is_deleted_ends_its_workload(plane, tmp_path):
    with run_world.server(plane, tmp_path) as run:
        run.ready()
        assert plane.call("DELETE", f"/api/v1/namespaces/shop/pods/{run.name}")[0] == 200
        assert run.process.wait(40) == 128 + signal.SIGTERM
        assert "the Pod was deleted" in run.text()


def test_a_proxy_that_dies_is_started_again_with_another_key(plane, tmp_path):
    with run_world.server(plane, tmp_path) as run:
        run.ready()
        before = certificates.read(run_world.certificate_at(plane, run.ip, NAME)[0])
        (proxy,) = [pid for pid in run.descendants() if b"\0proxy\0run\0" in _line(pid)]
        os.kill(proxy, signal.SIGKILL)
        up_world.until(lambda: _serial(plane, run.ip) not in {"", before.serial}, 60, run.text())
        after = certificates.read(run_world.certificate_at(plane, run.ip, NAME)[0])
        assert after.public_key.fingerprint != before.public_key.fingerprint

        def restarted() -> bool:
            return any(row["restartCount"] == 1 for row in run.pod()["status"]["initContainerStatuses"])

        up_world.until(restarted, 30, "the status")
        run.ready()


def _line(pid: int) -> bytes:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()


def _serial(plane: mesh_world.Plane, ip: str) -> str:
    try:
        return certificates.read(run_world.certificate_at(plane, ip, NAME)[0]).serial
    except OSError:
        return ""


def test_without_the_api_server_the_workload_goes_on(plane, tmp_path):
    with run_world.server(plane, tmp_path) as run:
        run.ready()
        pid = plane.pids()["apiserver"]
        os.kill(pid, signal.SIGKILL)
        assert run_world.certificate_at(plane, run.ip, NAME)[1] == "TLSv1.3"
        up_world.until(lambda: plane.pids().get("apiserver") not in {None, pid}, 40, "another API server")
        up_world.until(lambda: _answers(plane), 40, "its answer")
        test_mesh_up.all_ready(plane)
        assert run.process.poll() is None
        assert run.is_ready()


def _answers(plane: mesh_world.Plane) -> bool:
    try:
        return plane.call("GET", "/api/v1/namespaces/shop")[0] == 200
    except (OSError, ValueError):
        return False


def refused(plane: mesh_world.Plane, *words: object) -> str:
    before, files = run_world.pods(plane), _left()
    done = up_world.run("mesh", "run", "--dir", plane.directory, *words, "--", "true")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    # Nothing is left of it.
    assert (run_world.pods(plane), _left()) == (before, files)
    return done.stderr


def _left() -> set[str]:
    home = pathlib.Path(os.environ["XDG_RUNTIME_DIR"], f"handfast-mesh-{os.geteuid()}")
    return {path.name for path in home.iterdir() if path.is_dir()} if home.exists() else set()


def test_bad_input_is_refused_and_leaves_nothing(plane):
    web = ("--service-account", "shop/web")
    for words, reason in (
        (("--service-account", "shop/nobody"), "AccountNotFound"),
        (("--service-account", "nowhere/web"), "NotFound"),
        ((*web, "--name", "Not A Name"), "Invalid"),
        ((*web, "--inbound", "8080", "--pod-ip", "192.0.2.1"), "AddressNotAvailable"),
        ((*web, "--inbound", "8080", "--pod-ip", "127.0.0.1"), "AddressInUse"),
        (("--pod", "shop/absent"), "PodNotFound"),
    ):
        assert f"reason: {reason}\n" in refused(plane, *words), words


def test_a_revoked_account_is_told_so_and_not_waited_for(plane):
    plane.account("shop", "gone")
    revoke = ("mesh", "revoke", "shop/gone", "--dir", plane.directory)
    assert up_world.run(*revoke).returncode == 0
    try:
        done = up_world.run(
            "mesh", "run", "--dir", plane.directory, "--service-account", "shop/gone", "--", "sh", "-c", "echo out"
        )
    finally:
        assert up_world.run(*revoke, "--undo").returncode == 0
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "CertificateRefused" in done.stderr, done.stderr
    assert "gets no certificate: the identity service refuses: " in done.stderr, done.stderr
    assert not [name for name in run_world.pods(plane) if name.startswith("gone-")]


def test_a_port_that_is_taken_is_refused(plane):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(plane, "--service-account", "shop/web", "--inbound", f"8080:{port}")
        assert f"127.0.0.1:{port} is taken: another process listens there" in said


def test_a_pod_that_nobody_injects_is_an_error_that_says_why(plane):
    labels = {"config.linkerd.io/admission-webhooks": "disabled"}
    plane.post("/api/v1/namespaces", {"metadata": {"name": "bare", "labels": labels}})
    plane.account("bare", "web")
    said = refused(plane, "--service-account", "bare/web")
    assert "has no container linkerd-proxy" in said
    assert "handfast mesh check" in said
    assert plane.call("GET", "/api/v1/namespaces/bare/pods")[1]["items"] == []


def test_without_an_api_server_it_is_unavailable(plane, tmp_path):
    text = (plane.directory / "admin.conf").read_text()
    path = tmp_path / "admin.conf"
    path.write_text(text.replace(plane.facts["apiserver"], f"https://127.0.0.1:{run_world.free_port()}"))
    done = up_world.run("mesh", "run", "--kubeconfig", path, "--service-account", "shop/web", "--", "true")
    assert done.returncode == 3, done.stderr


def test_a_signal_before_the_start_ends_it(plane, tmp_path):
    with run_world.server(plane, tmp_path) as run:
        up_world.until(lambda: any(name.startswith("web-") for name in run_world.pods(plane)), 30, "the Pod")
        assert run.stop(signal.SIGINT) in {130, 128 + signal.SIGTERM}
    assert not [name for name in run_world.pods(plane) if name.startswith("web-")]


def test_the_commands_input_and_output_are_its_own(plane, tmp_path):
    words = ("--service-account", "shop/web")
    with run_world.Run(plane, *words, command=("cat",), log=tmp_path / "log") as run:
        said, _ = run.process.communicate("hello\n", timeout=60)
        assert (said, run.process.returncode) == ("hello\n", 0), run.text()
        assert "runs at 127." in run.text()


def test_a_joined_machine_runs_a_pod_with_the_rights_of_its_node(plane, tmp_path):
    """Proves that a machine outside Kubernetes is a member of the mesh by its node's certificate alone."""
    kubeconfig = joined(plane, tmp_path, "m1")
    port = run_world.free_port()
    plane.post("/api/v1/namespaces/shop/pods", pod_of("node-0", "m1"))
    plane.post("/api/v1/namespaces/shop/pods", pod_of("node-9", "m9"))
    command = (sys.executable, "-c", run_world.SERVER, port)
    words = ("--pod", "shop/node-0", "--inbound", f"8080:{port}")
    node = ("--kubeconfig", kubeconfig)
    with run_world.Run(plane, *words, command=command, log=tmp_path / "log", credentials=node) as run:
        run.ready()
        der, _ = run_world.certificate_at(plane, run.ip, NAME)
        assert certificates.read(der).sans.dns == (NAME,)
        assert run.environment["GREETING"] == "hello from m1"
        # The same Pod is not run twice, and the node's rights do not reach further.
        for pod, reason in (("shop/node-0", "PodRuns"), ("shop/node-9", "PodNotFound")):
            done = up_world.run("mesh", "run", *node, "--pod", pod, "--", "true")
            assert (done.returncode, f"reason: {reason}" in done.stderr) == (1, True), done.stderr
        done = up_world.run("mesh", "run", *node, "--service-account", "shop/web", "--", "true")
        assert (done.returncode, "reason: Forbidden" in done.stderr) == (1, True), done.stderr
        assert run.stop() == 128 + signal.SIGTERM
    status = plane.call("GET", "/api/v1/namespaces/shop/pods/node-0")[1]["status"]
    assert [row["status"] for row in status["conditions"] if row["type"] == "Ready"] == ["False"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    # An administrator is no node.
    done = up_world.run("mesh", "run", "--dir", plane.directory, "--pod", "shop/node-0", "--", "true")
    assert (done.returncode, "reason: PodOfAnotherNode" in done.stderr) == (1, True), done.stderr


def joined(plane: mesh_world.Plane, directory: pathlib.Path, name: str) -> pathlib.Path:
    """The kubeconfig of a machine that has joined as a node."""
    admin = plane.directory / "admin.conf"
    made = up_world.run("token", "create", "--print-join-command", "--kubeconfig", admin)
    assert made.returncode == 0, made.stderr
    path = directory / "kubelet.conf"
    done = up_world.run(
        *made.stdout.split()[1:],
        *("--node-name", name, "--bootstrap-kubeconfig", directory / "bootstrap.conf"),
        *("--kubeconfig", path, "--cert-dir", directory / "pki", "--timeout", "30s"),
    )
    assert done.returncode == 0, done.stderr
    return path


def pod_of(name: str, node: str) -> dict[str, Any]:
    field = {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    variables = [{"name": "NODE", **field}, {"name": "GREETING", "value": "hello from $(NODE)"}]
    container = {"name": "web", "image": "web", "ports": [{"containerPort": 8080}], "env": variables}
    spec = {"serviceAccountName": "web", "nodeName": node, "containers": [container]}
    metadata = {"name": name, "labels": {"app": "web"}, "annotations": {"linkerd.io/inject": "enabled"}}
    return {"metadata": metadata, "spec": spec}
