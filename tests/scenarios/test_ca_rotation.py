# SPDX-License-Identifier: Apache-2.0
"""The CA and the key of tokens of a running control plane are replaced under load, and nobody is refused on the way.

Proves that requests with credentials of the old CA, and then of the new one, are answered through every step until the
old CA is retired; that retiring waits for certificates that the ledger knows; that afterwards the old credentials are
told 401; that tokens of the old key are good until it is retired; that the way back refuses nobody; and that all of it
works where nothing runs.
"""

from __future__ import annotations

import base64
import http.client
import json
import pathlib
import ssl
import threading
from typing import Any
from urllib import parse as urls

import pytest

from handfast.bootstrap import kubeconfig
from handfast.datadir import layout
from handfast.pki import authority, certificates, issuers, keys, names, pem, profiles, requests
from handfast.runtime import clock as clocks
from handfast.runtime import tls
from tests.scenarios import up_world

# Some sixty processes are started, one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT_CAS = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class Hammer(threading.Thread):
    """Asks without a pause, on new connections and on kept ones; `context` and `token` may be replaced meanwhile."""

    def __init__(self, server: str, context: ssl.SSLContext, token: str = "") -> None:
        super().__init__(daemon=True)
        self.url = urls.urlsplit(server)
        self.context = context
        self.token = token
        self.refusals: list[str] = []
        self.answers = 0
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.is_set():
            connection = http.client.HTTPSConnection(
                self.url.hostname or "", self.url.port, context=self.context, timeout=30
            )
            try:
                for _ in range(3):
                    headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
                    path = "/api/v1/namespaces/kube-system" if not self.token else "/apis"
                    connection.request("GET", path, headers=headers)
                    answer = connection.getresponse()
                    body = answer.read()
                    self.answers += 1
                    if answer.status != 200:
                        self.refusals.append(f"{answer.status} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self.refusals.append(repr(error))
            finally:
                connection.close()
            self._ended.wait(0.1)

    def end(self) -> None:
        self._ended.set()
        self.join(30)


def rotate(place: layout.Layout, *flags: str, seconds: float = 90) -> dict[str, Any]:
    outcome = up_world.run("ca", "rotate", "--dir", place.root, "-o", "json", *flags, seconds=seconds)
    assert outcome.returncode == 0, outcome.stderr
    found: dict[str, Any] = json.loads(outcome.stdout)["steps"][-1]
    return found


def show(place: layout.Layout) -> dict[str, Any]:
    outcome = up_world.run("ca", "show", "--dir", place.root, "-o", "json")
    assert outcome.returncode == 0, outcome.stderr
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


def credentials(place: layout.Layout) -> tuple[bytes, bytes]:
    user = kubeconfig.parse(place.admin_kubeconfig.read_text()).user
    assert user is not None
    return user.client_certificate_data or b"", user.client_key_data or b""


def administrator(ca: authority.Authority, bundle: bytes) -> ssl.SSLContext:
    key = keys.generate()
    subject = names.Subject(common_name="jane", organizations=("system:masters",))
    issued = ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, clocks.SystemClock().now())
    return tls.client_context(bundle, issued.pem, key.to_pem())


def status_with(up: up_world.Up, context: ssl.SSLContext, token: str = "") -> int:
    url = urls.urlsplit(up.facts["apiserver"])
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=context, timeout=30)
    connection.request("GET", "/apis", headers={"Authorization": f"Bearer {token}"} if token else {})
    status = connection.getresponse().status
    connection.close()
    return status


