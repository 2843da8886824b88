# SPDX-License-Identifier: Apache-2.0
"""What a bootstrap token and a node can make a real server keep, with the limits it has by default.

Proves: a hundred certificate requests, or Events, of 1.5 MB are refused, however they are sent; those that are small enough
are refused once they have come to what the budget says; the refusal names the budget and says when to come back; and
everybody else goes on.
"""

from __future__ import annotations

import base64
import io
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from handfast.apiserver import limits
from handfast.pki import keys, names, requests
from tests.scenarios import callers
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
EVENTS = "/api/v1/namespaces/default/events"
PODS = "/api/v1/namespaces/default/pods"
KIB, MIB = 1 << 10, 1 << 20
LONG = 1_500_000


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d", limits=limits.Limits()) as made:
        yield made


def certificate_request(node: str, padding: int) -> bytes:
    subject = names.Subject(common_name=f"system:node:{node}", organizations=("system:nodes",))
    spec: dict[str, Any] = {
        "request": base64.b64encode(requests.build(subject, names.Sans(), keys.generate())).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    return msgspec.json.encode(
        {"metadata": {"generateName": "csr-", "annotations": {"a": "x" * padding}}, "spec": spec}
    )


def event(padding: int, namespace: str = "default") -> bytes:
    return msgspec.json.encode(
        {
            "metadata": {"generateName": "e-", "namespace": namespace},
            "involvedObject": {"kind": "Node", "name": "n1", "namespace": namespace},
            "message": "x" * 100,
            "source": {"component": "x" * padding},
        }
    )


def kept(world: worlds.World) -> int:
    """Bytes of requests and Events in the server's copy of the store."""
    return sum(
        len(item.body)
        for prefix in ("certificates.k8s.io/certificatesigningrequests/", "core/events/")
        for item in world.server.replica.collection(prefix).snapshot()
    )


class Sender:
    """Sends the same body again and again, from one address."""

    def __init__(self, world: worlds.World, path: str, context: ssl.SSLContext, token: str = "") -> None:
        self._world = world
        self._path = path
        self._context = context
        self._headers = {"Content-Type": "application/json", **(callers.bearer(token) if token else {})}

    async def send(self, body: bytes, *, chunked: bool = False) -> worlds.Answer:
        async def parts() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 16 * KIB):
                yield body[at : at + 16 * KIB]

        data = parts() if chunked else io.BytesIO(body)
        session = self._world.session(self._context)
        async with session.post(self._path, data=data, headers=self._headers) as response:
            return worlds.Answer(response.status, response.headers, await response.read())

    async def until_refused(self, body: bytes) -> tuple[int, worlds.Answer]:
        for sent in range(1000):
            answer = await self.send(body)
            if answer.status != 201:
                return sent, answer
        raise AssertionError("nothing was ever refused")


async def joining(world: worlds.World) -> Sender:
    await callers.bind(world, "system:node-bootstrapper", "Group", "system:bootstrappers")
    return Sender(world, CSRS, world.anonymous_context(), await callers.bootstrap_token(world))


def node(world: worlds.World, path: str, name: str = "n1") -> Sender:
    return Sender(world, path, world.context_for(f"system:node:{name}", "system:nodes"))


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_hundred_long_requests_of_a_token_are_refused(world: worlds.World, chunked: bool) -> None:
    sender, body = await joining(world), certificate_request("new", LONG)
    for _ in range(100):
        answer = await sender.send(body, chunked=chunked)
        assert (answer.status, answer.message) == (
            413,
            "Request entity too large: limit is 65536 for the kind CertificateSigningRequest",
        )
    assert kept(world) == 0
    # What was refused was not paid for, and machines join.
    assert (await sender.send(certificate_request("new", 0), chunked=chunked)).status == 201


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_hundred_long_events_of_a_node_are_refused(world: worlds.World, chunked: bool) -> None:
    sender, body = node(world, EVENTS), event(LONG)
    for _ in range(100):
        answer = await sender.send(body, chunked=chunked)
        assert (answer.status, answer.message) == (413, "Request entity too large: limit is 65536 for the kind Event")
    assert kept(world) == 0
    assert (await sender.send(event(0), chunked=chunked)).status == 201


async def test_many_requests_of_a_token_come_to_its_budget(world: worlds.World) -> None:
    sender, body = await joining(world), certificate_request("new", 62 * KIB)
    sent, refusal = await sender.until_refused(body)
    assert 100 < sent < 8 * MIB // len(body) + 1
    assert refusal.status == 429
    assert "one machine may send with a bootstrap token 8 MiB at once and 128 KiB a second" in refusal.message
    assert kept(world) <= 8 * MIB
    assert refusal.headers["Retry-After"] == "1"
    # Nodes that have joined renew, and after a while machines join again.
    assert (await node(world, CSRS).send(certificate_request("n1", 0))).status == 201
    await world.movable().advance(1.0)
    assert (await sender.send(certificate_request("new", 0))).status == 201


async def test_many_events_of_a_node_come_to_its_budget(world: worlds.World) -> None:
    sender, body = node(world, EVENTS), event(60 * KIB)
    _, refusal = await sender.until_refused(body)
    assert refusal.status == 429
    assert "one node may add to the store 16 MiB at once and 16 KiB a second" in refusal.message
    assert 15 * MIB < kept(world) <= 16 * MIB
    assert (await node(world, EVENTS, "n2").send(event(0))).status == 201
    await world.movable().advance(float(refusal.headers["Retry-After"]))
    assert (await sender.send(body)).status == 201


async def test_short_patches_cannot_make_long_events(world: worlds.World) -> None:
    sender = node(world, EVENTS)
    made = (await sender.send(event(30 * KIB))).json()["metadata"]["name"]
    copies = [{"op": "add", "path": "/metadata/annotations", "value": {}}] + [
        {"op": "copy", "from": "/source/component", "path": f"/metadata/annotations/a{number}"} for number in range(8)
    ]
    answer = await world.request(
        "PATCH",
        f"{EVENTS}/{made}",
        copies,
        context=world.context_for("system:node:n1", "system:nodes"),
        headers={"Content-Type": "application/json-patch+json"},
    )
    assert (answer.status, "the kind Event may have 131072" in answer.message) == (413, True), answer.body


async def test_deletes_that_write_are_paid_for(world: worlds.World) -> None:
    """Each choice of what becomes of dependents writes the object anew."""
    await world.ensure_service_account("default")
    assert (await world.request("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})).status == 201
    uid = (await world.get("/api/v1/nodes/n1")).json()["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    mirror = {
        "metadata": {
            "name": "m",
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "args": ["x" * (900 << 10)]}]},
    }
    context = world.context_for("system:node:n1", "system:nodes")
    made = await world.request("POST", PODS, msgspec.json.encode(mirror), context=context)
    assert made.status == 201, made.body
    for number in range(100):
        policy = ("Foreground", "Orphan")[number % 2]
        answer = await world.request("DELETE", f"{PODS}/m?propagationPolicy={policy}", context=context)
        if answer.status != 200:
            break
    assert (answer.status, number) == (429, 35)
    assert "one node may send or write 32 MiB at once" in answer.message
