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
    before = {id(found): found for found in gc.get_objects() if isinstance(found, kind)}
    gc.disable()
    try:
        yield lambda: [found for found in gc.get_objects() if isinstance(found, kind) and id(found) not in before]
    finally:
        gc.enable()
