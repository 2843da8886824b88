# SPDX-License-Identifier: Apache-2.0
"""The client of etcd against real ones with TLS and logins of their own: who is called, what is shown, what is told."""

from __future__ import annotations

import asyncio
import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest

from handfast import errors
from handfast.runtime import addresses
from handfast.store import protocol
from handfast.store.etcd import engine
from handfast.store.etcd import place as places
from handfast.wire import etcd_access, etcd_client
from handfast.wire import etcd_messages as messages
from tests.world import etcds, guarded_etcds

STATUS = messages.StatusRequest()


@pytest.fixture
def ours(tmp_path: pathlib.Path) -> guarded_etcds.Authority:
    return guarded_etcds.Authority(tmp_path / "ours", "ours")


@pytest.fixture
def running() -> Iterator[Callable[[etcds.Etcd], etcds.Etcd]]:
    started: list[etcds.Etcd] = []

    def start(etcd: etcds.Etcd) -> etcds.Etcd:
        started.append(etcd)
        etcd.start()
        return etcd

    yield start
    for etcd in started:
        etcd.kill()


async def _created(store: engine.EtcdStore, key: str) -> int:
    """Once etcd can be called."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.create(key, b"2")
            except protocol.StoreUnavailable:
                await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_with_certificates_of_both_sides_a_store_is_kept(
    ours: guarded_etcds.Authority,
    running: Callable[[etcds.Etcd], etcds.Etcd],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "FILES_SECONDS", 0.2)
    etcd = running(ours.etcd())
    store = await engine.open_store(etcd.place(), ours.client())
    watch = store.watch("", after=await store.current_revision())
    await store.create("a", b"1")
    # Everything is replaced at both sides, in the same files: who has not read them anew neither trusts nor is trusted.
    old = shutil.copytree(ours.directory, tmp_path / "old", ignore=shutil.ignore_patterns("data"))
    etcd.kill()
    ours.replace_ca("ours, the second")
    ours.etcd()
    ours.client()
    etcd.start()
    last = await _created(store, "b")
    behind = etcd_access.Access(
        ca_file=str(old / "ca.crt"), cert_file=str(old / "client.crt"), key_file=str(old / "client.key")
    )
    for access in (behind, dataclasses.replace(behind, ca_file=ours.ca_file)):
        client = etcd_client.Client([etcd.address], access)
        with pytest.raises(etcd_client.Failed):
            await client.call(0, STATUS, 5)
        await client.close()
    seen: list[str] = []
    async with asyncio.timeout(30):
        while "b" not in seen:
            seen += [event.key for event in (await watch.next())[0]]
    assert (seen, await store.current_revision() >= last) == (["a", "b"], True)
    await store.close()


@pytest.mark.slow
async def test_an_endpoint_of_another_ca_is_not_called(
    ours: guarded_etcds.Authority, tmp_path: pathlib.Path, running: Callable[[etcds.Etcd], etcds.Etcd]
) -> None:
    theirs = guarded_etcds.Authority(tmp_path / "theirs", "theirs")
    etcd = running(theirs.etcd())
    with pytest.raises(protocol.StoreUnavailable, match=f"etcd at {etcd.address}") as refusal:
        await engine.open_store(etcd.place(), ours.client())
    assert refusal.value.reason == "EtcdNotTrusted"
    # Nor one that shows another host's certificate.
    elsewhere = running(guarded_etcds.Authority(tmp_path / "elsewhere", "elsewhere").etcd(host="10.9.9.9"))
    access = etcd_access.Access(ca_file=str(tmp_path / "elsewhere" / "ca.crt"))
    with pytest.raises(protocol.StoreUnavailable, match=f"etcd at {elsewhere.address}"):
        await engine.open_store(elsewhere.place(), access)
    # And without a certificate of ours, etcd does not talk to us.
    with pytest.raises(protocol.StoreUnavailable):
        await engine.open_store(etcd.place(), etcd_access.Access(ca_file=theirs.ca_file))


def test_without_a_ca_only_loopback_is_called() -> None:
    with pytest.raises(errors.Refused, match="without TLS etcd is called on loopback only") as refusal:
        etcd_client.Client([addresses.Address("10.0.0.1", 2379)], etcd_access.Access())
    assert refusal.value.reason == "PlaintextNotLoopback"


async def test_what_nobody_listens_to_was_never_sent() -> None:
    client = etcd_client.Client([addresses.Address("127.0.0.1", 1)], etcd_access.Access())
    with pytest.raises(
        etcd_client.NotSent, match=r"^etcd at 127\.0\.0\.1:1: Failed to connect to remote host: .*refused$"
    ):
        await client.call(0, STATUS, 5)
    await client.close()


async def test_the_next_endpoint_is_asked_when_one_is_not_there() -> None:
    shared = etcds.shared()
    place = places.Place((addresses.Address("127.0.0.1", 1), shared.address), shared.place().prefix)
    store = await engine.open_store(place, etcd_access.Access())
    revision = await store.create("a", b"")
    assert await store.current_revision() >= revision
    await store.close()


@pytest.fixture
def with_login(tmp_path: pathlib.Path, running: Callable[[etcds.Etcd], etcds.Etcd]) -> etcds.Etcd:
    etcd = running(etcds.Etcd(tmp_path))
    guarded_etcds.require_login(etcd)
    return etcd


@pytest.mark.slow
async def test_a_login_that_runs_out_is_made_again(with_login: etcds.Etcd, tmp_path: pathlib.Path) -> None:
    access = etcd_access.Access(username="handfast", password_file=guarded_etcds.password_file(tmp_path))
    store = await engine.open_store(with_login.place("hf"), access)
    first = await store.create("a", b"1")
    store._client._token = "gone.1"
    second = await store.update("a", b"2", expected=first)
    # Whoever changes users or roles makes tokens of before useless.
    guarded_etcds.etcdctl(with_login, "--user=root:root", "role", "add", "another")
    assert await store.update("a", b"3", expected=second) > second
    watch = store.watch("", after=first)
    assert {event.key for event in (await watch.next())[0]} == {"a"}
    await store.close()


def counted(client: etcd_client.Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each login that is tried."""
    logins: list[int] = []
    login = client._login

    async def counting() -> object:
        logins.append(1)
        return await login()

    monkeypatch.setattr(client, "_login", counting)
    return logins


