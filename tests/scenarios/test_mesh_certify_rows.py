# SPDX-License-Identifier: Apache-2.0
"""Every check of Certify, seen by a client that knows field numbers alone: its code and its text, on real processes and with real tokens."""

from __future__ import annotations

import asyncio
import base64
import datetime
import pathlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from handfast.apiserver import uids
from handfast.pki import authority, certificates, jwt, keys, pairs, pem, profiles
from handfast.pki import names as pki_names
from handfast.rules.mesh import certify, installation, issuer
from handfast.rules.mesh import names as mesh_names
from handfast.rules.mesh import settings as mesh_settings
from handfast.rules.tokens import claims
from handfast.runtime import clock as clocks
from handfast.runtime import tls
from tests.scenarios import mesh_world, up_world
from tests.scenarios.mesh_world import identity_of
from tests.unit.rules.mesh import test_certify

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NAME = identity_of("shop", "web")
MESH = mesh_names.Mesh("cluster.local")
SECONDS = datetime.timedelta(seconds=1)


def now() -> datetime.datetime:
    return clocks.SystemClock().now()


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


@pytest.mark.parametrize("case", test_certify.ONE_TOO_MANY)
def test_a_request_that_names_more_than_one_thing_is_refused(service, token, case):
    request, identity, text = test_certify.ONE_TOO_MANY[case]
    assert service.refusal(identity, token, request) == ("FAILED_PRECONDITION", text)


def test_a_request_that_another_key_signed_is_refused(service, token):
    mine, theirs = keys.generate(), keys.generate()
    request = mesh_world.csr(NAME, mine).replace(mine.public.spki, theirs.public.spki)
    assert service.refusal(NAME, token, request) == (
        "INVALID_ARGUMENT",
        "the request is not signed by the key it carries",
    )


def bound_token(plane: mesh_world.Plane, account: str, expires_in: int, audience: str = mesh_world.AUDIENCE) -> bytes:
    """A token as the API server itself would have signed it some time ago."""
    _, document = plane.call("GET", f"/api/v1/namespaces/shop/serviceaccounts/{account}")
    signer = jwt.Signer(keys.private_from_pem((plane.directory / "pki" / "sa.key").read_bytes()))
    live = claims_of(plane.token("shop", account))
    at = int(now().timestamp()) + expires_in
    bound = claims.Bound(
        namespace="shop",
        account=claims.Reference(account, document["metadata"]["uid"]),
        audiences=(audience,),
        issued_at=at - 600,
        not_before=at - 600,
        expires=at,
        id=uids.new(),
    )
    return signer.sign(msgspec.json.encode(claims.bound_claims(live["iss"], bound))).encode()


