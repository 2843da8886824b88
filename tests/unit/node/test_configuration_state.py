# SPDX-License-Identifier: Apache-2.0
"""What a configuration changes can be taken back, whole, after any failure. Deaths by SIGKILL are in
tests/scenarios/test_configuration_crash.py."""

import dataclasses
import errno
import functools
import hashlib
import os
import pathlib
import stat
from typing import Any

import pytest

from handfast import errors
from handfast.node import configuration_state, root_files, root_owners
from handfast.rules.machine_config import applying, drift, host_paths

MINE = configuration_state.DIRECTORY


@pytest.fixture
def machine(tmp_path):
    root = root_files.Root(tmp_path)
    yield configuration_state.Machine(root)
    root.close()


def plan(name, links=None, absent=(), sections=None, **files):
    """A file for each name, with `__` for a slash."""
    rows = [applying.PlannedFile("/" + path.replace("__", "/"), text.encode(), 0o644) for path, text in files.items()]
    return applying.Plan(
        rendering=name, files=tuple(rows), links=links or {}, absent=tuple(absent), sections=sections or {}
    )


def tree(root, without=MINE):
    """Everything that lies below the root: contents and modes of files, targets of links."""
    rows = {}
    for path in sorted(pathlib.Path(root).rglob("*")):
        name = f"/{path.relative_to(root)}"
        if name.startswith(without) or (path.is_dir() and not path.is_symlink()):
            continue
        rows[name] = (
            str(path.readlink()) if path.is_symlink() else (path.read_text(), stat.S_IMODE(path.stat().st_mode))
        )
    return rows


