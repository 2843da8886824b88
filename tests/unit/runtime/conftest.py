# SPDX-License-Identifier: Apache-2.0
"""The supervisor runs on Python's own event loop, not on uvloop, which would double its size; so do its tests."""

import asyncio
from collections.abc import Callable, Mapping

import pytest


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    return {"asyncio": asyncio.new_event_loop} if item.path.name == "test_supervisor.py" else None
