# SPDX-License-Identifier: Apache-2.0
"""`handfast store` on a store that nobody serves: what is written, what is said, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import pathlib
import stat
from collections.abc import Awaitable, Callable

import pytest
import structlog

from handfast.apiserver.state import envelope
from handfast.cli import main, output, store_options
from handfast.datadir import layout
from handfast.pki import seal
from handfast.store import backup_file, protocol
from handfast.store.sqlite import engine, snapshot
from tests.world.clock import MovableClock

KEY = seal.generate_line("key-1")
ENVELOPES = envelope.Envelopes(seal.Sealer.from_text(KEY), ("core/secrets/",))


def run(*words: object) -> int:
    return output.run(main.command, ["store", *map(str, words)])


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> object:
    for name in ("HANDFAST_DIR", "HANDFAST_STORE"):
        monkeypatch.delenv(name, raising=False)
    yield
    structlog.reset_defaults()


def value(key: str, name: str) -> bytes:
    kind = "Secret" if "secrets" in key else "ConfigMap"
    document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}
    return ENVELOPES.wrap(key, "v1", envelope.encode_document(document))


def within(path: pathlib.Path, work: Callable[[engine.SqliteStore], Awaitable[object]]) -> None:
    """Do something to a store, and close it."""

    async def done() -> None:
        store = await engine.open_store(str(path))
        await work(store)
        await store.close()

    asyncio.run(done())


@pytest.fixture
def place(tmp_path: pathlib.Path) -> layout.Layout:
    place = layout.Layout.at(tmp_path / "d")
    place.root.mkdir(mode=0o700)
    place.encryption_key.write_text(KEY)
    place.encryption_key.chmod(0o600)

    async def fill(store: engine.SqliteStore) -> None:
        for name in ("a", "b"):
            for plural in ("configmaps", "secrets"):
                key = f"core/{plural}/default/{name}"
                await store.create(key, value(key, name))

    within(place.store("store.db"), fill)
    return place


@pytest.fixture
def backup(place: layout.Layout, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> pathlib.Path:
    file = tmp_path / "backup"
    assert run("backup", file, "--dir", place.root) == 0
    capsys.readouterr()
    return file


class TestBackup:
    def test_a_file_is_private_complete_and_told_of(
        self, place: layout.Layout, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "backup"
        assert run("backup", file, "--dir", place.root) == 0
        out, err = capsys.readouterr()
        assert out.startswith("backed up 4 objects (")
        assert f"at revision 4 to {file}\nchecksum sha256:" in out
        assert err.startswith("note: the keys are not in it: keep a copy of ")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
        assert json.loads(place.last_backup.read_bytes())["objects"] == 4
        assert run("backup", file, "--dir", place.root) == 1
        assert capsys.readouterr().err.endswith("reason: FileExists\n")
        assert run("backup", file, "--dir", place.root, "--overwrite", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["revision"] == 4

    def test_secrets_are_not_readable_in_it(self, backup: pathlib.Path) -> None:
        data = backup.read_bytes()
        assert b'"kind":"ConfigMap"' in data
        assert b'"kind":"Secret"' not in data
        assert KEY.partition(":")[2].strip().encode() not in data

    def test_keys_are_in_it_when_asked_for(
        self, place: layout.Layout, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "backup"
        assert run("backup", file, "--dir", place.root, "--unsafe-include-keys") == 0
        assert "warning: the keys of" in capsys.readouterr().err
        with file.open("rb") as opened:
            reader = backup_file.Reader(opened)
        assert reader.files == {"encryption.key": KEY.encode()}
        # A new directory gets them.
        other = layout.Layout.at(tmp_path / "other")
        assert run("restore", file, "--dir", other.root) == 0
        assert other.encryption_key.read_text() == KEY
        assert "encryption.key was taken from the backup" in capsys.readouterr().err

    @pytest.mark.parametrize("where", ["none/backup", ""])
    def test_a_place_that_cannot_be_written_is_named(
        self, place: layout.Layout, tmp_path: pathlib.Path, where: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("backup", tmp_path / where, "--dir", place.root) == 1
        assert str(tmp_path) in capsys.readouterr().err

    def test_a_store_that_is_not_there_is_not_made(
        self, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("backup", tmp_path / "b", "--dir", tmp_path / "none") == 1
        assert capsys.readouterr().err.endswith("reason: NoStore\n")
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_written_to_a_terminal(
        self, place: layout.Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(output, "to_terminal", lambda: True)
        assert run("backup", "-", "--dir", place.root) == 2
        assert capsys.readouterr().err.startswith("error: a backup is not written to a terminal\n")

    def test_standard_output_gets_the_backup_and_nothing_else(
        self, place: layout.Layout, capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        assert run("backup", "-", "--dir", place.root) == 0
        out, err = capfdbinary.readouterr()
        reader = backup_file.Reader(io.BytesIO(out))
        assert backup_file.verify(reader).objects == 4
        assert f"checksum sha256:{reader.checksum}".encode() in err

    def test_a_reader_that_has_gone_is_an_error(
        self, place: layout.Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import sys

        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as closed:
            monkeypatch.setattr(sys, "stdout", closed)
            code = run("backup", "-", "--dir", place.root)
            monkeypatch.undo()
            with contextlib.suppress(OSError):
                closed.close()
        assert code == 1
        assert "the backup is not complete" in capsys.readouterr().err


class TestRestore:
    def test_everything_comes_back_under_new_versions(
        self, place: layout.Layout, backup: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = snapshot.Snapshot(str(place.store("store.db")))
        before.end()
        assert run("restore", backup, "--dir", place.root) == 1
        assert capsys.readouterr().err.endswith("reason: StoreNotEmpty\n")
        place.store("store.db").unlink()
        assert run("restore", backup, "--dir", place.root) == 0
        assert capsys.readouterr().out.startswith("restored 4 objects to ")
        after = snapshot.Snapshot(str(place.store("store.db")))
        after.end()
        assert (after.objects, after.identity) == (4, before.identity)
        assert after.revision + after.epoch_offset > before.revision + protocol.EPOCH
        assert run("verify", "--dir", place.root) == 0
        assert run("status", "--dir", place.root, "-o", "json") == 0
        text = capsys.readouterr().out
        status = json.loads(text[text.index("{") :])
        assert [each["why"].rpartition(" ")[0] for each in status["epochs"]] == ["restored from a backup of"]

    @pytest.mark.parametrize("cut", [0, 10, 200, -1])
    def test_a_file_that_is_not_whole_writes_nothing(
        self, place: layout.Layout, backup: pathlib.Path, cut: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.store("store.db").unlink()
        backup.write_bytes(backup.read_bytes()[:cut])
        assert run("restore", backup, "--dir", place.root) == 1
        assert f"{backup}: damaged at byte " in capsys.readouterr().err
        assert list(place.root.glob("store.db*")) == []

    def test_a_directory_that_is_in_use_is_refused(
        self, place: layout.Layout, backup: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from handfast.runtime import files

        lock = files.lock_directory(place.root)
        try:
            assert run("restore", backup, "--dir", place.root) == 1
        finally:
            lock.release()
        assert capsys.readouterr().err.endswith("reason: DirectoryInUse\n")

    def test_values_that_do_not_open_are_named_or_left_out(
        self, place: layout.Layout, backup: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.store("store.db").unlink()
        place.encryption_key.write_text(seal.generate_line("key-2"))
        assert run("restore", backup, "--dir", place.root) == 1
        err = capsys.readouterr().err
        assert "core/secrets/default/a: the value is sealed with key 'key-1'" in err
        assert ", and 1 more" in err
        assert run("restore", backup, "--dir", place.root, "--unsafe-drop-unreadable", "-o", "json") == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["leftOut"] == ["core/secrets/default/a", "core/secrets/default/b"]
        assert err.count("warning: left out: ") == 2

    @pytest.mark.parametrize("drop", [False, True])
    def test_without_any_key_it_is_said_what_cannot_be_opened(
        self, place: layout.Layout, backup: pathlib.Path, drop: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.store("store.db").unlink()
        place.encryption_key.unlink()
        assert run("restore", backup, "--dir", place.root, *["--unsafe-drop-unreadable"] * drop) == 0
        out, err = capsys.readouterr()
        assert f"restored {2 if drop else 4} objects" in out
        assert "2 objects sealed with key-1" in err
        # What is left can be served with a new key.
        assert place.encryption_key.exists() is drop

    def test_what_cannot_be_read_twice_is_refused(
        self, place: layout.Layout, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        assert run("restore", pipe, "--dir", place.root) == 1
        assert "a backup is read twice" in capsys.readouterr().err
        assert run("restore", tmp_path / "none", "--dir", place.root) == 1
        assert capsys.readouterr().err.endswith("reason: FileNotFound\n")


class TestCopy:
    def test_a_store_is_copied_and_brought_up_to_date(
        self, place: layout.Layout, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        origin, copy = place.store("store.db"), tmp_path / "copy.db"
        assert run("copy", "--prepare", origin, copy) == 0
        assert "it is unfinished" in capsys.readouterr().out
        assert not copy.exists()
        within(origin, lambda store: store.create("core/configmaps/default/c", b""))
        assert run("copy", origin, f"sqlite:{copy}", "-o", "json") == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["written"], summary["kept"], summary["removed"], summary["finished"]) == (1, 4, 0, True)
        assert run("copy", origin, copy) == 1
        assert capsys.readouterr().err.endswith("reason: StoreNotEmpty\n")
        assert run("copy", origin, tmp_path / "second.db") == 0
        assert "holds 5 objects: 5 written, 0 there already, 0 removed" in capsys.readouterr().out

    def test_a_store_that_is_served_is_not_copied_for_good(
        self, place: layout.Layout, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        async def attempt() -> int:
            store = await engine.open_store(str(place.store("store.db")))
            code = await asyncio.to_thread(run, "copy", place.store("store.db"), tmp_path / "copy.db")
            await store.close()
            return code

        assert asyncio.run(attempt()) == 1
        assert capsys.readouterr().err.endswith("reason: StoreInUse\n")

    def test_another_scheme_is_a_usage_error_with_an_example(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("copy", "mysql://x", "y") == 2
        assert "hint: allowed: a path, as store.db, or a place in an etcd" in capsys.readouterr().err

    @pytest.mark.parametrize("login", ["root:secret", "root:a/secret", "root:a?secret#"])
    def test_a_password_in_a_url_is_refused_and_not_repeated(
        self, capsys: pytest.CaptureFixture[str], login: str
    ) -> None:
        url = f"etcd://{login}@127.0.0.1:1/x"
        for words in (("copy", url, "y"), ("copy", "y", url), ("status", "--store", url)):
            assert run(*words) == 2
            said = capsys.readouterr().err
            assert '"etcd://…@127.0.0.1:1/x" has a login in it; give --etcd-username and --etcd-password-file' in said
            assert "secret" not in said


class TestVerify:
    def test_a_store_and_a_backup_that_are_good(
        self, place: layout.Layout, backup: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("verify", "--dir", place.root, "--ledger") == 0
        out = capsys.readouterr().out
        assert out.endswith("sealed with key-1 (2)\nnothing is wrong\n")
        assert run("verify", backup, "--dir", place.root, "-o", "json") == 0
        summary = json.loads(capsys.readouterr().out)
        assert (summary["objects"], summary["wrong"], summary["sealKeys"]) == (4, 0, {"key-1": 2})
        assert summary["checksum"].startswith("sha256:")

    def test_what_could_not_be_served_is_listed(self, place: layout.Layout, capsys: pytest.CaptureFixture[str]) -> None:
        within(place.store("store.db"), lambda store: store.create("core/configmaps/default/z", b"junk"))
        assert run("verify", "--dir", place.root) == 1
        out, err = capsys.readouterr()
        assert "EnvelopeBroken" in out
        assert "1 of 5 objects cannot be served as they are" in err

    def test_without_keys_sealed_values_are_counted(
        self, place: layout.Layout, backup: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        place.encryption_key.unlink()
        assert run("verify", backup, "--dir", place.root) == 0
        assert "2 objects sealed with key-1 were not opened" in capsys.readouterr().err


class TestStatus:
    def test_for_people_and_for_machines(
        self, place: layout.Layout, backup: pathlib.Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        del backup
        assert run("status", "--dir", place.root) == 0
        lines = capsys.readouterr().out.splitlines()
        shown = {line[:16].strip(): line[16:].strip() for line in lines}
        assert shown["objects"] == "4"
        assert shown["revision"] == "4; the oldest that can be read is 0"
        assert shown["seal keys"] == "key-1 (2)"
        assert shown["last backup"].endswith(", revision 4")
        assert run("status", "--dir", place.root, "-o", "json") == 0
        status = json.loads(capsys.readouterr().out)
        assert (status["engine"], status["servers"], status["epochs"]) == ("sqlite", [], [])
        assert status["storedForm"] == 1

    def test_a_store_without_a_backup_says_so(self, place: layout.Layout, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("status", "--dir", place.root) == 0
        assert "none from here" in capsys.readouterr().out


class TestProgress:
    def test_a_line_now_and_then_where_nobody_looks(self, capsys: pytest.CaptureFixture[str]) -> None:
        clock = MovableClock()
        progress = store_options.Progress("backing up", 100, clock)
        progress(10)
        clock.hold(6)
        progress(20)
        progress(30)
        progress.end()
        assert capsys.readouterr().err == "backing up: 20 of 100 objects\n"

    def test_one_line_that_changes_on_a_terminal(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import sys

        clock = MovableClock()
        with contextlib.suppress(AttributeError):
            monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        progress = store_options.Progress("copying", None, clock)
        for count in (1, 2):
            clock.hold(1)
            progress(count)
        progress.end()
        err = capsys.readouterr().err
        assert "copying: 1 objects" in err
        assert err.endswith("\x1b[1A\x1b[J")

    @pytest.mark.parametrize(
        "count, text", [(1, "1 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 << 40, "5.0 TiB")]
    )
    def test_sizes_are_for_people(self, count: int, text: str) -> None:
        assert store_options.size(count) == text
