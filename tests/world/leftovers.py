# SPDX-License-Identifier: Apache-2.0
"""Whether something frees itself, or waits for the collector of cycles: that one stops everybody while it works."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def without_collector(kind: type) -> Iterator[Callable[[], list[object]]]:
    """Turn the collector off; the value lists what of `kind` was made since and is still there."""
    gc.collect()
    # What is frozen is not among the objects below: of ten thousand tests there are millions, and to look through them took seconds.
    gc.freeze()
    gc.disable()
    try:
        yield lambda: [found for found in gc.get_objects() if isinstance(found, kind)]
    finally:
        gc.enable()
