# SPDX-License-Identifier: Apache-2.0
"""Keeps the ConfigMap `kubeconfig-data`: where machines reach the API server, and the CA that they know it by.

The bootstrap kubeconfigs of machines are made of it (`rules.machine_config.credential`). What was changed there is set back, with an
Event; an immutable one is told of and left (`immutable`), and whoever renders refuses it (`is_foreign`). Other keys are not touched. Without
an address nothing is written: then whoever else keeps it is not disturbed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from handfast import errors
from handfast.api import objects, resources, status
from handfast.client import api, events
from handfast.controllers import immutable, views
from handfast.rules.machine_config import credential, names
from handfast.rules.machines import bootstrapper

RESTORED: Final = "KubeconfigDataRestored"
FOREIGN: Final = "ForeignKubeconfigData"
_MESSAGE: Final = (
    f"{names.SERVER_KEY} and {names.CA_KEY} are set to the address and the CA of this control plane: to give machines another "
    "address, start it with --advertise"
)

_log = structlog.get_logger("handfast.machine_config")


def foreign() -> errors.Refused:
    """Why nothing is rendered of what somebody else wrote there."""
    return errors.Refused(
        f"ConfigMap {bootstrapper.NAMESPACE}/{names.KUBECONFIG_DATA} names another API server, or another CA, than this control plane's, and "
        "could not be set back: machines are not sent there",
        reason=FOREIGN,
        hint="delete it: it is made anew",
    )


class KubeconfigData:
    """The ConfigMap, and what it is to say."""

    def __init__(
        self, client: api.Client, recorder: events.Recorder, controller: str, servers: Sequence[str], ca: bytes
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._immutable = immutable.Immutable(recorder, controller)
        self._server = servers[0] if servers else ""
        self._ca = ca
        # Whether what this process wants was there before: what differs then was changed by somebody else.
        self._kept = False

    def is_foreign(self, seen: credential.Seen) -> bool:
        """Whether machines would be sent elsewhere than this control plane wants; without an address of its own it has no opinion."""
        return self._knows and (seen.server, seen.ca) != (self._server, self._ca)

    @property
    def _knows(self) -> bool:
        return bool(self._server and self._ca)

    async def keep(self) -> None:
        if not self._knows:
            return
        there = await self._client.find(resources.CONFIG_MAPS, names.KUBECONFIG_DATA, namespace=bootstrapper.NAMESPACE)
        if there is None:
            await self._create()
            return
        if self.is_foreign(credential.read([], [there])) and not await self._immutable.stops(there):
            await self._update(there)
        self._kept = True

    async def _update(self, there: objects.Document) -> None:
        wanted = self._wanted()
        document = {**there, "data": {**(there.get("data") or {}), **wanted}}
        # One key in both is more than the API allows.
        if binary := there.get("binaryData"):
            document["binaryData"] = {key: value for key, value in binary.items() if key not in wanted}
        written = await self._client.update(resources.CONFIG_MAPS, document)
        if self._kept:
            _log.warning("somebody else's kubeconfig-data was replaced", reason=RESTORED)
            await self._recorder.record(immutable.regarding(written), RESTORED, _MESSAGE, severity=events.WARNING)

    async def _create(self) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names.KUBECONFIG_DATA, "namespace": bootstrapper.NAMESPACE},
            "data": self._wanted(),
        }
        try:
            await self._client.create(resources.CONFIG_MAPS, document, namespace=bootstrapper.NAMESPACE)
            self._kept = True
        except status.StatusError as error:
            # NotFound: there is no such namespace; once there is, its watch tells.
            if error.reason != "NotFound" and not views.namespace_ends(error):
                raise

    def _wanted(self) -> dict[str, str]:
        return {names.SERVER_KEY: self._server, names.CA_KEY: self._ca.decode("ascii")}
