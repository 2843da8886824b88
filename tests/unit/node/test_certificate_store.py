# SPDX-License-Identifier: Apache-2.0
"""Pairs on disk: what is written, what is found again, and what no crash may leave behind."""

from __future__ import annotations

import errno
import os
import pathlib
import stat
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from structlog.testing import capture_logs

from handfast import errors
from handfast.node import certificate_store
from handfast.pki import keys, pairs, pem
from tests.unit.node import pairing
from tests.world.clock import START, MovableClock

PREFIX = certificate_store.CLIENT


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def store(tmp_path: pathlib.Path, clock: MovableClock) -> certificate_store.CertificateStore:
    return certificate_store.CertificateStore(tmp_path / "pki", PREFIX, clock)


def names(store: certificate_store.CertificateStore) -> list[str]:
    return sorted(path.name for path in store.directory.iterdir())


class TestSave:
    def test_the_kubelets_layout(self, store):
        made = pairing.pair()
        path = store.save(made)
        assert path.name == f"{PREFIX}-{START:%Y-%m-%d-%H-%M-%S}.pem"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(store.directory.stat().st_mode) == 0o755
        assert [block.label for block in pem.blocks(path.read_bytes())] == ["CERTIFICATE", "PRIVATE KEY"]
        assert store.current.readlink() == path
        assert names(store) == [path.name, f"{PREFIX}-current.pem"]
        assert store.load() == made

    async def test_two_in_one_second_are_both_kept(self, store, clock):
        first, second, third = (store.save(pairing.pair()) for _ in range(3))
        assert [path.name.removeprefix(first.stem) for path in (first, second, third)] == [".pem", "-2.pem", "-3.pem"]
        assert store.current.readlink() == third
        # The number is part of the age: the third is the newest.
        store.current.unlink()
        assert store.find().path == third

    async def test_the_oldest_go(self, store, clock):
        made = []
        for _ in range(6):
            made.append(store.save(pairing.pair()))
            await clock.advance(1)
        assert names(store) == sorted([*(path.name for path in made[3:]), f"{PREFIX}-current.pem"])

    async def test_an_old_one_that_cannot_go_stops_nothing(self, store, clock, monkeypatch):
        for _ in range(3):
            store.save(pairing.pair())
            await clock.advance(1)
        oldest = min(store.directory.glob(f"{PREFIX}-2*"))
        refusing(monkeypatch, "unlink", lambda path: path == str(oldest))
        with capture_logs() as logs:
            assert store.save(pairing.pair()).exists()
        assert oldest.exists()
        assert [log["event"] for log in logs] == ["an old certificate cannot be removed"]

    @pytest.mark.parametrize("link", ["current", "updated"])
    def test_a_regular_file_is_refused(self, store, link):
        store.directory.mkdir()
        there = store.directory / f"{PREFIX}-{link}.pem"
        there.write_text("mine")
        with pytest.raises(errors.Refused) as caught:
            store.save(pairing.pair())
        assert caught.value.message == f'expected "{there}" to be a symlink but it is a file'
        assert (caught.value.reason, there.read_text(), names(store)) == ("NotASymlink", "mine", [there.name])

    def test_a_link_left_by_another_writer_is_replaced(self, store):
        store.directory.mkdir()
        (store.directory / f"{PREFIX}-updated.pem").symlink_to("elsewhere")
        path = store.save(pairing.pair())
        assert store.current.readlink() == path
        assert names(store) == [path.name, f"{PREFIX}-current.pem"]

    def test_what_is_read_back_is_what_was_written(self, store, monkeypatch):
        other = pairing.pair()
        monkeypatch.setattr(pairs, "read", lambda _: other)
        with pytest.raises(errors.Unavailable, match="does not hold what was written to it"):
            store.save(pairing.pair())
        assert not store.current.is_symlink()

    def test_current_is_never_away(self, store, monkeypatch):
        """One rename: at every call that changes a name there is a current pair, the old or the new."""
        store.save(pairing.pair())
        for name in ("unlink", "symlink", "replace", "link", "rename"):
            plain = getattr(os, name)

            def call(*arguments: Any, _plain: Any = plain, **named: Any) -> Any:
                assert pairs.read(store.current.read_bytes()).chain
                result = _plain(*arguments, **named)
                assert pairs.read(store.current.read_bytes()).chain
                return result

            monkeypatch.setattr(os, name, call)
        assert store.save(pairing.pair()).exists()

    def test_a_write_that_fails_leaves_nothing(self, store, monkeypatch):
        before = pairing.pair()
        store.save(before)
        there = names(store)
        refusing(monkeypatch, "fsync", lambda descriptor: isinstance(descriptor, int), errno.ENOSPC)
        with pytest.raises(errors.Unavailable, match="no space left on device") as caught:
            store.save(pairing.pair())
        assert (caught.value.reason, names(store), store.load()) == ("NoSpace", there, before)


