# SPDX-License-Identifier: Apache-2.0
"""Who may call whom on real processes: what proxies are told, as it changes; what is refused; and what explain advises, applied."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest

from tests.interop import running
from tests.scenarios import destination_world, mesh_world, up_world
from tests.scenarios.mesh_world import identity_of
from tests.world import mesh_client, policy_client

pytestmark = [pytest.mark.slow, pytest.mark.kubectl, pytest.mark.timeout(180)]

POLICIES = "/apis/handfast.dev/v1alpha1/namespaces/shop/meshpolicies"
WEB = identity_of("shop", "web")
API = identity_of("shop", "api")
BANK = identity_of("bank", "teller")
EVERYBODY = "all-unauthenticated"


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        for namespace, account in (("shop", "web"), ("shop", "api"), ("shop", "db"), ("bank", "teller")):
            plane.account(namespace, account)
        yield plane


@pytest.fixture(scope="module")
def service(plane) -> Iterator[destination_world.Destination]:
    with destination_world.Destination(plane) as service:
        yield service.ready()


@pytest.fixture(scope="module")
def identity(plane) -> Iterator[mesh_world.Service]:
    with mesh_world.Service(plane) as service:
        yield service.ready()


@pytest.fixture(scope="module")
def shop(plane, service) -> destination_world.Shop:
    shop = destination_world.Shop(plane)
    shop.service("db", ports=[{"name": "sql", "port": 80, "targetPort": 8080}], clusterIP="10.96.44.1")
    shop.pod("db-0", "db", "10.0.0.5", serviceAccountName="db")
    shop.pod("web-0", "web", "10.0.0.6", serviceAccountName="web")
    shop.pod("bare-0", "bare", "10.0.0.7", meshed=False, serviceAccountName="web")
    return shop


@pytest.fixture(autouse=True)
def no_policies(plane) -> Iterator[None]:
    yield
    code, answer = plane.call("DELETE", POLICIES)
    assert code == 200, answer
    plane.call("DELETE", "/apis/handfast.dev/v1alpha1/revocations/revoked")


def target(service: destination_world.Destination) -> str:
    return str(service.lines(destination_world.LISTENS)[-1]["policy"])


def told(service, port=8080, workload='{"ns":"shop","pod":"db-0"}') -> policy_client.Server:
    message = policy_client.port_spec(workload, port)
    return policy_client.server(asyncio.run(mesh_client.call(target(service), policy_client.GET_PORT, message)))


def write(plane: mesh_world.Plane, name: str = "p", **spec: Any) -> None:
    body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": {"name": name}, "spec": spec}
    code, there = plane.call("GET", f"{POLICIES}/{name}")
    if code == 404:
        plane.post(POLICIES, body, wanted=(201,))
        return
    body["metadata"] = {"name": name, "resourceVersion": there["metadata"]["resourceVersion"]}
    code, answer = plane.call("PUT", f"{POLICIES}/{name}", body)
    assert code == 200, answer


def account(name: str, namespace: str = "shop") -> dict[str, Any]:
    return {"serviceAccount": {"namespace": namespace, "name": name}}


def test_without_a_policy_everybody_is_let_in_on_every_port(service, shop):
    for port in (8080, 4191, 1, 65535):
        server = told(service, port)
        assert server.labels == {"group": "", "kind": "default", "name": EVERYBODY}
        assert [server.lets_in(each) for each in ("", WEB, BANK)] == [EVERYBODY] * 3
    # Both forms of a token.
    assert told(service, workload="shop:db-0") == told(service)
    assert told(service, 5432).protocol == "opaque"


def test_a_policy_is_enforced_by_identity_and_changes_stream(plane, service, shop):
    message = policy_client.port_spec("shop:db-0", 8080)
    with policy_client.Watching(target(service), policy_client.WATCH_PORT, message) as stream:

        def last() -> list[str]:
            return [stream.servers[-1].lets_in(each) for each in ("", WEB, API, BANK)] if stream.messages else []

        up_world.until(lambda: last() == [EVERYBODY] * 4, 20, "the first answer")
        write(plane, clients=[account("web")], targets={"serviceAccounts": ["db"], "ports": [8080]})
        up_world.until(lambda: last() == ["", "p", "", ""], 20, "the account alone")
        write(plane, clients=[account("web"), {"namespace": "bank"}])
        up_world.until(lambda: last() == ["", "p", "", "p"], 20, "the namespace too")
        write(plane, "q", clients=[{"identity": API}])
        up_world.until(lambda: last() == ["", "p", "q", "p"], 20, "two policies")
        write(plane, "q", requireIdentity={"inbound": True})
        write(plane, clients=[{"unauthenticated": True}])
        up_world.until(lambda: last() == ["", "p", "p", "p"], 20, "everybody with an identity")
        plane.call("DELETE", f"{POLICIES}/q")
        up_world.until(lambda: last() == ["p", "p", "p", "p"], 20, "everybody")
        # One that is about another Pod, or another namespace, is no news here.
        before = len(stream.messages)
        write(plane, "other", clients=[], targets={"podSelector": {"matchLabels": {"app": "web"}}})
        write(plane, "q", clients=[], targets={"ports": [9]})
        up_world.until(lambda: told(service, 9).lets_in(WEB) == "p", 20, "the other port")
        assert told(service, 8080, "shop:web-0").lets_in(WEB) == "p"
        plane.call("DELETE", f"{POLICIES}/p")
        up_world.until(lambda: last() == [EVERYBODY] * 4, 20, "none again")
        assert len(stream.messages) == before + 1


def test_the_labels_of_a_pod_decide_and_its_end_ends_the_stream(plane, service, shop):
    write(plane, clients=[], targets={"podSelector": {"matchLabels": {"role": "primary"}}})
    shop.pod("db-9", "db9", "10.0.0.99", serviceAccountName="db")
    message = policy_client.port_spec("shop:db-9", 8080)
    up_world.until(lambda: _answered(service, policy_client.GET_PORT, message), 20, "the Pod")
    with policy_client.Watching(target(service), policy_client.WATCH_PORT, message) as stream:
        up_world.until(lambda: stream.messages, 20, "the first answer")
        assert stream.servers[0].lets_in(WEB) == EVERYBODY
        shop._patch("pods/db-9", {"metadata": {"labels": {"role": "primary"}}})
        up_world.until(lambda: stream.servers[-1].lets_in(WEB) == "", 20, "nobody")
        shop.delete("pods/db-9")
        up_world.until(lambda: stream.ended, 20, "the end")
        assert stream.ended == "NOT_FOUND"


def _answered(service, method: str, message: bytes) -> bool:
    with contextlib.suppress(grpc.aio.AioRpcError):
        return bool(asyncio.run(mesh_client.call(target(service), method, message)))
    return False


def test_audit_refuses_nobody_and_the_proxy_counts_whom_it_would(plane, service, shop):
    write(plane, clients=[account("web")], mode="audit")
    up_world.until(lambda: told(service).lets_in(WEB) == "p", 20, "the policy")
    assert [told(service).lets_in(each) for each in ("", API)] == ["audit", "audit"]
    write(plane, clients=[account("web")], mode="enforce")
    up_world.until(lambda: told(service).lets_in(API) == "", 20, "enforced")


def test_probes_of_the_kubelet_stay_open(plane, service, shop):
    write(plane, clients=[])
    up_world.until(lambda: told(service, 4191).lets_in(WEB) == "", 20, "the policy")
    assert told(service, 4191).probes == ("/live", "/ready")


@pytest.mark.parametrize(
    ("workload", "port", "code"),
    [
        ("", 8080, "INVALID_ARGUMENT"),
        ("shop", 8080, "INVALID_ARGUMENT"),
        ('{"ns":"shop"}', 8080, "INVALID_ARGUMENT"),
        ("x" * 100_000, 8080, "INVALID_ARGUMENT"),
        ("shop:db-0", 0, "INVALID_ARGUMENT"),
        ("shop:db-0", 65536, "INVALID_ARGUMENT"),
        ("shop:gone", 8080, "NOT_FOUND"),
        ('{"ns":"nowhere","pod":"db-0"}', 8080, "NOT_FOUND"),
    ],
)
def test_who_names_no_pod_and_no_port_is_refused(service, shop, workload, port, code):
    message = policy_client.port_spec(workload, port)
    assert asyncio.run(mesh_client.refusal(target(service), policy_client.GET_PORT, message))[0] == code
    with policy_client.Watching(target(service), policy_client.WATCH_PORT, message) as stream:
        up_world.until(lambda: stream.ended, 20, "the end")
        assert (stream.ended, stream.messages) == (code, [])


def test_a_service_has_an_outbound_policy_and_nothing_else_has(plane, service, shop):
    def asked(**spec: Any) -> list[str]:
        message = policy_client.traffic_spec("shop:web-0", **spec)
        return policy_client.balancers(asyncio.run(mesh_client.call(target(service), policy_client.GET, message)))

    wanted = ["db.shop.svc.cluster.local:80"] * 3
    assert asked(ip="10.96.44.1") == wanted
    assert asked(authority="db.shop.svc.cluster.local:80") == wanted
    others: list[dict[str, Any]] = [
        {"ip": "10.0.0.5"},
        {"ip": "192.0.2.1"},
        {"authority": "gone.shop.svc.cluster.local"},
    ]
    for spec in others:
        message = policy_client.traffic_spec("shop:web-0", **spec)
        assert asyncio.run(mesh_client.refusal(target(service), policy_client.GET, message))[0] == "NOT_FOUND"
    shop.service("short", ports=[{"name": "x", "port": 80}], clusterIP="10.96.44.2")
    message = policy_client.traffic_spec("shop:web-0", ip="10.96.44.2")
    up_world.until(lambda: _answered(service, policy_client.GET, message), 20, "the Service")
    with policy_client.Watching(target(service), policy_client.WATCH, message) as stream:
        up_world.until(lambda: stream.messages, 20, "the policy")
        shop.delete("services/short")
        up_world.until(lambda: stream.ended == "NOT_FOUND", 20, "the end")


BAD = {
    "no rows and no condition": ({"targets": {}}, "spec"),
    "a row of two": ({"clients": [{"namespace": "a", "unauthenticated": True}]}, "spec.clients[0]"),
    "a row of none": ({"clients": [{}]}, "spec.clients[0]"),
    "not unauthenticated": ({"clients": [{"unauthenticated": False}]}, "spec.clients[0].unauthenticated"),
    "an account with a dot": (
        {"clients": [{"serviceAccount": {"namespace": "shop", "name": "a.b"}}]},
        "spec.clients[0].serviceAccount.name",
    ),
    "a wildcard": ({"clients": [{"identity": "*.shop"}]}, "spec.clients[0].identity"),
    "a port too large": ({"clients": [], "targets": {"ports": [65536]}}, "spec.targets.ports[0]"),
    "no account at all": ({"clients": [], "targets": {"serviceAccounts": []}}, "spec.targets.serviceAccounts"),
    "another mode": ({"clients": [], "mode": "off"}, "spec.mode"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_policy_that_is_wrong_is_refused_at_its_field(plane, case):
    spec, field = BAD[case]
    body = {"apiVersion": "handfast.dev/v1alpha1", "kind": "MeshPolicy", "metadata": {"name": "bad"}, "spec": spec}
    code, answer = plane.call("POST", POLICIES, body)
    assert code == 422, answer
    assert field in {cause["field"] for cause in answer["details"]["causes"]}


def test_what_no_schema_sees_closes_and_is_told(plane, service, shop):
    write(plane, clients=[{"unauthenticated": True}], targets={"podSelector": {"matchLabels": {"a b": "c"}}})
    up_world.until(lambda: told(service).lets_in(WEB) == "", 20, "nobody")
    (line, *_) = service.lines("a MeshPolicy lets in nobody for what cannot be read")
    assert (line["policy"], line["what"]) == ("shop/p", "spec.targets.podSelector")


# --- with the real kubectl ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kubectl(plane, tmp_path_factory) -> running.Kubectl:
    binary, version = running.find_kubectl()
    return running.Kubectl(binary, tmp_path_factory.mktemp("home"), plane.directory / "admin.conf", version, "shop")


def test_kubectl_applies_shows_and_explains_policies(kubectl, plane):
    document = {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "MeshPolicy",
        "metadata": {"name": "db"},
        "spec": {"targets": {"serviceAccounts": ["db"], "ports": [8080]}, "clients": [account("web")]},
    }
    assert kubectl("apply", "-f", "-", stdin=json.dumps(document)).out == "meshpolicy.handfast.dev/db created\n"
    assert kubectl("apply", "-f", "-", stdin=json.dumps(document)).out == "meshpolicy.handfast.dev/db unchanged\n"
    head, row = kubectl("get", "mp").lines
    assert head.split() == ["NAME", "MODE", "ACCOUNTS", "PORTS", "IDENTITY-IN", "IDENTITY-OUT", "AGE"]
    assert row.split()[:4] == ["db", "enforce", '["db"]', "[8080]"]
    assert "Who is let in" in kubectl("explain", "meshpolicy.spec.clients").out
    document["spec"] = {"clients": [{"namespace": "Bank"}]}
    assert "spec.clients[0].namespace" in kubectl.fails("apply", "-f", "-", stdin=json.dumps(document))


# --- explain --------------------------------------------------------------------------------------------------------------------


def explain(plane: mesh_world.Plane, *words: str) -> tuple[int, dict[str, Any]]:
    done = up_world.run("mesh", "explain", *words, "-o", "json", "--dir", plane.directory)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)


def check(answer: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = [row for row in answer["checks"] if row["check"] == name]
    return dict(row)


def apply(plane: mesh_world.Plane, kubectl: running.Kubectl, changes: list[str]) -> None:
    """Whatever is advised, as it is printed."""
    path = pathlib.Path(kubectl.binary).parent
    environment = {**up_world.environment(), "KUBECONFIG": str(plane.directory / "admin.conf")}
    environment["PATH"] = f"{path}:{environment['PATH']}"
    for change in changes:
        subprocess.run(["/bin/sh", "-c", change], check=True, env=environment, capture_output=True, timeout=60)


def certify(plane: mesh_world.Plane, identity: mesh_world.Service, pod: str, owner: str) -> None:
    uid = plane.call("GET", f"/api/v1/namespaces/shop/pods/{pod}")[1]["metadata"]["uid"]
    identity.certify(identity_of("shop", owner), plane.token("shop", owner, pod=(pod, uid)))


def flips(plane, kubectl, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers before and after what is advised; the verdict is the other one."""
    code, before = explain(plane, *words)
    assert before["allowed"] == (code == 0)
    apply(plane, kubectl, before["changes"])
    after_code, after = explain(plane, *words)
    assert after["allowed"] != before["allowed"], (before, after)
    assert after_code != code
    return before, after


