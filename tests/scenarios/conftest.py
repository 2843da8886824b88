# SPDX-License-Identifier: Apache-2.0
"""One served world per test."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from tests.world import world as worlds


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d") as made:
        yield made