class TestPowerCut:
    """A name in a directory is durable only when the directory is: what comes next must not come before."""

    @pytest.fixture
    def steps(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What is made durable, and what gets or loses a name, in order."""
        told: list[str] = []
        plain = {name: getattr(os, name) for name in ("fsync", "link", "replace", "unlink")}

        def fsync(descriptor: int) -> None:
            told.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
            plain["fsync"](descriptor)

        def naming(name: str) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                done = plain[name](*arguments, **named)
                told.append(f"{name} {pathlib.Path(arguments[-1]).name}")
                return done

            return call

        monkeypatch.setattr(os, "fsync", fsync)
        for name in ("link", "replace", "unlink"):
            monkeypatch.setattr(os, name, naming(name))
        return told

    def test_the_key_is_durable_before_it_is_given_away(self, store, steps):
        store.pending_key()
        # The directory is new: its own name comes first.
        assert steps == ["sync directory", "sync file", f"replace {PREFIX}.key.tmp", "sync directory"]

    def test_the_pair_is_durable_before_the_link_and_the_link_before_the_key_goes(self, store, steps):
        key = store.pending_key()
        steps.clear()
        path = store.save(pairing.pair(key=key))
        assert [step for step in steps if not step.startswith("unlink .")] == [
            "sync file",
            f"link {path.name}",
            "sync directory",
            f"replace {PREFIX}-current.pem",
            "sync directory",
            f"unlink {PREFIX}.key.tmp",
            "sync directory",
        ]

    def test_a_mended_link_is_durable(self, store, steps):
        path = store.save(pairing.pair())
        store.current.unlink()
        steps.clear()
        assert store.load() is not None
        assert store.current.readlink() == path
        assert steps == [f"replace {PREFIX}-current.pem", "sync directory"]


def refusing(monkeypatch: pytest.MonkeyPatch, name: str, when: Any, code: int = errno.EACCES) -> None:
    plain = getattr(os, name)

    def call(*arguments: Any, **named: Any) -> Any:
        # Of a link it is the new name, of all else the first.
        if when(arguments[0] if isinstance(arguments[0], int) else str(arguments[0])):
            raise OSError(code, os.strerror(code))
        return plain(*arguments, **named)

    monkeypatch.setattr(os, name, call)


class TestLoad:
    def test_without_files_there_is_no_pair(self, store):
        assert store.load() is None
        store.directory.mkdir()
        assert store.load() is None

    @pytest.mark.parametrize("damage", ["missing", "broken", "gone", "corrupt", "half"])
    async def test_the_newest_good_pair_when_the_link_is_of_no_use(self, store, clock, damage):
        """…and the link is mended."""
        store.save(pairing.pair())
        await clock.advance(1)
        good = pairing.pair()
        kept = store.save(good)
        await clock.advance(1)
        last = store.save(pairing.pair())
        if damage == "missing":
            store.current.unlink()
            last.unlink()
        elif damage == "broken":
            store.current.unlink()
            store.current.symlink_to(store.directory / "nowhere")
            last.unlink()
        elif damage == "gone":
            last.unlink()
        elif damage == "corrupt":
            last.write_bytes(b"garbage")
        else:
            last.write_bytes(last.read_bytes()[:-300])
        with capture_logs() as logs:
            assert store.load() == good
        assert logs[-1]["event"] == "the link to the current certificate was mended"
        assert store.current.readlink() == kept
        assert store.find().linked

    @pytest.mark.parametrize("length", [0, 1, 100, 400, 700])
    def test_no_beginning_of_a_file_is_taken_for_a_file(self, store, length):
        path = store.save(pairing.pair())
        path.write_bytes(path.read_bytes()[:length])
        with capture_logs() as logs:
            assert store.load() is None
        assert logs[0]["reason"] == "MalformedPair"
        assert str(path) in logs[0]["error"]

    def test_upstreams_link_on_the_way(self, store):
        """Upstream removes current, then renames updated: a crash between the two is repaired."""
        path = store.save(pairing.pair())
        store.current.rename(store.directory / f"{PREFIX}-updated.pem")
        assert not store.find().linked
        assert store.load() is not None
        assert store.current.readlink() == path
        assert names(store) == [path.name, f"{PREFIX}-current.pem"]

    def test_a_relative_link_of_another_tool(self, store):
        made = pairing.pair()
        path = store.save(made)
        store.current.unlink()
        store.current.symlink_to(path.name)
        assert (store.load(), store.find().linked) == (made, True)

    def test_a_regular_file_is_read(self, store):
        made = pairing.pair()
        store.save(made).rename(store.directory / "x")
        store.current.unlink()
        (store.directory / "x").rename(store.current)
        assert store.load() == made

    async def test_an_expired_pair_gives_way_to_one_in_force(self, store, clock):
        good = pairing.pair()
        store.save(good)
        await clock.advance(1)
        store.save(pairing.pair(begins=START - 2 * pairing.HOUR, lasts=pairing.HOUR))
        assert store.load() == good

    async def test_the_current_one_when_all_have_expired(self, store, clock):
        ends = []
        for hours in (3, 2):
            made = pairing.pair(begins=START - hours * pairing.HOUR, lasts=pairing.HOUR)
            ends.append(made)
            store.save(made)
            await clock.advance(1)
        assert store.load() == ends[1]
        store.current.unlink()
        assert store.find().pair == ends[1]

    def test_one_that_begins_later_is_kept(self, store):
        """It is the clock that is wrong; an older pair would be no better."""
        store.save(pairing.pair())
        later = pairing.pair(begins=START + 24 * pairing.HOUR)
        store.save(later)
        assert store.load() == later

    def test_leaf_first(self, store):
        leaf, other = pairing.pair(), pairing.pair()
        path = store.save(leaf)
        path.write_bytes(leaf.certificate_pem + other.certificate_pem + leaf.key_pem)
        assert [store.load().leaf.serial, len(store.load().chain)] == [leaf.leaf.serial, 2]
        path.write_bytes(other.certificate_pem + leaf.certificate_pem + leaf.key_pem)
        assert store.load() is None
        assert store.find().problems[0].reason == "KeyMismatch"

    @pytest.mark.parametrize("weak", [rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP224R1())])
    def test_weak_keys(self, store, weak):
        path = store.save(pairing.pair())
        certificate = pem.blocks(path.read_bytes())[0].der
        key = weak.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        path.write_bytes(pem.encode("CERTIFICATE", certificate) + key)
        assert store.load() is None
        assert store.find().problems[0].reason == "WeakKey"
        store.discard_pending()
        store._pending.write_bytes(key)
        store._pending.chmod(0o600)
        assert store.pending_key().public.kind == keys.Kind.P256
        with pytest.raises(errors.Refused, match="must"):
            keys.PrivateKey(weak)

    def test_out_of_reach_is_not_the_same_as_absent(self, store, monkeypatch):
        """A node whose files cannot be read must say so, and not ask for another identity."""
        path = store.save(pairing.pair())
        path.chmod(0o640)
        with pytest.raises(errors.Refused, match="can be opened by others") as caught:
            store.load()
        assert caught.value.reason == "FileNotPrivate"
        path.chmod(0o600)
        refusing(monkeypatch, "open", lambda where: where == str(path))
        with pytest.raises(errors.Refused, match=f"cannot read {path}: permission denied"):
            store.load()

    async def test_one_out_of_reach_is_told_and_another_used(self, store, clock):
        good = pairing.pair()
        store.save(good)
        await clock.advance(1)
        store.save(pairing.pair()).chmod(0o640)
        with capture_logs() as logs:
            assert store.load() == good
        assert "can be opened by others" in logs[0]["error"]

    def test_a_directory_that_cannot_be_listed_or_followed(self, store, monkeypatch):
        store.save(pairing.pair())
        with monkeypatch.context() as patched:
            refusing(patched, "listdir", lambda where: where == str(store.directory))
            with pytest.raises(errors.Refused, match="cannot list"):
                store.load()
        refusing(monkeypatch, "readlink", lambda where: where == str(store.current))
        with pytest.raises(errors.Refused, match="cannot read"):
            store.load()

    def test_a_link_that_cannot_be_mended_is_told(self, store, monkeypatch):
        made = pairing.pair()
        store.save(made)
        store.current.unlink()
        refusing(monkeypatch, "symlink", lambda _: True, errno.EROFS)
        with capture_logs() as logs:
            assert store.load() == made
        assert logs[0]["event"] == "the link to the current certificate cannot be mended"
        assert "read-only file system" in logs[0]["error"]


class TestPending:
    def test_kept_until_its_pair_is_there(self, store):
        key = store.pending_key()
        path = store.directory / f"{PREFIX}.key.tmp"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert store.pending_key().public == key.public
        store.save(pairing.pair())
        assert store.pending_key().public == key.public, "another pair's arrival is not this one's"
        store.save(pairing.pair(key=key))
        assert not store.has_pending_key()
        assert store.pending_key().public != key.public

    def test_after_a_discarded_key_there_is_another(self, store):
        key = store.pending_key()
        store.discard_pending()
        store.discard_pending()
        assert not store.has_pending_key()
        assert store.pending_key().public != key.public

    def test_one_whose_pair_is_there_already_is_not_used_again(self, store):
        """The crash between storing the pair and forgetting the key."""
        key = store.pending_key()
        text = store._pending.read_bytes()
        store.save(pairing.pair(key=key))
        store._pending.write_bytes(text)
        store._pending.chmod(0o600)
        assert store.pending_key().public != key.public
        store._pending.write_bytes(text)
        store.remove_leftovers()
        assert not store.has_pending_key()

    async def test_a_crash_before_the_link(self, store, clock):
        """The pair is used, and its key is not asked another certificate for."""
        store.save(pairing.pair(key=store.pending_key()))
        await clock.advance(1)
        key = store.pending_key()
        made = pairing.pair(key=key)
        path = store._store(made.pem)
        assert store.pending_key().public != key.public
        store._pending.write_bytes(key.to_pem())
        store.remove_leftovers()
        assert (store.load(), store.current.readlink(), store.has_pending_key()) == (made, path, False)

    def test_a_crash_before_the_first_link(self, store):
        key = store.pending_key()
        path = store._store(pairing.pair(key=key).pem)
        store.remove_leftovers()
        assert (store.current.readlink(), store.has_pending_key()) == (path, False)

    async def test_what_came_later_stays_current(self, store, clock):
        key = store.pending_key()
        store._store(pairing.pair(begins=START - 2 * pairing.HOUR, key=key).pem)
        await clock.advance(1)
        later = store.save(pairing.pair(begins=START))
        store.remove_leftovers()
        assert (store.current.readlink(), store.has_pending_key()) == (later, False)

    @pytest.mark.parametrize(
        "data", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
    )
    def test_one_that_cannot_be_used_is_replaced(self, store, data):
        store.directory.mkdir()
        store._pending.write_bytes(data)
        store._pending.chmod(0o600)
        with capture_logs() as logs:
            key = store.pending_key()
        assert logs[0]["event"] == "the key of the pending request cannot be used"
        assert store.pending_key().public == key.public

    def test_one_that_others_may_read_is_refused(self, store):
        store.pending_key()
        store._pending.chmod(0o644)
        with pytest.raises(errors.Refused, match="can be opened by others"):
            store.pending_key()

    def test_leftovers_of_a_crash_are_not_seen_and_go(self, store):
        store.save(pairing.pair())
        key = store.pending_key()
        half = store.directory / f".{PREFIX}-2026-01-01-00-00-00.pem.1.tmp"
        half.write_bytes(pairing.pair().pem[:100])
        foreign = store.directory / ".other.tmp"
        foreign.touch()
        assert store.find().problems == ()
        store.remove_leftovers()
        assert (half.exists(), foreign.exists()) == (False, True)
        assert store.pending_key().public == key.public

    def test_a_file_in_the_way_of_the_directory(self, tmp_path, clock):
        (tmp_path / "file").touch()
        store = certificate_store.CertificateStore(tmp_path / "file" / "pki", PREFIX, clock)
        with pytest.raises(errors.Refused, match="a part of this path is a file"):
            store.pending_key()
