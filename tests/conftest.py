# SPDX-License-Identifier: Apache-2.0
"""What every test has: uvloop, as in production, and Hypothesis without deadlines, because machines are busy."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping

import coverage
import hypothesis
import pytest
import structlog
import uvloop

hypothesis.settings.register_profile("default", deadline=None, max_examples=100)
hypothesis.settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    """Where `make test` asks for it, each worker notes what its tests reach; `coverage run` would see none of them."""
    if hasattr(config, "workerinput") and os.environ.get("MEASURE_WORKERS"):
        measured = coverage.Coverage(data_suffix=True)
        measured.start()

        def save() -> None:
            measured.stop()
            measured.save()

        config.add_cleanup(save)


def pytest_collection_finish() -> None:
    """As in production too: ten thousand collected tests are no garbage, and looking through them takes long."""
    # Imported here, for coverage to see it.
    from handfast.runtime import collector

    collector.calm()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """What one test configures must not decide which lines the next one sees; as a fixture this would cost more."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return (yield)
    finally:
        structlog.reset_defaults()
        # pytest's own handlers come and go with each test; those of `telemetry.log` must not stay.
        root.handlers[:] = [handler for handler in root.handlers if handler in handlers or not _is_ours(handler)]
        root.setLevel(level)


@pytest.fixture
def unmeasured() -> Iterator[None]:
    """For a test that does the same thing a million times: measuring what it reaches takes longer than the test."""
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.stop()
    yield
    if measured is not None:
        measured.start()


def _is_ours(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("handfast.")
