# SPDX-License-Identifier: Apache-2.0
"""Which stories run a second time, with every world on a real etcd: those that have a world, with few exceptions. It tests nothing.

`make test-on-etcd` sets `WORLDS_ON_ETCD`. Without it nothing runs here a second time, and only the marks and rows of slow stories are looked at (2).

1. A story has a world if it asks for one, or its file has one by what it imports. All others start processes of their own.
2. Of those that are slow, the ones about the API itself are marked `on_etcd`, and run, too. All others have a row in `SLOW`, by how their file's
   name begins, with the reason; one that has neither fails wherever it is collected.
3. What is left out besides has a row in `LEFT`, with the reason. One test of each row runs nevertheless: if it passes on etcd,
   the row is not needed, and that is a failure. So is a row that names nothing, here or in `SLOW`.
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
_THROUGH_THE_API = "asks of the API what the stories ask that run here; no answer to it depends on the engine"
# How the name of a file begins, whose slow stories are left out -> why.
SLOW = {
    "test_bootstrap_rights.py": "asks every verb of every kind (14 s of CPU); all but a few are refused before the store is asked",
    "test_check.py": f"a control plane in processes of its own: {_THROUGH_THE_API}",
    "test_configuration_": f"agents and the machine-config server: {_THROUGH_THE_API}",
    "test_console_": f"a browser and a console, in processes of their own: {_THROUGH_THE_API}",
    "test_controllers_": "those of quotas run here; all controllers, of two control planes, are on etcd in test_two_planes.py",
    "test_credential_rollout": f"agents and the machine-config server: {_THROUGH_THE_API}",
    "test_custom_resources.py": "kubectl and an API server in a process of its own; the same requests are in the stories beside it, which run here",
    "test_disk_read_only.py": "a disk fails under a store that is a file",
    "test_etcd_histories.py": "its stories are on etcd as it is",
    "test_issuance_ledger.py": "months of segments that go (15 s of CPU); how the chain is written is in the stories beside it, which run here",
    "test_join_discovery.py": "joins while there is no API server",
    "test_living_names.py": f"the approver and real joins: {_THROUGH_THE_API}",
    "test_machine": f"machines, their approver and their server: {_THROUGH_THE_API}",
    "test_mesh_": f"workloads and the mesh's own services: {_THROUGH_THE_API}",
    "test_node_": f"agents: {_THROUGH_THE_API}",
    "test_odd_": "what cannot be read is refused before the store is asked, or by a command",
    "test_one_address.py": "joins and their rates: what is counted is not in the store",
    "test_own_certificates.py": "files of the data directory, in processes of their own",
    "test_protocol_abuse.py": "connections: what is sent there never comes to the store",
    "test_proxy_policy.py": f"proxies of the mesh: {_THROUGH_THE_API}",
    "test_unread_answers.py": "answers that nobody reads (17 s of CPU): what holds them is behind the store",
    "test_worker_credential.py": "a whole control plane, in processes of its own",
}
# What `make test-on-etcd` selects.
WANTED = "not slow or on_etcd"
_ALL_SLOW = re.compile(r"^pytestmark = .*mark\.slow", re.MULTILINE)
_HERE = pathlib.Path(__file__).parent
_has_world: dict[str, bool] = {}


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Files of slow tests need not be read where none is wanted."""
    if not worlds.ON_ETCD or config.option.markexpr != WANTED or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return True if _ALL_SLOW.search(text) and "mark.on_etcd" not in text else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Last, when it is known which of them are wanted at all."""
    stories = [item for item in items if _is_story(item)]
    # 2. slow ones are marked, or have a row
    for story in stories:
        _require_marked_or_named(story)
    if not worlds.ON_ETCD:
        return
    for row in LEFT:
        _require_something_named(row)
    for row in SLOW:
        if not any("mark.slow" in path.read_text() for path in _HERE.glob(f"{row}*")):
            raise pytest.UsageError(f"tests/scenarios/on_etcd.py: the row {row} names no slow test")
    # 3. one of each row, always the same
    shown = {row: item.nodeid for item in sorted(stories, key=_line, reverse=True) if (row := _row(item))}
    kept = [item for item in stories if shown.get(_row(item), item.nodeid) == item.nodeid]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


def _line(item: pytest.Item) -> tuple[int, str]:
    return item.reportinfo()[1] or 0, item.nodeid


def _is_story(item: pytest.Item) -> bool:
    # 1. by a fixture, or by what is imported; other directories may be collected beside this one
    if not isinstance(item, pytest.Function) or _HERE not in item.path.parents:
        return False
    return "world" in item.fixturenames or _reaches_world(item.module)


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


def _require_marked_or_named(story: pytest.Item) -> None:
    if story.get_closest_marker("slow") is None or story.get_closest_marker("on_etcd") is not None or _row(story):
        return
    if not story.path.name.startswith(tuple(SLOW)):
        raise pytest.UsageError(
            f"{story.nodeid} has a world and is slow: mark it on_etcd, or say in tests/scenarios/on_etcd.py why it is left out"
        )


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
