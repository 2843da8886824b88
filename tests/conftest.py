# SPDX-License-Identifier: Apache-2.0
"""What every test has: uvloop, as in production, and Hypothesis without deadlines, because machines are busy."""

from __future__ import annotations

import asyncio
import collections
import logging
import os
import pathlib
from collections.abc import Callable, Generator, Iterator, Mapping

import coverage
import hypothesis
import pytest
import structlog
import uvloop

# For every process that a test starts: it finds what is there where Handfast is installed, and the system's roots, which aiohttp would read for
# a context that nobody uses, are none. Of some thousand processes each begins 0.1 s sooner.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(pathlib.Path(__file__).parent / "world" / "as_installed"), os.environ.get("PYTHONPATH")))
)
os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}

pytest_plugins = ["tests.world.last_words"]

hypothesis.settings.register_profile("default", deadline=None, max_examples=100)
hypothesis.settings.load_profile("default")


class _Measured:
    """What a worker's tests reach. Slow ones are measured only where they say so: their processes are not the worker's, and most of what else they
    reach quicker tests reach, too. Measuring it takes half as long again as the tests."""

    def __init__(self) -> None:
        self._coverage = coverage.Coverage(data_suffix=True)
        self._coverage.start()
        self._on = True

    def turn(self, on: bool) -> None:
        if on != self._on:
            (self._coverage.start if on else self._coverage.stop)()
            self._on = on

    def save(self) -> None:
        self.turn(False)
        self._coverage.save()


_MEASURED = pytest.StashKey[_Measured]()
_FAILED = pytest.StashKey[set[str]]()
# The file that `make test` wants the names of failed tests in: they run again by themselves (docs/decisions/0068).
_NOTE_FAILED = "FAILED_TESTS"


def pytest_configure(config: pytest.Config) -> None:
    """Where `make test` asks for it, each worker notes what its tests reach; `coverage run` would see none of them."""
    config.addinivalue_line(
        "markers", "measured: slow, and reaches what no quicker test does; counts for the floor of coverage"
    )
    if hasattr(config, "workerinput") and os.environ.get("MEASURE_WORKERS"):
        config.stash[_MEASURED] = measured = _Measured()
        config.add_cleanup(measured.save)
    if not hasattr(config, "workerinput") and os.environ.get(_NOTE_FAILED):
        config.stash[_FAILED] = set()
        config.pluginmanager.register(_Failures(config.stash[_FAILED]))


class _Failures:
    """Hears of each test that fails, of those of other workers, too."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Only where all tests were run to their end: whatever else is wrong is no matter of a test that is unsteady."""
    names = session.config.stash.get(_FAILED, None)
    if names and exitstatus == pytest.ExitCode.TESTS_FAILED:
        pathlib.Path(os.environ[_NOTE_FAILED]).write_text("".join(f"{name}\n" for name in sorted(names)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the longest tests first, by the time that these are allowed: else a worker of `make test` may begin one of two minutes
    when the others have nothing left. Of all other files those with the most tests begin; the tests within a file stay in their random order.

    `make test` finds slow tests by the words in their own file: one that is marked elsewhere would never run.
    """
    allowed: dict[pathlib.Path, list[int]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            allowed.setdefault(item.path, []).append(_allowed_seconds(item))
    for path in allowed:
        if "mark.slow" not in path.read_text():
            raise pytest.UsageError(f"{path}: has tests that are slow, and does not say pytest.mark.slow itself")
    rank = {path: (max(seconds), sum(seconds)) for path, seconds in allowed.items()}
    # What is quick is longer where there is more of it.
    sizes = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: rank.get(item.path, (0, sizes[item.path])), reverse=True)


def _allowed_seconds(item: pytest.Item) -> int:
    marker = item.get_closest_marker("timeout")
    return int(marker.args[0] if marker else item.config.getini("timeout"))


def pytest_collection_finish() -> None:
    """As in production too: ten thousand collected tests are no garbage, and looking through them takes long."""
    # Imported here, for coverage to see it.
    from handfast.runtime import collector

    collector.calm()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What one test configures must not decide which lines the next one sees; as a fixture this would cost more."""
    if (measured := item.config.stash.get(_MEASURED, None)) is not None:
        measured.turn(item.get_closest_marker("slow") is None or item.get_closest_marker("measured") is not None)
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