@pytest.mark.slow
async def test_all_who_wait_for_a_login_share_its_outcome(
    with_login: etcds.Etcd, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = etcd_access.Access(username="handfast", password_file=guarded_etcds.password_file(tmp_path))
    client = etcd_client.Client([with_login.address], access)
    logins = counted(client, monkeypatch)
    ask = messages.RangeRequest(key=b"/hf/a")
    # One that is good.
    await asyncio.gather(*(client.call(0, ask, 20) for _ in range(16)))
    assert len(logins) == 1
    # One that is not answered: nobody waits for the deadlines of those before them.
    client._token = None
    with_login.freeze()
    answers = await asyncio.gather(*(client.call(0, ask, 0.5) for _ in range(16)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {etcd_client.NotSent}
    assert len(logins) == 2
    # One whose first waiter gives up.
    first, second = (asyncio.ensure_future(client.call(0, ask, 20)) for _ in range(2))
    await asyncio.sleep(0.05)
    first.cancel()
    with_login.thaw()
    await second
    assert len(logins) == 3
    await client.close()


@pytest.mark.slow
async def test_a_client_that_is_closed_ends_a_login(with_login: etcds.Etcd, tmp_path: pathlib.Path) -> None:
    access = etcd_access.Access(username="handfast", password_file=guarded_etcds.password_file(tmp_path))
    client = etcd_client.Client([with_login.address], access)
    with_login.freeze()
    waiting = asyncio.ensure_future(client.call(0, STATUS, 60))
    async with asyncio.timeout(60):
        while not client._logins:
            await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(etcd_client.NotSent, match="the connection was closed"):
        await waiting
    with_login.thaw()


@pytest.mark.slow
async def test_a_refused_login_is_named_without_its_password(with_login: etcds.Etcd, tmp_path: pathlib.Path) -> None:
    wrong = "incorrect horse"
    access = etcd_access.Access(username="handfast", password_file=guarded_etcds.password_file(tmp_path, wrong))
    with pytest.raises(protocol.StoreUnavailable, match=f"etcd at {with_login.address}") as refusal:
        await engine.open_store(with_login.place("hf"), access)
    assert refusal.value.reason == "EtcdLoginRefused"
    assert wrong not in f"{refusal.value.message} {refusal.value.hint}"
    with pytest.raises(protocol.StoreUnavailable) as refusal:
        await engine.open_store(with_login.place("hf"), etcd_access.Access())
    assert refusal.value.reason == "EtcdLoginRefused"
    # A right password, and a prefix that the role does not have.
    access = etcd_access.Access(username="handfast", password_file=guarded_etcds.password_file(tmp_path))
    with pytest.raises(protocol.StoreUnavailable, match="permission denied") as refusal:
        await engine.open_store(with_login.place("other"), access)
    assert refusal.value.reason == "EtcdLoginRefused"


@pytest.mark.parametrize("mode, text, says", [(0o644, "x", "password"), (0o600, "\udcff", "not UTF-8")])
async def test_a_password_file_that_cannot_be_used_is_named(
    tmp_path: pathlib.Path, mode: int, text: str, says: str
) -> None:
    path = tmp_path / "password"
    path.write_bytes(text.encode(errors="surrogateescape"))
    path.chmod(mode)
    client = etcd_client.Client([etcds.shared().address], etcd_access.Access(username="u", password_file=str(path)))
    with pytest.raises(errors.Refused, match=says):
        await client.call(0, STATUS, 5)
    await client.close()
