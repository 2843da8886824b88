# SPDX-License-Identifier: Apache-2.0
"""`handfast up --machines` as a real process, the operator's commands, and whoever holds a bootstrap credential.

Nothing here is under test.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Self

from handfast.bootstrap import kubeconfig
from handfast.pki import keys
from handfast.rules.machines import bootstrapper, settings
from tests.scenarios import certified, up_world

MACHINES = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines"
SETTINGS = f"/api/v1/namespaces/{settings.NAMESPACE}/configmaps/{settings.NAME}"
SECRET = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}/secrets/{bootstrapper.TOKEN_SECRET}"
ROLES = ("apiserver", "controllers")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def with_key(directory: pathlib.Path, kind: keys.Kind) -> pathlib.Path:
    """A data directory that has a key for service account tokens already."""
    directory.joinpath("pki").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    path = directory / "pki" / "sa.key"
    path.touch(mode=0o600)
    path.write_bytes(keys.generate(kind).to_pem())
    return directory


class Fleet(up_world.Up):
    """A control plane that admits machines by inventory, and its operator."""

    def __init__(self, directory: pathlib.Path, *arguments: object) -> None:
        super().__init__(directory, "--machines", *arguments)
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        # Read once: whoever waits for something asks many times.
        self._context = self._context or super().context()
        return self._context

    @property
    def master(self) -> pathlib.Path:
        """The masters' bootstrap kubeconfig."""
        return self.directory / "machines" / "kubeconfig-kubelet"

    def worker(self, out: pathlib.Path) -> pathlib.Path:
        """The workers' bootstrap kubeconfig, as an operator fetches it, once there is a token."""
        up_world.until(lambda: bool(self.token()), 60, "a token")
        self.operator("machine", "credentials", "create", "--kind", "worker", "--out", out)
        return out / "kubeconfig-kubelet-worker"

    def token(self) -> str:
        code, secret = self.call("GET", SECRET)
        data = (secret.get("data") or {}) if code == 200 else {}
        return base64.b64decode(data.get("token", "")).decode()

    def operator(self, *words: object, code: int = 0) -> str:
        """What a command prints; where it fails, what it complains of, too."""
        done = up_world.run(*words, "--kubeconfig", self.directory / "admin.conf")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")

    def table(self, *words: object) -> Any:
        return json.loads(self.operator(*words, "-o", "json"))

    def settings(self, text: str) -> None:
        """Write the approver's settings, once it has made their ConfigMap."""
        up_world.until(lambda: self.call("GET", SETTINGS)[0] == 200, 60, "the settings")
        document = self.call("GET", SETTINGS)[1]
        code, answer = self.call("PUT", SETTINGS, {**document, "data": {settings.KEY: text}})
        assert code == 200, answer

    def kill(self, *roles: str) -> None:
        """`kill -9` of these children, or of both; it returns when the next ones are at work."""
        before = self.pids()
        for role in roles or ROLES:
            os.kill(before[role], signal.SIGKILL)
        for role in roles or ROLES:
            up_world.until(
                lambda role=role: self.pids().get(role, before[role]) != before[role],
                what=f"a new {role}",
            )
        up_world.until(lambda: self.readiness()[0] == 200, 60, "controllers that are ready")

    def objects(self) -> list[dict[str, Any]]:
        """Every object that the API has."""
        groups = ["/api/v1"]
        for group in self.call("GET", "/apis")[1]["groups"]:
            groups += [f"/apis/{each['groupVersion']}" for each in group["versions"]]
        found: list[dict[str, Any]] = []
        for group in groups:
            for row in self.call("GET", group)[1]["resources"]:
                if "list" in row["verbs"]:
                    found += self.call("GET", f"{group}/{row['name']}")[1]["items"]
        return found

    def reasons(self, request: str) -> set[str]:
        """What Events say of a certificate request."""
        events = self.call("GET", "/api/v1/namespaces/default/events")[1]["items"]
        return {each["reason"] for each in events if each["involvedObject"].get("name") == request}

    def audited(self, user: str) -> list[tuple[str, str, int]]:
        """What this user has asked: verb, kind of object, and code, in the order of the answers."""
        text = (self.directory / "audit" / "audit.log").read_text()
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        return [
            (line["verb"], line.get("objectRef", {}).get("resource", ""), line["responseStatus"]["code"])
            for line in lines
            if line.get("user", {}).get("username") == user and "responseStatus" in line
        ]


class Holder:
    """Whoever has a bootstrap kubeconfig, on one connection that stays open."""

    def __init__(self, plane: Fleet, path: pathlib.Path) -> None:
        config = kubeconfig.parse(path.read_text())
        assert config.user is not None
        self._plane = plane
        self._context = up_world.context_of(path)
        self._headers = {"Authorization": f"Bearer {config.user.token}"} if config.user.token else {}
        self._connection = self._connected()

    def _connected(self) -> http.client.HTTPSConnection:
        connection = self._plane.connection(self._context)
        connection.connect()
        # Else it would connect anew by itself, and nobody would see.
        connection.auto_open = 0
        return connection

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """On the connection that is open."""
        self._connection.request(method, path, json.dumps(body) if body else None, self._headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def code(self) -> int:
        return self.ask("GET", certified.PATH)[0]

    def code_anew(self) -> int:
        """On a connection of its own."""
        with contextlib.closing(self._connected()) as connection:
            connection.request("GET", certified.PATH, headers=self._headers)
            return connection.getresponse().status

    @contextlib.contextmanager
    def watching(self) -> Iterator[http.client.HTTPResponse]:
        """An open watch of certificate requests."""
        with contextlib.closing(self._connected()) as connection:
            connection.request("GET", f"{certified.PATH}?watch=1&resourceVersion=0", headers=self._headers)
            response = connection.getresponse()
            assert response.status == 200
            yield response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def decoded(value: Any) -> Iterator[bytes]:
    """Every text in a document, and what it is in base64, twice over."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from decoded(key)
            yield from decoded(each)
    elif isinstance(value, list):
        for each in value:
            yield from decoded(each)
    elif isinstance(value, str):
        data = value.encode()
        for _ in range(3):
            yield data
            try:
                data = base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                return
