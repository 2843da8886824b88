# SPDX-License-Identifier: Apache-2.0
"""The SPIFFE Workload API on a real socket, beside an identity service on real sockets, on a clock that tests move."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from handfast import errors
from handfast.pki import certificates, keys
from handfast.proxy import credentials, spiffe, start_up
from handfast.proxy import trust as trust_module
from handfast.rules.mesh import issuer, svids
from handfast.wire import certifying
from handfast.wire import spiffe_messages as messages
from tests.unit.proxy.test_credentials import HOUR, OWN, World
from tests.world.clock import START

ID = "spiffe://cluster.local/ns/shop/sa/web"
SVID = f"/{messages.SERVICE}/FetchX509SVID"
BUNDLES = f"/{messages.SERVICE}/FetchX509Bundles"
RESPONSES = {SVID: messages.SvidResponse, BUNDLES: messages.BundlesResponse}


class Served(World):
    """A workload whose identity service gives SPIFFE IDs, and the socket of its proxy."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__(directory)
        self.uris = (ID,)
        self.path = directory / "s"
        self.trust: trust_module.Trust

    @contextlib.asynccontextmanager
    async def socket(self, group: int | None = None) -> AsyncIterator[credentials.Credentials]:
        async with self.serving() as address:
            material = start_up.load(self.files)
            self.trust = trust_module.of_start(material.anchors, self.files.anchors_file)
            service = certifying.Service(str(address), None)
            own = credentials.Credentials(material, service, self.trust, clock=self.clock)
            socket = spiffe.Spiffe(own, self.trust, self.clock)
            async with socket.on(self.path, group):
                yield socket.svid

    @contextlib.asynccontextmanager
    async def stream(self, method: str = SVID, mark: Any = (spiffe.MARK,)) -> AsyncIterator[Stream]:
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(f"unix:{self.path}", options=options) as channel:
            call: Any = channel.unary_stream(method, request_serializer=bytes)
            yield Stream(method, call(b"", metadata=mark, timeout=60))

    async def refusal(self, method: str = SVID, mark: Any = (spiffe.MARK,)) -> tuple[str, str]:
        async with self.stream(method, mark) as stream:
            return await stream.refusal()

    async def svid(self) -> Any:
        async with self.stream() as stream:
            return (await stream.next()).svids[0]


class Stream:
    """The answers to one call."""

    def __init__(self, method: str, call: Any) -> None:
        self._method, self._call = method, call

    async def next(self) -> Any:
        return RESPONSES[self._method].FromString(await asyncio.wait_for(self._call.read(), 20))

    async def refusal(self) -> tuple[str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.next()
        return refused.value.code().name, refused.value.details() or ""


@pytest.fixture
def served() -> Iterator[Served]:
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="hf-") as directory:
        yield Served(pathlib.Path(directory))


async def test_a_program_gets_the_certificate_its_key_and_the_anchors(served):
    async with served.socket():
        svid = await served.svid()
        async with served.stream(BUNDLES) as stream:
            bundles = (await stream.next()).bundles
    assert svid.spiffe_id == ID
    anchors = b"".join(served.anchors.ders)
    assert svid.bundle == anchors
    assert dict(bundles) == {"spiffe://cluster.local": anchors}
    leaf = certificates.read(_first(svid.x509_svid))
    assert leaf.sans.texts() == [f"DNS:{OWN}", f"URI:{ID}"]
    assert keys.private_from_der(svid.x509_svid_key).public.spki == leaf.public_key.spki
    assert len(svid.x509_svid) > len(_first(svid.x509_svid))


def _first(ders: bytes) -> bytes:
    return ders[: 4 + int.from_bytes(ders[2:4], "big")]


async def test_the_key_is_not_that_of_the_proxy_and_a_new_one_each_time(served):
    async with served.socket() as own, served.stream() as stream:
        first = (await stream.next()).svids[0]
        assert first.x509_svid_key != pathlib.Path(served.files.key_file).read_bytes()
        await served.clock.advance(22 * HOUR)
        second = (await stream.next()).svids[0]
        assert own.renewals == 2
    assert second.x509_svid_key not in {first.x509_svid_key, pathlib.Path(served.files.key_file).read_bytes()}
    assert not [
        path for path in served.path.parent.rglob("*") if path.is_file() and second.x509_svid_key in _octets(path)
    ]


def _octets(path: pathlib.Path) -> bytes:
    return path.read_bytes()


@pytest.mark.parametrize("mark", [(), (("workload.spiffe.io", "True"),), (("workload.spiffe.io", "false"),)])
async def test_a_call_without_the_mark_is_refused(served, mark):
    async with served.socket():
        await served.svid()
        for method in (SVID, BUNDLES):
            code, text = await served.refusal(method, mark)
            assert code == "INVALID_ARGUMENT"
            assert "workload.spiffe.io: true" in text


