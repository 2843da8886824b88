# SPDX-License-Identifier: Apache-2.0
"""Gives memory that is free back to the operating system. It frees nothing itself.

What is freed stays with the C library's heap, for the next who wants some: after a hundred large answers that were all in
memory at once, 500 MiB of them (measured), for as long as the process lives. glibc gives it back when it is asked to.
"""

from __future__ import annotations

import ctypes
from typing import Any


def _find() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None


_trim = _find()


def give_back() -> None:
    """Have the heap's free pages returned, where the C library can. Takes some milliseconds: call it in a thread."""
    if _trim is not None:
        _trim(ctypes.c_size_t(0))
