# SPDX-License-Identifier: Apache-2.0
"""What the processes of a story that failed had said: the ends of their logs and terminals, in the report of the failure.

A pytest plugin. Logs are found where stories write them, as `*.log` below pytest's temporary directory, if they were written to since the test
began; a terminal is told of by whoever opens it (`heard`). What it shows is bounded, whatever there is. It judges nothing.
"""

from __future__ import annotations

import collections
import pathlib
import time
from collections.abc import Callable, Generator, Iterator

import pytest

# The newest of them, and of each so many lines and bytes of its end.
SOURCES = 12
LINES = 40
BYTES = 4096
TITLE = "last words of its processes"

_DIRECTORY = pytest.StashKey[pathlib.Path]()
_BEGUN = pytest.StashKey[float]()
_terminals: collections.deque[tuple[float, str, Callable[[], bytes]]] = collections.deque(maxlen=SOURCES)


def heard(name: str, read: Callable[[], bytes]) -> None:
    """Something that is no file was opened by the test that runs now; `read` gives all of it, at any time."""
    _terminals.append((time.time(), name, read))


def tail(octets: bytes) -> str:
    """The end of it."""
    text = octets[-BYTES:].decode(errors="replace")
    return "\n".join(text.splitlines()[-LINES:])


def words(directory: pathlib.Path, since: float) -> str:
    """What was said since then, the newest last; nothing if nobody said anything."""
    rows = sorted([*_logs(directory, since), *_shown(since)], key=lambda row: row[0])[-SOURCES:]
    return "\n".join(f"--- {name}\n{said}" for _, name, said in rows if said)


def _logs(directory: pathlib.Path, since: float) -> Iterator[tuple[float, str, str]]:
    for path in directory.rglob("*.log"):
        try:
            changed = path.stat().st_mtime
            if changed >= since and path.is_file():
                yield changed, str(path.relative_to(directory)), tail(_end(path))
        except OSError:
            # Whoever wrote it may take it away at any time.
            continue


def _end(path: pathlib.Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - BYTES))
        return file.read(BYTES)


def _shown(since: float) -> Iterator[tuple[float, str, str]]:
    for opened, name, read in _terminals:
        if opened >= since:
            yield opened, name, tail(read())


@pytest.fixture(scope="session", autouse=True)
def _directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    request.config.stash[_DIRECTORY] = tmp_path_factory.getbasetemp()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # A file's time is a little older than the clock.
    item.stash[_BEGUN] = time.time() - 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    directory = item.config.stash.get(_DIRECTORY, None)
    if report.failed and directory is not None and (said := words(directory, item.stash.get(_BEGUN, 0.0))):
        report.sections.append((TITLE, said))
    return report