@pytest.mark.parametrize("method", ["FetchJWTSVID", "FetchJWTBundles", "ValidateJWTSVID", "Other"])
async def test_the_jwt_part_is_not_implemented(served, method):
    async with served.socket(), grpc.aio.insecure_channel(f"unix:{served.path}") as channel:
        call: Any = channel.unary_unary(f"/{messages.SERVICE}/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"", metadata=(spiffe.MARK,), timeout=20)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_other_anchors_are_sent_to_every_stream(served):
    more = issuer.generate(START).anchors
    async with served.socket(), served.stream() as one, served.stream(BUNDLES) as other:
        first = (await one.next()).svids[0]
        await other.next()
        served.trust.learn(served.anchors.to_pem() + more)
        both = b"".join(served.trust.current.ders)
        second = (await one.next()).svids[0]
        assert second.bundle == both != first.bundle
        assert second.x509_svid_key == first.x509_svid_key
        assert (await other.next()).bundles["spiffe://cluster.local"] == both


async def test_at_the_end_streams_end_and_nothing_is_handed_out(served):
    async with served.socket() as own, served.stream() as stream, served.stream(BUNDLES) as bundles:
        await stream.next()
        await bundles.next()
        served.is_down = True
        await served.until(lambda: own.standing().state is credentials.State.EXPIRED, each=HOUR)
        for code, text in (await stream.refusal(), await served.refusal()):
            assert code == "PERMISSION_DENIED"
            assert text.startswith("the certificate is over since 2")
        # Whom to believe is no secret, and does not end with it.
        async with served.stream(BUNDLES) as again:
            assert (await again.next()).bundles
        served.is_down = False
        await served.certified(own, 2, each=10)
        assert (await served.svid()).spiffe_id == ID


async def test_before_the_first_certificate_a_call_waits_a_moment_then_comes_again(served):
    served.token.unlink()
    async with served.socket() as own:
        await served.until(lambda: own.failures > 0)
        code, text = await served.refusal()
        assert code == "UNAVAILABLE"
        assert "there is no certificate so far: " in text
        served.token.write_text("late")
        await served.certified(own, each=10)
        await served.svid()


async def test_a_call_that_waited_in_vain_comes_again(served, monkeypatch):
    monkeypatch.setattr(spiffe, "_FIRST_SECONDS", 0.0)

    async def never(*_: object) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(credentials.Credentials, "_obtain", never)
    async with served.socket():
        assert await served.refusal() == ("UNAVAILABLE", "there is no certificate so far")


async def test_a_mesh_that_gives_no_ids_is_told_with_the_command_and_asked_less_and_less(served):
    served.uris = ()
    async with served.socket() as own:
        await served.until(lambda: own.failures > 0)
        for method in (SVID, BUNDLES):
            code, text = await served.refusal(method)
            assert code == "PERMISSION_DENIED"
            assert svids.TURN_ON in text
        await served.until(lambda: own.failures > 6, each=10)
        before, _ = own.failures, await served.clock.advance(100)
        assert own.failures <= before + 1
        served.uris = (ID,)
        await served.certified(own, each=60)
        await served.svid()


async def test_an_id_of_another_is_not_handed_out(served):
    served.uris = ("spiffe://cluster.local/ns/shop/sa/api",)
    async with served.socket() as own:
        await served.until(lambda: own.failures > 0)
        code, text = await served.refusal()
        assert (code, "not its SPIFFE ID" in text) == ("UNAVAILABLE", True)


async def test_one_stream_too_many_is_told_to_come_again(served, monkeypatch):
    monkeypatch.setattr(spiffe, "MOST_STREAMS", 2)
    async with served.socket():
        async with served.stream() as one, served.stream(BUNDLES) as other:
            await one.next()
            await other.next()
            assert (await served.refusal())[0] == "UNAVAILABLE"
        async with asyncio.timeout(20):
            while (await _code(served)) != "OK":
                await asyncio.sleep(0.01)


async def _code(served: Served) -> str:
    try:
        await served.svid()
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def test_the_socket_is_for_its_user_or_for_a_group(served):
    for group, mode in ((None, 0o600), (os.getegid(), 0o660)):
        async with served.socket(group):
            status = served.path.stat()
            assert stat.S_IMODE(status.st_mode) == mode
            assert status.st_gid == os.getegid()
        assert not served.path.exists()


async def test_a_group_that_cannot_be_given_is_told(served, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(errors.Refused, match="cannot be given to the group 12: operation not permitted"):
        async with served.socket(12):
            raise AssertionError
    assert not served.path.exists()


async def test_a_path_that_is_served_is_left_alone(served):
    async with served.socket():
        with pytest.raises(errors.Refused, match=r"--spiffe-socket: .* is there already"):
            async with served.socket():
                raise AssertionError
        await served.svid()
