# SPDX-License-Identifier: Apache-2.0
"""Files: whole or not at all, private from the start, one owner per directory."""

import errno
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading

import pytest

from handfast import errors
from handfast.runtime import files


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


class TestWriteAtomically:
    def test_writes_and_replaces(self, tmp_path):
        path = tmp_path / "a"
        files.write_atomically(path, b"one")
        files.write_atomically(path, b"two")
        assert path.read_bytes() == b"two"
        assert mode(path) == 0o600
        assert [entry.name for entry in tmp_path.iterdir()] == ["a"]

    def test_mode_is_the_callers_whatever_the_umask(self, tmp_path):
        before = os.umask(0o077)
        try:
            files.write_atomically(tmp_path / "a", b"", mode=0o644)
        finally:
            os.umask(before)
        assert mode(tmp_path / "a") == 0o644

    def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(self, tmp_path, monkeypatch):
        path = tmp_path / "a"
        files.write_atomically(path, b"old")

        def no_space(descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", no_space)
        with pytest.raises(errors.Unavailable) as caught:
            files.write_atomically(path, b"new")
        assert caught.value.reason == "NoSpace"
        assert str(path) in caught.value.message
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["a"]

    def test_the_file_is_synced_before_the_rename_and_the_directory_after(self, tmp_path, monkeypatch):
        steps = []
        sync, replace = os.fsync, pathlib.Path.replace

        def fsync(descriptor):
            steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
            sync(descriptor)

        def rename(self, target):
            steps.append("rename")
            return replace(self, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(pathlib.Path, "replace", rename)
        files.write_atomically(tmp_path / "a", b"x")
        assert steps == ["file", "rename", "directory"]

    def test_leftovers_of_a_crash_are_removed_and_nothing_else(self, tmp_path):
        (tmp_path / ".a.x1.tmp").write_bytes(b"half")
        (tmp_path / "a").write_bytes(b"whole")
        (tmp_path / ".lock").write_bytes(b"1")
        files.remove_leftovers(tmp_path)
        assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", "a"]


class TestReplaceContents:
    @pytest.mark.parametrize("before", [0o600, 0o640, 0o644, 0o4755])
    def test_the_mode_stays(self, tmp_path, before):
        path = tmp_path / "f"
        path.write_bytes(b"old")
        path.chmod(before)
        files.replace_contents(path, b"new")
        assert path.read_bytes() == b"new"
        assert mode(path) == before & 0o777

    def test_the_owner_stays(self, tmp_path, monkeypatch):
        """Whoever runs the tests may not be root: so what is asked of the system is looked at, not what it does."""
        path = tmp_path / "f"
        path.write_bytes(b"old")
        asked = []
        monkeypatch.setattr(os, "fchown", lambda _, *owner: asked.append(owner))
        files.replace_contents(path, b"own")
        assert asked == []
        real = pathlib.Path.lstat

        def anothers(self):
            fields = list(real(self))
            fields[4:6] = [1234, 5678]
            return os.stat_result(fields)

        monkeypatch.setattr(pathlib.Path, "lstat", anothers)
        files.replace_contents(path, b"new")
        assert asked == [(1234, 5678)]

        def not_allowed(descriptor, *owner):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "fchown", not_allowed)
        with pytest.raises(errors.Refused, match=r"cannot write .*: operation not permitted"):
            files.replace_contents(path, b"newer")
        assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"new"]

    @pytest.mark.parametrize("kind", ["missing", "link", "directory"])
    def test_only_a_file_that_is_there(self, tmp_path, kind):
        path = tmp_path / "f"
        if kind == "link":
            (tmp_path / "g").write_bytes(b"old")
            path.symlink_to(tmp_path / "g")
        elif kind == "directory":
            path.mkdir()
        with pytest.raises(errors.Refused) as caught:
            files.replace_contents(path, b"new")
        assert caught.value.reason == ("FileNotFound" if kind == "missing" else "NotAFile")
        assert kind != "link" or (tmp_path / "g").read_bytes() == b"old"