def signed(up: up_world.Up, name: str, request: str) -> certificates.Certificate:
    """A client certificate by the API: asked for, approved and signed."""
    key = keys.generate()
    made = requests.build(names.Subject(common_name=name), names.Sans(), key)
    spec = {
        "request": base64.b64encode(made).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    document = {"metadata": {"name": request}, "spec": spec}
    code, found = up.call("POST", CSRS, document)
    assert code == 201, found
    found["status"] = {
        "conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "for this test"}]
    }
    code, found = up.call("PUT", f"{CSRS}/{request}/approval", found)
    assert code == 200, found

    def issued() -> Any:
        return up.call("GET", f"{CSRS}/{request}")[1].get("status", {}).get("certificate")

    up_world.until(issued, 20, "the signer")
    return certificates.read(pem.certificates_from_pem(base64.b64decode(issued()))[0])


def test_the_ca_under_load(tmp_path: pathlib.Path) -> None:
    place = layout.Layout.at(tmp_path / "d")
    with up_world.Up(place.root) as up:
        up.ready()
        pids = up.pids()
        server = up.facts["apiserver"]
        old_bundle = place.ca_certificate.read_bytes()
        old_pair = credentials(place)
        old_context = tls.client_context(old_bundle, *old_pair)
        first = signed(up, "alice", "before")
        hammers = [Hammer(server, old_context)]
        try:
            assert rotate(place)["did"] == "add"
            step = rotate(place)
            assert (step["did"], step["next"]) == ("publish", "switch")
            assert "within two hours" in step["waitsFor"][0]["what"]
            assert rotate(place)["did"] is None, "it waits"
            # By now clients have learned of both.
            both = place.ca_certificate.read_bytes()
            told = up.call("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")[1]["data"]["ca.crt"]
            assert len(pem.certificates_from_pem(told.encode())) == 2
            hammers[0].context = tls.client_context(both, *old_pair)
            new_ca = issuers.choose(both, keys.private_from_pem((place.rotation("ca") / "new.key").read_bytes()))
            newcomer = administrator(new_ca, both)
            hammers.append(Hammer(server, newcomer))
            assert rotate(place, "--unsafe-skip-wait")["did"] == "switch"
            second = signed(up, "bob", "after")
            assert (first.issuer, second.issuer) == ("CN=handfast-ca", f"CN={new_ca.certificate.subject.common_name}")
            assert rotate(place)["did"] == "reissue"
            waiting = rotate(place)
            assert (waiting["did"], waiting["next"]) == (None, "retire")
            assert "CN=alice" in waiting["waitsFor"][0]["what"]
            overview = show(place)["certificateAuthorities"]
            assert [(one["signs"], one["unexpiredCertificates"] > 0) for one in overview] == [
                (False, True),
                (True, True),
            ]
            up_world.until(lambda: min(hammer.answers for hammer in hammers) > 20, 20, "answers")
            assert [hammer.refusals for hammer in hammers] == [[], []]
            hammers.pop(0).end()
            assert rotate(place, "--unsafe-skip-wait")["did"] == "retire"
            assert hammers[0].refusals == [], "those of the new CA are never refused"
        finally:
            for hammer in hammers:
                hammer.end()
        assert status_with(up, tls.client_context(both, *old_pair)) == 401
        assert status_with(up, newcomer) == 200
        bundle = up.call("GET", CLIENT_CAS)[1]["data"]["client-ca-file"]
        assert pem.certificates_from_pem(bundle.encode()) == [new_ca.certificate.der]
        assert len(show(place)["certificateAuthorities"]) == 1
        assert up.pids() == pids, "nothing was restarted"
        assert up.stop()[0] == 0
    # A later start finds nothing to mend.
    with up_world.Up(place.root) as again:
        assert again.ready().call("GET", "/api/v1/namespaces/default")[0] == 200


def test_the_way_back_refuses_nobody(tmp_path: pathlib.Path) -> None:
    place = layout.Layout.at(tmp_path / "d")
    with up_world.Up(place.root) as up:
        up.ready()
        old_pair = credentials(place)
        old_key, old_text = place.ca_key.read_bytes(), place.ca_certificate.read_bytes()
        rotate(place, "--all")
        both = place.ca_certificate.read_bytes()
        hammers = [Hammer(up.facts["apiserver"], tls.client_context(both, *old_pair))]
        new_ca = issuers.choose(both, keys.private_from_pem((place.rotation("ca") / "new.key").read_bytes()))
        newcomer = Hammer(up.facts["apiserver"], administrator(new_ca, both))
        try:
            assert rotate(place, "--unsafe-skip-wait")["did"] == "switch"
            assert rotate(place)["did"] == "reissue"
            step = rotate(place, "--undo")
            assert (step["did"], step["next"]) == ("switch", "reissue")
            assert place.ca_key.read_bytes() == old_key
            assert rotate(place)["did"] == "reissue"
            assert newcomer.refusals == [], "what the new CA issued meanwhile is good until it is retired"
            newcomer.end()
            assert rotate(place)["did"] == "retire"
            assert hammers[0].refusals == []
        finally:
            for hammer in (*hammers, newcomer):
                hammer.end()
        assert place.ca_certificate.read_bytes() == old_text
        assert up.call("GET", "/api/v1/namespaces/default")[0] == 200


def test_the_key_of_tokens_under_load(tmp_path: pathlib.Path) -> None:
    place = layout.Layout.at(tmp_path / "d")
    with up_world.Up(place.root) as up:
        up.ready()
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"

        def token() -> str:
            code, found = up.call("POST", path, {"spec": {"expirationSeconds": 3600}})
            assert code == 201, found
            return str(found["status"]["token"])

        up_world.until(lambda: up.call("GET", path.removesuffix("/token"))[0] == 200, 20, "the account")
        secret = {
            "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token",
        }
        assert up.call("POST", "/api/v1/namespaces/default/secrets", secret)[0] == 201
        up_world.until(
            lambda: up.call("GET", "/api/v1/namespaces/default/secrets/robot")[1].get("data", {}).get("token"),
            20,
            "the token controller",
        )
        anonymous = tls.client_context(place.ca_certificate.read_bytes())
        old = token()
        hammers = [Hammer(up.facts["apiserver"], anonymous, old)]
        try:
            rotate(place, "--service-account-key", "--all")
            keys_told = up.call("GET", "/openid/v1/jwks")[1]["keys"]
            assert len(keys_told) == 2
            assert rotate(place, "--service-account-key", "--unsafe-skip-wait")["did"] == "switch"

            def signed_anew() -> bool:
                header = json.loads(base64.urlsafe_b64decode(token().split(".")[0] + "=="))
                return bool(header["kid"] == keys_told[1]["kid"])

            up_world.until(signed_anew, 20, "the new key to sign")
            hammers.append(Hammer(up.facts["apiserver"], anonymous, token()))
            waiting = rotate(place, "--service-account-key")
            assert waiting["did"] is None
            assert any("default/robot" in wait["what"] for wait in waiting["waitsFor"])
            up_world.until(lambda: hammers[1].answers > 20, 20, "answers")
            assert [hammer.refusals for hammer in hammers] == [[], []]
            hammers.pop(0).end()
            assert rotate(place, "--service-account-key", "--unsafe-skip-wait")["did"] == "retire"
            assert status_with(up, anonymous, old) == 401
            assert hammers[0].refusals == []
        finally:
            for hammer in hammers:
                hammer.end()


def test_where_nothing_runs(tmp_path: pathlib.Path) -> None:
    place = layout.Layout.at(tmp_path / "d")
    with up_world.Up(place.root) as up:
        up.ready()
        path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
        up_world.until(lambda: up.call("GET", path)[0] == 200, 20, "the controllers")
        assert up.stop()[0] == 0
    old = place.ca_certificate.read_bytes()
    old_pair = credentials(place)
    for flags in ((), ("--service-account-key",)):
        last = rotate(place, "--all", "--unsafe-skip-wait", *flags)
        assert (last["did"], last["next"]) == ("retire", None)
    assert place.ca_certificate.read_bytes() != old
    with up_world.Up(place.root) as up:
        up.ready()
        told = up.call("GET", path)[1]["data"]["ca.crt"]
        assert told == place.ca_certificate.read_text()
        assert status_with(up, tls.client_context(place.ca_certificate.read_bytes(), *old_pair)) == 401


def test_what_is_no_directory(tmp_path: pathlib.Path) -> None:
    for word in ("show", "rotate"):
        outcome = up_world.run("ca", word, "--dir", tmp_path / "none")
        assert outcome.returncode == 1
        assert outcome.stderr.endswith("reason: NoDataDirectory\n")
    assert not (tmp_path / "none").exists()
