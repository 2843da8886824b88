# SPDX-License-Identifier: Apache-2.0
"""Runs a command as a Pod of the mesh: what a kubelet does for one Pod, without containers and without root.

It decides nothing about Pods (`rules.mesh.workload_pod`, `rules.mesh.workload_status`), and does no TLS: the proxy does.

What happens while it runs is said in `workload_life`.

1. A Pod of an account is made here, and is removed here in the end. One that is there already stays.
2. On one machine a Pod runs once [PodRuns].
3. However this process dies, the kernel kills the proxy and the application (`runtime.tethers`). What stays in memory, and in the API, is removed by
   the next start (`workload_directory`).

| who | holding | tries | stopped by | shown in tests/scenarios/test_mesh_run.py, tests/unit/node/test_workload.py |
|---|---|---|---|---|
| who took over a workload | its environment and files | find credentials of whoever started it | `workload_life`, `workload_pod` | test_a_command_runs_with_the_identity_of_its_account |
| … | its token | go on after its Pod was deleted | `workload_life`: the token is bound to the Pod | test_a_pod_that_is_deleted_ends_its_workload |
| another user of the machine | the proxy's ports, before it listens or after it has died | get what the application sends, in plaintext | `workload_life` | test_another_user_at_the_proxys_port_is_not_taken_for_the_proxy |
| a crash | kill -9 of this process | leave a proxy that serves on | 3 | test_after_kill_9_nothing_serves_and_the_next_start_cleans_up |
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Final

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.node import workload_directory, workload_life, workload_places, workload_pods
from handfast.rules.mesh import workload_pod
from handfast.runtime import claims
from handfast.runtime import clock as clocks

_FAREWELL: Final = 5.0


class Workload:
    """One run of one command."""

    def __init__(self, options: workload_life.Options, access: workload_pods.Access, clock: clocks.Clock) -> None:
        self._options = options
        self._server = access.server
        self._pods = workload_pods.Pods(access, clock)
        self._clock = clock
        self._run = secrets.token_hex(6)
        self._life: workload_life.Life | None = None

    def signal(self, number: int) -> bool:
        """Pass a signal on to the application; False: it has not started, or has ended."""
        return self._life is not None and self._life.signal(number)

    async def run(self) -> int:
        """The exit code of the application."""
        home = workload_directory.home(os.environ)
        with workload_directory.opened(home, self._run) as (directory, left), claims.Claims() as held:
            await self._clean_up_after(left)
            async with self._pod(directory) as pod:
                return await self._run_pod(pod, directory, held)

    async def _clean_up_after(self, left: Sequence[workload_directory.Left]) -> None:
        for each in left:
            record = each.record
            if record.server == self._server:
                # 3. the Pod of a run that was killed; whose credentials do not suffice leaves it to another
                with contextlib.suppress(errors.Refused):
                    await self._pods.remove_of_run(record.namespace, record.name, record.run)
                    each.forget()

    @contextlib.asynccontextmanager
    async def _pod(self, directory: workload_directory.Directory) -> AsyncIterator[objects.Document]:
        options = self._options
        if not options.account:
            yield await self._pods.find(options.namespace, options.name)
            return
        wanted = workload_pod.Wanted(
            namespace=options.namespace,
            account=options.account,
            name=options.name or workload_pod.name_of(options.account, secrets.token_hex(3)),
            run=self._run,
            labels=options.labels,
            annotations=options.annotations,
            ports=options.ports,
        )
        record = workload_directory.Record(self._server, wanted.namespace, wanted.name, self._run)
        directory.remember(record)
        try:
            yield await self._pods.make(wanted)
        finally:
            await self._remove(record, directory)

    async def _remove(self, record: workload_directory.Record, directory: workload_directory.Directory) -> None:
        # 1. what was made here is removed here; where that fails, the next start does
        with contextlib.suppress(errors.Refused, errors.Unavailable, TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await self._pods.remove_of_run(record.namespace, record.name, record.run)
                directory.forget()

    async def _run_pod(
        self, pod: objects.Document, directory: workload_directory.Directory, held: claims.Claims
    ) -> int:
        uid = jsonpath.text(pod, "metadata", "uid")
        # 2. once
        if not held.take(f"pod {uid}"):
            raise errors.Refused(
                f"{workload_pod.title(pod)} runs on this machine already", reason="PodRuns", hint="end that run first"
            )
        ports = workload_pod.ports(pod, self._options.ports)
        places = workload_places.find(uid, self._server, self._options.pod_ip, ports, held)
        self._life = workload_life.Life(self._options, self._pods, pod, ports, places, directory, self._clock)
        return await self._life.run()
