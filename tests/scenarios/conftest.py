# SPDX-License-Identifier: Apache-2.0
"""One served world per test, and the promise that hostile input leaves no traceback behind."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.scenarios import refusals
from tests.world import world as worlds


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d") as made:
        yield made


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    refusals.require_quiet(caplog, capfd)
