# SPDX-License-Identifier: Apache-2.0
"""Whoever asks a machine-config server: what they show, and what they are answered. Nothing here is under test."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import pathlib
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from handfast.datadir import layout, preparation
from handfast.pki import authority, keys, names, profiles
from handfast.rules import user_names
from handfast.runtime import tls
from tests.scenarios import machines_world, up_world

IGNITION = "application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1"
LABEL = "node-role.kubernetes.io"
POOLS = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"


@dataclass(frozen=True)
class Answer:
    """What came back. The body holds a credential."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def reason(self) -> str:
        return self.headers.get("Handfast-Reason", "")

    @property
    def files(self) -> dict[str, str]:
        """The files of a configuration, by their paths."""
        assert self.code == 200, (self.code, self.reason)
        rows = json.loads(self.body)["storage"]["files"]
        return {row["path"]: urllib.parse.unquote(row["contents"]["source"].removeprefix("data:,")) for row in rows}

    @property
    def rendering(self) -> str:
        annotations = json.loads(self.files["/etc/machine-config-daemon/node-annotations.json"])
        return str(annotations["machineconfiguration.openshift.io/currentConfig"])


class Client:
    """Somebody on the network who trusts the cluster's CA, and may have a certificate."""

    def __init__(self, url: str, ca: bytes, pair: tuple[bytes, bytes] | None = None) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._context: ssl.SSLContext = tls.client_context(ca, *(pair or (None, None)))

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._url.hostname or "", self._url.port, context=self._context, timeout=30)

    def ask(
        self,
        path: str,
        secret: str = "",
        *,
        method: str = "GET",
        on: http.client.HTTPSConnection | None = None,
        **headers: str,
    ) -> Answer:
        """One request, on a connection of its own where none is handed over."""
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        with contextlib.ExitStack() as stack:
            connection = on or stack.enter_context(contextlib.closing(self.connection()))
            connection.request(method, path, headers={"Accept": IGNITION, **headers})
            response = connection.getresponse()
            return Answer(response.status, dict(response.headers), response.read())


def pointed(text: str) -> tuple[str, str]:
    """The URL and the secret of a pointer configuration."""
    (merge,) = json.loads(text)["ignition"]["config"]["merge"]
    (header,) = merge["httpHeaders"]
    return merge["source"], header["value"].removeprefix("Bearer ")


class Configured(machines_world.Fleet):
    """A control plane whose machines fetch their configurations."""

    def ready(self) -> Self:
        """Also when its machine-config server could answer: `up` is ready when that one lives."""
        super().ready()
        up_world.until(
            lambda: self.client().ask("/config/worker").code != 503, what="a machine-config server that is ready"
        )
        return self

    def client(self, pair: tuple[bytes, bytes] | None = None) -> Client:
        return Client(self.facts["machineConfig"], (self.directory / "pki" / "ca.crt").read_bytes(), pair)

    def secret(self, *words: object) -> str:
        """A new secret, as an operator makes it."""
        url, secret = pointed(self.operator("machine", "ignition", *words, "--url", self.facts["machineConfig"]))
        assert url.startswith(self.facts["machineConfig"])
        return secret

    def served(self, path: str, secret: str, seconds: float = 60) -> Answer:
        """The configuration, once the pool is rendered."""
        client, answers = self.client(), []

        def asked() -> bool:
            answers.append(client.ask(path, secret))
            return answers[-1].code != 503

        up_world.until(asked, seconds, f"{path}: {answers[-1].reason if answers else ''}")
        return answers[-1]

    def node(self, name: str, role: str) -> tuple[bytes, bytes]:
        """A Node of this role, and its certificate with the key."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {f"{LABEL}/{role}": ""}}}
        code, answer = self.call("POST", "/api/v1/nodes", body)
        assert code == 201, answer
        return pair(self.directory, user_names.node_subject(name))

    def lines(self) -> list[dict[str, Any]]:
        """The audit log of configurations."""
        path = self.directory / "audit" / "machine-config.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def pair(
    directory: pathlib.Path,
    subject: names.Subject,
    signer: authority.Authority | None = None,
    life: datetime.timedelta | None = None,
    ago: datetime.timedelta = datetime.timedelta(),
) -> tuple[bytes, bytes]:
    """A client certificate of the directory's CA, or of another, and its key."""
    by = signer or preparation.read_trust(layout.Layout.at(directory)).signer
    key = keys.generate()
    now = datetime.datetime.now(datetime.UTC)
    issued = by.issue(key.public, subject, names.Sans(), profiles.CLIENT, now - ago, life)
    return issued.pem, key.to_pem()
