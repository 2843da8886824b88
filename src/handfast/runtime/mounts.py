# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of mounted file systems: whether a directory is in memory. It mounts nothing."""

from __future__ import annotations

import os
import pathlib
from typing import Final

from handfast import errors
from handfast.runtime import files

_MOUNTS: Final = pathlib.Path("/proc/self/mountinfo")
_MOUNTS_LIMIT: Final = 16 << 20
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def in_memory(directory: pathlib.Path) -> bool:
    """Whether the kernel says that this directory is on no disk. What is not known is not."""
    try:
        number = directory.stat().st_dev
        rows = files.read(_MOUNTS, limit=_MOUNTS_LIMIT).decode(errors="replace").splitlines()
    except (OSError, errors.HandfastError):
        return False
    device = f"{os.major(number)}:{os.minor(number)}"
    kinds = {row.partition(" - ")[2].split(" ")[0] for row in rows if row.split(" ")[2:3] == [device]}
    return bool(kinds) and kinds <= _IN_MEMORY
