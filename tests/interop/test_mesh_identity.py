# SPDX-License-Identifier: Apache-2.0
"""The identity service on an API server that it did not start: real tokens of that server, reviewed by it, for real certificates.

Handfast's own, and a stock kube-apiserver. Where there is no kube-apiserver its half is not proven: see `clusters`.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

import pytest

from handfast.pki import bundles, certificates, chains, pem
from handfast.rules.mesh import issuer
from handfast.runtime import clock as clocks
from tests.interop import clusters, meshes
from tests.scenarios import mesh_world, up_world
from tests.scenarios.mesh_world import identity_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAME = identity_of("shop", "web")
# kube-apiserver remembers for ten seconds that a token was good.
REMEMBERED = 30


@pytest.fixture(scope="module", params=list(meshes.SERVERS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with meshes.SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        found.handfast("mesh", "install")
        yield found


@pytest.fixture(scope="module")
def plane(cluster: clusters.Cluster) -> meshes.Plane:
    return meshes.Plane(cluster)


@pytest.fixture(scope="module")
def service(plane: meshes.Plane) -> Iterator[mesh_world.Service]:
    with mesh_world.Service(plane) as service:
        yield service.ready()


@pytest.fixture(scope="module")
def token(plane: meshes.Plane) -> bytes:
    return plane.workload("shop", "web", "web-1")


def revoke(plane: meshes.Plane, name: str) -> None:
    body = {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "Revocation",
        "metadata": {"name": name},
        "spec": {"user": f"system:serviceaccount:shop:{name}", "reason": "taken over"},
    }
    plane.post("/apis/handfast.dev/v1alpha1/revocations", body)


def test_a_bound_token_of_this_server_gets_a_certificate_that_verifies(
    plane: meshes.Plane, service: mesh_world.Service, token: bytes
) -> None:
    answer = service.certify(NAME, token)
    anchors = bundles.TrustBundle.of(pem.certificates_from_pem(plane.anchors()))
    now = clocks.SystemClock().now()
    leaf = chains.verify([answer.leaf, *answer.intermediates], anchors, chains.Server(NAME), now)
    assert leaf.sans.texts() == [f"DNS:{NAME}"]
    shown = up_world.run("ledger", "show", certificates.fingerprint(answer.leaf), "--dir", plane.directory)
    assert "shop/web-1" in shown.stdout, shown.stderr
    assert "the chain mesh holds: " in up_world.run("ledger", "verify", "--dir", plane.directory).stdout


def test_tokens_that_are_not_for_it_are_refused(plane: meshes.Plane, service: mesh_world.Service, token: bytes) -> None:
    for audiences in ([], ["vault"]):
        assert service.refusal(NAME, plane.token("shop", "web", audiences=audiences))[0] == "INVALID_ARGUMENT"
    assert service.refusal(NAME, b"garbage")[0] == "INVALID_ARGUMENT"
    other = identity_of("shop", "db")
    code, text = service.refusal(other, token)
    assert (code, f"requested={other}; found={NAME}" in text) == ("FAILED_PRECONDITION", True)


def test_a_pod_that_is_gone_and_an_account_made_anew_get_none(plane: meshes.Plane, service: mesh_world.Service) -> None:
    bound = plane.workload("shop", "gone", "gone-1")
    plane.account("shop", "anew")
    unbound = plane.token("shop", "anew")
    service.certify(identity_of("shop", "gone"), bound)
    service.certify(identity_of("shop", "anew"), unbound)
    assert plane.call("DELETE", "/api/v1/namespaces/shop/pods/gone-1?gracePeriodSeconds=0")[0] == 200
    assert plane.call("DELETE", "/api/v1/namespaces/shop/serviceaccounts/anew")[0] == 200
    plane.account("shop", "anew")
    for name, token in (("gone", bound), ("anew", unbound)):
        identity = identity_of("shop", name)
        up_world.until(lambda at=identity, by=token: service.refuses(at, by), REMEMBERED, f"the refusal of {name}")
        assert service.refusal(identity, token)[0] == "INVALID_ARGUMENT"


def test_a_revocation_is_heeded_at_once_and_under_load(plane: meshes.Plane, service: mesh_world.Service) -> None:
    tokens = {name: plane.workload("shop", name, f"{name}-1") for name in ("stolen", "busy-1", "busy-2")}
    service.certify(identity_of("shop", "stolen"), tokens["stolen"])

    def storm(name: str) -> int:
        return sum(not service.refuses(identity_of("shop", name), tokens[name]) for _ in range(30))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        storms = [pool.submit(storm, name) for name in ("busy-1", "busy-2")]
        revoke(plane, "stolen")
        # The review alone would not know it on a server of somebody else's, which has the kind as a custom resource.
        up_world.until(lambda: service.refuses(identity_of("shop", "stolen"), tokens["stolen"]), 10, "the refusal")
        # Nobody else is refused for it.
        assert [each.result() for each in storms] == [30, 30]


def test_two_replicas_take_up_another_issuer_and_share_one_ledger(
    plane: meshes.Plane, service: mesh_world.Service, token: bytes
) -> None:
    second = issuer.generate(clocks.SystemClock().now())
    home = plane.directory.parent
    (home / "root.crt").write_bytes(plane.anchors() + second.anchors)
    (home / "issuer.crt").write_bytes(second.certificate)
    (home / "issuer.key").touch(mode=0o600)
    (home / "issuer.key").write_bytes(second.key)
    wanted = pem.certificates_from_pem(second.certificate)[0]
    with mesh_world.Service(plane, "second") as replica:
        replica.ready()
        leaves = [each.certify(NAME, token).leaf for each in (service, replica)]
        words = ("--trust-anchors", home / "root.crt", "--issuer-cert", home / "issuer.crt")
        plane.cluster.handfast("mesh", "install", *words, "--issuer-key", home / "issuer.key")
        for each in (service, replica):
            up_world.until(lambda at=each: at.certify(NAME, token).intermediates[0] == wanted, 20, "the issuer")
            leaves.append(each.certify(NAME, token).leaf)
    assert len({certificates.read(leaf).serial for leaf in leaves}) == 4
    assert up_world.run("ledger", "verify", "--dir", plane.directory).returncode == 0


def test_its_certificates_are_told_on_the_account(plane: meshes.Plane, service: mesh_world.Service) -> None:
    token, name = plane.workload("till", "cash", "cash-1"), identity_of("till", "cash")
    for _ in range(3):
        service.certify(name, token)

    def count() -> int:
        _, events = plane.call("GET", "/api/v1/namespaces/till/events")
        return sum(each["count"] for each in events["items"] if each["reason"] == "IssuedLeafCertificate")

    up_world.until(lambda: count() == 3, 30, "the Event")