class TestCreateDirectory:
    def test_new_ones_are_private_and_known_as_new(self, tmp_path):
        path = tmp_path / "x" / "y"
        assert files.create_directory(path) is True
        assert files.create_directory(path) is False
        assert mode(path) == 0o700

    @pytest.mark.parametrize("below", ["", "further/down"])
    def test_a_file_in_the_way_is_named(self, tmp_path, below):
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(errors.Refused) as caught:
            files.create_directory(tmp_path / "file" / below)
        assert caught.value.reason == "NotADirectory"
        assert str(tmp_path / "file") in caught.value.message

    def test_one_that_may_not_be_written(self, tmp_path, monkeypatch):
        def denied(self, *arguments, **named):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(pathlib.Path, "mkdir", denied)
        with pytest.raises(errors.Refused) as caught:
            files.create_directory(tmp_path / "x")
        assert caught.value.reason == "PermissionDenied"
        assert caught.value.hint is not None

    def test_the_caller_knows_the_way_out(self, tmp_path):
        (tmp_path / files.LOCK_NAME).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(errors.Refused) as caught, files.otherwise("use --there"):
            files.lock_directory(tmp_path)
        assert caught.value.hint == "put the file itself there, or use --there"
        with pytest.raises(errors.Refused) as caught, files.otherwise("use --there"):
            files.read(tmp_path / "absent", limit=1)
        assert caught.value.hint == "use --there"

    def test_the_way_out_is_not_for_every_error(self, tmp_path):
        (tmp_path / "file").write_bytes(b"too long")
        with pytest.raises(errors.Refused) as caught, files.otherwise("use --there"):
            files.read(tmp_path / "file", limit=1)
        assert caught.value.hint is None

    def test_a_directory_is_no_file(self, tmp_path):
        error = files.explain(OSError(errno.EISDIR, "Is a directory"), "read", tmp_path)
        assert isinstance(error, errors.Refused)
        assert (error.reason, error.message) == ("NotAFile", f"cannot read {tmp_path}: is a directory")

    def test_what_is_not_foreseen_is_unavailable(self, tmp_path):
        error = files.explain(OSError(errno.EIO, "Input/output error"), "read", tmp_path)
        assert isinstance(error, errors.Unavailable)
        assert error.reason == "FileSystemError"


