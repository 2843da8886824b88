# SPDX-License-Identifier: Apache-2.0
"""`handfast up --mesh` on real processes: its services start, come back, log in with fresh tokens, and tell no secret."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import stat
from collections.abc import Iterator
from typing import Any
from urllib import request as urls

import pytest

from handfast.runtime import addresses, tls
from tests.scenarios import mesh_world, up_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SERVICES = ("identity", "destination", "injector")
NAME = mesh_world.identity_of("shop", "web")
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linkerd-proxy-injector"


def is_ready(plane: up_world.Up, name: str) -> bool:
    address = json.loads((plane.directory / "endpoints.json").read_bytes())[f"{name}Admin"]
    with contextlib.suppress(OSError), urls.urlopen(f"{address}/readyz", timeout=10) as answer:
        return bool(answer.status == 200)
    return False


def all_ready(plane: up_world.Up) -> None:
    for name in SERVICES:
        up_world.until(lambda name=name: is_ready(plane, name), 60, f"{name}:\n{plane.log.read_text()}")


def token_of(plane: up_world.Up, account: str) -> str:
    return (plane.directory / "mesh" / f"{account}.token").read_text()


def injected(plane: mesh_world.Plane, name: str) -> bool:
    """Whether a Pod of a namespace that wants proxies gets one."""
    spec = {"serviceAccountName": "web", "containers": [{"name": "c", "image": "i"}]}
    answer = plane.post("/api/v1/namespaces/shop/pods", {"metadata": {"name": name}, "spec": spec})
    rows = answer.get("spec", {}).get("initContainers", ())
    return "linkerd-proxy" in [row["name"] for row in rows]


def checked(plane: up_world.Up, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code of `mesh check`, and its checks by name."""
    done = up_world.run("mesh", "check", "--dir", plane.directory, "-o", "json", *words)
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)["checks"]}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mesh_world.Plane]:
    directory = tmp_path_factory.mktemp("mesh") / "data"
    with mesh_world.Plane(directory, "--mesh", *mesh_world.FREE) as plane:
        plane.ready()
        # On a machine that takes more than half a minute for it, it is told instead.
        assert all(is_ready(plane, name) for name in SERVICES) or "the mesh is not ready" in plane.log.read_text()
        all_ready(plane)
        plane.account("shop", "web")
        body = {"metadata": {"annotations": {"linkerd.io/inject": "enabled"}}}
        code, answer = patched(plane, "/api/v1/namespaces/shop", body)
        assert code == 200, answer
        yield plane


