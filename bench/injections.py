# SPDX-License-Identifier: Apache-2.0
"""Injections: what a review of a Pod of 4 KiB costs beside an echo, a server that reads as much and answers the same bytes.

The injector is that of `up --mesh`, with its own certificate, and the reviews are those that the API server sends, on kept connections of TLS 1.3. The
echo stands on the same `serving` (`bench.echo`). CPU is that of all processes of the control plane: Events of the injector are in it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import ssl
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bench import configurations, load, measure, servers, settings
from handfast.api import kinds, resources
from handfast.client import api
from handfast.rules.mesh import control_plane, webhook
from handfast.runtime import tls

LIMIT_RATIO = 6.0
_BYTES = 4096
_NAMESPACE = "bench"
_CLIENTS = 16
_WEBHOOKS = kinds.row(webhook.PLURAL, webhook.GROUP)
_LONGEST_SECONDS = 60.0


def pod(size: int = _BYTES) -> dict[str, Any]:
    """A Pod of a Deployment, as the API server sends it, of so many bytes."""
    probe = {
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "periodSeconds": 10,
        "failureThreshold": 3,
    }
    container = {
        "name": "web",
        "image": "registry.example/shop/web:1.2.3",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"containerPort": 9090}],
        "env": [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(12)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c7", "uid": "0c2f", "controller": True}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "web-5d9c7-",
            "namespace": _NAMESPACE,
            "labels": {"app": "web", "pod-template-hash": "5d9c7"},
            "ownerReferences": [owner],
            "annotations": {"example.com/notes": ""},
        },
        "spec": {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}], "serviceAccountName": "web"},
    }
    document["metadata"]["annotations"]["example.com/notes"] = "n" * (size - len(msgspec.json.encode(document)))
    return document


def review(document: dict[str, Any]) -> bytes:
    """The request of an API server."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": _NAMESPACE,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": document,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return load.send("POST", "/?timeout=10s", msgspec.json.encode(body))


async def injections(run: settings.Run) -> list[measure.Figure]:
    ask = review(pod())
    used: dict[str, list[float]] = {"injector": [], "echo": []}
    async with servers.plane(run.directory / "injections", "--mesh") as plane:
        namespace = {"metadata": {"name": _NAMESPACE, "annotations": {"linkerd.io/inject": "enabled"}}}
        await configurations.create(plane, api.path(resources.NAMESPACES), namespace)
        injector = await _injector(plane)
        answer = await _injected(injector, ask)
        async with _echo(plane, answer) as echo:
            for number in range(run.sizes.rounds + 1):
                for name, server in (("injector", injector), ("echo", echo)):
                    async with server.meter() as meter:
                        count = await _reviews(server, ask, run.sizes)
                    # The first round warms up.
                    if number:
                        used[name].append(meter.total / count)
    title = f"review of a Pod of {_BYTES // 1024} KiB, kept connections: CPU ÷ an echo's"
    ratios = measure.ratios(used["injector"], used["echo"])
    return [
        measure.Figure("injections.review", title, "×", ratios, LIMIT_RATIO),
        measure.Figure("injections.review.cpu", "  CPU per review", "µs", measure.microseconds(used["injector"], 1)),
        measure.Figure("injections.echo.cpu", "  CPU per echo", "µs", measure.microseconds(used["echo"], 1)),
    ]


async def _injector(plane: servers.Server) -> servers.Server:
    """The same control plane, asked for reviews, believed as its API server believes it."""
    found = json.loads((plane.place.root / "endpoints.json").read_text())
    async with asyncio.timeout(_LONGEST_SECONDS):
        while not (bundle := await _bundle(plane)):
            await asyncio.sleep(0.2)
    return dataclasses.replace(plane, port=int(found["injector"].rpartition(":")[2]), context=_context(bundle))


async def _bundle(plane: servers.Server) -> bytes:
    status, body = await load.exchange(plane.port, plane.context, load.get(api.path(_WEBHOOKS, name=webhook.NAME)))
    return webhook.bundle(json.loads(body)) if status == 200 else b""


def _context(bundle: bytes) -> ssl.SSLContext:
    context = tls.client_context(bundle)
    # The generator connects to an address, and the certificate has the name of a Service.
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def _injected(injector: servers.Server, ask: bytes) -> bytes:
    """The answer to the review, once the injector knows the namespace."""
    async with asyncio.timeout(_LONGEST_SECONDS):
        while True:
            status, body = await load.exchange(injector.port, injector.context, ask)
            if status == 200 and "patch" in json.loads(body)["response"]:
                return body
            await asyncio.sleep(0.2)


async def _reviews(server: servers.Server, ask: bytes, sizes: settings.Sizes) -> int:
    total = sizes.gets // 4
    clients = await load.Clients.open(server.port, server.context, _CLIENTS)
    await clients.run(lambda _: ask, total)
    clients.close()
    return total


@contextlib.asynccontextmanager
async def _echo(plane: servers.Server, answer: bytes) -> AsyncIterator[servers.Server]:
    """The echo, with the injector's own pair."""
    place = api.path(resources.SECRETS, namespace=control_plane.NAMESPACE, name=webhook.PAIR)
    data = json.loads(await load.fetch(plane.port, plane.context, place))["data"]
    paths = [plane.place.root.with_suffix(f".{word}") for word in ("crt", "key", "answer")]
    pair = [base64.b64decode(data[key]) for key in (webhook.CERTIFICATE_KEY, webhook.PRIVATE_KEY_KEY)]
    for path, text in zip(paths, (*pair, answer), strict=True):
        path.touch(mode=0o600)
        path.write_bytes(text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.echo", *map(str, paths)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if process.stdout is None:
            raise load.UnexpectedAnswer("the echo has no output")
        port = int(await process.stdout.readline())
        context = _context(base64.b64decode(data[webhook.BUNDLE_KEY]))
        yield servers.Server(port, {"echo": process.pid}, context, plane.place)
    finally:
        await servers.stop(process)
