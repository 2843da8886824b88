# SPDX-License-Identifier: Apache-2.0
"""A stock linkerd2-proxy, started with what the injector put into its Pod, gets its identity from Handfast's identity service.

Where there is no linkerd2-proxy nothing of it is proven: see `stock`. On a stock kube-apiserver too, where there is one: see `clusters`.
"""

from __future__ import annotations

import base64
import pathlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from handfast.pki import certificates, keys
from handfast.proxy import store_directory
from handfast.rules.mesh import issuer
from handfast.runtime import clock as clocks
from tests.interop import meshes, running, stock
from tests.scenarios import injected_pods, mesh_world, up_world
from tests.scenarios.mesh_world import identity_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# There is no policy service here, and what the proxy does with its identity is seen without one.
ALONE = {"INBOUND_DEFAULT_POLICY": "all-unauthenticated"}
OFTEN = {**ALONE, "IDENTITY_MIN_REFRESH": "1s", "IDENTITY_MAX_REFRESH": "2s"}
EXPIRY = "control_identity_cert_expiration_timestamp_seconds"
REFRESHES = "control_identity_cert_refreshes_total"


@pytest.fixture(scope="module", params=list(meshes.SERVERS))
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[meshes.Plane]:
    stock.find()
    with meshes.SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as cluster:
        cluster.handfast("mesh", "install")
        yield meshes.Plane(cluster)


@pytest.fixture(scope="module")
def service(plane: meshes.Plane) -> Iterator[mesh_world.Service]:
    """Where workloads reach it: not on loopback, and so with TLS."""
    with mesh_world.Service(plane, "elsewhere", listen=f"{meshes.own_address()}:0") as service:
        yield service.ready()


def pod(
    plane: meshes.Plane, home: pathlib.Path, service: mesh_world.Service, account: str = "web"
) -> injected_pods.Pod:
    """A Pod that was injected when the identity service was at this address."""
    plane.cluster.handfast("mesh", "install", "--set", f"identity.address={service.target}")
    manifest = injected_pods.manifest("shop", f"{account}-{time.monotonic_ns()}", account)
    return stock.write_volumes(stock.inject(plane, manifest, home / account, "127.0.0.1"))


def shown(plane: meshes.Plane, proxy: stock.Proxy, name: str) -> bytes:
    """The certificate that the proxy shows to whoever asks for this name; it verifies."""
    context = ssl.create_default_context(cadata=plane.anchors().decode())
    with socket.create_connection(proxy.address, 10) as plain, context.wrap_socket(plain, server_hostname=name) as line:
        found = line.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_it_gets_its_certificate_with_tls_and_shows_it(
    plane: meshes.Plane, service: mesh_world.Service, tmp_path: pathlib.Path
) -> None:
    started = pod(plane, tmp_path, service)
    assert started.environment()["LINKERD2_PROXY_IDENTITY_SVC_NAME"] == identity_of("linkerd", "linkerd-identity")
    with stock.proxy_here(started, **ALONE) as proxy:
        proxy.ready()
        assert f"Certified identity id={started.identity}" in proxy.log
        leaf = certificates.read(shown(plane, proxy, started.identity))
        assert proxy.metric(EXPIRY) == int(leaf.not_after.timestamp())
    assert leaf.sans.texts() == [f"DNS:{started.identity}"]
    listed = up_world.run("ledger", "show", leaf.fingerprint, "--dir", plane.directory)
    assert f"shop/{started.name}" in listed.stdout, listed.stderr


def test_it_starts_on_the_directory_that_mesh_proxy_init_prepared(
    plane: meshes.Plane, service: mesh_world.Service, tmp_path: pathlib.Path
) -> None:
    started = pod(plane, tmp_path, service)
    store = started.home / "identity"
    # Left there by an earlier start: it is replaced.
    before = (store / "key.p8").read_bytes()
    init = (*up_world.COMMAND, "mesh", "proxy", "init", "--")
    with stock.proxy_here(started, *init, IDENTITY_STORE_DIR=str(store), **ALONE) as proxy:
        proxy.ready()
        assert f"Certified identity id={started.identity}" in proxy.log
        leaf = certificates.read(shown(plane, proxy, started.identity))
        # The command has taken the place of the one that was started.
        assert pathlib.Path(f"/proc/{proxy.process.pid}/exe").resolve() == pathlib.Path(stock.find()).resolve()
    key = (store / "key.p8").read_bytes()
    assert key != before
    assert leaf.public_key.spki == keys.private_from_der(key).public.spki
    assert {path.name for path in store.iterdir()} == set(store_directory.NAMES)


def test_it_gets_its_certificate_on_loopback_in_plaintext(plane: meshes.Plane, tmp_path: pathlib.Path) -> None:
    with mesh_world.Service(plane, "here") as service:
        started = pod(plane, tmp_path, service.ready())
        assert "LINKERD2_PROXY_IDENTITY_SVC_NAME" not in started.environment()
        with stock.proxy_here(started, **ALONE) as proxy:
            proxy.ready()


