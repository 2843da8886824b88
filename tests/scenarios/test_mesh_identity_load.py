# SPDX-License-Identifier: Apache-2.0
"""The identity service under load, on real processes: an issuer is swapped, a copy is killed, a storm is bounded and renewals come first."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio
import pytest

from handfast.mesh.identity import turns
from handfast.pki import bundles, certificates, chains, keys, pairs, pem
from handfast.rules.mesh import issuer
from handfast.runtime import clock as clocks
from handfast.runtime import tls
from tests.scenarios import mesh_world, up_world
from tests.scenarios.mesh_world import identity_of
from tests.world import mesh_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

NAME = identity_of("shop", "web")
OWN = identity_of("linkerd", "linkerd-identity")


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[mesh_world.Plane]:
    with mesh_world.mesh(tmp_path_factory.mktemp("mesh")) as plane:
        yield plane


@pytest.fixture(scope="module")
def token(plane: mesh_world.Plane) -> bytes:
    return plane.workload("shop", "web", "web-1")


def swap(plane: mesh_world.Plane, second: issuer.Material) -> None:
    """Another root and another issuer: first both anchors, with the issuer below the new one."""
    directory = plane.directory.parent
    (directory / "root.crt").write_bytes(plane.anchors() + second.anchors)
    (directory / "issuer.crt").write_bytes(second.certificate)
    (directory / "issuer.key").write_bytes(second.key)
    (directory / "issuer.key").chmod(0o600)
    files = ("--trust-anchors", directory / "root.crt", "--issuer-cert", directory / "issuer.crt")
    plane.install(*files, "--issuer-key", directory / "issuer.key")


async def test_an_issuer_is_swapped_under_load_and_no_call_fails(plane):
    # One token is good for so many certificates.
    tokens = [plane.workload("shop", "web", f"load-{number}") for number in range(4)]
    second = issuer.generate(clocks.SystemClock().now())
    wanted = pem.certificates_from_pem(second.certificate)[0]
    answers: list[mesh_client.Certified] = []
    with mesh_world.Service(plane, "first") as first, mesh_world.Service(plane, "second") as other:
        targets = [each.ready().target for each in (first, other)]
        stop = asyncio.Event()
        messages = [mesh_client.certify_request(NAME, token, mesh_world.csr(NAME)) for token in tokens]
        loads = [asyncio.create_task(load(*each, answers, stop)) for each in itertools.product(targets, messages)]
        await asyncio.to_thread(swap, plane, second)
        async with asyncio.timeout(60):
            while sum(answer.intermediates[0] == wanted for answer in answers[-16:]) < 16:
                await asyncio.sleep(0.05)
        stop.set()
        await asyncio.gather(*loads)
    # Whoever has both anchors believes every one of them, before and after.
    anchors = bundles.TrustBundle.of(pem.certificates_from_pem(plane.anchors()))
    assert len({answer.intermediates[0] for answer in answers}) == 2
    for answer in answers:
        chain = [answer.leaf, *answer.intermediates]
        chains.verify(chain, anchors, chains.Server(NAME), clocks.SystemClock().now())
    proof = await asyncio.to_thread(up_world.run, "ledger", "verify", "--dir", plane.directory)
    assert "the chain mesh holds: " in proof.stdout, proof.stderr


async def load(target: str, message: bytes, answers: list[mesh_client.Certified], stop: asyncio.Event) -> None:
    async with channel(target) as certify:
        while not stop.is_set():
            try:
                answers.append(mesh_client.certified(await certify(message, timeout=20)))
            except grpc.aio.AioRpcError as error:
                # Two copies may begin a segment of the ledger at once: one of them is told to try again, as a proxy does.
                if error.code() is not grpc.StatusCode.UNAVAILABLE or "is not sealed" not in (error.details() or ""):
                    raise


@contextlib.asynccontextmanager
async def channel(target: str) -> AsyncIterator[Any]:
    """Certify on a connection of its own."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(target, options=options) as own:
        yield own.unary_unary(mesh_client.CERTIFY, request_serializer=bytes, response_deserializer=bytes)


