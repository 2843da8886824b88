# SPDX-License-Identifier: Apache-2.0
"""A real Pod's token gets a real certificate, over gRPC, from a client that knows nothing but field numbers; and who gets none."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from collections.abc import Iterator

import pytest

from handfast.pki import bundles, certificates, chains, keys, pairs, pem
from handfast.rules.mesh import issuer
from handfast.runtime import clock as clocks
from handfast.runtime import tls
from tests.scenarios import mesh_world, up_world
from tests.scenarios.mesh_world import csr, identity_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NAME = identity_of("shop", "web")


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        yield plane


@pytest.fixture(scope="module")
def service(plane) -> Iterator[mesh_world.Service]:
    with mesh_world.Service(plane) as service:
        yield service.ready()


@pytest.fixture(scope="module")
def token(plane: mesh_world.Plane) -> bytes:
    return plane.workload("shop", "web", "web-1")


def verified(plane: mesh_world.Plane, chain: list[bytes], purpose: chains.Client | chains.Server) -> chains.Verified:
    anchors = bundles.TrustBundle.of(pem.certificates_from_pem(plane.anchors()))
    return chains.verify(chain, anchors, purpose, clocks.SystemClock().now())


def test_a_real_pods_token_gets_a_certificate_that_verifies(plane, service, token):
    answer = service.certify(NAME, token)
    chain = [answer.leaf, *answer.intermediates]
    leaf = verified(plane, chain, chains.Client())
    verified(plane, chain, chains.Server(NAME))
    assert leaf.sans.texts() == [f"DNS:{NAME}"]
    assert str(leaf.subject) == ""
    assert answer.valid_until == int(leaf.not_after.timestamp())
    # It is in the ledger, and in the log once.
    shown = up_world.run("ledger", "show", certificates.fingerprint(answer.leaf), "--dir", plane.directory)
    assert shown.returncode == 0, shown.stderr
    for text in (f"DNS:{NAME}", "system:serviceaccount:shop:web", "shop/web-1", "MeshCertify"):
        assert text in shown.stdout
    lines = service.lines("issued certificate")
    assert [line["sha256"] for line in lines].count(leaf.fingerprint) == 1
    assert token.decode() not in service.log.read_text()
    proof = up_world.run("ledger", "verify", "--dir", plane.directory)
    assert "the chain mesh holds: " in proof.stdout, proof.stderr
    listed = up_world.run("ledger", "list", "--dir", plane.directory)
    assert NAME in listed.stdout
    assert 'handfast_mesh_certify_total{result="Issued"}' in service.metrics()


REFUSED = {
    "no identity": ("", "token", b"x", "INVALID_ARGUMENT", "missing identity"),
    "no token": (NAME, "", b"x", "INVALID_ARGUMENT", "missing token"),
    "no request": (NAME, "token", b"", "INVALID_ARGUMENT", "missing certificate signing request"),
    "no DER": (NAME, "token", b"fake-data", "INVALID_ARGUMENT", "not a PKCS#10 certificate request in DER"),
    "a megabyte": (NAME, "token", b"x" * (1 << 20), "INVALID_ARGUMENT", "it has 1048576 bytes; at most 65536"),
    "two names": (NAME, "token", csr("", dns=(NAME, "b.test")), "FAILED_PRECONDITION", "exactly one DNSName"),
    "another name": (NAME, "token", csr("b.test"), "FAILED_PRECONDITION", f"csr=b.test; req={NAME}"),
    "an address": (
        NAME,
        "token",
        csr("", dns=(NAME,), ip=(ipaddress.ip_address("10.0.0.1"),)),
        "FAILED_PRECONDITION",
        "cannot validate IP addresses",
    ),
    "an e-mail address": (
        NAME,
        "token",
        csr("", dns=(NAME,), email=("a@b.test",)),
        "FAILED_PRECONDITION",
        "cannot validate email addresses",
    ),
    "a URI": (
        NAME,
        "token",
        csr("", dns=(NAME,), uri=("spiffe://a/b",)),
        "FAILED_PRECONDITION",
        "cannot validate URIs",
    ),
    "garbage for a token": (NAME, "garbage", csr(NAME), "INVALID_ARGUMENT", "invalid bearer token"),
    "another account's name": (
        identity_of("shop", "db"),
        "token",
        csr(identity_of("shop", "db")),
        "FAILED_PRECONDITION",
        f"requested identity did not match provided token: requested={identity_of('shop', 'db')}; found={NAME}",
    ),
    "an RSA key": (NAME, "token", csr(NAME, keys.generate(keys.Kind.RSA)), "INTERNAL", "ECDSA public key"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_in_order_is_refused_with_its_code_and_text(service, token, case):
    identity, which, request, code, text = REFUSED[case]
    shown = {"token": token, "": b""}.get(which, which.encode())
    said = service.refusal(identity, shown, request)
    assert said[0] == code
    assert text in said[1]


def test_a_token_for_the_api_or_for_others_is_refused(plane, service):
    plane.account("shop", "web")
    for audiences in ([], ["vault"]):
        other = plane.token("shop", "web", audiences=audiences)
        code, text = service.refusal(NAME, other)
        assert code == "INVALID_ARGUMENT"
        assert "invalid bearer token" in text


def test_the_token_of_a_deleted_pod_is_refused(plane, service):
    token = plane.workload("shop", "gone", "gone-1")
    name = identity_of("shop", "gone")
    service.certify(name, token)
    assert plane.call("DELETE", "/api/v1/namespaces/shop/pods/gone-1?gracePeriodSeconds=0")[0] == 200
    assert service.refusal(name, token)[0] == "INVALID_ARGUMENT"


def test_the_token_of_an_account_made_anew_is_refused(plane, service):
    plane.account("shop", "anew")
    token = plane.token("shop", "anew")
    name = identity_of("shop", "anew")
    service.certify(name, token)
    assert plane.call("DELETE", "/api/v1/namespaces/shop/serviceaccounts/anew")[0] == 200
    plane.account("shop", "anew")
    assert service.refusal(name, token)[0] == "INVALID_ARGUMENT"
    service.certify(name, plane.token("shop", "anew"))


def test_an_account_with_a_dot_has_no_identity(plane, service):
    plane.account("shop", "a.b")
    assert service.refusal(NAME, plane.token("shop", "a.b")) == ("INVALID_ARGUMENT", "Not a label: a.b")


def test_a_revoked_account_is_refused_at_once(plane, service):
    plane.account("shop", "stolen")
    token, name = plane.token("shop", "stolen"), identity_of("shop", "stolen")
    service.certify(name, token)
    body = {
        "apiVersion": "handfast.dev/v1alpha1",
        "kind": "Revocation",
        "metadata": {"name": "stolen"},
        "spec": {"user": "system:serviceaccount:shop:stolen", "reason": "taken over"},
    }
    plane.post("/apis/handfast.dev/v1alpha1/revocations", body)
    up_world.until(lambda: service.refuses(name, token), 10, "the refusal")


def test_another_issuer_is_taken_up_and_a_bad_one_is_not(plane, service, token):
    path = "/api/v1/namespaces/linkerd/secrets/linkerd-identity-signing"
    _, before = plane.call("GET", path)
    wrong = {**before, "data": {**before["data"], "key.der": base64.b64encode(keys.generate().to_der()).decode()}}
    wrong["metadata"] = {"name": "linkerd-identity-signing"}
    assert plane.call("PUT", path, wrong)[0] == 200
    up_world.until(lambda: service.lines("the stored issuer is not used"), 10, "the warning")
    assert service.certify(NAME, token).leaf
    # Anchors and issuer of the operator's own, in one step: the issuer below the new root.
    second = issuer.generate(clocks.SystemClock().now())
    directory = plane.directory.parent
    (directory / "root.crt").write_bytes(plane.anchors() + second.anchors)
    (directory / "issuer.crt").write_bytes(second.certificate)
    (directory / "issuer.key").write_bytes(second.key)
    (directory / "issuer.key").chmod(0o600)
    files = ("--trust-anchors", directory / "root.crt", "--issuer-cert", directory / "issuer.crt")
    plane.install(*files, "--issuer-key", directory / "issuer.key")
    wanted = pem.certificates_from_pem(second.certificate)[0]
    up_world.until(lambda: service.certify(NAME, token).intermediates[0] == wanted, 15, "the new issuer")
    _, events = plane.call("GET", "/api/v1/namespaces/linkerd/events")
    assert {"IssuerUpdateSkipped", "IssuerUpdated"} <= {event["reason"] for event in events["items"]}


def test_two_replicas_and_a_restart_share_one_ledger(plane, service, token):
    with mesh_world.Service(plane, "second") as second:
        second.ready()
        serials = [each.certify(NAME, token).leaf for each in (service, second, service, second)]
    with mesh_world.Service(plane, "third") as third:
        serials.append(third.ready().certify(NAME, token).leaf)
    assert len({certificates.read(leaf).serial for leaf in serials}) == 5
    assert up_world.run("ledger", "verify", "--dir", plane.directory).returncode == 0


def test_only_the_identity_service_writes_in_its_chain(plane):
    account = "system:serviceaccount:linkerd:linkerd-controller"
    body = {
        "spec": {
            "user": account,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "group": "certificates.k8s.io",
                "resource": "signers",
                "verb": "sign",
                "name": "handfast.dev/mesh-identity",
            },
        }
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert plane.post(path, body)["status"]["allowed"] is False
    body["spec"]["user"] = "system:serviceaccount:linkerd:linkerd-identity"
    assert plane.post(path, body)["status"]["allowed"] is True


def test_beyond_loopback_it_speaks_tls_with_its_own_identity(plane, token):
    own = identity_of("linkerd", "linkerd-identity")
    with mesh_world.Service(plane, "tls", listen="0.0.0.0:0") as service:
        service.ready()
        up_world.until(lambda: service.lines("the service has a certificate of its own"), 20, "its certificate")
        port = int(service.target.rpartition(":")[2])
        key = keys.generate()
        # Without ALPN, as proxies of the mesh speak; then again, with the certificate that came of it.
        context = tls.client_context(plane.anchors())
        first = asyncio.run(mesh_world.certified_by_tls(port, context, own, NAME, token, key))
        pair = pairs.Pair((first.leaf, *first.intermediates), key)
        tls.load_pair(context, pair.certificate_pem, pair.key_pem)
        context.set_alpn_protocols(["h2"])
        again = asyncio.run(mesh_world.certified_by_tls(port, context, own, NAME, token, key))
        verified(plane, [again.leaf, *again.intermediates], chains.Client())
        # Who speaks plaintext there is not answered.
        assert mesh_world.certified(f"127.0.0.1:{port}", NAME, token) is None
    shown = up_world.run("ledger", "list", "--dir", plane.directory)
    assert own in shown.stdout


def test_up_with_a_mesh_installs_it_and_serves_identities(tmp_path):
    words = ("--mesh", "--identity-listen", "127.0.0.1:0", "--identity-admin-listen", "127.0.0.1:0")
    with mesh_world.Plane(tmp_path / "data", *words) as plane:
        plane.ready()
        token = plane.workload("shop", "web", "web-1")
        target = plane.facts["identity"]
        up_world.until(lambda: mesh_world.certified(target, NAME, token) is not None, 30, "the first certificate")
        answer = mesh_world.certified(target, NAME, token)
        assert answer is not None
        verified(plane, [answer.leaf, *answer.intermediates], chains.Client())
        assert (plane.directory / "mesh" / "linkerd-identity.token").stat().st_mode & 0o777 == 0o600
