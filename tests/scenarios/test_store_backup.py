# SPDX-License-Identifier: Apache-2.0
"""A control plane is backed up while it runs, and comes back from the backup: nobody is told anything twice or wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from handfast.api import resources
from handfast.client import api, cache, connection, partial, transport, watch
from handfast.runtime import clock as clocks
from handfast.runtime import tasks
from tests.scenarios import up_world
from tests.world import etcds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MAPS = "/api/v1/namespaces/default/configmaps"


class ConfigMap(msgspec.Struct, frozen=True):
    """What is followed of one."""

    metadata: partial.Meta
    data: dict[str, str] = {}


SOURCE = watch.Source(resource=resources.CONFIG_MAPS, view=ConfigMap, scope=api.Scope(namespace="default"))


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as sock:
        return int(sock.getsockname()[1])


def put(up: up_world.Up, name: str, value: str) -> dict[str, object]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}}
    code, answer = up.call("GET", f"{MAPS}/{name}")
    if code == 200:
        code, answer = up.call("PUT", f"{MAPS}/{name}", {**body, "metadata": answer["metadata"]})
    else:
        code, answer = up.call("POST", MAPS, body)
    assert code in {200, 201}, answer
    return answer


def store(*words: object) -> subprocess.CompletedProcess[str]:
    return up_world.run("store", *words)


def refused(reason: str, *words: object) -> str:
    answer = store(*words)
    assert answer.returncode == 1, answer
    assert answer.stderr.splitlines()[-1] == f"reason: {reason}", answer.stderr
    return answer.stderr


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[up_world.Up, int]]:
    port = free_port()
    with up_world.Up(tmp_path_factory.mktemp("plane") / "d", "--listen", f"127.0.0.1:{port}", "--token", "") as up:
        up.ready()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
        assert up.call("POST", "/api/v1/namespaces/default/secrets", secret)[0] == 201
        yield up, port


class Follower:
    """A client that follows ConfigMaps for as long as the test runs, whatever the server does."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self._kubeconfig = kubeconfig
        self.informer = cache.Informer(SOURCE)
        self.lists = 0

    def seen(self) -> dict[str, str]:
        return {each.metadata.name: each.data.get("v", "") for each in self.informer if each.data.get("v")}

    async def until(self, wanted: dict[str, str]) -> None:
        async with asyncio.timeout(90):
            while self.seen() != wanted:
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[Follower]:
        opened = transport.Transport(connection.load(str(self._kubeconfig)), clock=clocks.SystemClock())
        reflector = watch.Reflector(api.Client(opened), SOURCE, self.informer, clock=clocks.SystemClock())
        try:
            async with tasks.Group("follower") as group:
                group.start(reflector.run(), name="reflector")
                yield self
                await group.stop(timeout=5.0)
        finally:
            await opened.close()


