# SPDX-License-Identifier: Apache-2.0
"""`handfast serve injector` as real processes, behind the Service by which the embedded API server finds them."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.client
import json
import socket
import ssl
import subprocess
import threading
from typing import Any, Self
from urllib import request as urls

from handfast.pki import certificates, pem
from handfast.rules.mesh import injector_pair, settings, webhook
from handfast.runtime import clock as clocks
from tests.scenarios import mesh_world, up_world

NAMESPACE = mesh_world.NAMESPACE
WEBHOOKS = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{webhook.NAME}"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{webhook.PAIR}"
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{webhook.SERVICE}-1"
INJECT = "linkerd.io/inject"


class Injector:
    """One replica; leaving the block ends it."""

    def __init__(self, plane: mesh_world.Plane, name: str = "injector", listen: str = "127.0.0.1:0") -> None:
        self.log = plane.directory.parent / f"{name}.log"
        words = ["serve", "injector", "--kubeconfig", plane.kubeconfig_of("linkerd-proxy-injector")]
        words += ["--injector-listen", listen, "--injector-admin-listen", "127.0.0.1:0"]
        words += ["--dir", plane.directory.parent / name]
        with self.log.open("ab") as log:
            self._begun = log.tell()
            self.process = subprocess.Popen(
                [*up_world.COMMAND, *map(str, words)], stdout=log, stderr=log, env=up_world.environment()
            )

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log that say this, since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._begun)
            rows = [json.loads(line) for line in log.read().splitlines() if line.startswith(b"{")]
        return [row for row in rows if row["event"] == event]

    def ready(self) -> Self:
        try:
            up_world.until(self._is_ready, 40, "the injector")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.why()}") from None
        return self

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        if not self.lines("the injector listens"):
            return False
        with contextlib.suppress(OSError), urls.urlopen(f"http://{self._line()['admin']}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
        return False

    def why(self) -> str:
        """Its log, and why it is not ready."""
        said = self.log.read_text()[-3000:]
        with contextlib.suppress(OSError, IndexError):
            return said + str(urls.urlopen(f"http://{self._line()['admin']}/readyz?verbose", timeout=10).read())
        return said

    def _line(self) -> dict[str, Any]:
        return self.lines("the injector listens")[-1]

    @property
    def port(self) -> int:
        return self.place[1]

    @property
    def place(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self._line()["address"].rpartition(":")
        return host, int(port)

    def metrics(self) -> str:
        with urls.urlopen(f"http://{self._line()['admin']}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def serial(self) -> str:
        """Of the certificate that it shows now."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(self.place, timeout=10) as sock,
            context.wrap_socket(sock, server_hostname=webhook.server_name(NAMESPACE)) as secure,
        ):
            der = secure.getpeercert(binary_form=True)
        assert der is not None
        return certificates.read(der).serial

    def context(self, plane: mesh_world.Plane) -> ssl.SSLContext:
        """As the API server has it: with the CA bundle of the webhook."""
        return ssl.create_default_context(cadata=bundle(plane).decode())

    def post(
        self, plane: mesh_world.Plane, body: bytes, *, method: str = "POST", path: str = "/?timeout=10s"
    ) -> tuple[int, bytes]:
        """A raw request, as whoever reaches the port may send it."""
        name = webhook.server_name(NAMESPACE)
        with (
            socket.create_connection(self.place, timeout=10) as sock,
            self.context(plane).wrap_socket(sock, server_hostname=name) as secure,
            contextlib.closing(http.client.HTTPConnection(name)) as connection,
        ):
            connection.sock = secure
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def install(plane: mesh_world.Plane, chosen: settings.Settings | None = None) -> None:
    """The webhook, its Secret and its Service without a selector, as `mesh install` writes them."""
    document = webhook.configuration(NAMESPACE, chosen or settings.Settings(failure_policy="Fail")).document
    plane.call("DELETE", WEBHOOKS)
    plane.post(WEBHOOKS.rpartition("/")[0], document)
    plane.post(SECRET.rpartition("/")[0], webhook.pair(NAMESPACE).document)
    service = {"metadata": {"name": webhook.SERVICE}, "spec": {"ports": [{"port": webhook.PORT, "name": "https"}]}}
    plane.post(f"/api/v1/namespaces/{NAMESPACE}/services", service)


