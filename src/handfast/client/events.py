# SPDX-License-Identifier: Apache-2.0
"""Writes Events about objects, so that `kubectl describe` shows what a controller did or could not do.

The same thing said again raises the count of one Event instead of adding another. What differs each time, and is to be one Event all
the same, has a `topic`: the Event has the last message. It never fails its caller: an Event that cannot be written is logged and let go.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import structlog

from handfast import errors
from handfast.api import objects, resources, status
from handfast.client import api
from handfast.runtime import clock as clocks

_log = structlog.get_logger("handfast.events")

NORMAL = "Normal"
WARNING = "Warning"


class Regarding(msgspec.Struct, frozen=True, kw_only=True):
    """The object an Event is about; the namespace of a cluster-scoped one is empty."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    def document(self) -> dict[str, Any]:
        pairs = (
            ("apiVersion", self.api_version),
            ("kind", self.kind),
            ("name", self.name),
            ("namespace", self.namespace),
            ("uid", self.uid),
            ("resourceVersion", self.resource_version),
        )
        return {key: value for key, value in pairs if value}


class Recorder:
    """Events from one component."""

    def __init__(self, client: api.Client, clock: clocks.Clock, component: str) -> None:
        self._client = client
        self._clock = clock
        self._component = component

    async def record(
        self,
        regarding: Regarding,
        reason: str,
        message: str,
        *,
        severity: str = NORMAL,
        topic: str = "",
        times: int = 1,
    ) -> errors.HandfastError | None:
        """Write or count one Event, so many `times`; what went wrong, where it was not written."""
        # Events about cluster-scoped objects lie in the namespace `default`, as Kubernetes has it.
        namespace = regarding.namespace or "default"
        said = repr((self._component, regarding.kind, regarding.uid, severity, reason, topic or message))
        digest = hashlib.sha256(said.encode()).hexdigest()[:16]
        name = f"{regarding.name[:200]}.{digest}"
        # Some kinds have names that no Event can have: those of certificate requests hold capitals and underscores.
        if objects.dns_subdomain(name) is not None:
            name = f"event.{digest}"
        try:
            try:
                document = {**self._document(regarding, reason, message, severity), "count": times}
                document["metadata"] = {"name": name, "namespace": namespace}
                await self._client.create(resources.EVENTS, document, namespace=namespace)
            except status.StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
                event = await self._client.get(resources.EVENTS, name, namespace=namespace)
                event["count"] = int(event.get("count") or 1) + times
                event["lastTimestamp"] = objects.timestamp(self._clock.now())
                event["message"] = message[:1024]
                await self._client.update(resources.EVENTS, event)
        except (errors.Refused, errors.Unavailable) as error:
            _log.info("event not written", about=regarding.name, what=reason, error=error.message)
            return error
        return None

    def _document(self, regarding: Regarding, reason: str, message: str, severity: str) -> dict[str, Any]:
        now = objects.timestamp(self._clock.now())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": regarding.document(),
            "reason": reason,
            # The API allows 1024 characters.
            "message": message[:1024],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "type": severity,
        }
