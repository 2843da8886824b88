# SPDX-License-Identifier: Apache-2.0
"""What the policy service says of a workload's ports, asked for ever. What it means, `wire.port_policies` says; what counts when, `judgements`.

1. The server proves its name by the anchors of the moment, except on loopback (`wire.channel`). The own certificate is not shown: it is asked
   before there is one.
2. It is asked again after a delay that grows. What was answered last holds meanwhile.
3. An answer that cannot be followed changes nothing, and is logged with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from handfast import errors
from handfast.proxy import trust as trust_module
from handfast.rules.envoy import judging
from handfast.rules.mesh import proxy_clients
from handfast.runtime import addresses, backoff, tasks
from handfast.runtime import clock as clocks
from handfast.wire import channel, port_policies

_SCHEDULE: Final = backoff.Schedule(initial=0.1, cap=15.0)
_log = structlog.get_logger("handfast.proxy")


class PortAnswers:
    """The newest answer for each port; `subscribe` tells of a new one. `workload` says which Pod it is."""

    def __init__(
        self,
        client: proxy_clients.Client,
        trust: trust_module.Trust,
        workload: str,
        numbers: Iterable[int],
        clock: clocks.Clock,
    ) -> None:
        self._client = client
        self._trust = trust
        self._workload = workload
        self._numbers = tuple(numbers)
        self._clock = clock
        self._notify: Callable[[], None] = lambda: None
        self._said = ""
        self.rows: dict[int, judging.PortJudgement] = {}

    @property
    def why_not(self) -> str | None:
        """Of which port nothing is known, and why; None where each was answered."""
        port = next((number for number in self._numbers if number not in self.rows), None)
        if port is None:
            return None
        return f"the policy service has not said who may call port {port}" + (f": {self._said}" if self._said else "")

    def subscribe(self, notify: Callable[[], None]) -> None:
        """Call `notify` when there is another answer."""
        self._notify = notify

    async def run(self) -> None:
        """Until cancelled."""
        delays = backoff.Backoff(_SCHEDULE)
        while True:
            before = dict(self.rows)
            try:
                await self._session()
                error = "the stream ended"
            except errors.HandfastError as failed:
                # 3. it changes nothing
                error = failed.message
            except OSError as failed:
                error = (failed.strerror or "it failed").lower()
            if error != self._said:
                _log.warning("the policy service does not answer", error=error)
            self._said = error
            if self.rows != before:
                delays.reset()
            # 2. for ever
            await self._clock.sleep(next(delays))

    async def _session(self) -> None:
        async with (
            channel.opened(
                addresses.parse(self._client.address),
                # 1. who it is, except on loopback
                anchors=None if self._client.name is None else self._trust.current,
                server_name=self._client.name or "",
                clock=self._clock,
            ) as opened,
            tasks.Group("policy") as group,
        ):
            for number in self._numbers:
                group.start(self._watch(opened, number), name=str(number))
            await group.wait()

    async def _watch(self, opened: channel.Channel, number: int) -> None:
        async for row in port_policies.watch(opened, self._workload, number):
            self._said = ""
            if self.rows.get(number) != row:
                self.rows[number] = row
                _log.info("policy of a port", port=number, everybody=row.tcp, probes=len(row.open_paths))
                self._notify()
