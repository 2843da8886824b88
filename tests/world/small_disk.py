# SPDX-License-Identifier: Apache-2.0
"""A small file system of its own, which a test can fill. What is written there is the test's business.

Only root may mount one. In CI a full disk is a real one, or the run has failed; elsewhere the test is skipped.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

import pytest


@contextlib.contextmanager
def mounted(directory: pathlib.Path, options: str) -> Iterator[pathlib.Path]:
    """A tmpfs on a directory that is there. It is detached even if a failed test left files open."""
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        directory.rmdir()
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: mounting a small file system is not permitted here")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextlib.contextmanager
def of_mebibytes(size: int) -> Iterator[pathlib.Path]:
    """One of this size. It is not in pytest's own directory, which pytest moves about."""
    directory = pathlib.Path(tempfile.mkdtemp())
    with mounted(directory, f"size={size}m"):
        yield directory
    directory.rmdir()


class FailingDisk:
    """A file system of its own on a disk of its own, which becomes read-only under open files when it `fails`, as ext4 does when the
    disk beneath it fails. Mended, it has what was synced."""

    def __init__(self, place: pathlib.Path) -> None:
        self._image = place / "image"
        self.directory = place / "mounted"
        self.directory.mkdir()
        with self._image.open("wb") as file:
            file.truncate(32 << 20)
        self._run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self, options: str = "errors=remount-ro") -> None:
        self._run("mount", "-t", "ext4", "-o", f"loop,{options}", str(self._image), str(self.directory))

    def unmount(self) -> None:
        self._run("umount", str(self.directory))

    def fail(self) -> None:
        devices = self._run("losetup", "--noheadings", "--output", "NAME", "--associated", str(self._image)).split()
        for device in devices:
            pathlib.Path("/sys/fs/ext4", pathlib.Path(device).name, "trigger_fs_error").write_text("1")

    def mend(self) -> None:
        """Unmount it, look through it, and mount it again."""
        self.unmount()
        # 1: there was something to mend.
        self._run("fsck.ext4", "-fy", str(self._image), fine=(0, 1))
        self.mount()

    def end(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.directory)], capture_output=True, check=False)

    def _run(self, *command: str, fine: Sequence[int] = (0,)) -> str:
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        done = subprocess.run(command, capture_output=True, check=False, text=True, env=environment)
        if done.returncode not in fine:
            give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
            give_up(f"not run: {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


@contextlib.contextmanager
def failing() -> Iterator[FailingDisk]:
    """One that is there and works. It is not in pytest's own directory, which pytest moves about."""
    with tempfile.TemporaryDirectory() as place:
        disk = FailingDisk(pathlib.Path(place))
        try:
            yield disk
        finally:
            disk.end()
