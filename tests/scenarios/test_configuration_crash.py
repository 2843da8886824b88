# SPDX-License-Identifier: Apache-2.0
"""A change of a machine's configuration is killed with SIGKILL before every one of its calls to the file system.

Proves, for an apply and for a restore: every file is whole and old or new at every instant; the next start has all of the old or
all of the new, with the record that goes with it, and nothing lying about; and what was to be done can be done afterwards. A start that
is killed while it puts things back is finished by the next one. It says nothing about power loss.
"""

from __future__ import annotations

import pathlib
import shutil
import stat
from collections.abc import Iterator

import pytest

from handfast.node import configuration_state, root_files
from tests.world import configuring

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SIGKILL = 9
MINE = configuration_state.DIRECTORY[1:]
Tree = dict[str, tuple[str, int]]


@pytest.fixture(scope="module")
def zygote() -> Iterator[configuring.Zygote]:
    with configuring.Zygote() as running:
        yield running


def tree(root: pathlib.Path) -> Tree:
    rows: Tree = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            rows[name] = (str(path.readlink()), 0)
        elif path.is_file() and not name.startswith(MINE):
            rows[name] = (path.read_text(), stat.S_IMODE(path.stat().st_mode))
    return rows


def record(root: pathlib.Path) -> configuration_state.Record:
    opened = root_files.Root(root)
    try:
        machine = configuration_state.Machine(opened)
        assert not machine.unfinished()
        assert machine.drifts(machine.record()) == ()
        return machine.record()
    finally:
        opened.close()


class Story:
    """A machine before and after a change, and copies of it to die on."""

    def __init__(self, zygote: configuring.Zygote, directory: pathlib.Path, what: str) -> None:
        self.zygote = zygote
        self.what = what
        self._directory = directory
        self._master = directory / "master"
        self._master.mkdir()
        configuring.prepare(self._master)
        if what == "restore":
            configuring.act(self._master, "second")
        self.before = (tree(self._master), record(self._master))
        lived = self.copy("lived")
        self.calls = zygote.run(lived, what)["calls"]
        self.after = (tree(lived), record(lived))
        assert self.before != self.after

    def copy(self, name: str) -> pathlib.Path:
        return pathlib.Path(shutil.copytree(self._master, self._directory / name, symlinks=True))

    def judge(self, root: pathlib.Path) -> str:
        """Whether everything is as before or as after; nothing in between."""
        seen = (tree(root), record(root))
        leftovers = [path for path in root.rglob("*.tmp") if MINE not in str(path)]
        assert leftovers == []
        assert seen in (self.before, self.after)
        return "before" if seen == self.before else "after"

    def whole(self, root: pathlib.Path) -> None:
        """At the instant of death: each path has what it had, or what it is to have."""
        for name, seen in tree(root).items():
            if not name.endswith(".tmp"):
                assert seen in (self.before[0].get(name), self.after[0].get(name)), name


@pytest.mark.parametrize("what", ["second", "restore"])
def test_a_death_at_every_call_leaves_all_of_the_old_or_all_of_the_new(
    zygote: configuring.Zygote, tmp_path: pathlib.Path, what: str
) -> None:
    story = Story(zygote, tmp_path, what)
    assert story.calls > 30
    outcomes = set()
    for number in range(1, story.calls + 1):
        root = story.copy(f"death-{number}")
        assert zygote.run(root, what, number) == {"signal": SIGKILL}
        story.whole(root)
        assert "calls" in zygote.run(root, "recover")
        outcomes.add(story.judge(root))
        if story.judge(root) == "before":
            assert "calls" in zygote.run(root, what)
            assert story.judge(root) == "after"
        shutil.rmtree(root)
    # An apply is done with its last call; a restore once its journal is there.
    assert outcomes == ({"before"} if what == "second" else {"before", "after"})


def test_a_start_that_is_killed_while_it_puts_back_is_finished_by_the_next(
    zygote: configuring.Zygote, tmp_path: pathlib.Path
) -> None:
    story = Story(zygote, tmp_path, "second")
    # In the middle of the change, where some paths are new and some are old.
    dead = story.copy("dead")
    assert zygote.run(dead, "second", story.calls * 3 // 4) == {"signal": SIGKILL}
    calls = zygote.run(pathlib.Path(shutil.copytree(dead, tmp_path / "counted", symlinks=True)), "recover")["calls"]
    for number in range(1, calls + 1):
        root = pathlib.Path(shutil.copytree(dead, tmp_path / f"again-{number}", symlinks=True))
        assert zygote.run(root, "recover", number) == {"signal": SIGKILL}
        assert "calls" in zygote.run(root, "recover")
        assert story.judge(root) == "before"
        shutil.rmtree(root)
