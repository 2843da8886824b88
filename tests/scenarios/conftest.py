# SPDX-License-Identifier: Apache-2.0
"""One served world per test, and the promise that hostile input leaves no traceback behind."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.scenarios import refusals, up_world
from tests.world import world as worlds


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d") as made:
        yield made


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_world.Up]:
    """A control plane that runs, one for each file of tests."""
    with up_world.Up(tmp_path_factory.mktemp("plane") / "data") as made:
        yield made.ready()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    refusals.require_quiet(caplog, capfd)
