# SPDX-License-Identifier: Apache-2.0
"""A disk that can lose power: of what was written only what was synced survives, and whatever else happened to arrive.

Processes work on real files of a directory, and tell what they do to them (`tests.world.powered`). Beside the files stands a model of
the disk itself:

1. A file has its synced octets and a list of writes and truncations that nobody synced. When power is lost each sector of each such
   write arrives or does not, or is torn at an octet: new before it, old behind.
2. A directory is the same: names are made, removed and replaced when the directory is synced; before that each of these may survive
   alone.
3. The cut comes at a chosen operation. What happens later changes nothing, and whatever is acknowledged later was never heard.
4. A killed process is no power loss: everything arrives in the next process, and is no more durable than before.

It does not model what a disk breaks that was not being written, nor one that lies about syncing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Literal

SECTOR = 512

Survival = Literal["nothing", "something", "everything"]


@dataclasses.dataclass(slots=True)
class Content:
    """What a file holds for certain, and what was done to it since: (offset, octets) is a write, (size, None) a truncation."""

    synced: bytearray = dataclasses.field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = dataclasses.field(default_factory=list)

    def now(self) -> bytearray:
        """As a process that runs sees it."""
        image = bytearray(self.synced)
        for offset, octets in self.unsynced:
            _apply(image, offset, octets)
        return image

    def sync(self) -> None:
        for offset, octets in self.unsynced:
            _apply(self.synced, offset, octets)
        self.unsynced.clear()

    def after_power_loss(self, survival: Survival, choice: random.Random) -> bytearray:
        if survival == "everything":
            return self.now()
        image = bytearray(self.synced)
        if survival == "something":
            for offset, octets in self.unsynced:
                if octets is None:
                    if choice.random() < 0.5:
                        _apply(image, offset, None)
                    continue
                for start, sector in _sectors(offset, octets):
                    fate = choice.random()
                    # 1. whole, torn or not at all
                    arrived = sector if fate < 0.45 else sector[: choice.randrange(len(sector))] if fate < 0.55 else b""
                    _apply(image, start, arrived)
        return image


def _apply(image: bytearray, offset: int, octets: bytes | None) -> None:
    if octets is None:
        del image[offset:]
    if octets != b"" and len(image) < offset:
        image.extend(bytes(offset - len(image)))
    if octets:
        image[offset : offset + len(octets)] = octets


def _sectors(offset: int, octets: bytes) -> Iterator[tuple[int, bytes]]:
    position = offset
    while position < offset + len(octets):
        end = min((position // SECTOR + 1) * SECTOR, offset + len(octets))
        yield position, octets[position - offset : end - offset]
        position = end


# What happened to a directory: a name stands for a file from now on, or, without one, for nothing. A rename is two names at once.
Entries = dict[str, Content | None]


class Disk:
    """One directory, from the moment that power is there until it is cut. `root` holds the files as running processes see them."""

    def __init__(
        self, root: pathlib.Path, names: dict[str, Content] | None = None, *, forgets_directories: bool = False
    ) -> None:
        self.root = root
        self._forgets_directories = forgets_directories
        self.operations = 0
        self.cut_at = 0
        self.on_cut: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._names = names or {}
        self._synced_names = dict(self._names)
        self._unsynced_names: list[Entries] = []

    @property
    def is_off(self) -> bool:
        return bool(self.cut_at) and self.operations >= self.cut_at

    def contents(self) -> dict[str, bytes]:
        """What a process would find."""
        return {name: bytes(content.now()) for name, content in self._names.items()}

    def is_unsynced(self, name: str) -> bool:
        """Whether something was written to a file that a power cut may take away."""
        return name in self._names and bool(self._names[name].unsynced)

    def after_power_loss(self, root: pathlib.Path, survival: Survival, choice: random.Random) -> Disk:
        """The disk when power is back: all that is there was read from the platters, so it is durable."""
        names: dict[str, Content | None] = dict(self._synced_names)
        for entries in self._unsynced_names:
            if survival == "everything" or (survival == "something" and choice.random() < 0.5):
                names |= entries
        image = {
            content_id: Content(content.after_power_loss(survival, choice))
            for content_id, content in {id(content): content for content in names.values() if content}.items()
        }
        kept = {name: image[id(content)] for name, content in names.items() if content}
        return Disk(root, kept, forgets_directories=self._forgets_directories)

    def after_kill(self, root: pathlib.Path) -> Disk:
        """The disk that the next process finds when only the last one was killed (4)."""
        disk = Disk(root, self._names, forgets_directories=self._forgets_directories)
        disk._synced_names, disk._unsynced_names = self._synced_names, self._unsynced_names
        return disk

    def discard(self, name: str) -> None:
        """Somebody has removed a file, long ago."""
        self._names.pop(name)
        self._synced_names.pop(name, None)
        (self.root / name).unlink()

    def lay_out(self) -> None:
        """Put the files there for the processes that are to run. The index of the log was never synced: it is rubbish."""
        self.root.mkdir()
        for name, octets in self.contents().items():
            (self.root / name).write_bytes(octets)
            if name.endswith("-wal"):
                (self.root / f"{name.removesuffix('-wal')}-shm").write_bytes(random.randbytes(32768))

    # What is done to it

    def opened(self, path: str) -> None:
        """A file was opened, and is there now."""
        name = self._name(path)
        if name is not None and name not in self._names:
            self.entries({name: Content()})

    def write(self, path: str, offset: int, octets: bytes | None) -> None:
        with self._happening() as happens:
            if happens:
                self._names[self._mine(path)].unsynced.append((offset, octets))

    def sync(self, path: str, *, with_directory: bool) -> None:
        with self._happening() as happens:
            if happens:
                self._names[self._mine(path)].sync()
                if with_directory:
                    self._sync_names()

    def replace(self, path: str, octets: bytes) -> None:
        """A file that was written without the VFS was synced, with all that is in it."""
        with self._happening() as happens:
            if happens:
                content = self._names[self._mine(path)]
                content.synced[:], content.unsynced[:] = octets, []

    def entries(self, entries: Entries) -> None:
        """Names came or went, all of these at once or none."""
        with self._happening() as happens:
            if happens:
                self._unsynced_names.append(entries)
                for name, content in entries.items():
                    self._names.pop(name, None)
                    if content is not None:
                        self._names[name] = content

    def sync_directory(self) -> None:
        with self._happening() as happens:
            if happens:
                self._sync_names()

    def content(self, path: str) -> Content | None:
        return self._names.get(self._mine(path))

    def holds(self, path: object) -> bool:
        return isinstance(path, (str, os.PathLike)) and self._name(os.fspath(path)) is not None

    def _sync_names(self) -> None:
        if not self._forgets_directories:
            self._unsynced_names.clear()
            self._synced_names = dict(self._names)

    def _name(self, path: str) -> str | None:
        parent, name = os.path.split(path)
        return name if parent == str(self.root) else None

    def _mine(self, path: str) -> str:
        name = self._name(path)
        assert name is not None, f"{path} is not on this disk"
        return name

    @contextlib.contextmanager
    def _happening(self) -> Iterator[bool]:
        """One operation, if power is still there (3)."""
        with self._lock:
            on, last = not self.is_off, self.operations + 1 == self.cut_at
            self.operations += on
            yield on and not last
            if on and last:
                self.on_cut()