# Whether the plane still runs when another test begins, does not matter to those.
async def test_a_plane_comes_back_from_its_backup_and_followers_converge(
    running: tuple[up_world.Up, int], tmp_path: pathlib.Path
) -> None:
    up, port = running
    root, file = up.directory, tmp_path / "plane.backup"
    put(up, "a", "1")
    put(up, "b", "1")
    async with Follower(root / "admin.conf").following() as follower:
        await follower.until({"a": "1", "b": "1"})
        taken = await asyncio.to_thread(store, "backup", file, "--dir", root, "-o", "json")
        assert taken.returncode == 0, taken.stderr
        summary = json.loads(taken.stdout)
        assert (file.stat().st_mode & 0o777, summary["keys"]) == (0o600, [])
        assert "the keys are not in it" in taken.stderr
        # What is written after the backup is lost by the restore; nobody may be told of it by an old number.
        put(up, "a", "2")
        newest = int(put(up, "c", "1")["metadata"]["resourceVersion"])  # type: ignore[index]
        assert up.call("DELETE", f"{MAPS}/b")[0] == 200
        await follower.until({"a": "2", "c": "1"})

        # A server that runs, and a store that is there, are refused.
        assert "is in use by process" in refused("DirectoryInUse", "restore", file, "--dir", root)
        assert up.stop()[0] == 0
        assert "a store already, with" in refused("StoreNotEmpty", "restore", file, "--dir", root)
        (root / "store.db").rename(tmp_path / "lost.db")
        # A file that was cut short names the place, and nothing is written.
        short = tmp_path / "short"
        short.write_bytes(file.read_bytes()[:-40])
        assert f"damaged at byte {file.stat().st_size - 40}" in refused(
            "BackupTruncated", "restore", short, "--dir", root
        )
        assert {each.name for each in root.glob("store.db*")} <= {"store.db.reserve"}
        restored = await asyncio.to_thread(store, "restore", file, "--dir", root, "-o", "json")
        assert restored.returncode == 0, restored.stderr
        first = json.loads(restored.stdout)["firstVersion"]
        assert first > newest

        with up_world.Up(root, "--listen", f"127.0.0.1:{port}") as again:
            await asyncio.to_thread(again.ready)
            await follower.until({"a": "1", "b": "1"})
            put(again, "d", "1")
            await follower.until({"a": "1", "b": "1", "d": "1"})
            # Whoever goes on with a number of before is told to begin anew.
            assert await asyncio.to_thread(watched, again, newest) == 410
            status = json.loads(store("status", "--dir", root, "-o", "json").stdout)
            assert status["resourceVersion"] > first
            assert [each["why"] for each in status["epochs"]] == [f"restored from a backup of {summary['takenAt']}"]
            assert status["lastBackup"]["checksum"] == summary["checksum"]
            # That of before, whose Lease is in the backup, is none of its servers.
            assert [(each["alive"], each["lag"]) for each in status["servers"]] == [(True, 0)]
            assert sum(status["sealKeys"].values()) > 0


def watched(up: up_world.Up, version: int) -> int:
    """The code that a watch from this version ends with."""
    with contextlib.closing(up.connection(up.context())) as connected:
        connected.request("GET", f"{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=5")
        response: http.client.HTTPResponse = connected.getresponse()
        event = json.loads(response.readline())
    assert event["type"] == "ERROR"
    return int(event["object"]["code"])


