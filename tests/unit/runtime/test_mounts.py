# SPDX-License-Identifier: Apache-2.0
"""Whether a directory is in memory, by the kernel's own table."""

import pathlib

import pytest

from handfast.runtime import mounts


def test_what_is_not_known_is_not_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "none")
    assert not mounts.in_memory(tmp_path)


def test_the_kernels_own_table_is_read():
    if not pathlib.Path("/dev/shm").is_dir():
        pytest.skip("no directory in memory here")
    assert mounts.in_memory(pathlib.Path("/dev/shm"))
    assert not mounts.in_memory(pathlib.Path("/proc"))
