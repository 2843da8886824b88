# SPDX-License-Identifier: Apache-2.0
"""An account of the mesh is revoked while a connection of its certificate is open: how long until the first request on it is refused.

Real `up --mesh`, a workload by `handfast mesh run`, its agent and its Envoy. The client has a certificate of the identity service and no proxy: whoever took the key away has
none either. It asks on one connection of HTTP/2, one request after the other. Times count from when the Revocation is sent to the API server, and end with the answer that refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from bench import certify, load, measure, servers, settings
from handfast.pki import keys, names, pairs, pem, requests
from handfast.rules.mesh import names as mesh_names
from handfast.wire import mesh_messages

LIMIT_MILLISECONDS: Final = 1000.0
_PORT: Final = 8080
_DEADLINE: Final = 120.0
_PAUSE_SECONDS: Final = 0.002
# Says where it is, and answers gRPC.
_COMMAND: Final = ("sh", "-c", 'echo "$POD_IP"; exec "$0" -m bench.grpc_floor "$1"', sys.executable)
_MESH: Final = mesh_names.Mesh("cluster.local")
_SERVER: Final = _MESH.name(mesh_names.Account(namespace="shop", name="db"))
_CLIENT: Final = _MESH.name(mesh_names.Account(namespace="shop", name="web"))
_CERTIFY: Final = f"/{mesh_messages.IDENTITY_SERVICE}/Certify"
_REVOCATIONS: Final = "/apis/handfast.dev/v1alpha1/revocations"
_REVOCATION: Final = {
    "apiVersion": "handfast.dev/v1alpha1",
    "kind": "Revocation",
    "metadata": {"name": "account-shop.web"},
    "spec": {"user": "system:serviceaccount:shop:web"},
}

Ask = Callable[[], Awaitable[bool]]


async def denials(run: settings.Run) -> list[measure.Figure]:
    """The figure of revocations in the mesh."""
    async with servers.plane(run.directory / "denials", "--mesh", *servers.MESH_PORTS) as plane:
        pair = await _certified(plane)
        await certify.post(plane, "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "db"}})
        async with _served(plane) as ip, _connection(plane, ip, pair) as is_served:
            await _until(is_served, expected=True)
            times = [await _round(plane, is_served) for _ in range(run.sizes.short_rounds)]
    title = "an account revoked, until a request on its open HTTP/2 connection is refused"
    return [measure.Figure("denials.refused", title, "ms", times, LIMIT_MILLISECONDS)]


async def _round(plane: servers.Server, is_served: Ask) -> float:
    """Milliseconds until it is refused; afterwards it is let in again."""
    begun = time.perf_counter()
    writing = asyncio.create_task(certify.post(plane, _REVOCATIONS, _REVOCATION))
    await _until(is_served, expected=False)
    took = 1000 * (time.perf_counter() - begun)
    await writing
    path = f"{_REVOCATIONS}/{_REVOCATION['metadata']['name']}"  # type: ignore[index]  # a document
    status, body = await load.exchange(plane.port, plane.context, load.delete(path))
    if status != 200:
        raise load.UnexpectedAnswer(f"DELETE {path}: {status} {body[:200]!r}")
    await _until(is_served, expected=True)
    await plane.settle()
    return took


async def _until(is_served: Ask, *, expected: bool) -> None:
    async with asyncio.timeout(_DEADLINE):
        while await is_served() is not expected:
            await asyncio.sleep(_PAUSE_SECONDS)


async def _certified(plane: servers.Server) -> pairs.Pair:
    """A certificate of the account `web`, from the identity service."""
    (token,) = await certify.make_tokens(plane, 1)
    key = keys.generate()
    csr = requests.build(names.Subject(), names.make_sans(dns=[_CLIENT]), key)
    message = mesh_messages.CertifyRequest(
        identity=_CLIENT,
        token=token.encode(),
        certificate_signing_request=pem.one(csr, pem.CERTIFICATE_REQUEST),
    )
    endpoints = json.loads((plane.place.root / "endpoints.json").read_text())
    async with grpc.aio.insecure_channel(endpoints["identity"]) as channel:
        octets = await channel.unary_unary(_CERTIFY)(message.SerializeToString(), timeout=_DEADLINE)
    answer = mesh_messages.CertifyResponse.FromString(octets)
    return pairs.Pair((answer.leaf_certificate, *answer.intermediate_certificates), key)


@contextlib.asynccontextmanager
async def _served(plane: servers.Server) -> AsyncIterator[str]:
    """The address of a workload of the account `db`, which is certified."""
    application = await servers.free_port()
    words = ["mesh", "run", "--dir", str(plane.place.root), "--service-account", "shop/db"]
    words += ["--inbound", f"{_PORT}:{application}", "--", *_COMMAND, str(application)]
    log = plane.place.root.with_suffix(".workload.log")
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handfast", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
        )
    try:
        async with asyncio.timeout(_DEADLINE):
            line = await process.stdout.readline() if process.stdout is not None else b""
        if not line:
            raise load.UnexpectedAnswer(log.read_text()[-2000:])
        yield line.decode().strip()
    finally:
        await servers.stop(process)


@contextlib.asynccontextmanager
async def _connection(plane: servers.Server, ip: str, pair: pairs.Pair) -> AsyncIterator[Ask]:
    """One connection with the certificate, and whether a request on it is served."""
    credentials = grpc.ssl_channel_credentials(await certify.trust_anchors(plane), pair.key_pem, pair.certificate_pem)
    options: list[tuple[str, Any]] = [("grpc.ssl_target_name_override", _SERVER), ("grpc.enable_retries", 0)]
    async with grpc.aio.secure_channel(f"{ip}:{_PORT}", credentials, options) as channel:
        method = channel.unary_unary("/floor.Streams/Say")

        has_begun = False

        async def is_served() -> bool:
            nonlocal has_begun
            try:
                await method(b"", timeout=_DEADLINE)
            except grpc.aio.AioRpcError as error:
                # The application may take longer to start than its proxy.
                if error.code() is grpc.StatusCode.PERMISSION_DENIED or not has_begun:
                    return False
                raise
            has_begun = True
            return True

        yield is_served
