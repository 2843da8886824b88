# SPDX-License-Identifier: Apache-2.0
"""Registers this machine as a Node and keeps its status: what `machine` says of it, and whether it is ready and why.

It writes only what NodeRestriction leaves to a node: its own Node, and of the labels those that describe a machine. What
an administrator has set (other labels, taints, annotations) stays. The heartbeat is a Lease: see `lease`.

1. A Node that is there already is taken over, whoever made it: only labels that are ours and differ are written.
2. A new Node carries the taint `TAINT`: this agent runs no Pods, so a scheduler should send none. An administrator may
   take the taint away, and a node cannot put it back.
3. Every `PERIOD` seconds the status as it should be is compared with the status as it is, as the kubelet does: a
   control plane that has not heard of this node says so on its Node, and nobody else would take that back. It is
   written when it has changed, when somebody else wrote it, or after `REPORT` seconds.
4. `Ready` is False while a check of this agent fails, with the check's own words. The instant of the last change is
   kept over restarts of the agent.
5. A Node that somebody has deleted is registered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import metadata as packages
from typing import Any, Final

import structlog

from handfast import errors
from handfast.api import jsonpath, objects, resources, status
from handfast.client import api
from handfast.node import machine as machines
from handfast.runtime import clock as clocks

PERIOD: Final = 10.0
REPORT: Final = 300.0
TAINT: Final = "handfast.dev/runs-no-pods"
READY: Final = "AgentReady"
NOT_READY: Final = "AgentNotReady"
# Of conditions and labels it changes those that it names, and no others.
_STRATEGIC: Final = "application/strategic-merge-patch+json"

_log = structlog.get_logger("handfast.node")


class Registration:
    """The Node of one machine. `problem` says what is wrong with the agent, None if nothing is."""

    def __init__(
        self, client: api.Client, machine: machines.Machine, clock: clocks.Clock, problem: Callable[[], str | None]
    ) -> None:
        self._client = client
        self._machine = machine
        self._clock = clock
        self._problem = problem
        self._written: dict[str, Any] = {}
        self._written_at = 0.0
        self._ready: tuple[str, str] | None = None
        self._failing = ""
        self.registered = asyncio.Event()
        self.uid = ""

    async def run(self) -> None:
        """Never returns (3)."""
        while True:
            try:
                if not self.registered.is_set():
                    await self.register()
                await self.report()
            except (errors.Refused, errors.Unavailable) as error:
                self._failed(error)
            else:
                self._failing = ""
            await self._clock.sleep(PERIOD)

    def _failed(self, error: errors.HandfastError) -> None:
        if isinstance(error, status.StatusError) and error.reason == "NotFound":
            # 5. deleted, and registered again
            self.registered.clear()
        if self._failing != error.message:
            _log.warning("the Node was not written", reason=error.reason, error=error.message)
        self._failing = error.message

    def problem(self) -> str | None:
        """For a health check."""
        if self.registered.is_set() and not self._failing:
            return None
        what = "the Node's status was not written" if self.registered.is_set() else "the Node is not registered"
        return f"{what}{f': {self._failing}' if self._failing else ' yet'}"

    async def register(self) -> None:
        """Make the Node, or take it over (1, 2)."""
        try:
            node = await self._client.create(resources.NODES, self.document())
            _log.info("registered", node=self._machine.name)
        except status.StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            node = await self._client.get(resources.NODES, self._machine.name)
            node = await self._relabelled(node)
        self.uid = jsonpath.text(node, "metadata", "uid")
        self._written = {}
        self._ready = _ready_since(node)
        self.registered.set()

    def document(self) -> objects.Document:
        """A new Node."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._machine.name, "labels": self._machine.labels},
            "spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]},
            "status": self.status(),
        }

    async def _relabelled(self, document: objects.Document) -> objects.Document:
        labels = jsonpath.mapping(document, "metadata", "labels")
        differing = {key: text for key, text in self._machine.labels.items() if labels.get(key) != text}
        if not differing:
            return document
        return await self._client.patch(resources.NODES, self._machine.name, {"metadata": {"labels": differing}})

    async def report(self) -> None:
        """Write the status, if it is time to (3)."""
        wanted = self.status()
        due = self._clock.monotonic() - self._written_at >= REPORT
        if self._written and not due and _without_heartbeat(wanted) == _without_heartbeat(self._written):
            node = await self._client.get(resources.NODES, self._machine.name)
            if _ready_of(node) == _ready_of({"status": wanted}):
                return
            # Somebody else has changed it: they say since when.
            self._ready = _ready_since(node)
            wanted = self.status()
        # Addresses are merged by type, so that two of one type would be one.
        patch = {"metadata": {}, "status": {**wanted, "addresses": [*wanted["addresses"], {"$patch": "replace"}]}}
        await self._client.patch(
            resources.NODES, self._machine.name, patch, content_type=_STRATEGIC, subresource="status"
        )
        self._written, self._written_at = wanted, self._clock.monotonic()

    def status(self) -> dict[str, Any]:
        """What the Node's status is to be now."""
        machine = self._machine
        information = {
            "architecture": machine.architecture,
            "bootID": machine.boot_id,
            "containerRuntimeVersion": "none",
            "kernelVersion": machine.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": f"handfast-{packages.version('handfast')}",
            "machineID": machine.machine_id,
            "operatingSystem": machine.os,
            "osImage": machine.image,
            "systemUUID": machine.machine_id,
        }
        endpoint = {"daemonEndpoints": {"kubeletEndpoint": {"Port": machine.port}}} if machine.port else {}
        return {
            "addresses": machine.node_addresses,
            "conditions": [self._condition()],
            "nodeInfo": information,
            **endpoint,
        }

    def _condition(self) -> dict[str, str]:
        # 4. ready, or why not
        problem = self._problem()
        now = objects.timestamp(self._clock.now())
        word = "True" if problem is None else "False"
        if self._ready is None or self._ready[0] != word:
            self._ready = (word, now)
        return {
            "type": "Ready",
            "status": word,
            "reason": READY if problem is None else NOT_READY,
            "message": "the node agent is at work; it runs no Pods" if problem is None else problem,
            "lastHeartbeatTime": now,
            "lastTransitionTime": self._ready[1],
        }


def _ready_of(node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Status and reason."""
    for condition in jsonpath.mappings(node, "status", "conditions"):
        if condition.get("type") == "Ready":
            return jsonpath.text(condition, "status"), jsonpath.text(condition, "reason")
    return None


def _ready_since(node: Mapping[str, Any]) -> tuple[str, str] | None:
    for condition in jsonpath.mappings(node, "status", "conditions"):
        since = jsonpath.text(condition, "lastTransitionTime")
        if condition.get("type") == "Ready" and since:
            return jsonpath.text(condition, "status"), since
    return None


def _without_heartbeat(node_status: dict[str, Any]) -> dict[str, Any]:
    conditions = [{**row, "lastHeartbeatTime": ""} for row in node_status["conditions"]]
    return {**node_status, "conditions": conditions}
