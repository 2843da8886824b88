# SPDX-License-Identifier: Apache-2.0
"""A SQLite store in a fresh directory. It does not test anything."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from handfast.store.sqlite import engine


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: pathlib.Path) -> AsyncIterator[engine.SqliteStore]:
    opened = await engine.open_store(str(path))
    yield opened
    await opened.close()
