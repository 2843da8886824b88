# SPDX-License-Identifier: Apache-2.0
"""The directory of a run: in memory, private, and what others have left."""

import contextlib
import os
import pathlib
import stat

import pytest

from handfast import errors
from handfast.node import workload_directory
from handfast.runtime import mounts


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    monkeypatch.setattr(mounts, "in_memory", lambda path: path == tmp_path)
    return tmp_path


def test_it_is_in_the_users_directory_where_that_is_in_memory(memory):
    path = workload_directory.home({"XDG_RUNTIME_DIR": str(memory)})
    assert path == memory / f"handfast-mesh-{os.geteuid()}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert workload_directory.home({"XDG_RUNTIME_DIR": str(memory)}) == path


def test_without_memory_nothing_starts(monkeypatch, tmp_path):
    monkeypatch.setattr(mounts, "in_memory", lambda _path: False)
    with pytest.raises(errors.Refused) as refused:
        workload_directory.home({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert refused.value.reason == "NoMemoryDirectory"


def test_a_runtime_directory_of_another_user_is_passed_over(memory, monkeypatch):
    # As by `sudo -E`: its owner could have another directory there once the keys are written.
    monkeypatch.setattr(os, "geteuid", lambda: 4242 if os.getuid() else 0)
    if os.getuid() == 0:
        os.chown(memory, 4242, -1)
    with pytest.raises(errors.Refused) as refused:
        workload_directory.home({"XDG_RUNTIME_DIR": str(memory)})
    assert refused.value.reason == "NoMemoryDirectory"


@pytest.mark.parametrize(("mode", "is_kept"), [(0o777, False), (0o1777, True)])
def test_a_directory_for_everybody_keeps_what_is_in_it(memory, mode, is_kept):
    memory.chmod(mode)
    with contextlib.nullcontext() if is_kept else pytest.raises(errors.Refused, match="no directory in memory"):
        workload_directory.home({"XDG_RUNTIME_DIR": str(memory)})


def test_a_directory_of_another_or_a_link_is_refused(memory):
    path = memory / f"handfast-mesh-{os.geteuid()}"
    elsewhere = memory / "elsewhere"
    elsewhere.mkdir()
    path.symlink_to(elsewhere)
    with pytest.raises(errors.Refused, match="is no directory"):
        workload_directory.home({"XDG_RUNTIME_DIR": str(memory)})
    path.unlink()
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(errors.Refused) as refused:
        workload_directory.home({"XDG_RUNTIME_DIR": str(memory)})
    assert refused.value.reason == "DirectoryNotPrivate"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


def test_a_run_has_its_directory_for_as_long_as_it_lasts(home):
    with workload_directory.opened(home, "r1") as (directory, left):
        assert left == ()
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (directory.path, directory.store, directory.tokens)}
        assert modes == {0o700}
        (directory.tokens / "t").write_text("secret")
        # Another start does not touch what is in use.
        with workload_directory.opened(home, "r2") as (_, left):
            assert left == ()
            assert (directory.tokens / "t").exists()
    assert not [path for path in home.iterdir() if path.is_dir()]


def test_what_a_killed_run_left_is_removed_and_its_pod_is_told(home):
    record = workload_directory.Record("https://s", "shop", "w", "r1")
    for name in ("r1", "r2"):
        directory = workload_directory.Directory(home / name)
        directory.tokens.mkdir(parents=True)
        directory.path.chmod(0o700)
        (directory.tokens / "t").write_text("secret")
    workload_directory.Directory(home / "r1").remember(record)
    (home / "a-file").touch()
    with workload_directory.opened(home, "r3") as (_, left):
        assert [each.record for each in left] == [record]
        assert not (home / "r1" / "tokens").exists()
        assert not (home / "r2").exists()
        left[0].forget()
        assert not (home / "r1").exists()


def test_a_record_that_nobody_forgot_stays(home):
    with workload_directory.opened(home, "r1") as (directory, _):
        directory.remember(workload_directory.Record("https://s", "shop", "w", "r1"))
        (directory.tokens / "t").write_text("secret")
    assert not (home / "r1" / "tokens").exists()
    with workload_directory.opened(home, "r2") as (directory, left):
        assert len(left) == 1
        directory.remember(workload_directory.Record("https://s", "shop", "w", "r2"))
        directory.forget()
    assert not (home / "r2").exists()
