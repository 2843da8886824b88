# SPDX-License-Identifier: Apache-2.0
"""The files that a service is made from and logs in with, taken up again when they change. It starts nothing.

1. A kubeconfig that has changed, or a file that it names, changes the credentials of the one client that all share:
   requests under way are answered first.
2. A changed CA or signing key is what a service is made from: it is told, and makes it anew.
3. What cannot be used changes nothing, until it can.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable, Sequence

import structlog

from handfast import errors
from handfast.bootstrap import kubeconfig
from handfast.client import connection, transport
from handfast.runtime import clock as clocks
from handfast.runtime import files, following, tasks

_log = structlog.get_logger("handfast.client")
_MAX_BYTES = 1 << 20

# What a service is made from: the content, or the file that holds it and may change; None: there is none.
Material = bytes | pathlib.Path | None


def content(source: Material, *, private: bool = False) -> bytes | None:
    """What is there now; nothing where the file is absent."""
    if not isinstance(source, pathlib.Path):
        return source
    if not source.exists():
        return None
    return (files.read_private if private else files.read)(source, limit=_MAX_BYTES)


class Credentials:
    """The kubeconfig of a role. Made before it is read."""

    def __init__(self, path: str, clock: clocks.Clock) -> None:
        self._path = path
        self._new: connection.Connection | None = None
        self._noticed = asyncio.Event()
        self.follower = following.Follower(_named(pathlib.Path(path)), self._read, clock)

    def _read(self) -> None:
        self._new = connection.load(self._path)
        self._noticed.set()

    async def follow(self, link: transport.Transport) -> None:
        """Give what is new to the client, until cancelled (1)."""
        while True:
            await self._noticed.wait()
            self._noticed.clear()
            if self._new is None:
                continue
            try:
                await link.use(self._new)
            # 3. what cannot be used changes nothing
            except errors.HandfastError as error:
                _log.warning("a changed kubeconfig cannot be used", reason=error.reason, error=error.message)
            else:
                _log.info("logging in with the credentials of a changed kubeconfig", kubeconfig=self._path)


def _named(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """The kubeconfig, and the files of certificates and keys that it names."""
    try:
        parsed = kubeconfig.parse(files.read(path, limit=_MAX_BYTES).decode("utf-8", "replace"))
    except errors.HandfastError:
        # Whoever reads it in earnest says what is wrong.
        return (path,)
    user = parsed.user
    texts = [parsed.cluster.certificate_authority]
    if user is not None:
        texts += [user.client_certificate, user.client_key]
    return (path, *(path.parent / text for text in texts if text))


@contextlib.asynccontextmanager
async def followed(
    credentials: Credentials,
    link: transport.Transport,
    sources: Sequence[Material],
    remake: Callable[[], None],
    clock: clocks.Clock,
) -> AsyncIterator[None]:
    """While the block runs, files that change are taken up; `remake` is called when one of `sources` has changed (2)."""
    paths = [one for one in sources if isinstance(one, pathlib.Path)]
    material = following.Follower(paths, remake, clock)
    async with tasks.Group("files") as group:
        group.start(credentials.follow(link), name="credentials")
        group.start(credentials.follower.run(), name="kubeconfig")
        group.start(material.run(), name="material")
        yield