class TestApplying:
    def test_everything_lies_as_planned_and_is_recorded(self, machine, tmp_path):
        changed = machine.apply(plan("r1", links={"/etc/l": "/etc/a"}, etc__a="one", etc__b="two"))
        assert changed == ("/etc/a", "/etc/b", "/etc/l")
        assert tree(tmp_path) == {"/etc/a": ("one", 0o644), "/etc/b": ("two", 0o644), "/etc/l": "/etc/a"}
        record = machine.record()
        assert record.applied.rendering == "r1"
        assert machine.drifts(record) == ()
        assert machine.apply(plan("r1", links={"/etc/l": "/etc/a"}, etc__a="one", etc__b="two")) == ()

    def test_the_records_are_this_users_alone(self, machine, tmp_path):
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/a").write_text("secret")
        machine.apply(plan("r1", etc__a="one"))
        records = tmp_path / MINE[1:]
        assert stat.S_IMODE(records.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in records.rglob("*") if path.is_file()} == {0o600}

    def test_what_leaves_a_configuration_gets_back_what_lay_there(self, machine, tmp_path):
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/was").write_text("theirs")
        (tmp_path / "etc/was").chmod(0o600)
        (tmp_path / "etc/off").symlink_to("x")
        machine.apply(plan("r1", absent=["/etc/off"], etc__was="ours", etc__new="new"))
        assert tree(tmp_path) == {"/etc/was": ("ours", 0o644), "/etc/new": ("new", 0o644)}
        machine.apply(plan("r2", etc__was="ours again"))
        assert tree(tmp_path) == {"/etc/was": ("ours again", 0o644), "/etc/off": "x"}
        machine.apply(plan("r3"))
        assert tree(tmp_path) == {"/etc/was": ("theirs", 0o600), "/etc/off": "x"}

    def test_a_file_of_the_name_of_a_link_that_is_not_to_be_stays(self, machine, tmp_path):
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/off").write_text("somebody's own")
        machine.apply(plan("r1", absent=["/etc/off"], etc__new="new"))
        assert tree(tmp_path) == {"/etc/off": ("somebody's own", 0o644), "/etc/new": ("new", 0o644)}
        assert machine.drifts(machine.record()) == ()

    def test_what_only_the_first_boot_knew_stays(self, machine, tmp_path):
        machine.apply(plan("r1", etc__hostname="worker-1"))
        machine.apply(plan("r2", etc__a="a"))
        assert (tmp_path / "etc/hostname").read_text() == "worker-1"

    def test_a_failure_on_the_way_is_rolled_back_at_once(self, machine, tmp_path, monkeypatch):
        machine.apply(plan("r1", etc__a="one"))
        before, record = tree(tmp_path), machine.record()
        (tmp_path / "blocked").write_text("a file, and no directory")
        with pytest.raises(errors.Refused, match="'blocked' in it is a file"):
            machine.apply(plan("r2", etc__a="two", etc__b="b", blocked__c="c"))
        assert tree(tmp_path) == {**before, "/blocked": ("a file, and no directory", 0o644)}

        plain = root_files.Root.put_file

        def full(this, path, *words, **more):
            if path == "/etc/c":
                raise errors.Unavailable("no space", reason="NoSpace")
            plain(this, path, *words, **more)

        monkeypatch.setattr(root_files.Root, "put_file", full)
        with pytest.raises(errors.Unavailable, match="no space"):
            machine.apply(plan("r2", etc__a="two", etc__b="b", etc__c="c"))
        assert tree(tmp_path) == {**before, "/blocked": ("a file, and no directory", 0o644)}
        assert machine.record() == record
        assert not machine.unfinished()

    def test_a_name_that_is_too_long_to_be_one_is_taken_back(self, machine):
        machine.apply(plan("good", etc__motd="hello"))
        for path in (f"etc/new/{'é' * 200}", f"etc/other/{'é' * 200}/x"):
            with pytest.raises(errors.HandfastError, match="file name too long"):
                machine.apply(plan("bad", **{path: "x"}))
            assert not machine.unfinished()
        machine.apply(plan("next", etc__motd="hello"))
        assert machine.record().applied.rendering == "next"

    def test_what_cannot_be_written_on_a_read_only_file_system_is_taken_back(self, machine, tmp_path, monkeypatch):
        (tmp_path / "usr").mkdir()
        machine.apply(plan("good", etc__motd="hello"))
        place = (tmp_path / "usr").stat().st_ino
        really: dict[str, Any] = {"open": os.open, "unlink": os.unlink}

        def read_only(called, name, *more, dir_fd=None, **others):
            # Linux says so also of a file that is not there.
            writes = called == "unlink" or (more and more[0] & os.O_CREAT)
            if writes and dir_fd is not None and os.fstat(dir_fd).st_ino == place:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
            return really[called](name, *more, dir_fd=dir_fd, **others)

        for called in really:
            monkeypatch.setattr(os, called, functools.partial(read_only, called))
        with pytest.raises(errors.HandfastError, match="read-only file system"):
            machine.apply(plan("bad", usr__x="x"))
        assert not machine.unfinished()
        machine.apply(plan("next", etc__motd="hello"))
        assert machine.record().applied.rendering == "next"

    def test_a_record_that_could_not_be_read_again_is_not_written(self, machine, tmp_path, monkeypatch):
        machine.apply(plan("good", etc__motd="hello"))
        before = tree(tmp_path)
        monkeypatch.setattr(configuration_state, "_MAX_RECORD", 4096)
        for count in (20, 100):
            with pytest.raises(errors.Refused, match="may have 4,096: nothing was changed"):
                machine.apply(plan("bad", **{f"etc__{number}": "x" for number in range(count)}))
            assert tree(tmp_path) == before
            assert not machine.unfinished()
        machine.apply(plan("next", etc__motd="hello"))

    def test_a_link_that_no_record_could_hold_is_refused_by_name(self, machine, tmp_path):
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "keys").symlink_to(os.fsdecode(b"\xff"))
        with pytest.raises(errors.Refused, match="/home/keys"):
            machine.apply(plan("bad", home__keys="x"))
        assert not machine.unfinished()

    def test_what_is_no_file_is_refused_before_anything_is_changed(self, machine, tmp_path):
        (tmp_path / "etc/b").mkdir(parents=True)
        with pytest.raises(errors.Refused, match="cannot write /etc/b: what lies there is neither a file nor a link"):
            machine.apply(plan("r1", etc__a="a", etc__b="b"))
        assert tree(tmp_path) == {}

    def test_contents_that_nobody_needs_are_forgotten(self, machine, tmp_path):
        for number in range(6):
            machine.apply(plan(f"r{number}", etc__a=str(number)))
        kept = [path.name for path in (tmp_path / MINE[1:] / "kept").iterdir()]
        assert kept == [hashlib.sha256(b"4").hexdigest()]

    def test_a_file_that_changes_while_it_is_looked_at_is_not_replaced(self, machine, tmp_path, monkeypatch):
        (tmp_path / "a").write_text("one")
        plain = root_files.Root.read

        def changing(this, path, **more):
            return b"two" if path == "/a" else plain(this, path, **more)

        monkeypatch.setattr(root_files.Root, "read", changing)
        with pytest.raises(errors.Unavailable, match="/a changes while it is looked at"):
            machine.apply(plan("r1", a="ours"))
        assert (tmp_path / "a").read_text() == "one"

    def test_owners_are_those_of_the_root(self, machine, tmp_path):
        if os.geteuid() != 0:
            pytest.skip("only root gives files away")
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/passwd").write_text("core:x:1000:1000::/:\nodd\nbad:x:x:\n")
        (tmp_path / "etc/group").write_text("wheel:x:10:\n")
        rows = (
            applying.PlannedFile("/a", b"", 0o644, "core", "wheel"),
            applying.PlannedFile("/b", b"", 0o644, 7, None),
        )
        machine.apply(applying.Plan(rendering="r1", files=rows, links={}))
        owners = [(path.stat().st_uid, path.stat().st_gid) for path in (tmp_path / "a", tmp_path / "b")]
        assert owners == [(1000, 10), (7, root_owners.own()[1])]
        unknown = (applying.PlannedFile("/c", b"", 0o644, "nobody-here", None),)
        with pytest.raises(errors.Refused, match="/c is to belong to 'nobody-here', and /etc/passwd of this machine"):
            machine.apply(applying.Plan(rendering="r2", files=unknown, links={}))


