# SPDX-License-Identifier: Apache-2.0
"""An operator of kopf, from PyPI as it is: finalizers, timers and peering, through the death of the API server.

Proves that nothing is lost and nothing handled twice. (kopf promises "at least once": a handler whose outcome could not be
written is run again. Here the server dies while no outcome is under way.) Admission by kopf is not tried.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config

from tests.interop import peer_objects, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PLURAL = "dates"
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
PEERING: dict[str, str] = {"group": "kopf.dev", "version": "v1", "namespace": "default", "plural": "kopfpeerings"}
PLACE: dict[str, str] = {"group": peer_objects.GROUP, "version": "v1", "namespace": "default", "plural": PLURAL}


@pytest.fixture
def plane(tmp_path: pathlib.Path) -> Iterator[running.ControlPlane]:
    """A control plane whose API server this test may kill."""
    started = running.ControlPlane(tmp_path / "data")
    yield started
    started.stop()
    assert started.failures() == []


class Operators:
    """The operators of one test, and what they have noted."""

    def __init__(self, plane: running.ControlPlane, home: pathlib.Path) -> None:
        self._plane, self._home = plane, home
        self._notes = home / "notes"
        self._notes.touch()

    @contextlib.contextmanager
    def running(self, name: str, priority: int) -> Iterator[pathlib.Path]:
        """One of them; its log."""
        log = self._home / f"{name}.log"
        program = pathlib.Path(__file__).with_name("kopf_operator.py")
        words = [
            sys.executable,
            "-m",
            "kopf",
            "run",
            "--namespace=default",
            "--peering=tests",
            f"--priority={priority}",
        ]
        own = {"KUBECONFIG": str(self._plane.kubeconfig), "OPERATOR_NOTES": str(self._notes), "OPERATOR_NAME": name}
        with running.process([*words, program], log, {**os.environ, **own}):
            yield log

    def notes(self, *, ticks: bool = False) -> list[str]:
        """What was handled, in order of time; timers apart."""
        return [line for line in self._notes.read_text().splitlines() if (line.split()[1] == "tick") == ticks]

    def has(self, *lines: str) -> None:
        running.eventually(lambda: set(lines) <= set(self.notes()), f"{lines} in {self.notes()}", seconds=60)


def _peering() -> dict[str, Any]:
    """The kind that operators of kopf know one another by."""
    document = peer_objects.definition("kopfpeering", "kopfpeerings")
    document["metadata"]["name"] = "kopfpeerings.kopf.dev"
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {"singular": "kopfpeering", "plural": "kopfpeerings", "kind": "KopfPeering"}
    document["spec"] |= {"group": "kopf.dev", "names": names, "versions": [version]}
    return document


class World:
    """What the test does with the official client."""

    def __init__(self, api: client.ApiClient) -> None:
        self._definitions: Any = client.ApiextensionsV1Api(api)
        self._objects: Any = client.CustomObjectsApi(api)

    def define(self) -> None:
        for document in (peer_objects.definition("date", PLURAL), _peering()):
            self._definitions.create_custom_resource_definition(document)
        body = {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "tests"}}
        running.eventually(lambda: self._created(body, PEERING), "the kinds are served")

    def _created(self, body: dict[str, Any], place: dict[str, str]) -> bool:
        try:
            self._objects.create_namespaced_custom_object(body=body, **place)
        except client.ApiException as error:
            if error.status != 404:
                raise
            return False
        return True

    def create(self, name: str) -> None:
        assert self._created(peer_objects.custom("Date", name), PLACE)

    def resize(self, name: str, size: int) -> None:
        self._objects.patch_namespaced_custom_object(name=name, body={"spec": {"size": size}}, **PLACE)

    def delete(self, name: str) -> None:
        self._objects.delete_namespaced_custom_object(name=name, **PLACE)

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._objects.get_namespaced_custom_object(name=name, **PLACE)
        return found

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self._objects.list_namespaced_custom_object(**PLACE)["items"]]

    def peers(self) -> list[int]:
        """The priorities of the operators that say that they are there."""
        found = self._objects.get_namespaced_custom_object(name="tests", **PEERING).get("status") or {}
        return sorted(each["priority"] for each in found.values() if each)


def test_an_operator_loses_nothing_when_the_server_dies(plane, tmp_path):
    operators = Operators(plane, tmp_path)
    with config.new_client_from_config(str(plane.kubeconfig), persist_config=False) as api:
        world = World(api)
        world.define()
        with operators.running("low", 1) as log:
            running.eventually(lambda: world.peers() == [1], f"the operator is among the peers: {log}", seconds=60)
            world.create("one")
            operators.has("low create one 1")
            running.eventually(lambda: world.get("one").get("status", {}).get("created"), "the outcome is kept")
            assert world.get("one")["metadata"]["finalizers"] == [FINALIZER]
            running.eventually(lambda: len(operators.notes(ticks=True)) > 1, "the timer runs")
            _another_takes_over(world, operators, log)
            _the_server_dies(plane, world, operators)
        running.eventually(lambda: world.peers() == [], "it has left the peers")
    assert sorted(operators.notes()) == [
        "high create two 1",
        "low create one 1",
        "low create three 1",
        "low delete two",
        "low update one 1 5",
    ]


def _another_takes_over(world: World, operators: Operators, log: pathlib.Path) -> None:
    """While there is one of higher priority, the other rests."""
    with operators.running("high", 2):
        running.eventually(lambda: "Pausing operations" in log.read_text(), "the first rests", seconds=60)
        world.create("two")
        operators.has("high create two 1")
        running.eventually(lambda: world.get("two").get("status", {}).get("created"), "the outcome is kept")
    running.eventually(lambda: "Resuming operations" in log.read_text(), "the first goes on", seconds=60)


def _the_server_dies(plane: running.ControlPlane, world: World, operators: Operators) -> None:
    """What happens before the operator is back, it hears of."""
    plane.kill_apiserver()
    world.create("three")
    world.resize("one", 5)
    world.delete("two")
    operators.has("low create three 1", "low update one 1 5", "low delete two")
    running.eventually(lambda: world.names() == ["one", "three"], "what is deleted goes when the finalizer does")
    ticks = len(operators.notes(ticks=True))
    running.eventually(lambda: len(operators.notes(ticks=True)) > ticks, "the timer runs again")
