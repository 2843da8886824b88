# SPDX-License-Identifier: Apache-2.0
"""Which stories run a second time, with every world on a real etcd: those that have a world, with few exceptions. It tests nothing.

`make test-on-etcd` sets `WORLDS_ON_ETCD`; without it nothing here does anything.

1. A story has a world if it asks for one, or its file has one by what it imports. All others start processes of their own.
2. Slow ones are left out by their mark: they tell of agents, controllers, proxies and whole machines, and what those ask of
   the API the others ask as well. Controllers and two planes on etcd are in `test_two_planes.py` and `test_two_servers.py`.
3. What is left out besides has a row in `LEFT`, with the reason. One test of each row runs nevertheless: if it passes on etcd,
   the row is not needed, and that is a failure. So is a row that names nothing.
4. Whoever gives a world a store of its own is not on etcd, and needs a row.
"""

from __future__ import annotations

import pathlib
import re
import types
from collections.abc import Generator

import pytest

from tests.world import world as worlds

# File, or file and test -> why it is left to the engine that it runs on without this.
LEFT = {
    "test_two_servers.py": "its stories are on both engines as it is",
    "test_etcd_store.py": "its stories are on etcd as it is",
    "test_store_metrics.py": "its stories are on both engines as it is",
    "test_every_route.py": "asks what comes through to a store that counts: nothing of those who are refused before it",
    "test_custom_resources.py::test_a_kind_defined_on_one_server_can_be_used_on_the_other_at_once": "its store holds the "
    "events of one server back; test_two_servers.py does so on etcd",
    "test_disk_full.py": "a disk is full under a store that is a file; what a full etcd does is in test_etcd_store.py",
    "test_restore_epoch.py": "puts an older file in the place of the store",
    "test_verbs.py::test_secrets_are_sealed_on_disk_and_clear_over_the_api": "reads the bytes of the file; for etcd see "
    "test_etcd_store.py",
}
_ALL_SLOW = re.compile(r"^pytestmark = .*mark\.slow", re.MULTILINE)
_HERE = pathlib.Path(__file__).parent
_has_world: dict[str, bool] = {}


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Files of slow tests need not be read where none is wanted."""
    if not worlds.ON_ETCD or config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return True if _ALL_SLOW.search(collection_path.read_text()) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Last, when it is known which of them are wanted at all."""
    if not worlds.ON_ETCD:
        return
    for row in LEFT:
        _require_something_named(row)
    stories = [item for item in items if _is_story(item)]
    # 3. one of each row, always the same
    shown = {row: item.nodeid for item in sorted(stories, key=_line, reverse=True) if (row := _row(item))}
    kept = [item for item in stories if shown.get(_row(item), item.nodeid) == item.nodeid]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def _line(item: pytest.Item) -> tuple[int, str]:
    return item.reportinfo()[1] or 0, item.nodeid


def _is_story(item: pytest.Item) -> bool:
    # 1. by a fixture, or by what is imported
    return isinstance(item, pytest.Function) and ("world" in item.fixturenames or _reaches_world(item.module))


def _reaches_world(module: types.ModuleType) -> bool:
    if module is worlds:
        return True
    name = module.__name__
    if name not in _has_world:
        _has_world[name] = False
        mine = (each for each in vars(module).values() if isinstance(each, types.ModuleType))
        _has_world[name] = any(_reaches_world(each) for each in mine if each.__name__.startswith("tests."))
    return _has_world[name]


def _row(item: pytest.Item) -> str:
    """The row of a test; empty if it has none."""
    file = item.path.name
    rows = (file, f"{file}::{getattr(item, 'originalname', '')}")
    return next((row for row in rows if row in LEFT), "")


def _require_something_named(row: str) -> None:
    file, _, test = row.partition("::")
    text = (_HERE / file).read_text() if (_HERE / file).exists() else ""
    if f"def {test or 'test_'}" not in text:
        raise pytest.UsageError(f"tests/scenarios/on_etcd.py: the row {row} names no test")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    worlds.GIVEN.clear()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    if not worlds.ON_ETCD:
        yield
        return
    row = _row(item)
    try:
        yield
    except Exception:
        if row:
            pytest.xfail(LEFT[row])
        raise
    # 4. stores of their own
    if worlds.GIVEN and not row:
        pytest.fail(
            "gives its world a store, which is no etcd of this run: it needs a row in tests/scenarios/on_etcd.py"
        )
    if row and not worlds.GIVEN:
        pytest.fail(f"passes on etcd: tests/scenarios/on_etcd.py does not need the row {row}")