def test_a_name_that_is_a_spiffe_id_beside_is_taken(
    plane: meshes.Plane, service: mesh_world.Service, tmp_path: pathlib.Path
) -> None:
    plane.cluster.handfast("mesh", "install", "--set", "identity.spiffe=true")
    started = pod(plane, tmp_path, service, "spiffe")
    uri = "URI:spiffe://cluster.local/ns/shop/sa/spiffe"
    with stock.proxy_here(started, **OFTEN) as proxy:
        proxy.ready()
        running.eventually(
            lambda: certificates.read(shown(plane, proxy, started.identity)).sans.texts()[-1] == uri, "a SPIFFE ID"
        )
    plane.cluster.handfast("mesh", "install", "--set", "identity.spiffe=false")


def test_it_renews_and_a_revocation_ends_that(
    plane: meshes.Plane, service: mesh_world.Service, tmp_path: pathlib.Path
) -> None:
    started = pod(plane, tmp_path, service, "stolen")
    with stock.proxy_here(started, **OFTEN) as proxy:
        proxy.ready()
        running.eventually(lambda: proxy.metric(REFRESHES, result="ok") >= 3, "the third certificate")
        body = {
            "apiVersion": "handfast.dev/v1alpha1",
            "kind": "Revocation",
            "metadata": {"name": "stolen"},
            "spec": {"user": "system:serviceaccount:shop:stolen", "reason": "taken over"},
        }
        plane.post("/apis/handfast.dev/v1alpha1/revocations", body)
        running.eventually(lambda: "Failed to obtain identity" in proxy.log, "the refusal")
        until = proxy.metric(EXPIRY)
        refused = proxy.log.count("Failed to obtain identity")
        running.eventually(lambda: proxy.log.count("Failed to obtain identity") > refused + 1, "more refusals")
        # It has what it had, until that expires.
        assert proxy.metric(EXPIRY) == until


def test_another_issuer_is_taken_up_by_a_proxy_that_runs(
    plane: meshes.Plane, service: mesh_world.Service, tmp_path: pathlib.Path
) -> None:
    second = issuer.generate(clocks.SystemClock().now())
    _, signing = plane.call("GET", "/api/v1/namespaces/linkerd/secrets/linkerd-identity-signing")
    first = {name: base64.b64decode(signing["data"][name]) for name in ("tls.crt", "key.der")}
    (tmp_path / "anchors.crt").write_bytes(plane.anchors() + second.anchors)

    def install(certificate: bytes, key: bytes) -> None:
        (tmp_path / "issuer.crt").write_bytes(certificate)
        (tmp_path / "issuer.key").touch(mode=0o600)
        (tmp_path / "issuer.key").write_bytes(key)
        words = ("--trust-anchors", tmp_path / "anchors.crt", "--issuer-cert", tmp_path / "issuer.crt")
        plane.cluster.handfast("mesh", "install", *words, "--issuer-key", tmp_path / "issuer.key")

    # 1. both roots are believed, 2. the issuer below the second one signs
    install(first["tls.crt"], first["key.der"])
    started = pod(plane, tmp_path, service, "swapped")
    with stock.proxy_here(started, **OFTEN) as proxy:
        proxy.ready()
        before = certificates.read(shown(plane, proxy, started.identity)).issuer
        install(second.certificate, second.key)
        running.eventually(
            lambda: certificates.read(shown(plane, proxy, started.identity)).issuer != before, "the other issuer"
        )


def test_with_a_token_of_somebody_else_it_is_never_ready(
    plane: meshes.Plane, service: mesh_world.Service, tmp_path: pathlib.Path
) -> None:
    started = pod(plane, tmp_path, service, "thief")
    plane.account("shop", "web")
    (started.home / "tokens" / "linkerd-identity-token").write_bytes(plane.token("shop", "web"))
    with stock.proxy_here(started, **OFTEN) as proxy:
        running.eventually(lambda: "requested identity did not match provided token" in proxy.log, "the refusal")
        assert proxy.get("/ready")[0] == 503


def test_one_whose_certificate_expired_heals_when_the_service_is_back(
    plane: meshes.Plane, tmp_path: pathlib.Path
) -> None:
    plane.cluster.handfast("mesh", "install", "--set", "identity.lifetime=1m")
    with mesh_world.Service(plane, "first", listen=f"{meshes.own_address()}:0") as service:
        started = pod(plane, tmp_path, service.ready(), "patient")
        listen = service.target
        context = stock.proxy_here(started, **OFTEN)
        proxy = context.__enter__()
        proxy.ready()
    try:
        # Nobody renews it. It goes on showing the one that has expired, also to the identity service.
        running.eventually(lambda: proxy.metric(EXPIRY) < time.time() - 1, "an expired certificate", 90)
        with pytest.raises(ssl.SSLCertVerificationError):
            shown(plane, proxy, started.identity)
        with mesh_world.Service(plane, "again", listen=listen) as service:
            service.ready()
            running.eventually(lambda: proxy.metric(EXPIRY) > time.time(), "a certificate again", 60)
            shown(plane, proxy, started.identity)
    finally:
        context.__exit__(None, None, None)
        plane.cluster.handfast("mesh", "install", "--set", "identity.lifetime=1d")
