# SPDX-License-Identifier: Apache-2.0
"""One world with a console for each test."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from handfast.runtime import clock as clocks
from tests.unit.console import served
from tests.world import world as worlds


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d", clock=clocks.SystemClock()) as made:
        yield made


@pytest.fixture
async def browser(world: worlds.World) -> AsyncIterator[served.Browser]:
    async with served.console(world) as made:
        yield made
