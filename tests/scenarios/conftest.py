# SPDX-License-Identifier: Apache-2.0
"""One served world per test, the promise that hostile input leaves no traceback behind, and a checkout to follow pages in."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
from playwright import sync_api as playwright

from tests.page_facts import ROOT
from tests.scenarios import console_world, page_reader, refusals, up_world
from tests.scenarios.on_etcd import (
    pytest_collection_modifyitems,
    pytest_ignore_collect,
    pytest_runtest_call,
    pytest_runtest_setup,
)
from tests.world import world as worlds

__all__ = ["pytest_collection_modifyitems", "pytest_ignore_collect", "pytest_runtest_call", "pytest_runtest_setup"]


@pytest.fixture
async def world(tmp_path: pathlib.Path) -> AsyncIterator[worlds.World]:
    async with worlds.world(tmp_path / "d") as made:
        yield made


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_world.Up]:
    """A control plane that runs, one for each file of tests."""
    with up_world.Up(tmp_path_factory.mktemp("plane") / "data") as made:
        yield made.ready()


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[console_world.Console]:
    """A control plane with its console, one for each process of tests."""
    place = tmp_path_factory.mktemp("console") / "data"
    with up_world.Up(place, *console_world.Console.FLAGS) as plane:
        yield console_world.Console(plane.ready())


@pytest.fixture(scope="module")
def chromium() -> Iterator[playwright.Browser]:
    """A browser, one for each file of tests."""
    with console_world.browser() as made:
        yield made


@pytest.fixture
def looker(chromium: playwright.Browser, console: console_world.Console) -> Iterator[console_world.Looker]:
    """Somebody in front of the console."""
    made = console_world.Looker(chromium, console)
    yield made
    made.close()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    refusals.require_quiet(caplog, capfd)


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A directory that looks like the repository, so that neither data nor virtual environment are the developer's own.

    Its .venv holds the one command that `make up` runs, and a stamp that says all is installed. There is no Python in
    it: should make install nevertheless, it would do so in here, and never into the environment that runs this test.
    """
    place = tmp_path / "checkout"
    page_reader.install(place / ".venv" / "bin")
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-build.lock"):
        shutil.copy(ROOT / name, place)
    # Last, so that it is newer than what it depends upon.
    (place / ".venv" / ".runtime").touch()
    return place
