# SPDX-License-Identifier: Apache-2.0
"""Keeps the memory of this process out of core files. It hides nothing from whoever is root.

1. The size of a core file is limited to nothing. What this process executes inherits that, and cannot raise it.
2. The process is marked as not to be dumped, where the kernel has such a mark: this also stops a core file that goes to a program
   instead of a file, which no size limits. The mark ends when another program is executed.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource

_PR_SET_DUMPABLE = 4


def forbid() -> None:
    """From now on, no core file of this process."""
    # 1. a size of nothing
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # 2. the mark; another C library or kernel may lack it
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
