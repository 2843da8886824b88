# SPDX-License-Identifier: Apache-2.0
"""Where the issuer and the trust anchors come from: a Secret and a ConfigMap, or three files. The settings are the ConfigMap's always.

It judges nothing: `trust` does, with `rules.mesh`.

1. Files are looked at every few seconds: one that is written in place counts, and so does a directory that the kubelet swaps (`..data`).
2. Everything is read anew on demand, whatever was noticed before: the watchdog asks for it.
3. A key in a file that every user of the machine may read is told of, and used: that is how the kubelet mounts a Secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import stat
from typing import Final, NamedTuple

import structlog

from handfast.client import api, cache, events
from handfast.mesh import installed as installed_module
from handfast.rules.mesh import control_plane, installation, issuer
from handfast.rules.mesh import settings as settings_module
from handfast.runtime import clock as clocks
from handfast.runtime import files, following

_MAX_BYTES: Final = 1 << 20
_log = structlog.get_logger("handfast.mesh.identity")


class Paths(NamedTuple):
    """The files of an issuer: its certificate with its chain, its key, and the trust anchors. PEM or DER each."""

    certificate: pathlib.Path
    key: pathlib.Path
    anchors: pathlib.Path


class Source:
    """What is stored now; `changed` is set when some of it may be new."""

    def __init__(
        self,
        client: api.Client,
        informers: cache.Informers,
        namespace: str,
        clock: clocks.Clock,
        paths: Paths | None = None,
    ) -> None:
        self.namespace = namespace
        self.changed = asyncio.Event()
        self.installed = installed_module.Installed(informers, namespace, self.changed.set, with_signing=paths is None)
        self._client = client
        self._paths = paths
        self._follower = following.Follower(paths or (), self.changed.set, clock)

    @property
    def about(self) -> events.Regarding:
        """What Events about the issuer are about: its Secret, or with files the account of the service."""
        kind, name = ("Secret", control_plane.SIGNING)
        if self._paths is not None:
            kind, name = ("ServiceAccount", control_plane.IDENTITY)
        return events.Regarding(api_version="v1", kind=kind, name=name, namespace=self.namespace)

    def settings(self) -> settings_module.Settings:
        """As `linkerd-config` has them; refused where there is none, or it cannot be read."""
        return settings_module.parse(self.installed.need(control_plane.CONFIG).data or {})

    def material(self) -> issuer.Material:
        """Issuer, key and anchors as they are stored, not judged; refused where some are not there."""
        if self._paths is None:
            signing, anchors = (
                self.installed.need(name) for name in (control_plane.SIGNING, control_plane.TRUST_ANCHOR)
            )
            return installation.read_material(signing.document, anchors.document)
        return issuer.Material(*(files.read(path, limit=_MAX_BYTES) for path in self._paths))

    async def reread(self) -> None:
        """Read everything anew (2)."""
        await self.installed.reread(self._client)
        if self._paths is not None:
            self.changed.set()

    async def run(self) -> None:
        """Notice files that change, until cancelled (1); where there are none, it is done at once."""
        if self._paths is not None:
            _warn_of_readers(self._paths.key)
            await self._follower.run()


def _warn_of_readers(key: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        # 3. told of, and used
        if key.stat().st_mode & stat.S_IROTH:
            _log.warning("every user of this machine may read the issuer's key", file=str(key))
