# SPDX-License-Identifier: Apache-2.0
"""What fits, what is kept for removals, and how it is given back and made again."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple

import pytest
import structlog

from handfast.store.sqlite import space as sqlite_space
from tests.world.clock import MovableClock

MIB = 1 << 20


class Disk(NamedTuple):
    """What `statvfs` says."""

    f_blocks: int
    f_bavail: int
    f_frsize: int = MIB


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, Disk]:
    """A disk whose size and free space a test sets, in MiB."""
    shown = {"now": Disk(1000, 500)}
    monkeypatch.setattr(os, "statvfs", lambda _: shown["now"])
    return shown


def reserve_of(space: sqlite_space.Space) -> int:
    return space.room().reserve_bytes // MIB


@pytest.fixture
def space(tmp_path: pathlib.Path, disk: dict[str, Disk]) -> sqlite_space.Space:
    assert disk
    made = sqlite_space.Space(tmp_path / "store.db", MovableClock())
    made.make()
    assert reserve_of(made) == 16
    return made


def test_the_reserve_is_really_there_and_private(space: sqlite_space.Space, tmp_path: pathlib.Path) -> None:
    found = (tmp_path / "store.db.reserve").stat()
    assert (found.st_mode & 0o777, found.st_size, found.st_blocks * 512) == (0o600, 16 * MIB, 16 * MIB)
    assert space.room().free_bytes == 500 * MIB


def test_the_margin_is_for_removals(space: sqlite_space.Space, disk: dict[str, Disk]) -> None:
    disk["now"] = Disk(1000, 6)
    assert space.is_plenty(MIB)
    assert not space.is_plenty(MIB + 1)
    # Pages that are free in the file count.
    assert not space.fits(MIB + 1, 5 * MIB)
    assert space.fits(MIB + 1, 5 * MIB + 1)


def test_what_the_reserve_gave_back_is_for_removals_too(space: sqlite_space.Space, disk: dict[str, Disk]) -> None:
    disk["now"] = Disk(1000, 0)
    assert [(space.release(), reserve_of(space)) for _ in range(5)] == [
        (True, 12),
        (True, 8),
        (True, 4),
        (True, 0),
        (False, 0),
    ]
    disk["now"] = Disk(1000, 19)
    assert not space.is_plenty(0)
    disk["now"] = Disk(1000, 20)
    assert space.is_plenty(0)


def test_it_is_made_again_when_there_is_room(tmp_path: pathlib.Path, disk: dict[str, Disk]) -> None:
    clock = MovableClock()
    space = sqlite_space.Space(tmp_path / "store.db", clock)
    disk["now"] = Disk(1000, 23)
    space.make()
    assert reserve_of(space) == 0
    disk["now"] = Disk(1000, 24)
    space.accepted()
    assert reserve_of(space) == 0
    clock._elapsed += 5.0
    space.accepted()
    assert reserve_of(space) == 16


def test_of_a_small_disk_it_takes_a_part(tmp_path: pathlib.Path, disk: dict[str, Disk]) -> None:
    disk["now"] = Disk(16, 16)
    space = sqlite_space.Space(tmp_path / "store.db", MovableClock())
    space.make()
    assert reserve_of(space) == 4
    disk["now"] = Disk(16, 2)
    assert space.is_plenty(0)
    assert not space.is_plenty(1)


def test_a_store_opens_with_what_was_kept(space: sqlite_space.Space, disk: dict[str, Disk]) -> None:
    disk["now"] = Disk(1000, 1)
    space.prepare()
    assert reserve_of(space) == 16
    disk["now"] = Disk(1000, 0)
    space.prepare()
    assert reserve_of(space) == 12


def test_without_a_reserve_the_rest_holds(tmp_path: pathlib.Path, disk: dict[str, Disk]) -> None:
    (tmp_path / "store.db.reserve").symlink_to(tmp_path / "elsewhere")
    space = sqlite_space.Space(tmp_path / "store.db", MovableClock())
    with structlog.testing.capture_logs() as logged:
        space.make()
    assert [line["event"] for line in logged] == ["no space can be kept for removals"]
    assert not (tmp_path / "elsewhere").exists()
    assert not space.release()
    none = sqlite_space.Space(tmp_path / "store.db", MovableClock(), 0)
    none.make()
    disk["now"] = Disk(1000, 4)
    assert none.is_plenty(0)


def test_a_file_that_cannot_be_cut_is_no_reserve(space: sqlite_space.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "truncate", refuse)
    assert not space.release()


def test_a_disk_that_says_nothing_is_found_out_by_writing(tmp_path: pathlib.Path) -> None:
    space = sqlite_space.Space(tmp_path / "absent" / "store.db", MovableClock())
    space.prepare()
    assert space.is_plenty(1 << 40)


def test_full_ends_when_there_is_space_though_nobody_writes(space: sqlite_space.Space, disk: dict[str, Disk]) -> None:
    disk["now"] = Disk(1000, 0)
    space.refuse()
    assert space.room().full
    disk["now"] = Disk(1000, 500)
    assert (space.room().full, space.room().refused) == (False, 1)
