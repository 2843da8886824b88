# SPDX-License-Identifier: Apache-2.0
"""API servers whose objects are in a real etcd: they see one another's writes, and what etcd cannot say they do not say."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pathlib
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import structlog

from handfast.apiserver.state import storage
from handfast.store.etcd import engine, live
from handfast.store.etcd import place as places
from handfast.store.etcd import session as sessions
from handfast.wire import etcd_access
from handfast.wire import etcd_messages as messages
from tests.world import etcds, guarded_etcds, lines
from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"
OPEN = etcd_access.Access()
Pair = tuple[worlds.World, worlds.World]


@pytest.fixture
async def pair(tmp_path: pathlib.Path) -> AsyncIterator[Pair]:
    place = etcds.shared().place()
    first, second = [await engine.open_store(place, OPEN) for _ in range(2)]
    async with worlds.world(tmp_path / "d", store=first) as one, worlds.world(tmp_path / "d", store=second) as other:
        yield one, other


async def test_a_write_on_one_is_in_the_next_read_of_the_other(pair: Pair) -> None:
    one, other = pair
    for number in range(20):
        made = await one.create_config_map(f"c{number}", n=str(number))
        answer = await other.get(f"{PATH}/c{number}")
        assert (answer.status, answer.json()) == (200, made)
        assert (await other.request("DELETE", f"{PATH}/c{number}")).status == 200
        assert (await one.get(f"{PATH}/c{number}")).status == 404


async def test_a_counter_incremented_from_both_sides_loses_nothing(pair: Pair) -> None:
    one, other = pair
    await one.create_config_map("counter", n="0")

    async def add(side: worlds.World) -> None:
        for _ in range(15):
            while True:
                found = (await side.get(f"{PATH}/counter")).json()
                found["data"]["n"] = str(int(found["data"]["n"]) + 1)
                if (await side.request("PUT", f"{PATH}/counter", found)).status == 200:
                    break

    await asyncio.gather(add(one), add(other))
    assert (await one.get(f"{PATH}/counter")).json()["data"]["n"] == "30"


async def test_objects_and_versions_stay_over_a_restart(tmp_path: pathlib.Path) -> None:
    place = etcds.shared().place()
    async with worlds.world(tmp_path / "d", store=await engine.open_store(place, OPEN)) as world:
        made = await world.create_config_map("kept", k="v")
    async with worlds.world(tmp_path / "d", store=await engine.open_store(place, OPEN)) as world:
        assert (await world.get(f"{PATH}/kept")).json() == made
        sealed = await world.request(
            "POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "hunter2"}}
        )
        assert sealed.status == 201
    # A Secret is sealed in etcd, too.
    store = await engine.open_store(place, OPEN)
    entry = await store.get("core/secrets/default/s")
    assert entry is not None
    assert b"aHVudGVyMg" not in entry.value
    await store.close()


async def test_keys_that_others_put_below_the_prefix_end_no_server(tmp_path: pathlib.Path) -> None:
    place = etcds.shared().place()
    for _ in range(2):
        store = await engine.open_store(place, OPEN)
        async with worlds.world(tmp_path / "d", store=store) as world:
            for number, name in enumerate((b"\xff\xfe", b"", b"stray", b"stray/too")):
                await store._client.call(0, messages.PutRequest(key=place.objects + name, value=b"%d" % number), 20)
            made = await world.create_config_map(f"after-{secrets.token_hex(4)}")
            answer = await world.get(f"{PATH}/{made['metadata']['name']}")
            assert answer.status == 200
            assert world.server.replica.failed is None


@pytest.mark.slow
async def test_while_etcd_is_away_nothing_stale_is_served(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etcd").mkdir()
    with etcds.running(tmp_path / "etcd") as etcd:
        store = await engine.open_store(etcd.place(), OPEN)
        async with worlds.world(tmp_path / "d", store=store, shared=True) as world:
            await _go_away_and_come_back(world, etcd)


async def _until_ready(world: worlds.World, status: int) -> worlds.Answer:
    """Nobody asks this server for an object: it finds out by itself."""
    async with asyncio.timeout(60):
        while (answer := await world.get("/readyz?verbose")).status != status:
            await world.movable().advance(storage.PROBE)
            await asyncio.sleep(0.05)
    return answer


async def _go_away_and_come_back(world: worlds.World, etcd: etcds.Etcd) -> None:
    await world.create_config_map("before", k="v")
    assert (await world.get("/readyz")).status == 200
    etcd.kill()
    told = (await _until_ready(world, 500)).body.decode()
    assert f"[-]store failed: etcd at {etcd.address}" in told
    assert (await world.get("/livez")).status == 200
    answer = await world.get(f"{PATH}/before")
    assert (answer.status, answer.reason) == (503, "ServiceUnavailable")
    assert (answer.headers["Retry-After"], str(etcd.address) in answer.message) == ("1", True)
    refused = await world.request("POST", PATH, {"metadata": {"name": "lost"}})
    assert refused.status == 503
    etcd.start()
    await _until_ready(world, 200)
    answer = await world.get(f"{PATH}/before")
    assert answer.json()["data"] == {"k": "v"}
    await world.create_config_map("after")
    assert (await world.get(f"{PATH}/lost")).status == 404


@pytest.mark.slow
async def test_a_server_whose_line_to_etcd_hangs_is_not_ready(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = etcds.shared().place()
    line = lines.Line(etcds.shared().address)
    await line.start()
    monkeypatch.setattr(sessions, "READ_SECONDS", 1.0)
    over_it = await engine.open_store(places.Place((line.address,), place.prefix), OPEN)
    beside_it = await engine.open_store(place, OPEN)
    async with (
        worlds.world(tmp_path / "d", store=over_it, shared=True) as cut,
        worlds.world(tmp_path / "d", store=beside_it, shared=True) as other,
    ):
        await cut.create_config_map("before")
        line.hang()
        assert f"[-]store failed: etcd at {line.address}" in (await _until_ready(cut, 500)).body.decode()
        assert (await other.get("/readyz")).status == 200
        await other.create_config_map("meanwhile")
        assert (await cut.get(f"{PATH}/meanwhile")).status == 503
        await line.heal()
        await _until_ready(cut, 200)
        assert (await cut.get(f"{PATH}/meanwhile")).status == 200
    await line.stop()


FULL = "etcd is full (alarm NOSPACE): writes are refused, deletes are not"


async def _fill(world: worlds.World) -> tuple[list[str], worlds.Answer]:
    """What was created, and the answer to what was not."""
    made: list[str] = []
    while True:
        name = f"c{len(made)}"
        answer = await world.request("POST", PATH, {"metadata": {"name": name}, "data": {"text": "x" * 900_000}})
        if answer.status != 201:
            return made, answer
        made.append(name)


@pytest.mark.slow
async def test_a_full_etcd_says_what_to_do_and_takes_deletes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a version whose word on progress is not believed: with one that is, nothing here is hard.
    monkeypatch.setattr(live, "is_progress_believed", lambda _text: False)
    (tmp_path / "etcd").mkdir()
    with etcds.running(tmp_path / "etcd", ["--quota-backend-bytes=16777216"]) as etcd:
        store = await engine.open_store(etcd.place(), OPEN)
        await store._client.call(0, messages.PutRequest(key=b"/elsewhere", value=b"x"), 20)
        with structlog.testing.capture_logs() as logged:
            async with worlds.world(tmp_path / "d", store=store, shared=True) as world:
                await _be_full(world, etcd, store)
        told = [line for line in logged if line.get("reason") == "StoreFull" and line["log_level"] == "error"]
        assert [(line["event"], "etcdctl alarm disarm" in line["hint"]) for line in told] == [(FULL, True)]
        assert "etcd has room again" in [line["event"] for line in logged]


async def _be_full(world: worlds.World, etcd: etcds.Etcd, store: engine.EtcdStore) -> None:
    made, refused = await _fill(world)
    update = {"metadata": {"name": made[0]}, "data": {"text": "y"}}
    for answer in (refused, await world.request("PUT", f"{PATH}/{made[0]}", update)):
        assert (answer.status, answer.reason, answer.headers["Retry-After"]) == (503, "ServiceUnavailable", "1")
        assert "deletes are taken, and nothing else" in answer.message
        assert "etcdctl alarm disarm" in answer.message
    await _until_ready(world, 200)
    assert f"[+]store ok, but {FULL}\n" in (await world.get("/readyz?verbose")).body.decode()
    # A delete of somebody else's moves the revision, and no fence can be written.
    await store._client.call(0, messages.DeleteRangeRequest(key=b"/elsewhere"), 20)
    assert (await world.get(f"{PATH}/{made[0]}")).status == 200
    for name in made:
        assert (await world.request("DELETE", f"{PATH}/{name}")).status == 200
    assert (await world.request("POST", PATH, {"metadata": {"name": "still-full"}})).status == 503
    now = await store.current_revision()
    await store._client.call(0, messages.CompactionRequest(revision=now, physical=True), 20)
    await asyncio.to_thread(etcd.make_room)
    await world.create_config_map("after")
    assert FULL not in (await world.get("/readyz?verbose")).body.decode()


def _status(place: places.Place, tmp_path: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "handfast", "store", "status", "--dir", str(tmp_path / "d"), "--store", str(place)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
async def test_without_a_majority_nothing_is_served_and_the_members_are_told(tmp_path: pathlib.Path) -> None:
    etcd = etcds.three(tmp_path / "etcd")
    for member in etcd:
        member.start()
    try:
        place = places.Place(tuple(member.address for member in etcd), "hf")
        async with worlds.world(tmp_path / "d", store=await engine.open_store(place, OPEN), shared=True) as world:
            await world.create_config_map("before")
            for member in etcd[1:]:
                member.kill()
            await _until_ready(world, 500)
            answer = await world.get(f"{PATH}/before")
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            done, shown = await asyncio.gather(
                asyncio.to_thread(served, tmp_path, "--store", str(place)), asyncio.to_thread(_status, place, tmp_path)
            )
            says = [
                "1 of 3 endpoints answers, and it has no leader",
                "reason: StoreUnavailable",
                "most members of etcd",
            ]
            assert (done.returncode, [text for text in says if text not in done.stderr]) == (3, []), done.stderr
            assert (shown.returncode, says[0] in shown.stderr) == (3, True), shown.stderr
            _, *rows = shown.stdout.splitlines()
            assert ["does not answer" in row for row in rows] == [False, True, True], shown.stdout
            for member in etcd[1:]:
                member.start()
            await _until_ready(world, 200)
            assert (await world.get(f"{PATH}/before")).status == 200
    finally:
        for member in etcd:
            member.kill()


async def _until_status(world: worlds.World, path: str, status: int, reason: str = "") -> None:
    async with asyncio.timeout(60):
        while (answer := await world.get(path)).status != status or reason not in answer.message:
            await asyncio.sleep(0.1)


async def test_a_history_that_went_back_under_a_server_gets_a_new_epoch(tmp_path: pathlib.Path) -> None:
    """The older copy has everything that was noted down at start: only the server that ran knows how far it had come."""
    data, copy = tmp_path / "etcd" / "data", tmp_path / "copy"
    (tmp_path / "etcd").mkdir()
    with etcds.running(tmp_path / "etcd") as etcd:
        place = etcd.place()
        async with worlds.world(tmp_path / "d", store=await engine.open_store(place, OPEN)) as world:
            await world.create_config_map("kept")
            etcd.kill()
            shutil.copytree(data, copy)
            etcd.start()
            await _until_status(world, f"{PATH}/kept", 200)
            lost = int((await world.create_config_map("lost"))["metadata"]["resourceVersion"])
            etcd.kill()
            shutil.rmtree(data)
            shutil.copytree(copy, data)
            etcd.start()
            await _until_status(world, f"{PATH}/lost", 503, "history went back")
        store = await engine.open_store(place, OPEN)
        async with worlds.world(tmp_path / "d", store=store) as world:
            assert store.epoch_offset > 0
            made = await world.create_config_map("lost")
            assert int(made["metadata"]["resourceVersion"]) > lost + 1000


def served(tmp_path: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "handfast", "serve", "apiserver", "--dir", str(tmp_path / "d")]
    return subprocess.run(
        [*command, "--listen", "127.0.0.1:0", *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, code, says",
    [
        (["--store", "redis://127.0.0.1/x"], 2, ["has the scheme 'redis'", places.EXAMPLE]),
        (["--store", "etcd://root:hunter2@127.0.0.1/x"], 2, ["has a login in it", "--etcd-password-file"]),
        (["--store", "etcd://127.0.0.1:1/x"], 3, ["etcd at 127.0.0.1:1", "reason: StoreUnavailable"]),
        (["--store", "etcd://192.0.2.1/x"], 1, ["192.0.2.1:2379", "--etcd-ca-file", "PlaintextNotLoopback"]),
        (["--store", "etcd://127.0.0.1/x", "--etcd-username", "u"], 2, ["--etcd-username is given without"]),
        (["--store", "etcd://127.0.0.1/x", "--etcd-ca-file", "absent.crt"], 1, ["absent.crt"]),
    ],
    ids=["scheme", "login", "away", "plaintext", "half a login", "no CA"],
)
def test_a_store_that_cannot_be_had_is_named(
    tmp_path: pathlib.Path, words: list[str], code: int, says: list[str]
) -> None:
    done = served(tmp_path, *words)
    assert (done.returncode, [text for text in says if text not in done.stderr]) == (code, []), done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def _refused(done: subprocess.CompletedProcess[str], code: int, *says: str) -> None:
    assert (done.returncode, [text for text in says if text not in done.stderr]) == (code, []), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_etcd_of_another_ca_is_named_at_the_start(tmp_path: pathlib.Path) -> None:
    ours, theirs = (guarded_etcds.Authority(tmp_path / name, name) for name in ("ours", "theirs"))
    etcd = theirs.etcd()
    etcd.start()
    try:
        access = ours.client()
        words = [
            "--etcd-ca-file",
            access.ca_file,
            "--etcd-cert-file",
            access.cert_file,
            "--etcd-key-file",
            access.key_file,
        ]
        done = served(tmp_path, "--store", str(etcd.place()), *map(str, words))
    finally:
        etcd.kill()
    _refused(done, 3, f"etcd at {etcd.address}", "reason: EtcdNotTrusted", "--etcd-ca-file must be the CA")
    # Nothing of what gRPC tells by itself.
    assert "ssl_transport_security" not in done.stderr


@pytest.mark.slow
def test_a_refused_login_is_named_at_the_start_without_its_password(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etcd").mkdir()
    with etcds.running(tmp_path / "etcd") as etcd:
        guarded_etcds.require_login(etcd)
        password = guarded_etcds.password_file(tmp_path, "incorrect horse")
        words = ["--etcd-username", "handfast", "--etcd-password-file", password]
        done = served(tmp_path, "--store", str(etcd.place("hf")), *words)
    _refused(done, 3, f"etcd at {etcd.address}", "reason: EtcdLoginRefused", "check --etcd-username")
    assert "incorrect horse" not in done.stderr


@pytest.mark.slow
async def test_an_etcd_that_is_too_old_is_named_at_the_start(tmp_path: pathlib.Path) -> None:
    """No such etcd is to be had any more: a gRPC server says what one says of itself, and everything else is real."""
    path, response = messages.METHODS[messages.StatusRequest]
    answer = grpc.unary_unary_rpc_method_handler(
        lambda _request, _context: response(version="3.3.27"),
        request_deserializer=messages.StatusRequest.FromString,
        response_serializer=response.SerializeToString,
    )
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    _, service, method = path.split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: answer}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        done = await asyncio.to_thread(served, tmp_path, "--store", f"etcd://127.0.0.1:{port}/hf")
    finally:
        server.stop(None)
    says = [f"etcd at 127.0.0.1:{port}: its version is 3.3.27; 3.4 is the oldest", "reason: EtcdTooOld", "upgrade etcd"]
    _refused(done, 1, *says)


@pytest.mark.slow
async def test_another_clusters_prefix_is_refused(tmp_path: pathlib.Path) -> None:
    place = etcds.shared().place()
    async with worlds.world(tmp_path / "ours", store=await engine.open_store(place, OPEN)) as world:
        await world.create_config_map("ours")
    done = await asyncio.to_thread(served, tmp_path, "--store", str(place))
    assert done.returncode == 1
    assert "error: the store is another cluster's" in done.stderr
    assert "reason: OtherStore" in done.stderr


@pytest.mark.slow
def test_an_etcd_of_another_program_is_refused(tmp_path: pathlib.Path) -> None:
    place = etcds.shared().place()

    async def write() -> Any:
        from handfast.wire import etcd_client
        from handfast.wire import etcd_messages as messages

        client = etcd_client.Client(place.endpoints, OPEN)
        await client.call(0, messages.PutRequest(key=place.root + b"theirs", value=b"x"), 20)
        await client.close()

    asyncio.run(write())
    done = served(tmp_path, "--store", str(place))
    assert done.returncode == 1
    assert "they are no store of Handfast's; nothing was changed" in done.stderr
