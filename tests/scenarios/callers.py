# SPDX-License-Identifier: Apache-2.0
"""Callers of every kind, and what they leave behind in watches, metrics and the audit log; nothing here is under test."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import pathlib
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec

from handfast.bootstrap import tokens
from handfast.pki import authority, keys, names, pem, profiles
from handfast.runtime import tls
from tests.scenarios import wire
from tests.world import world as worlds

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVOCATIONS = "/apis/handfast.dev/v1alpha1/revocations"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
MERGE = {"Content-Type": "application/merge-patch+json"}
# The message of every 401, whatever the reason.
BARE = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "Unauthorized",
    "reason": "Unauthorized",
    "code": 401,
}
TOKEN_DATA: Mapping[str, str] = {
    tokens.KEY_ID: "foobar",
    tokens.KEY_SECRET: "circumnavigation",
    "usage-bootstrap-authentication": "true",
}


def bearer(token: str) -> dict[str, Any]:
    return {"Authorization": f"Bearer {token}"}


def cluster_ca(world: worlds.World) -> authority.Authority:
    """The cluster's own CA, to issue from."""
    ca = pem.certificates_from_pem(world.place.ca_certificate.read_bytes())[0]
    return authority.Authority(ca, keys.private_from_pem(world.place.ca_key.read_bytes()))


def administrator(world: worlds.World, ca: authority.Authority) -> ssl.SSLContext:
    """TLS of an administrator whose certificate is another CA's."""
    key = keys.generate()
    subject = names.Subject(common_name="next-admin", organizations=("system:masters",))
    issued = ca.issue(key.public, subject, names.Sans(), profiles.CLIENT, world.clock.now(), None)
    return tls.client_context(world.place.ca_certificate.read_bytes(), issued.pem, key.to_pem())


def token_secret(data: Mapping[str, str] | None = None, name: str = "bootstrap-token-foobar", **more: Any) -> Any:
    """The Secret of a bootstrap token, as it goes over the wire; None: without data."""
    packed = None if data is None else {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {
        "metadata": {"name": name, **more.pop("metadata", {})},
        "type": tokens.SECRET_TYPE,
        **({} if packed is None else {"data": packed}),
        **more,
    }


async def make(world: worlds.World, path: str, document: Any, code: int = 201) -> Any:
    """Create something as the administrator."""
    answer = await world.request("POST", path, document)
    assert answer.status == code, answer.body
    return answer.json()


async def bootstrap_token(world: worlds.World, token: str = "foobar.circumnavigation", **data: str) -> str:
    """A good bootstrap token, made over the API."""
    parsed = tokens.parse(token)
    said = {**TOKEN_DATA, tokens.KEY_ID: parsed.id, tokens.KEY_SECRET: parsed.secret, **data}
    await make(world, SECRETS, token_secret(said, tokens.secret_name(parsed.id)))
    return token


async def account_token(world: worlds.World, name: str = "robot", *, exists: bool = False, **spec: Any) -> str:
    """A token of a service account in namespace default, by TokenRequest."""
    if not exists:
        await make(world, ACCOUNTS, {"metadata": {"name": name}})
    answer = await make(world, f"{ACCOUNTS}/{name}/token", {"spec": spec})
    return str(answer["status"]["token"])


async def bind(world: worlds.World, role: str, kind: str, name: str, **more: str) -> None:
    """Give somebody a ClusterRole everywhere."""
    subject = {"kind": kind, "name": name, **more}
    if kind != "ServiceAccount":
        subject["apiGroup"] = "rbac.authorization.k8s.io"
    label = "".join(letter if letter.isalnum() else "-" for letter in f"{role}-{name}").lower()
    document = {
        "metadata": {"name": label},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    await make(world, f"{RBAC}/clusterrolebindings", document)


async def revoke(world: worlds.World, name: str, **spec: str) -> None:
    await make(world, REVOCATIONS, {"metadata": {"name": name}, "spec": spec})


async def review(world: worlds.World, token: str, *audiences: str) -> Any:
    """The status of a TokenReview."""
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    return (await make(world, TOKEN_REVIEWS, {"spec": spec}))["status"]


async def refusals(world: worlds.World, reason: str, station: str = "authenticate") -> float:
    """How often the server says that it refused somebody for this reason."""
    wanted = f'handfast_apiserver_refused_total{{reason="{reason}",station="{station}"}} '
    for line in (await world.get("/metrics")).body.decode().splitlines():
        if line.startswith(wanted):
            return float(line.removeprefix(wanted))
    return 0.0


def audited(path: pathlib.Path) -> list[Any]:
    """The lines of an audit log whose server has stopped."""
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def audited_by_id(path: pathlib.Path) -> dict[str, Any]:
    """… the last line of each request by its id."""
    return {line["auditID"]: line for line in audited(path)}


class Watching:
    """One open watch, on a connection of its own."""

    def __init__(self, line: wire.Line) -> None:
        self._chunks = line.chunks()

    async def event(self) -> Any:
        async with asyncio.timeout(wire.PATIENCE):
            return msgspec.json.decode(await anext(self._chunks))

    async def name(self) -> str:
        """The name of the object of the next event."""
        return str((await self.event())["object"]["metadata"]["name"])

    async def ended(self) -> list[bytes]:
        """What came until the server ended it in good order; an error if it does not."""
        async with asyncio.timeout(wire.PATIENCE):
            return [part async for part in self._chunks]


@contextlib.asynccontextmanager
async def watching(
    world: worlds.World, context: ssl.SSLContext, path: str = CONFIG_MAPS, headers: Mapping[str, Any] | None = None
) -> AsyncIterator[Watching]:
    """A watch from now on."""
    version = world.server.replica.version
    async with wire.line(world.server.address[1], context) as line:
        target = f"{path}?watch=1&resourceVersion={version}"
        await line.send(wire.request("GET", target, **(headers or {})))
        reply = await line.reply(head_only=True)
        assert reply.status == 200, reply
        yield Watching(line)


def reasons(logs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why requests were refused, as the log tells it, one for each line."""
    return [entry["reason"] for entry in logs if entry["event"] == "request refused"]
