# SPDX-License-Identifier: Apache-2.0
"""The cluster that Machines are on, where that is another than the one of the Nodes: a client of its own, kept logged in.

It follows no Machines: `inventory` does, with the options from here.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from handfast.client import api, connection, followed_files, machine_inventory, transport
from handfast.runtime import clock as clocks
from handfast.runtime import files


class Management:
    """Where Machines are read and written; without a kubeconfig, where the Nodes are."""

    def __init__(self, kubeconfig: str, options: machine_inventory.Options, clock: clocks.Clock) -> None:
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._link: transport.Transport | None = None
        self.options = options
        if kubeconfig:
            with files.otherwise("name another kubeconfig with --management-cluster-kubeconfig"):
                self._link = transport.Transport(connection.load(kubeconfig), clock=clock)
            self.options = dataclasses.replace(options, client=api.Client(self._link))

    @contextlib.asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """While the block runs, a kubeconfig that changes is taken up; at its end the connections are closed."""
        if self._link is None:
            yield
            return
        credentials = followed_files.Credentials(self._kubeconfig, self._clock)
        try:
            async with followed_files.followed(credentials, self._link, (), lambda: None, self._clock):
                yield
        finally:
            await self._link.close()