def with_credential(name, text, **files):
    """A plan with a kubeconfig of its own, of mode 0600."""
    rest = plan(name, **files)
    kubeconfig = applying.PlannedFile(host_paths.KUBECONFIG, text.encode(), 0o600)
    return dataclasses.replace(rest, files=(*rest.files, kubeconfig))


class TestWhatIsInTheWay:
    def test_what_is_in_the_way_of_a_file_does_not_keep_the_credential_away(self, machine, tmp_path):
        machine.apply(with_credential("r1", "old", home__u__a="one"))
        (tmp_path / "home/u/a").unlink()
        (tmp_path / "home/u/a").mkdir()
        new = with_credential("r2", "new", home__u__a="two", etc__b="b")
        with pytest.raises(errors.Refused, match="/home/u/a: what lies there is neither a file nor a link"):
            machine.apply(new)
        assert machine.apply_credential(new) == (host_paths.KUBECONFIG,)
        assert machine.apply_credential(new) == ()
        assert tree(tmp_path) == {host_paths.KUBECONFIG: ("new", 0o600)}
        record = machine.record()
        # It is not said to be the new rendering, and the credential is no drift.
        assert record.applied.rendering == "r1"
        assert [row.path for row in machine.drifts(record)] == ["/home/u/a"]

    def test_a_credential_that_came_first_is_taken_back_with_what_was_before_it(self, machine, tmp_path):
        machine.apply(with_credential("r1", "first", etc__a="one"))
        machine.apply(with_credential("r2", "second", etc__a="two"))
        machine.apply_credential(with_credential("r3", "third", etc__a="three"))
        machine.restore()
        assert tree(tmp_path) == {"/etc/a": ("one", 0o644), host_paths.KUBECONFIG: ("first", 0o600)}
        assert machine.drifts(machine.record()) == ()

    def test_a_credential_is_applied_where_nothing_was_before(self, machine, tmp_path):
        machine.apply_credential(with_credential("r1", "first", etc__a="one"))
        assert tree(tmp_path) == {host_paths.KUBECONFIG: ("first", 0o600)}
        machine.apply(with_credential("r1", "first", etc__a="one"))
        machine.apply(plan("r2"))
        assert tree(tmp_path) == {}

    def test_a_credential_that_cannot_be_written_is_rolled_back(self, machine, tmp_path):
        machine.apply(with_credential("r1", "old"))
        (tmp_path / "etc/kubernetes/kubeconfig").unlink()
        (tmp_path / "etc/kubernetes/kubeconfig").mkdir()
        with pytest.raises(errors.Refused, match="kubeconfig: what lies there is neither"):
            machine.apply_credential(with_credential("r2", "new"))
        assert not machine.unfinished()

    @pytest.mark.parametrize("where", ["in its place", "above it"])
    def test_what_is_in_the_way_of_putting_back_stays_and_is_drift(self, machine, tmp_path, monkeypatch, where):
        """A user of the machine puts it there between the look and the write."""
        machine.apply(with_credential("r1", "old", etc__a="one", home__u__b="b", home__u__c="c"))
        plain = root_files.Root.put_file

        def swapped(this, path, *words, **more):
            if path == "/home/u/b" and where == "in its place":
                (tmp_path / "home/u/b").unlink()
                (tmp_path / "home/u/b").mkdir()
            elif path == "/home/u/b":
                (tmp_path / "home/u").rename(tmp_path / "home/v")
                (tmp_path / "home/u").write_text("a file now")
            plain(this, path, *words, **more)

        monkeypatch.setattr(root_files.Root, "put_file", swapped)
        new = with_credential("r2", "new", etc__a="two", home__u__b="new b", home__u__c="new c")
        with pytest.raises(errors.Refused):
            machine.apply(new)
        monkeypatch.undo()
        assert not machine.unfinished()
        assert (tmp_path / "etc/a").read_text() == "one"
        assert "/home/u/b" in [row.path for row in machine.drifts(machine.record())]
        assert machine.apply_credential(new) == (host_paths.KUBECONFIG,)

    def test_nothing_is_restored_where_something_is_in_the_way(self, machine, tmp_path):
        machine.apply(plan("r1", etc__a="one", etc__b="b"))
        machine.apply(plan("r2", etc__a="two", etc__b="c"))
        (tmp_path / "etc/b").unlink()
        (tmp_path / "etc/b").mkdir()
        with pytest.raises(errors.Refused, match="/etc/b: what lies there is neither a file nor a link"):
            machine.restore()
        assert (tmp_path / "etc/a").read_text() == "two"
        assert not machine.unfinished()
        (tmp_path / "etc/b").rmdir()
        machine.restore()
        assert tree(tmp_path) == {"/etc/a": ("one", 0o644), "/etc/b": ("b", 0o644)}