class TestRead:
    def test_up_to_the_limit(self, tmp_path):
        (tmp_path / "a").write_bytes(b"12345")
        assert files.read(tmp_path / "a", limit=5) == b"12345"
        with pytest.raises(errors.Refused) as caught:
            files.read(tmp_path / "a", limit=4)
        assert caught.value.reason == "FileTooLarge"

    def test_a_missing_file_is_refused_as_not_found(self, tmp_path):
        with pytest.raises(errors.Refused) as caught:
            files.read(tmp_path / "a", limit=5)
        assert caught.value.reason == "FileNotFound"

    @pytest.mark.parametrize("reader", [files.read, files.read_private, files.read_given])
    def test_a_pipe_is_refused_and_not_waited_for(self, tmp_path, reader):
        os.mkfifo(tmp_path / "p")
        with pytest.raises(errors.Refused, match=r"cannot read .*/p: not a regular file, but a named pipe") as caught:
            reader(tmp_path / "p", limit=5)
        assert caught.value.reason == "NotAFile"

    @pytest.mark.parametrize("reader", [files.read, files.read_given])
    def test_what_is_no_file_is_refused_by_what_it_is(self, tmp_path, reader):
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(tmp_path / "s"))
            (tmp_path / "circle").symlink_to("circle")
            found = {}
            for name in (tmp_path, "/dev/zero", tmp_path / "s", tmp_path / "circle", tmp_path / "s" / "below"):
                with pytest.raises(errors.Refused) as caught:
                    reader(pathlib.Path(name), limit=5)
                assert str(name) in caught.value.message
                found[caught.value.message.partition(": ")[2]] = caught.value.reason
        assert found == {
            "is a directory": "NotAFile",
            "not a regular file, but a device": "NotAFile",
            "no such device or address": "NotAFile",
            "it is a symbolic link, or its links lead in a circle": "SymbolicLink",
            "a part of this path is a file": "NotADirectory",
        }

    def test_a_descriptor_that_was_handed_over_may_be_a_stream(self, tmp_path):
        for place in ("/dev/fd", "/proc/self/fd"):
            reading, writing = os.pipe()
            os.write(writing, b"12345")
            os.close(writing)
            try:
                assert files.read_given(pathlib.Path(f"{place}/{reading}"), limit=5) == b"12345"
            finally:
                os.close(reading)
        (tmp_path / "long").write_bytes(b"123456")
        with (tmp_path / "long").open("rb") as file, pytest.raises(errors.Refused) as caught:
            files.read_given(pathlib.Path(f"/dev/fd/{file.fileno()}"), limit=5)
        assert caught.value.reason == "FileTooLarge"
        with pytest.raises(errors.Refused) as caught:
            files.read_given(pathlib.Path("/dev/fd/999999"), limit=5)
        assert caught.value.reason == "FileNotFound"

    def test_what_another_library_opens(self, tmp_path):
        os.mkfifo(tmp_path / "p")
        (tmp_path / "f").touch()
        files.require_regular(tmp_path / "f")
        files.require_regular(tmp_path / "absent")
        with pytest.raises(errors.Refused, match="named pipe"):
            files.require_regular(tmp_path / "p")

    @pytest.mark.parametrize("open_mode", [0o644, 0o640, 0o604, 0o620])
    def test_a_private_file_that_others_may_open_is_refused(self, tmp_path, open_mode):
        path = tmp_path / "key"
        path.write_bytes(b"secret")
        path.chmod(open_mode)
        with pytest.raises(errors.Refused) as caught:
            files.read_private(path, limit=100)
        assert caught.value.reason == "FileNotPrivate"
        assert "holds secrets" in caught.value.message
        assert f"chmod 600 {path}" in (caught.value.hint or "")
        path.chmod(0o600)
        assert files.read_private(path, limit=100) == b"secret"

    def test_a_private_file_is_not_reached_by_a_link(self, tmp_path):
        (tmp_path / "elsewhere").write_bytes(b"secret")
        (tmp_path / "elsewhere").chmod(0o600)
        (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(errors.Refused, match="it is a symbolic link") as caught:
            files.read_private(tmp_path / "key", limit=100)
        assert caught.value.reason == "SymbolicLink"
        assert files.read(tmp_path / "key", limit=100) == b"secret"

    def test_a_private_file_of_another_user_is_refused(self, tmp_path, monkeypatch):
        path = tmp_path / "key"
        path.write_bytes(b"content")
        path.chmod(0o600)
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
        with pytest.raises(errors.Refused, match="belongs to user") as caught:
            files.read_private(path, limit=100)
        assert caught.value.reason == "FileNotOwned"
        assert "content" not in caught.value.message

    def test_what_was_opened_is_judged_not_what_was_there_before(self, tmp_path, monkeypatch):
        path = tmp_path / "key"
        path.write_bytes(b"secret")
        path.chmod(0o600)
        really = os.open

        def swapped(name, *rest):
            # As late as can be: whatever looked at the path before has seen a private file.
            path.chmod(0o644)
            return really(name, *rest)

        monkeypatch.setattr(os, "open", swapped)
        with pytest.raises(errors.Refused) as caught:
            files.read_private(path, limit=100)
        assert caught.value.reason == "FileNotPrivate"


class TestOwnDirectory:
    @pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
    def test_reading_by_others_is_not_the_question(self, tmp_path, mode):
        tmp_path.chmod(mode)
        files.require_own_directory(tmp_path)

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777, 0o2775])
    def test_one_that_others_may_write_to_is_refused(self, tmp_path, mode):
        data = tmp_path / "data"
        data.mkdir()
        data.chmod(mode)
        for what in (files.require_own_directory, files.lock_directory):
            with pytest.raises(errors.Refused, match="can be written by others") as caught:
                what(data)
            assert caught.value.reason == "DirectoryNotPrivate"
            assert f"chmod go-w {data}" in (caught.value.hint or "")
        assert list(data.iterdir()) == []

    def test_a_sticky_parent_that_all_may_write_to_is_fine(self, tmp_path):
        tmp_path.chmod(0o1777)
        files.create_directory(tmp_path / "data")
        files.require_own_directory(tmp_path / "data")

    def test_one_of_another_user_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
        with pytest.raises(errors.Refused, match="could replace the keys") as caught:
            files.lock_directory(tmp_path)
        assert caught.value.reason == "DirectoryNotOwned"
        assert "chown" in (caught.value.hint or "")
        assert list(tmp_path.iterdir()) == []


