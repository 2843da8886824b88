# SPDX-License-Identifier: Apache-2.0
"""Keeps the node's Lease in `kube-node-lease`: the heartbeat by which a control plane knows that the node is there.

It takes no lead and no turns: the Lease has one holder for ever. What else a node says of itself is in `registration`.

1. It is renewed every `PERIOD` seconds and lasts `SECONDS`, as with the kubelet. A failed renewal is tried again soon,
   with growing delays that stay below the period.
2. The last answer is written over without reading it first. Where it was changed meanwhile it is read and written
   again; where it is gone it is made again.
3. It belongs to the Node, so that it goes when the Node is deleted.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from handfast import errors
from handfast.api import objects, resources, status
from handfast.client import api
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

NAMESPACE: Final = "kube-node-lease"
PERIOD: Final = 10.0
SECONDS: Final = 40
_RETRY: Final = backoff.Schedule(initial=0.2, cap=7.0)

_log = structlog.get_logger("handfast.node")


class NodeLease:
    """The Lease of one node; `uid` is that of its Node."""

    def __init__(self, client: api.Client, node: str, clock: clocks.Clock, uid: str = "") -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._uid = uid
        self._latest: objects.Document | None = None
        self._renewed: float | None = None
        self._failing = ""

    async def run(self) -> None:
        """Never returns (1)."""
        delays = backoff.Backoff(_RETRY)
        while True:
            begun = self._clock.monotonic()
            try:
                await self.renew()
            except (errors.Refused, errors.Unavailable) as error:
                if not self._failing:
                    _log.warning("the node's Lease was not renewed", reason=error.reason, error=error.message)
                self._failing = error.message
                await self._clock.sleep(next(delays))
                continue
            if self._failing:
                _log.info("the node's Lease is renewed again")
            self._failing = ""
            delays.reset()
            await self._clock.sleep(max(0.0, PERIOD - (self._clock.monotonic() - begun)))

    async def renew(self) -> None:
        """One renewal (2)."""
        try:
            if self._latest is None:
                self._latest = await self._client.find(resources.LEASES, self._node, namespace=NAMESPACE)
            self._latest = await (self._create() if self._latest is None else self._update(self._latest))
        except status.StatusError as error:
            # Whatever is known of it is out of date.
            self._latest = None
            if error.reason not in {"Conflict", "NotFound", "AlreadyExists"}:
                raise
            found = await self._client.find(resources.LEASES, self._node, namespace=NAMESPACE)
            self._latest = await (self._create() if found is None else self._update(found))
        self._renewed = self._clock.monotonic()

    def problem(self) -> str | None:
        """For a health check: why the control plane may take this node for lost."""
        if self._renewed is None:
            return f"the Lease was not renewed yet{f': {self._failing}' if self._failing else ''}"
        age = self._clock.monotonic() - self._renewed
        if age <= SECONDS:
            return None
        return f"the Lease was last renewed {age:.0f} s ago{f': {self._failing}' if self._failing else ''}"

    async def _create(self) -> objects.Document:
        document: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._node, "namespace": NAMESPACE},
            "spec": self._spec(),
        }
        # 3. it belongs to the Node
        if self._uid:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._uid}
            document["metadata"]["ownerReferences"] = [owner]
        return await self._client.create(resources.LEASES, document, namespace=NAMESPACE)

    async def _update(self, document: objects.Document) -> objects.Document:
        return await self._client.update(
            resources.LEASES, {**document, "spec": {**(document.get("spec") or {}), **self._spec()}}
        )

    def _spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._node,
            "leaseDurationSeconds": SECONDS,
            "renewTime": objects.micro_timestamp(self._clock.now()),
        }