class TestRestoring:
    def test_the_last_change_is_taken_back_and_held_off(self, machine, tmp_path):
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/a").write_text("theirs")
        machine.apply(plan("r1", etc__a="one", etc__b="b"))
        before = tree(tmp_path)
        machine.apply(plan("r2", etc__a="two", etc__c="c"))
        assert machine.restore() == ("/etc/a", "/etc/b", "/etc/c")
        assert tree(tmp_path) == before
        record = machine.record()
        assert (record.applied.rendering, record.held, record.before) == ("r1", "r2", None)
        assert machine.release() == "r2"
        assert machine.release() == ""
        machine.apply(plan("r2", etc__a="two", etc__c="c"))
        # What lay there before any configuration is still known.
        machine.apply(plan("r3"))
        assert tree(tmp_path) == {"/etc/a": ("theirs", 0o644)}

    def test_where_nothing_was_applied_nothing_is_restored(self, machine):
        with pytest.raises(errors.Refused, match="there is nothing to restore") as caught:
            machine.restore()
        assert caught.value.reason == "NothingToRestore"

    def test_contents_that_are_gone_are_named_and_nothing_else_is_put_there(self, machine, tmp_path):
        (tmp_path / "a").write_text("theirs")
        machine.apply(plan("r1", a="ours"))
        for path in (tmp_path / MINE[1:] / "kept").iterdir():
            path.write_text("something else")
        with pytest.raises(errors.Refused, match="that were kept in") as caught:
            machine.restore()
        assert caught.value.reason == "KeptContentsLost"
        assert (tmp_path / "a").read_text() == "ours"

    def test_a_record_that_cannot_be_read_is_named(self, machine, tmp_path):
        machine.apply(plan("r1", a="ours"))
        (tmp_path / MINE[1:] / "record.json").write_text("{")
        with pytest.raises(errors.Refused, match=r"record\.json cannot be read"):
            machine.record()