def test_a_backup_in_a_pipe_is_the_same_and_can_be_verified(
    running: tuple[up_world.Up, int], tmp_path: pathlib.Path
) -> None:
    up, _ = running
    words = [*up_world.COMMAND, "store", "backup", "-", "--dir", str(up.directory)]
    piped = subprocess.run(words, capture_output=True, timeout=60, env=up_world.environment(), check=True)
    file = tmp_path / "piped"
    file.write_bytes(piped.stdout)
    checksum = piped.stderr.decode().split("checksum ")[1].split()[0]
    verified = store("verify", file, "--dir", up.directory, "--ledger", "-o", "json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["checksum"] == checksum
    # The store itself is verified in the same way, whether it is served or not.
    assert "nothing is wrong" in store("verify", "--dir", up.directory, "--ledger").stdout
    # Without the keys the file is verified as far as that goes.
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    apart = store("verify", file, "--dir", tmp_path / "elsewhere")
    assert apart.returncode == 0
    assert "were not opened: there is no" in apart.stderr


def test_a_plane_moves_to_another_machine_with_its_keys(
    running: tuple[up_world.Up, int], tmp_path: pathlib.Path
) -> None:
    up, _ = running
    file, root = tmp_path / "with-keys", tmp_path / "new"
    taken = store("backup", file, "--dir", up.directory, "--unsafe-include-keys")
    assert "whoever reads it can open every Secret and be the CA" in taken.stderr
    assert "is there already" in refused("FileExists", "backup", file, "--dir", up.directory)
    assert store("backup", file, "--dir", up.directory, "--overwrite", "--unsafe-include-keys").returncode == 0
    restored = store("restore", file, "--dir", root)
    assert restored.returncode == 0, restored.stderr
    for name in ("encryption.key", "pki/ca.key"):
        assert (root / name).read_bytes() == (up.directory / name).read_bytes()
        assert (root / name).stat().st_mode & 0o777 == 0o600
    with up_world.Up(root) as moved:
        moved.ready()
        code, secret = moved.call("GET", "/api/v1/namespaces/default/secrets/s")
        assert (code, secret["data"]) == (200, {"k": "dg=="})


def test_secrets_whose_key_is_lost_are_left_out_only_when_asked(
    running: tuple[up_world.Up, int], tmp_path: pathlib.Path
) -> None:
    up, _ = running
    file, root = tmp_path / "backup", tmp_path / "new"
    assert store("backup", file, "--dir", up.directory).returncode == 0
    shutil.copytree(up.directory / "pki", root / "pki")
    root.chmod(0o700)
    restored = store("restore", file, "--dir", root, "--unsafe-drop-unreadable", "-o", "json")
    assert restored.returncode == 0, restored.stderr
    left_out = json.loads(restored.stdout)["leftOut"]
    assert "core/secrets/default/s" in left_out
    assert all(key.startswith("core/secrets/") for key in left_out)
    assert "nothing is wrong" in store("verify", "--dir", root).stdout
    # With another key than theirs they are named, and nothing is written.
    (root / "store.db").unlink()
    answer = store("restore", file, "--dir", root)
    assert answer.returncode == 1
    # Keys are called by the day on which they were made.
    assert answer.stderr.splitlines()[-1] in {"reason: SealBroken", "reason: UnknownSealKey"}
    assert "core/secrets/" in answer.stderr
    assert {each.name for each in root.glob("store.db*")} <= {"store.db.reserve"}


def test_a_plane_comes_back_on_etcd_and_leaves_it_again(
    running: tuple[up_world.Up, int], tmp_path: pathlib.Path
) -> None:
    up, _ = running
    file, root, place = tmp_path / "with-keys", tmp_path / "new", etcds.shared().place()
    assert store("backup", file, "--dir", up.directory, "--unsafe-include-keys").returncode == 0
    restored = store("restore", file, "--dir", root, "--store", place)
    assert restored.returncode == 0, restored.stderr
    assert not (root / "store.db").exists()
    with up_world.Up(root, "--store", place) as moved:
        moved.ready()
        assert moved.call("GET", "/api/v1/namespaces/default/secrets/s")[1]["data"] == {"k": "dg=="}
        status = json.loads(store("status", "--dir", root, "--store", place, "-o", "json").stdout)
        assert (status["engine"], [each["leads"] for each in status["members"]]) == ("etcd", [True])
        assert any(each["alive"] for each in status["servers"])
        assert "nothing is wrong" in store("verify", "--dir", root, "--store", place).stdout
        assert "is being served" in refused("StoreInUse", "copy", place, tmp_path / "back.db")
        put(moved, "on-etcd", "1")
        assert store("copy", "--prepare", place, tmp_path / "back.db").returncode == 0
        # Its etcd dies, which is named; the rest of the report is there.
        etcds.shared().kill()
        up_world.until(lambda: not moved.is_ready(), 60, "the API server to see it")
        code, rows = moved.checked()
        etcds.shared().start()
        assert (code, rows["store"]["reason"], rows["tls"]["verdict"]) == (1, "StoreNotReady", "ok")
        assert f"etcd at {etcds.shared().address}" in rows["store"]["message"]
        up_world.until(moved.is_ready, 60, "the API server")
        assert moved.stop()[0] == 0
    # Nobody has to wait, though the backup was taken of a plane that still runs.
    copied = store("copy", place, tmp_path / "back.db", "-o", "json")
    assert copied.returncode == 0, copied.stderr
    assert json.loads(copied.stdout)["finished"]