class TestLock:
    def test_the_second_is_refused_and_told_who(self, tmp_path):
        lock = files.lock_directory(tmp_path)
        with pytest.raises(errors.Refused) as caught:
            files.lock_directory(tmp_path)
        assert caught.value.reason == "DirectoryInUse"
        assert str(os.getpid()) in caught.value.message
        assert str(tmp_path) in caught.value.message
        lock.release()
        files.lock_directory(tmp_path).release()

    def test_what_children_of_a_dead_owner_still_hold_is_waited_for(self, tmp_path):
        lock = files.lock_directory(tmp_path)
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        (tmp_path / files.LOCK_NAME).write_text(f"{dead.pid}\n")
        with pytest.raises(errors.Refused) as caught:
            files.lock_directory(tmp_path, patience=0.1)
        assert str(dead.pid) in caught.value.message
        timer = threading.Timer(0.1, lock.release)
        timer.start()
        files.lock_directory(tmp_path, patience=10).release()
        timer.join()
        files.lock_directory(tmp_path, patience=0).release()

    def test_an_owner_that_has_not_written_its_id_yet(self, tmp_path):
        lock = files.lock_directory(tmp_path)
        (tmp_path / files.LOCK_NAME).write_text("")
        with pytest.raises(errors.Refused, match="process unknown"):
            files.lock_directory(tmp_path)
        lock.release()

    def test_an_owner_of_another_user_is_alive(self, tmp_path, monkeypatch):
        def not_ours(pid, number):
            raise PermissionError

        monkeypatch.setattr(os, "kill", not_ours)
        lock = files.lock_directory(tmp_path)
        with pytest.raises(errors.Refused) as caught:
            files.lock_directory(tmp_path)
        assert caught.value.reason == "DirectoryInUse"
        lock.release()

    def test_a_directory_that_is_not_there(self, tmp_path):
        with pytest.raises(errors.Refused) as caught:
            files.lock_directory(tmp_path / "absent")
        assert caught.value.reason == "FileNotFound"

    def test_a_link_is_not_followed_and_its_target_keeps_its_content(self, tmp_path):
        (tmp_path / "precious").write_text("content")
        (tmp_path / files.LOCK_NAME).symlink_to(tmp_path / "precious")
        with pytest.raises(errors.Refused) as caught:
            files.lock_directory(tmp_path)
        assert caught.value.reason == "SymbolicLink"
        assert (tmp_path / "precious").read_text() == "content"

    def test_a_pipe_is_no_lock(self, tmp_path):
        os.mkfifo(tmp_path / files.LOCK_NAME)
        with pytest.raises(errors.Refused, match=r"cannot lock .*: not a regular file"):
            files.lock_directory(tmp_path)

    def test_the_owners_id_stays_while_it_holds_the_lock(self, tmp_path):
        lock = files.lock_directory(tmp_path)
        with pytest.raises(errors.Refused) as caught:
            files.lock_directory(tmp_path)
        assert caught.value.reason == "DirectoryInUse"
        assert (tmp_path / files.LOCK_NAME).read_text() == f"{os.getpid()}\n"
        lock.release()

    def test_an_owner_that_is_alive_is_waited_for_in_a_queue(self, tmp_path):
        lock = files.lock_directory(tmp_path)
        with pytest.raises(errors.Refused) as caught:
            files.lock_directory(tmp_path, patience=0.06, queue=True)
        assert caught.value.reason == "DirectoryInUse"
        timer = threading.Timer(0.1, lock.release)
        timer.start()
        files.lock_directory(tmp_path, patience=10, queue=True).release()
        timer.join()