class TestAdopting:
    def test_what_ignition_did_is_taken_over_and_gone_when_it_leaves(self, machine, tmp_path):
        (tmp_path / "etc").mkdir()
        for name in ("a", "b"):
            (tmp_path / "etc" / name).write_text(name)
            (tmp_path / "etc" / name).chmod(0o644)
        machine.adopt(plan("r0", etc__a="a", etc__b="b", sections={"passwd.users": "1"}))
        machine.adopt(plan("r9", etc__a="a"))
        record = machine.record()
        assert (record.applied.rendering, record.adopted, machine.drifts(record)) == ("r0", True, ())
        assert record.applied.sections == {"passwd.users": "1"}
        machine.apply(plan("r0", etc__a="a", etc__b="b", etc__c="c"))
        assert not machine.record().adopted
        with pytest.raises(errors.Refused, match="nothing to restore"):
            machine.restore()
        machine.apply(plan("r1", etc__c="c"))
        assert tree(tmp_path) == {"/etc/c": ("c", 0o644)}


class TestDrift:
    def test_drift_is_named_until_it_is_put_right(self, machine, tmp_path):
        machine.apply(plan("r1", etc__a="a", etc__b="b"))
        record = machine.record()
        (tmp_path / "etc/a").write_text("x")
        (tmp_path / "etc/b").unlink()
        assert machine.drifts(record) == (
            drift.Drift("/etc/a", "has other contents"),
            drift.Drift("/etc/b", "is gone"),
        )
        (tmp_path / "etc/a").write_text("a")
        (tmp_path / "etc/b").write_text("b")
        assert machine.drifts(record) == ()

    def test_what_has_not_changed_by_stat_is_not_read(self, machine, monkeypatch):
        machine.apply(plan("r1", etc__a="a"))
        record = machine.record()
        machine.drifts(record)
        monkeypatch.setattr(root_files.Root, "entry", lambda *_, **__: pytest.fail("it was read"))
        assert machine.drifts(record) == ()

    def test_a_path_that_cannot_be_looked_at_has_drifted(self, machine, tmp_path):
        machine.apply(plan("r1", etc__d__a="a"))
        record = machine.record()
        (tmp_path / "etc/d/a").unlink()
        (tmp_path / "etc/d").rmdir()
        (tmp_path / "etc/d").symlink_to("../../..")
        assert machine.drifts(record) == (drift.Drift("/etc/d/a", "is no file any more"),)


def test_what_the_agent_says_is_left_for_who_asks(machine):
    assert machine.report() == configuration_state.Report()
    machine.prepare()
    said = configuration_state.Report(desired="r1", state="Degraded", reason="why")
    machine.say(said)
    machine.say(said)
    assert machine.report() == said


def test_units_of_the_operating_system_are_found_where_it_keeps_them(machine, tmp_path):
    for directory, text in (("usr/lib/systemd/system", "lib"), ("usr/local/lib/systemd/system", "local")):
        (tmp_path / directory).mkdir(parents=True)
        (tmp_path / directory / "a.service").write_text(text)
    units = configuration_state.vendor_units(machine.root, ("a.service", "none.service"))
    assert {name: unit.text for name, unit in units.items()} == {"a.service": "local"}
