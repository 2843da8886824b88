# SPDX-License-Identifier: Apache-2.0
"""Says, once, by an Event and in the log, that a ConfigMap which a controller has to change is immutable.

It changes nothing, and asks for no retry: the API refuses every change, and only whoever made it immutable knows whether that
was meant. Once it is deleted, the watch shows it.
"""

from __future__ import annotations

from typing import Final

import structlog

from handfast.api import objects
from handfast.client import events

REASON: Final = "ImmutableConfigMap"

_log = structlog.get_logger("handfast.controller")


def regarding(config_map: objects.Document) -> events.Regarding:
    """A ConfigMap, for an Event about it."""
    meta = objects.metadata(config_map)
    return events.Regarding(
        api_version="v1",
        kind="ConfigMap",
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        resource_version=meta["resourceVersion"],
    )


class Immutable:
    """One controller's complaint about one ConfigMap, and about whatever takes its place."""

    def __init__(self, recorder: events.Recorder, controller: str) -> None:
        self._recorder = recorder
        self._controller = controller
        self._reported: object = None

    async def stops(self, document: objects.Document) -> bool:
        """Can the ConfigMap not be changed? Then that has been told."""
        if document.get("immutable") is not True:
            return False
        meta = objects.metadata(document)
        if self._reported != meta["uid"]:
            self._reported = meta["uid"]
            where = f"{meta['namespace']}/{meta['name']}"
            message = (
                f"the ConfigMap {where} has to be changed, and is immutable: delete it, so that it can be made anew"
            )
            _log.warning(message, controller=self._controller, reason=REASON)
            await self._recorder.record(regarding(document), REASON, message, severity=events.WARNING)
        return True
