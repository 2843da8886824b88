# SPDX-License-Identifier: Apache-2.0
"""A machine-config server of a few lines, which answers real renderings over real TLS, and a machine that follows it.

It asks for the certificate of who asks, as the real one does, and judges nobody: what is answered is the test's to say.
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import ipaddress
import json
import pathlib
import secrets
import ssl
import threading
from collections.abc import Iterator
from typing import Any

from handfast.pki import authority, keys, names, pem, profiles
from handfast.rules.machine_config import names as config_names
from handfast.rules.machine_config import pointer
from tests.scenarios import test_node_agent as agents
from tests.scenarios import up_world
from tests.unit.rules.machine_config import serving

MINE = "var/lib/handfast/configuration"


def authority_of(plane: up_world.Up) -> authority.Authority:
    place = plane.directory / "pki"
    return authority.Authority(
        pem.certificates_from_pem((place / "ca.crt").read_bytes())[0],
        keys.private_from_pem((place / "ca.key").read_bytes()),
    )


def other_authority(name: str) -> authority.Authority:
    return authority.self_signed_ca(
        names.Subject(common_name=name), keys.generate(), datetime.datetime.now(datetime.UTC)
    )


class Server:
    """`answers` by path: code, headers and body. `callers` are the subjects of the certificates that asked."""

    def __init__(self, directory: pathlib.Path, issuer: authority.Authority, clients: bytes) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.callers: list[str] = []
        self.serials: list[str] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen(self)
                code, headers, body = outer.answers.get(self.path, (404, {}, b""))
                self.send_response(code)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        key = keys.generate()
        now = datetime.datetime.now(datetime.UTC)
        sans = names.Sans(ip=(ipaddress.ip_address("127.0.0.1"),))
        issued = issuer.issue(key.public, names.Subject(common_name="mcs"), sans, profiles.KUBELET_SERVING, now)
        pair = directory / "mcs.pem"
        pair.write_bytes(issued.pem + key.to_pem())
        context.load_cert_chain(pair)
        context.load_verify_locations(cadata=clients.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._http.server_address[1]}"

    def seen(self, request: http.server.BaseHTTPRequestHandler) -> None:
        certificate: Any = request.connection.getpeercert() or {}
        subject = dict(row[0] for row in certificate.get("subject", ()))
        self.callers.append(subject.get("commonName", ""))
        self.serials.append(certificate.get("serialNumber", ""))
        self.headers.append({name.lower(): value for name, value in request.headers.items()})

    def serve(self, document: dict[str, Any], kubeconfig: bytes = serving.KUBECONFIG, pool: str = "worker") -> str:
        """Answer with this rendering from now on; its name."""
        self.answers[f"/config/{pool}"] = (200, {}, serving.answer(document, kubeconfig))
        name: str = document["metadata"]["name"]
        return name

    def fail(self, code: int, pool: str = "worker", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[f"/config/{pool}"] = (code, named, b"")

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        self._thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            self._thread.join(10)


class Machine(agents.Machine):
    """A machine with a root of its own, whose Node the test can look at and annotate."""

    def __init__(self, plane: up_world.Up, directory: pathlib.Path, name: str) -> None:
        super().__init__(plane, directory, name)
        self.root = directory / "root"
        self.root.mkdir(exist_ok=True)

    def following(self, server: Server) -> tuple[object, ...]:
        return ("--rotate-certificates", "--machine-config", "--root", self.root, "--machine-config-server", server.url)

    def annotations(self) -> dict[str, str]:
        node = self.node() or {"metadata": {}}
        return {
            key.partition("/")[2]: text
            for key, text in (node["metadata"].get("annotations") or {}).items()
            if key.startswith(("machineconfiguration.openshift.io/", "machines.handfast.dev/"))
        }

    def annotate(self, **rows: str) -> None:
        """As the control plane does."""
        self._patch({"annotations": rows})

    def label(self, name: str) -> None:
        """As an operator does: which role a node has is not the node's to say."""
        self._patch({"labels": {name: ""}})

    def _patch(self, metadata: dict[str, Any]) -> None:
        with contextlib.closing(self.plane.connection(self.plane.context())) as connection:
            body = json.dumps({"metadata": metadata})
            connection.request(
                "PATCH",
                f"/api/v1/nodes/{self.name}",
                body,
                {"Content-Type": "application/merge-patch+json"},
            )
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()

    def want(self, rendering: str) -> None:
        self.annotate(**{config_names.DESIRED: rendering})

    def poke(self) -> None:
        """Something about the Node changes, so that the agent looks."""
        self.annotate(poke=secrets.token_hex(8))

    def until(self, state: str, current: str | None = None, reason: str = "", seconds: float = 30) -> dict[str, str]:
        def there() -> bool:
            seen = self.annotations()
            good = seen.get("state") == state and reason in seen.get("reason", "")
            return good and (current is None or seen.get("currentConfig") == current)

        up_world.until(there, seconds, what=f"{state} {current or ''} {reason}; there is {self.annotations()}")
        return self.annotations()

    def pointer(self, server: Server, ca: bytes, path: str = "/config/worker", secret: str = "s3cret") -> pathlib.Path:
        file = self.directory / "pointer.ign"
        file.write_text(json.dumps(pointer.document(server.url + path, ca, secret)))
        return file
