# SPDX-License-Identifier: Apache-2.0
"""The official Python client's Watch and informer: streams, resuming, and starting over after 410.

A server remembers a bounded number of changes; a watch from before that must learn that it is too late, never miss one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, informer, watch

from tests.interop import running

pytestmark = pytest.mark.slow

# More than the 16 MiB of replaced states that a server remembers of one resource.
_LARGE = {"metadata": {"name": "large"}, "data": {"text": "x" * 900_000}}
_REWRITES = 20


def _make(core: Any, namespace: str, *names: str) -> str:
    """Create ConfigMaps with the label `own`; the resource version of the last."""
    version = ""
    for name in names:
        made = core.create_namespaced_config_map(namespace, {"metadata": {"name": name, "labels": {"own": ""}}})
        version = made.metadata.resource_version
    return version


def _events(core: Any, namespace: str, count: int, **wanted: object) -> list[tuple[str, str]]:
    """The first events of a watch; it ends by itself if there are fewer."""
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, namespace, label_selector="own", timeout_seconds=30, **wanted
    )
    found = [(event["type"], event["object"].metadata.name) for event in itertools.islice(stream, count)]
    stream.close()
    return found


@pytest.fixture
def forgotten(core: Any, namespace: str) -> str:
    """A resource version that was good, and whose following changes the server no longer remembers."""
    version = core.create_namespaced_config_map(namespace, _LARGE).metadata.resource_version
    for number in range(_REWRITES):
        core.patch_namespaced_config_map("large", namespace, {"data": {"number": str(number)}})
    return str(version)


def test_watch_begins_with_what_is_there(core, namespace):
    _make(core, namespace, "one", "two")
    assert _events(core, namespace, 2) == [("ADDED", "one"), ("ADDED", "two")]
    assert _events(core, namespace, 2, resource_version="0") == [("ADDED", "one"), ("ADDED", "two")]


def test_watch_from_a_version_sees_every_later_change_once(core, namespace):
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    _make(core, namespace, "one", "two")
    core.patch_namespaced_config_map("one", namespace, {"data": {"a": "b"}})
    core.patch_namespaced_config_map("two", namespace, {"metadata": {"labels": {"own": None}}})
    core.delete_namespaced_config_map("one", namespace)
    assert _events(core, namespace, 5, resource_version=start) == [
        ("ADDED", "one"),
        ("ADDED", "two"),
        ("MODIFIED", "one"),
        ("DELETED", "two"),
        ("DELETED", "one"),
    ]


def test_a_deleted_object_comes_with_the_version_of_its_deletion(core, namespace):
    made = _make(core, namespace, "one")
    core.delete_namespaced_config_map("one", namespace)
    follower = watch.Watch()
    stream = follower.stream(core.list_namespaced_config_map, namespace, resource_version=made, timeout_seconds=30)
    assert next(stream)["type"] == "DELETED"
    stream.close()
    assert int(follower.resource_version or 0) > int(made)


def test_a_watch_resumes_where_it_was_when_the_server_ends_it(core, namespace):
    start = _make(core, namespace, "one")
    follower = watch.Watch()
    first = follower.stream(
        core.list_namespaced_config_map, namespace, label_selector="own", resource_version=start, timeout_seconds=1
    )
    _make(core, namespace, "two")
    assert [event["object"].metadata.name for event in first] == ["two"]
    _make(core, namespace, "three")
    assert _events(core, namespace, 1, resource_version=follower.resource_version) == [("ADDED", "three")]


def test_bookmarks_come_before_the_end(core, namespace):
    _make(core, namespace, "one")
    newest = core.create_namespaced_secret(namespace, {"metadata": {"name": "other"}}).metadata.resource_version
    follower = watch.Watch()
    stream = follower.stream(
        core.list_namespaced_config_map, namespace, label_selector="own", timeout_seconds=1, allow_watch_bookmarks=True
    )
    types = [event["type"] for event in stream]
    # The one at the end; the minute's own may fall into this second, too.
    assert types in (["ADDED", "BOOKMARK"], ["ADDED", "BOOKMARK", "BOOKMARK"])
    # It covers changes of other resources too, so that a quiet watch does not grow old.
    assert int(follower.resource_version or 0) >= int(newest)


def test_initial_events_end_with_a_marked_bookmark(core, namespace):
    _make(core, namespace, "one", "two")
    stream = watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        label_selector="own",
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout_seconds=30,
    )
    added, other, end = itertools.islice(stream, 3)
    stream.close()
    assert (added["type"], other["type"], end["type"]) == ("ADDED", "ADDED", "BOOKMARK")
    assert end["raw_object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_version_that_is_too_old_is_410(core, namespace, forgotten):
    for version in (forgotten, "1"):
        with pytest.raises(client.ApiException, match="too old resource version") as raised:
            _events(core, namespace, 1, resource_version=version)
        assert raised.value.status == 410


def test_a_list_from_the_future_is_refused_after_a_short_wait(core, namespace):
    now = core.list_namespaced_config_map(namespace).metadata.resource_version
    with pytest.raises(client.ApiException, match="Too large resource version") as raised:
        core.list_namespaced_config_map(namespace, resource_version=str(int(now) + 10**6))
    assert raised.value.status == 504


@pytest.fixture
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.ControlPlane]:
    """A control plane whose API server this test may kill."""
    plane = running.ControlPlane(tmp_path_factory.mktemp("own") / "data")
    yield plane
    plane.stop()
    assert plane.failures() == []


def _stop(follower: Any, core: Any) -> None:
    """Stop an informer. Its thread may be waiting for the next event, and looks up only when there is one."""
    stopping = threading.Thread(target=follower.stop, daemon=True)
    stopping.start()
    numbers = itertools.count()

    def is_stopped() -> bool:
        core.patch_namespaced_config_map("before", "default", {"data": {"poke": str(next(numbers))}})
        return not stopping.is_alive()

    running.eventually(is_stopped, "the informer has stopped")


def test_an_informer_goes_on_after_the_death_of_the_server_without_a_410(own_plane):
    with config.new_client_from_config(str(own_plane.kubeconfig), persist_config=False) as api:
        core: Any = client.CoreV1Api(api)
        running.eventually(lambda: core.list_namespaced_config_map("default").items, "the controllers have started")
        _make(core, "default", "before", "doomed")
        seen: list[tuple[str, str]] = []
        errors: list[Exception] = []
        follower = informer.SharedInformer(core.list_namespaced_config_map, "default", label_selector="own")
        for kind in (informer.ADDED, informer.MODIFIED, informer.DELETED):
            follower.add_event_handler(kind, lambda each, kind=kind: seen.append((kind, each.metadata.name)))
        follower.add_event_handler(informer.ERROR, errors.append)
        follower.start()
        try:
            running.eventually(lambda: len(seen) == 2, "both are known")
            core.patch_namespaced_config_map("before", "default", {"data": {"a": "b"}})
            running.eventually(lambda: ("MODIFIED", "before") in seen, "the change is seen")
            # The store moves on while the informer has nothing to hear: the next server knows what came since, all the same.
            core.create_namespaced_secret("default", {"metadata": {"name": "other"}})
            own_plane.kill_apiserver()
            core.delete_namespaced_config_map("doomed", "default")
            _make(core, "default", "after")
            running.eventually(lambda: ("ADDED", "after") in seen, "what came after is seen")
            running.eventually(lambda: ("DELETED", "doomed") in seen, "what went is seen")
            assert 410 not in [error.status for error in errors if isinstance(error, client.ApiException)]
            assert sorted(follower.cache.list_keys()) == ["default/after", "default/before"]
            assert follower.cache.get_by_key("default/before").data == {"a": "b"}
        finally:
            _stop(follower, core)