def patched(plane: up_world.Up, path: str, body: object) -> tuple[int, dict[str, Any]]:
    with contextlib.closing(plane.connection(plane.context())) as connection:
        connection.request("PATCH", path, json.dumps(body), {"Content-Type": "application/merge-patch+json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def test_the_services_answer_where_they_are_said_to_be(plane):
    token = plane.token("shop", "web")
    assert mesh_world.certified(plane.facts["identity"], NAME, token) is not None
    assert injected(plane, "first")
    settings = plane.call("GET", "/api/v1/namespaces/linkerd/configmaps/linkerd-config")[1]["data"]
    for door in ("identity", "destination", "policy", "agents"):
        assert settings[f"{door}.address"] == plane.facts[door]
    assert set(SERVICES) <= plane.pids().keys()


def test_mesh_check_finds_everything_in_order_and_tells_what_is_not(plane):
    code, checks = checked(plane)
    bad = {name: row for name, row in checks.items() if row["verdict"] not in {"ok", "warning"}}
    assert (code, bad) == (0, {})
    # A Pod that came before the namespace was annotated is a warning, and fails only where that is wanted.
    plane.account("late", "web")
    plane.pod("late", "old", "web")
    assert patched(plane, "/api/v1/namespaces/late", {"metadata": {"annotations": {"linkerd.io/inject": "enabled"}}})
    code, checks = checked(plane)
    assert (code, checks["unmeshed-pods"]["reason"]) == (0, "PodsWithoutProxy")
    assert "late/old" in checks["unmeshed-pods"]["message"]
    assert checked(plane, "--fail-on-warning")[0] == 1
    assert plane.call("DELETE", "/api/v1/namespaces/late")[0] == 200


def test_mesh_check_fails_where_an_account_reads_secrets_of_applications(plane):
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "linkerd-controller", "namespace": "linkerd"}
    plane.post(path, {"metadata": {"name": "too-wide"}, "roleRef": reference, "subjects": [subject]})
    code, checks = checked(plane)
    assert (code, checks["rights"]["reason"]) == (1, "RightsTooWide")
    assert plane.call("DELETE", f"{path}/too-wide")[0] == 200
    up_world.until(lambda: checked(plane)[0] == 0, 20, "the rights")


def test_credentials_are_private_and_in_no_log(plane):
    directory = plane.directory / "mesh"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    logs = [plane.log, *(plane.directory / "audit").iterdir(), plane.directory / "endpoints.json"]
    tokens = [path.read_text() for path in directory.glob("*.token")]
    assert len(tokens) == 3
    for log in logs:
        text = log.read_text()
        assert not [token for token in tokens if token in text or token.rpartition(".")[2] in text], log
    # Nor in the arguments or the environment of a process.
    for pid in plane.pids().values():
        for name in ("cmdline", "environ"):
            seen = pathlib.Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace")
            assert not [token for token in tokens if token in seen]


def test_each_service_logs_in_as_its_own_account(plane):
    accounts = ("linkerd-identity", "linkerd-controller", "linkerd-proxy-injector")

    def users() -> set[str]:
        lines = (plane.directory / "audit" / "audit.log").read_text().splitlines()
        return {json.loads(line)["user"].get("username") for line in lines}

    up_world.until(
        lambda: {f"system:serviceaccount:linkerd:{account}" for account in accounts} <= users(), 30, "all accounts"
    )


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_is_killed_comes_back_at_its_address(plane, name):
    pid, address = plane.pids()[name], plane.facts[name]
    os.kill(pid, signal.SIGKILL)
    up_world.until(lambda: plane.pids().get(name) not in {None, pid}, 30, f"another {name}")
    all_ready(plane)
    assert json.loads((plane.directory / "endpoints.json").read_bytes())[name] == address
    token = plane.token("shop", "web")
    assert mesh_world.certified(plane.facts["identity"], NAME, token) is not None
    up_world.until(lambda: injected(plane, f"after-{name}-{os.urandom(2).hex()}"), 30, "a proxy")


def test_a_token_that_no_longer_counts_is_renewed(plane):
    before = {name: token_of(plane, name) for name in ("linkerd-identity", "linkerd-controller")}
    # Somebody deletes the accounts and installs the mesh again: they are others now.
    for name in before:
        assert plane.call("DELETE", f"/api/v1/namespaces/linkerd/serviceaccounts/{name}")[0] == 200
    plane.install()
    up_world.until(lambda: all(token_of(plane, name) != old for name, old in before.items()), 120, "other tokens")
    all_ready(plane)
    token = plane.token("shop", "web")
    up_world.until(lambda: mesh_world.certified(plane.facts["identity"], NAME, token) is not None, 60, "a certificate")


def test_in_a_pod_the_identity_service_answers_its_own_proxy_in_plaintext_and_others_with_tls(plane):
    """As the manifests run it: an address of this machine stands for that of the Pod."""
    outside = addresses.outward(addresses.Address("0.0.0.0", 1))
    if not outside:
        pytest.skip("this machine has no address but loopback")
    token, host = plane.token("shop", "web"), outside[0].host
    with mesh_world.Service(plane, "pod", "0.0.0.0:0", "--pod-ip", host) as service:
        service.ready()
        up_world.until(lambda: service.lines("the service has a certificate of its own"), 30, "its certificate")
        at = addresses.parse(service.target)
        assert at.host == host
        assert mesh_world.certified(f"127.0.0.1:{at.port}", NAME, token) is not None
        # Elsewhere there is TLS, and nothing else.
        assert mesh_world.certified(service.target, NAME, token) is None
        context = tls.client_context(plane.anchors())
        own = mesh_world.identity_of("linkerd", "linkerd-identity")
        with (
            socket.create_connection((host, at.port), 20) as plain,
            context.wrap_socket(plain, server_hostname=own) as secured,
        ):
            assert secured.version() == "TLSv1.3"


def test_a_second_start_goes_on_with_the_same_trust_at_other_addresses(tmp_path):
    directory = tmp_path / "data"
    with mesh_world.Plane(directory, "--mesh", *mesh_world.FREE) as first:
        first.ready()
        all_ready(first)
        anchors, old = first.anchors(), first.facts["injector"]
        # What an older version left behind.
        (directory / "identity.conf").write_text("old")
        assert first.stop()[0] == 0
    (directory / "identity.conf").chmod(0o600)
    with mesh_world.Plane(directory, "--mesh", *mesh_world.FREE) as second:
        second.ready()
        all_ready(second)
        assert second.anchors() == anchors
        assert second.facts["injector"] != old
        assert not (directory / "identity.conf").exists()
        path = "/apis/discovery.k8s.io/v1/namespaces/linkerd/endpointslices/linkerd-proxy-injector-injector"
        assert second.call("GET", path)[1]["ports"][0]["port"] == int(second.facts["injector"].rpartition(":")[2])
        second.account("shop", "web")
        patched(second, "/api/v1/namespaces/shop", {"metadata": {"annotations": {"linkerd.io/inject": "enabled"}}})
        up_world.until(lambda: injected(second, f"p-{os.urandom(3).hex()}"), 30, "a proxy")
    # Killed, and started once more.
    with mesh_world.Plane(directory, "--mesh", *mesh_world.FREE) as third:
        third.ready()
        all_ready(third)


def test_a_port_that_is_taken_is_named_before_anything_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ("--mesh", *mesh_world.FREE, "--policy-listen", address)
        done = up_world.run("up", "--dir", tmp_path / "data", *up_world.FREE, *words)
    assert (done.returncode, done.stdout) == (1, "")
    last = json.loads(done.stderr.splitlines()[-1]) if done.stderr.startswith("{") else {"reason": done.stderr}
    assert "AddressInUse" in last["reason"]
    assert "--policy-listen" in done.stderr
    assert not (tmp_path / "data" / "pki").exists()


def test_an_address_that_nobody_can_connect_to_is_wrong_usage(tmp_path):
    for address in ("injector.example:8443", "0.0.0.0:8443", "192.0.2.1:0"):
        done = up_world.run("up", "--dir", tmp_path / "data", "--mesh", "--injector-advertise", address)
        assert (done.returncode, "--injector-advertise" in done.stderr) == (2, True)
    assert not (tmp_path / "data").exists()


def test_the_packages_that_are_missing_are_named_with_the_command(tmp_path):
    """A directory in front of the installed packages in which gRPC cannot be imported stands for one without it."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(
        "import sys\nfor name in ('grpc', 'google.protobuf'):\n    sys.modules[name] = None\n"
    )
    environment = {**up_world.environment(), "PYTHONPATH": str(tmp_path / "hidden")}
    done = up_world.run_in(environment, "up", "--dir", tmp_path / "data", "--mesh")
    assert done.returncode == 1
    assert "pip install 'handfast[mesh]'" in done.stderr
    assert "MeshExtraMissing" in done.stderr
    assert not (tmp_path / "data").exists()