async def test_one_of_two_copies_is_killed_under_load_and_nothing_that_was_handed_out_is_unwritten(plane, token):
    answers: list[mesh_client.Certified] = []
    others: list[mesh_client.Certified] = []
    message = mesh_client.certify_request(NAME, token, mesh_world.csr(NAME))
    with mesh_world.Service(plane, "killed") as first, mesh_world.Service(plane, "stays") as other:
        targets = [each.ready().target for each in (first, other)]
        stop = asyncio.Event()
        doomed = [asyncio.create_task(load(targets[0], message, answers, stop)) for _ in range(4)]
        steady = [asyncio.create_task(load(targets[1], message, others, stop)) for _ in range(4)]
        await until(lambda: len(answers) > 20 and len(others) > 20)
        first.process.kill()
        outcomes = await asyncio.gather(*doomed, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {grpc.aio.AioRpcError}
        # The other one, and one that is started again, go on where it ended.
        count = len(others)
        with mesh_world.Service(plane, "again") as again:
            await asyncio.to_thread(again.ready)
            assert (await asyncio.to_thread(again.certify, NAME, token)).leaf
        await until(lambda: len(others) > count + 20)
        stop.set()
        await asyncio.gather(*steady)
    listed = await asyncio.to_thread(up_world.run, "ledger", "list", "-o", "json", "--dir", plane.directory)
    assert listed.returncode == 0, listed.stderr
    for answer in (*answers, *others):
        assert certificates.fingerprint(answer.leaf) in listed.stdout
    proof = await asyncio.to_thread(up_world.run, "ledger", "verify", "--dir", plane.directory)
    assert "the chain mesh holds: " in proof.stdout, proof.stderr


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing while the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_storm_is_bounded_and_renewals_come_first(plane, token):
    message = mesh_client.certify_request(NAME, token, mesh_world.csr(NAME))
    with mesh_world.Service(plane, "storm", "0.0.0.0:0") as service:
        port = int(service.ready().target.rpartition(":")[2])
        key = keys.generate()
        context = tls.client_context(plane.anchors())
        answer = await mesh_world.certified_by_tls(port, context, OWN, NAME, token, key)
        known = tls.client_context(plane.anchors())
        pair = pairs.Pair((answer.leaf, *answer.intermediates), key)
        tls.load_pair(known, pair.certificate_pem, pair.key_pem)
        async with (
            mesh_client.tunnel(port, context, OWN) as anonymous,
            mesh_client.tunnel(port, known, OWN) as renewing,
            channel(anonymous) as certify,
            channel(renewing) as renew,
        ):
            order: list[str] = []
            with stopped(plane.pids()["apiserver"]):
                calls = [certify(message, timeout=60) for _ in range(turns.AT_ONCE + turns.WAITING + 200)]
                tasks = [asyncio.create_task(follow(call, "new", order)) for call in calls]
                # Who is over the bound is told so at once, and when to come again.
                await until(lambda: answered(tasks, ("RESOURCE_EXHAUSTED", "1000")) >= 50)
                assert waiting(service) > turns.WAITING / 2
                # Who goes away leaves the line.
                rest = [pair for pair in zip(calls, tasks, strict=True) if not pair[1].done()]
                for call, _ in rest[turns.AT_ONCE + 200 :]:
                    call.cancel()
                await until(lambda: waiting(service) <= 200)
                before = waiting(service)
                renewal = asyncio.create_task(follow(renew(message, timeout=60), "renewal", order))
                await until(lambda: waiting(service) == before + 1)
            assert await renewal == ("OK", "")
            # Those that had their turn came before it, and hardly anybody of those that waited.
            assert order.index("renewal") <= turns.AT_ONCE + 32
            await asyncio.gather(*(task for _, task in rest))
            assert order.count("new") >= 100
        assert 'handfast_mesh_certify_total{result="QueueFull"}' in service.metrics()


async def follow(call: Any, title: str, order: list[str]) -> tuple[str, str]:
    """The code of a call, and when to come again."""
    try:
        await call
    except asyncio.CancelledError:
        return "CANCELLED", ""
    except grpc.aio.AioRpcError as error:
        pushback = dict(error.trailing_metadata() or ()).get("grpc-retry-pushback-ms", "")
        return error.code().name, str(pushback)
    order.append(title)
    return "OK", ""


def answered(tasks: list[asyncio.Task[tuple[str, str]]], wanted: tuple[str, str]) -> int:
    return sum(task.done() and task.result() == wanted for task in tasks)


def waiting(service: mesh_world.Service) -> int:
    (line,) = [line for line in service.metrics().splitlines() if line.startswith("handfast_mesh_certify_waiting ")]
    return int(float(line.split()[1]))


async def until(reached: Any) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(reached):
            await asyncio.sleep(0.02)