def test_explain_turns_with_what_it_advises(plane, kubectl, identity, shop):
    certify(plane, identity, "db-0", "db")
    certify(plane, identity, "web-0", "web")
    # Without a policy; then nobody; then by a row.
    allowed, refused = flips(plane, kubectl, "shop/web", "shop/db")
    assert [row["check"] for row in allowed["checks"]][:5] == [
        "client",
        "server",
        "client certificate",
        "server certificate",
        "discovery",
    ]
    assert all(check(allowed, name)["ok"] for name in ("client", "server", "client certificate", "server certificate"))
    assert WEB in check(allowed, "client")["seen"]
    assert check(refused, "clients")["seen"] == "no row of shop/db-8080 fits"
    flips(plane, kubectl, "pod/shop/web-0", "pod/shop/db-0:8080")
    flips(plane, kubectl, "sa/shop/web", "svc/shop/db:80")
    # A client of another namespace, and one outside.
    flips(plane, kubectl, "bank/teller", "shop/db")
    flips(plane, kubectl, "none", "shop/db")
    plane.call("DELETE", POLICIES)
    write(plane, requireIdentity={"inbound": True})
    flips(plane, kubectl, "none", "shop/db")


def test_explain_knows_audit(plane, kubectl, identity, shop):
    certify(plane, identity, "db-0", "db")
    certify(plane, identity, "web-0", "web")
    write(plane, clients=[account("api")], mode="audit")
    before, _ = flips(plane, kubectl, "shop/web", "shop/db")
    assert "would be refused" in check(before, "audit")["seen"]


