# SPDX-License-Identifier: Apache-2.0
"""Files below a root: whole or not at all, private from the start, and never outside."""

import os
import pathlib
import socket
import stat

import pytest

from handfast import errors
from handfast.node import root_files
from handfast.rules.machine_config import drift

ME = (os.geteuid(), os.getegid())


@pytest.fixture
def place(tmp_path):
    """A root, and something beside it that nobody may touch."""
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "motd").write_text("theirs")
    return tmp_path


@pytest.fixture
def root(place):
    opened = root_files.Root(place / "root")
    yield opened
    opened.close()


def put(root, path, content=b"ours", mode=0o644):
    root.put_file(path, content, mode=mode, owner=ME)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def untouched(place):
    return [path.name for path in (place / "outside").iterdir()] == ["motd"] and (
        place / "outside" / "motd"
    ).read_text() == "theirs"


class TestWriting:
    def test_a_file_is_written_with_its_directories_mode_and_nothing_beside_it(self, root, place):
        before = os.umask(0o077)
        try:
            put(root, "/etc/deep/er/motd", b"hello", 0o640)
        finally:
            os.umask(before)
        path = place / "root/etc/deep/er/motd"
        assert path.read_bytes() == b"hello"
        assert mode(path) == 0o640
        assert mode(path.parent) == 0o755
        assert [entry.name for entry in path.parent.iterdir()] == ["motd"]

    def test_a_large_file_is_written_whole(self, root, place):
        content = os.urandom(3 << 20)
        put(root, "/big", content)
        assert (place / "root/big").read_bytes() == content

    def test_special_bits_of_a_mode_are_kept(self, root, place):
        put(root, "/usr/bin/tool", b"#!", 0o4755)
        assert mode(place / "root/usr/bin/tool") == 0o4755

    def test_what_lies_there_is_told_by_kind_digest_mode_owner_and_target(self, root, place):
        put(root, "/a", b"", 0o600)
        root.put_link("/b", "/a", owner=ME)
        (place / "root/c").mkdir()
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        assert root.entry("/a") == drift.Entry(drift.FILE, empty, 0o600, *ME)
        assert root.entry("/b") == drift.Entry(drift.LINK, "", 0, *ME, "/a")
        assert root.entry("/c") == drift.Entry(drift.OTHER)
        assert root.entry("/d") == root.entry("/d/e") == drift.NOTHING

    def test_a_trace_changes_with_the_file(self, root):
        assert root.trace("/a") == root.trace("/no/such") == ()
        put(root, "/a", b"1")
        first = root.trace("/a")
        assert first == root.trace("/a")
        put(root, "/a", b"2")
        assert root.trace("/a") != first

    def test_removing_twice_is_removing_once(self, root, place):
        put(root, "/etc/a")
        root.remove("/etc/a")
        root.remove("/etc/a")
        root.remove("/no/such/directory")
        assert list((place / "root/etc").iterdir()) == []

    def test_what_a_crash_left_is_swept_away_and_does_not_hinder_the_next_write(self, root, place, monkeypatch):
        def die(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", die)
            patched.setattr(root_files, "_discard", lambda *_: None)
            with pytest.raises(KeyboardInterrupt):
                put(root, "/etc/a")
        assert len(list((place / "root/etc").iterdir())) == 1
        put(root, "/etc/a", b"again")
        assert [path.name for path in (place / "root/etc").iterdir()] == ["a"]
        (place / "root/etc" / root_files._temporary("a")).write_text("left")
        root.sweep("/etc/a")
        root.sweep("/no/such")
        assert root.names("/etc") == ("a",)
        assert root.names("/none") == ()

    def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(self, root, place, monkeypatch):
        put(root, "/etc/a", b"old")

        def full(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(errors.Unavailable, match="cannot write /etc/a: no space left on device"):
                put(root, "/etc/a", b"new")
        assert root.names("/etc") == ("a",)
        assert root.read("/etc/a") == b"old"

    def test_nobody_else_can_read_a_file_before_it_has_its_mode(self, root, place, monkeypatch):
        seen = []
        plain_chmod = os.fchmod

        def chmod(descriptor, wanted):
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
            plain_chmod(descriptor, wanted)

        monkeypatch.setattr(os, "fchmod", chmod)
        (place / "root/etc").mkdir()
        before = os.umask(0)
        try:
            put(root, "/etc/secret", b"token", 0o644)
        finally:
            os.umask(before)
        assert seen == [0o600]

    def test_a_link_of_another_user_is_put_back_as_theirs(self, root, place):
        """Else it would be followed from then on."""
        if os.geteuid() != 0:
            pytest.skip("only root gives links away")
        root.put_link("/l", "/etc", owner=(1234, 4321))
        assert root.entry("/l") == drift.Entry(drift.LINK, "", 0, 1234, 4321, "/etc")
        with pytest.raises(errors.Refused, match="symbolic link of user 1234"):
            put(root, "/l/x")

    @pytest.mark.parametrize("swapped", ["file", "link", "link of theirs"])
    def test_a_file_that_is_swapped_for_a_new_link_keeps_its_owner(self, root, place, monkeypatch, swapped):
        if os.geteuid() != 0:
            pytest.skip("only root gives links away")
        other = place / "root/other"
        if swapped == "file":
            other.write_text("root's")
        else:
            other.symlink_to("/etc" if swapped == "link of theirs" else "/elsewhere")
        if swapped == "link of theirs":
            os.lchown(other, 99, 99)
        before = other.lstat()
        plain = os.symlink

        def swap(target, name, *, dir_fd):
            plain(target, name, dir_fd=dir_fd)
            os.rename(other, name, dst_dir_fd=dir_fd)
            os.link(name, "kept", src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

        monkeypatch.setattr(os, "symlink", swap)
        with pytest.raises(errors.Unavailable, match="/l changes while it is written"):
            root.put_link("/l", "/etc", owner=(1234, 4321))
        after = (place / "root/kept").lstat()
        assert (after.st_ino, after.st_uid, after.st_gid) == (before.st_ino, before.st_uid, before.st_gid)
        assert root.entry("/l") == drift.NOTHING

    def test_the_owner_is_set_before_the_name(self, root, place):
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        root.put_file("/etc/a", b"", mode=0o644, owner=(1234, 4321))
        status = (place / "root/etc/a").stat()
        assert (status.st_uid, status.st_gid) == (1234, 4321)


class TestEscapes:
    @pytest.mark.parametrize(
        "path", ["/etc/../../x", "etc/motd", "/etc//motd", "/etc/./motd", "/etc/", "/", "", "/a\0b", "/.."]
    )
    def test_a_path_with_dots_is_refused_by_name(self, root, place, path):
        for act in (lambda: put(root, path), lambda: root.entry(path), lambda: root.remove(path)):
            with pytest.raises(errors.Refused) as caught:
                act()
            assert caught.value.reason == "PathEscapes"
            assert repr(path) in caught.value.message
        assert untouched(place)

    @pytest.mark.parametrize("target", ["../../outside", "../outside", "..", "a/../../../outside"])
    def test_a_link_never_leads_out_of_the_root(self, root, place, target):
        (place / "root/etc/a").mkdir(parents=True)
        (place / "root/etc/link").symlink_to(f"../{target}")
        for act in (lambda: put(root, "/etc/link/motd"), lambda: root.read("/etc/link/motd")):
            with pytest.raises(errors.Refused, match="/etc/link/motd: a symbolic link in it leads out of the root"):
                act()
        assert untouched(place)

    def test_an_absolute_link_begins_at_the_root(self, root, place):
        (place / "root/etc").mkdir()
        (place / "root/etc/link").symlink_to(place / "outside")
        put(root, "/etc/link/motd")
        assert untouched(place)
        assert (place / "root" / str(place / "outside")[1:] / "motd").read_text() == "ours"

    def test_links_that_stay_inside_are_followed(self, root, place):
        (place / "root/usr/lib/systemd").mkdir(parents=True)
        (place / "root/lib").symlink_to("usr/lib")
        (place / "root/usr/lib/units").symlink_to("../lib/./systemd/")
        put(root, "/lib/units/a.service")
        assert (place / "root/usr/lib/systemd/a.service").read_text() == "ours"
        assert root.read("/lib/systemd/a.service") == b"ours"

    def test_links_in_a_circle_end(self, root, place):
        (place / "root/a").symlink_to("b")
        (place / "root/b").symlink_to("a")
        with pytest.raises(errors.Refused, match="over more than 16 symbolic links"):
            put(root, "/a/x")

    def test_a_link_of_another_user_is_not_followed(self, root, place):
        if os.geteuid() != 0:
            pytest.skip("only root gives links away")
        (place / "root/tmp").mkdir()
        (place / "root/etc").mkdir()
        (place / "root/tmp/x").symlink_to("/etc")
        os.lchown(place / "root/tmp/x", 1234, 1234)
        with pytest.raises(errors.Refused, match="'x' in it is a symbolic link of user 1234") as caught:
            put(root, "/tmp/x/motd")
        assert caught.value.reason == "LinkNotTrusted"
        assert root.names("/etc") == ()

    def test_a_directory_that_is_swapped_for_a_link_during_the_write_changes_nothing(self, root, place, monkeypatch):
        """At each call that the write makes, the directory is moved away and a link to the outside put in its place."""
        plain = {name: getattr(os, name) for name in ("open", "fsync", "fchmod", "rename", "stat")}
        for number in range(1, 40):
            target = place / "root" / f"d{number}"
            target.mkdir()
            calls = 0

            def hook(name, number=number, target=target):
                def call(*words, **named):
                    nonlocal calls
                    calls += 1
                    if calls == number:
                        plain["rename"](target, f"{target}-moved")
                        target.symlink_to(place / "outside")
                    return plain[name](*words, **named)

                return call

            with monkeypatch.context() as patched:
                for name in plain:
                    patched.setattr(os, name, hook(name))
                # Before the directory is open, the link is seen as one, and begins at the root.
                put(root, f"/{target.name}/motd")
            assert untouched(place)
            if calls < number:
                return
        pytest.fail("the write never ended")

    def test_a_link_at_the_end_is_replaced_and_not_followed(self, root, place):
        (place / "root/etc").mkdir()
        (place / "root/etc/motd").symlink_to(place / "outside" / "motd")
        assert root.read("/etc/motd") is None
        put(root, "/etc/motd")
        assert not (place / "root/etc/motd").is_symlink()
        (place / "root/etc/motd").unlink()
        (place / "root/etc/motd").symlink_to(place / "outside" / "motd")
        root.remove("/etc/motd")
        assert untouched(place)
        assert root.names("/etc") == ()

    def test_a_link_whose_target_is_no_text_is_nothing_that_is_replaced(self, root, place):
        (root.path / "odd").symlink_to(os.fsdecode(b"\xff"))
        assert root.entry("/odd").kind == drift.OTHER

    def test_what_is_no_file_is_refused_and_not_opened(self, root, place):
        os.mkfifo(place / "root/pipe")
        (place / "root/directory").mkdir()
        with socket.socket(socket.AF_UNIX) as bound:
            here = pathlib.Path.cwd()
            os.chdir(place / "root")
            bound.bind("socket")
            os.chdir(here)
        for path, words in (("/pipe", "a named pipe"), ("/directory", "a directory"), ("/socket", "a socket")):
            for act in (lambda p: put(root, p), root.read, root.remove, lambda p: root.put_link(p, "x", owner=ME)):
                with pytest.raises(errors.Refused, match=f"what lies there is no file, but {words}"):
                    act(path)

    def test_a_file_in_the_place_of_a_directory_is_refused_by_name(self, root):
        put(root, "/etc")
        with pytest.raises(errors.Refused, match="/etc/motd: 'etc' in it is a file") as caught:
            put(root, "/etc/motd")
        assert caught.value.reason == "NotADirectory"

    def test_what_is_read_has_a_limit(self, root):
        put(root, "/a", b"12345")
        assert root.read("/a", limit=5) == b"12345"
        for act in (root.read, root.entry):
            with pytest.raises(errors.Refused, match="cannot read /a: larger than 4 bytes"):
                act("/a", limit=4)
        assert root.read("/none") is None


class TestTheRootItself:
    def test_a_root_that_is_no_directory_is_refused(self, place):
        for path, reason in ((place / "outside/motd", "NotADirectory"), (place / "none", "FileNotFound")):
            with pytest.raises(errors.Refused) as caught:
                root_files.Root(path)
            assert caught.value.reason == reason

    def test_a_path_of_this_machine_has_a_name_below_the_root_or_none(self, root, place):
        assert root.inside(place / "root/etc/kubelet.conf") == ("/etc/kubelet.conf",)
        assert root.inside(place / "outside/motd") == root.inside(place / "root") == ()
        (place / "root/real").mkdir()
        (place / "root/link").symlink_to("real")
        assert root.inside(place / "root/link/pki") == ("/link/pki", "/real/pki")

    def test_a_root_that_cannot_be_written_is_named(self, root, monkeypatch):
        def read_only(*_, **__):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(os, "mkdir", read_only)
        with pytest.raises(errors.Refused, match="cannot write /etc/motd: read-only file system"):
            put(root, "/etc/motd")

    def test_a_private_directory_is_refused_where_others_may_look(self, root, place):
        root.private_directory("/var/lib/x")
        root.private_directory("/var/lib/x")
        assert mode(place / "root/var/lib/x") == 0o700
        assert mode(place / "root/var/lib") == 0o755
        (place / "root/var/lib/x").chmod(0o750)
        with pytest.raises(errors.Refused, match="has the mode 0750: it holds credentials"):
            root.private_directory("/var/lib/x")

    def test_a_directory_is_changed_by_one_process_at_a_time(self, root, place):
        root.private_directory("/x")
        other = root_files.Root(place / "root")
        with (
            root.locked("/x"),
            pytest.raises(errors.Unavailable, match="another process is changing"),
            other.locked("/x"),
        ):
            pass
        with other.locked("/x"):
            pass
        other.close()
        with pytest.raises(errors.Refused, match="its directory is not there"), root.locked("/none"):
            pass