def lead_to(plane: mesh_world.Plane, *ports: int) -> None:
    """Have the API server call the injectors on these ports."""
    plane.call("DELETE", SLICE)
    # A slice has one port for all of its addresses: each replica has an address of its own on loopback.
    for old in range(3):
        plane.call("DELETE", f"{SLICE}{old}")
    for number, port in enumerate(ports):
        document = {
            "metadata": {
                "name": f"{webhook.SERVICE}-1{number}",
                "labels": {"kubernetes.io/service-name": webhook.SERVICE},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }
        plane.post(SLICE.rpartition("/")[0], document)


def bundle(plane: mesh_world.Plane) -> bytes:
    """The CA bundle of the webhook."""
    return webhook.bundle(plane.call("GET", WEBHOOKS)[1])


def secret(plane: mesh_world.Plane) -> dict[str, bytes]:
    """What the Secret of the pair holds."""
    _, answer = plane.call("GET", SECRET)
    return {key: base64.b64decode(value) for key, value in (answer.get("data") or {}).items()}


def stored_serial(plane: mesh_world.Plane) -> str:
    """Of the certificate in the Secret."""
    return certificates.read(pem.certificates_from_pem(secret(plane)["tls.crt"])[0]).serial


def over() -> dict[str, str | None]:
    """The data of the Secret with a pair that ended an hour ago."""
    now = clocks.SystemClock().now() - datetime.timedelta(hours=1)
    short = settings.Settings(injector_lifetime=datetime.timedelta(minutes=1))
    pair = injector_pair.make(webhook.server_name(NAMESPACE), short, now)
    return injector_pair.data(injector_pair.after(injector_pair.Stored(), injector_pair.Step.BEGIN, pair))


def namespace(plane: mesh_world.Plane, name: str, **annotations: str) -> None:
    """A namespace with these annotations."""
    values = {f"linkerd.io/{key}": value for key, value in annotations.items()}
    plane.post("/api/v1/namespaces", {"metadata": {"name": name, "annotations": values}})


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    ports = [{"containerPort": 8080}, {"containerPort": 3306}]
    spec = {"containers": [{"name": "web", "image": "web:1", "ports": ports}]}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def create(plane: mesh_world.Plane, where: str, document: dict[str, Any], kind: str = "pods") -> tuple[int, Any]:
    """What the API server says to a new object."""
    return plane.call("POST", f"/api/v1/namespaces/{where}/{kind}", document)


def is_injected(document: dict[str, Any]) -> bool:
    names = [row["name"] for row in document["spec"].get("initContainers", [])]
    return names[:2] == ["linkerd-init", "linkerd-proxy"]


def change(plane: mesh_world.Plane, path: str, data: dict[str, str | None]) -> None:
    """Other data in a ConfigMap or a Secret; None takes a key away."""
    _, document = plane.call("GET", path)
    values = {**(document.get("data") or {}), **data}
    document["data"] = {key: value for key, value in values.items() if value is not None}
    code, answer = plane.call("PUT", path, document)
    assert code == 200, answer


def settle(plane: mesh_world.Plane, injector: Injector, data: dict[str, str | None]) -> None:
    """Other settings, which the injector has taken up."""
    said = "Pods are injected by these settings"
    before = len(injector.lines(said))
    change(plane, f"/api/v1/namespaces/{NAMESPACE}/configmaps/linkerd-config", data)
    up_world.until(lambda: len(injector.lines(said)) > before, 20, "the settings")


class Stream:
    """Creates Pods without a pause in the background, and remembers each answer."""

    def __init__(self, plane: mesh_world.Plane, name: str, where: str = "shop", account: str = "default") -> None:
        self._plane = plane
        self._where = where
        self._account = account
        self._name = name
        self._stop = threading.Event()
        self.codes: list[int] = []
        self.bare: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            document = pod(f"{self._name}-{len(self.codes)}")
            document["spec"]["serviceAccountName"] = self._account
            code, answer = create(self._plane, self._where, document)
            self.codes.append(code)
            if code != 201 or not is_injected(answer):
                self.bare.append(f"{code} {answer.get('message')}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