def test_explain_knows_who_is_revoked(plane, kubectl, identity, shop):
    certify(plane, identity, "db-0", "db")
    body = {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "Revocation",
        "metadata": {"name": "revoked"},
        "spec": {"user": "system:serviceaccount:shop:api", "reason": "stolen"},
    }
    plane.post("/apis/handfast.dev/v1alpha1/revocations", body, wanted=(201,))
    before, _ = flips(plane, kubectl, "shop/api", "shop/db")
    assert 'Revocation "revoked": stolen' in check(before, "client revocation")["seen"]


def test_explain_knows_certificates_discovery_and_the_clients_own_policy(plane, identity, shop):
    certify(plane, identity, "db-0", "db")
    certify(plane, identity, "web-0", "web")
    # A Pod that runs and has no certificate.
    shop.pod("new-0", "new", "10.0.0.8", serviceAccountName="api")
    code, answer = explain(plane, "pod/shop/new-0", "shop/db")
    assert (code, check(answer, "client certificate")["ok"]) == (1, False)
    certify(plane, identity, "new-0", "api")
    assert explain(plane, "pod/shop/new-0", "shop/db")[0] == 0
    # A server that is not in the mesh: nobody would enforce a policy there.
    code, answer = explain(plane, "shop/web", "pod/shop/bare-0:8080")
    assert (code, check(answer, "policies")["seen"]) == (0, "none is enforced: the server has no proxy on this port")
    write(plane, requireIdentity={"outbound": True}, targets={"serviceAccounts": ["api"]})
    code, answer = explain(plane, "pod/shop/new-0", "pod/shop/bare-0:8080")
    assert (code, check(answer, "outbound policy")["ok"]) == (1, False)
    # One that is withheld, and one that is not there.
    shop.annotate("pods/new-0", {"linkerd.io/identity": None})
    code, answer = explain(plane, "shop/web", "pod/shop/new-0:8080")
    assert code == 1
    assert "is withheld (IdentityUnclear)" in check(answer, "discovery")["seen"]
    code, answer = explain(plane, "shop/web", "shop/gone:80")
    assert (code, check(answer, "discovery")["seen"]) == (1, "there is no Service shop/gone")
    shop.delete("pods/new-0")


@pytest.mark.parametrize(
    ("words", "reason", "code"),
    [
        (("web", "shop/db"), "BadMeshEnd", 2),
        (("shop/web", "shop/db:http"), "BadMeshEnd", 2),
        (("shop/web", "sa/shop/db"), "PortNeeded", 1),
        (("pod/shop/gone", "shop/db"), "NotFound", 1),
        (("shop/web", "shop/db", "--control-plane-namespace", "elsewhere"), "NotInstalled", 1),
    ],
)
def test_explain_refuses_what_it_cannot_tell(plane, shop, words, reason, code):
    done = up_world.run("mesh", "explain", *words, "--dir", plane.directory)
    assert (done.returncode, reason in done.stderr) == (code, True), done.stderr


def test_explain_prints_for_people(plane, identity, shop):
    certify(plane, identity, "db-0", "db")
    done = up_world.run("mesh", "explain", "shop/api", "shop/db", "--dir", plane.directory)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["CHECK", "RESULT", "SEEN"]
    assert "\nallowed\nto change that: echo " in done.stdout