def claims_of(token: bytes) -> dict[str, str]:
    body = token.split(b".")[1]
    parsed: dict[str, str] = msgspec.json.decode(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
    return parsed


def test_an_expired_token_is_refused_and_one_that_is_not_is_taken(plane, service, token):
    assert token
    assert service.certify(NAME, bound_token(plane, "web", 300)).leaf
    code, text = service.refusal(NAME, bound_token(plane, "web", -60))
    assert code == "INVALID_ARGUMENT"
    assert "invalid bearer token" in text


def test_where_the_api_server_does_not_review_tokens_it_is_internal(plane, token, tmp_path):
    # An account that may not review tokens: the call fails, whatever the token is.
    files = mesh_files(tmp_path, stored(plane))
    with mesh_world.Service(plane, "blind", "127.0.0.1:0", *files, account="linkerd-proxy-injector") as blind:
        blind.listening()
        up_world.until(lambda: blind.lines("certificates are signed by this issuer"), 20, "its issuer")
        code, text = blind.refusal(NAME, token)
        assert "[-]rights failed: a right is missing" in blind.readiness()
    assert code == "INTERNAL"
    assert text.startswith(f"error validating token for {NAME}: ")
    assert token.decode() not in text


def stored(plane: mesh_world.Plane) -> issuer.Material:
    """The issuer of the installation."""
    _, secret = plane.call("GET", "/api/v1/namespaces/linkerd/secrets/linkerd-identity-signing")
    _, anchors = plane.call("GET", "/api/v1/namespaces/linkerd/configmaps/linkerd-trust-anchor")
    return installation.read_material(secret, anchors)


def mesh_files(directory: pathlib.Path, material: issuer.Material) -> tuple[object, ...]:
    """The three flags, and their files."""
    (directory / "ca.crt").write_bytes(material.anchors)
    (directory / "tls.crt").write_bytes(material.certificate)
    (directory / "tls.key").write_bytes(material.key)
    (directory / "tls.key").chmod(0o600)
    names = (("--trust-anchors", "ca.crt"), ("--issuer-cert", "tls.crt"), ("--issuer-key", "tls.key"))
    return tuple(word for flag, name in names for word in (flag, directory / name))


def short_lived(seconds: int) -> issuer.Material:
    """A root, and an issuer below it that is over in a moment."""
    at = now()
    root_key, key = keys.generate(), keys.generate()
    root = authority.self_signed_ca(pki_names.Subject(common_name="root"), root_key, at)
    profile = profiles.Profile(
        name="short", usages=profiles.INTERMEDIATE_CA.usages, lifetime=seconds * SECONDS, is_ca=True, backdate=SECONDS
    )
    subject = pki_names.Subject(common_name="issuer")
    issued = root.issue(key.public, subject, pki_names.Sans(), profile, at)
    return issuer.Material(issued.pem, key.to_der(), root.pem)


def test_without_an_issuer_it_is_unavailable_and_one_in_files_is_taken_up(plane, token, tmp_path):
    first, second = issuer.generate(now()), issuer.generate(now())
    flags = mesh_files(tmp_path, first)
    (tmp_path / "tls.crt").unlink()
    with mesh_world.Service(plane, "files", "127.0.0.1:0", *flags) as service:
        service.listening()
        assert service.refusal(NAME, token) == ("UNAVAILABLE", "cert issuer not ready yet")
        assert "[-]issuer failed" in service.readiness()
        mesh_files(tmp_path, first)
        service.ready()
        assert issued_by(service, token) == pem.certificates_from_pem(first.certificate)
        # A key of somebody else changes nothing, and is told.
        # Whether it looked before the files were there, and said so, depends on the machine.
        said = len(service.lines("the stored issuer is not used"))
        (tmp_path / "tls.key").write_bytes(keys.generate().to_der())
        up_world.until(lambda: len(service.lines("the stored issuer is not used")) > said, 20, "the warning")
        assert issued_by(service, token) == pem.certificates_from_pem(first.certificate)
        mesh_files(tmp_path, second)
        wanted = pem.certificates_from_pem(second.certificate)
        up_world.until(lambda: issued_by(service, token) == wanted, 20, "the second issuer")


def issued_by(service: mesh_world.Service, token: bytes) -> list[bytes]:
    return service.certify(NAME, token).intermediates


def test_an_issuer_that_is_over_signs_nothing_and_is_told(plane, token, tmp_path):
    flags = mesh_files(tmp_path, issuer.generate(now()))
    with mesh_world.Service(plane, "short", "127.0.0.1:0", *flags) as service:
        service.ready()
        # Made when everything runs: it may take longer than it lives until then.
        short = short_lived(20)
        mesh_files(tmp_path, short)
        wanted = pem.certificates_from_pem(short.certificate)
        up_world.until(lambda: issued_by(service, token) == wanted, 20, "the short one")
        leaf = certificates.read(service.certify(NAME, token).leaf)
        assert leaf.not_after <= now() + 20 * SECONDS
        up_world.until(lambda: service.refuses(NAME, token), 40, "its end")
        code, text = service.refusal(NAME, token)
        assert code == "UNKNOWN"
        for part in ("expired", " - Current Time : ", " - Invalid before ", " - Invalid After "):
            assert part in text
        up_world.until(lambda: event(plane, "linkerd", "IssuerValidationFailed"), 20, "the Event")
    told = event(plane, "linkerd", "IssuerValidationFailed")[0]
    assert (told["type"], told["involvedObject"]["name"]) == ("Warning", "linkerd-identity")


def event(plane: mesh_world.Plane, namespace: str, reason: str) -> list[dict[str, Any]]:
    _, events = plane.call("GET", f"/api/v1/namespaces/{namespace}/events")
    return [each for each in events["items"] if each["reason"] == reason]


def test_certificates_are_told_on_the_account_in_one_event(plane, service):
    token, name = plane.workload("till", "cash", "cash-1"), identity_of("till", "cash")
    leaves = [service.certify(name, token).leaf for _ in range(5)]

    def count() -> int:
        return sum(int(each["count"]) for each in event(plane, "till", "IssuedLeafCertificate"))

    up_world.until(lambda: count() == 5, 30, "the Event")
    (told,) = event(plane, "till", "IssuedLeafCertificate")
    assert told["involvedObject"]["kind"] == "ServiceAccount"
    assert str(told["message"]).endswith(certificates.fingerprint(leaves[-1]))


def test_a_client_whose_certificate_has_expired_is_served_as_nobody(plane, token):
    current = issuer.load(stored(plane), MESH, now())
    key = keys.generate()
    profile = certify.profile(mesh_settings.Settings(lifetime=60 * SECONDS), current, now())
    sans = pki_names.make_sans(dns=[NAME])
    old = current.authority.issue(key.public, pki_names.Subject(), sans, profile, now() - 200 * SECONDS)
    expired = pairs.Pair((old.der, *current.chain), key)
    assert expired.leaf.not_after < now()
    with mesh_world.Service(plane, "tls", "0.0.0.0:0") as service:
        service.ready()
        port = int(service.target.rpartition(":")[2])
        context = tls.client_context(plane.anchors())
        tls.load_pair(context, expired.certificate_pem, expired.key_pem)
        own = identity_of("linkerd", "linkerd-identity")
        answer = asyncio.run(mesh_world.certified_by_tls(port, context, own, NAME, token, key))
        assert certificates.read(answer.leaf).not_after > now()


def test_a_token_for_the_api_is_taken_only_where_that_is_set(plane, token):
    for_api = plane.token("shop", "web", audiences=[])
    other = plane.token("shop", "web", audiences=["vault"])
    with mesh_world.Service(plane, "api") as service:
        service.ready()
        assert service.refuses(NAME, for_api)
        plane.install("--set", "identity.acceptApiAudience=true")
        try:
            up_world.until(lambda: not service.refuses(NAME, for_api), 20, "the setting")
            assert service.certify(NAME, token).leaf
            assert service.refusal(NAME, other)[0] == "INVALID_ARGUMENT"
            # Whoever is no service account has no identity, good as the token may be.
            made = up_world.run("token", "create", "--kubeconfig", plane.directory / "admin.conf")
            assert made.returncode == 0, made.stderr
            code, text = service.refusal(NAME, made.stdout.strip().encode())
            assert code == "INVALID_ARGUMENT"
            assert text.startswith("Username must be in form system:TYPE:NS:SA: system:bootstrap:")
        finally:
            plane.install("--set", "identity.acceptApiAudience=false")
