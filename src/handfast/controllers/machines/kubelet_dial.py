# SPDX-License-Identifier: Apache-2.0
"""Which certificate a kubelet serves now: a TLS handshake with the place that its Node names, and nothing after it.

What it presented is verified by `rules.machines.serving`, which also says where a kubelet may be. It decides nothing.

A Node's status is the node's own writing, so that a node chooses where this connects to:

1. No client certificate and no byte of a request are sent, and nothing that comes after the handshake is read.
2. It takes 30 seconds at most.
3. At most 8 handshakes are under way at once. Requests that wait for the same place share the next one.
4. What was presented is used only if it is verified by the kubelets' CA, as that node's own. The handshake itself proves that who
   presented it has its key.

| who | holding | tries | stopped by | shown in tests/unit/controllers/machines/test_kubelet_dial.py |
|---|---|---|---|---|
| a node | an address that never answers | keep a handshake under way for ever | 2 | test_a_place_that_says_nothing_is_given_up |
| … | many of them, and many requests | have us open a connection to each at once | 3 | test_only_a_few_are_dialled_at_once |
| … | another service's address | have it sent something, or a credential | 1 | test_nothing_is_sent_but_a_handshake |
| … | a relay to another node's kubelet | have that one's certificate taken for its own | 4: the subject | test_a_kubelet_of_another_node_decides_nothing |
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from typing import Final

from handfast import errors
from handfast.rules.machines import serving
from handfast.runtime import batches, tasks, tls
from handfast.runtime import clock as clocks

SECONDS: Final = 30.0
AT_ONCE: Final = 8

Chain = tuple[bytes, ...]


class KubeletUnreachable(errors.Unavailable):
    """Nobody presented a certificate there."""

    reason = "KubeletUnreachable"


class KubeletDial:
    """Handshakes with kubelets."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._lines: batches.Batches[serving.Place, None, Chain] = batches.Batches(self._dial)

    async def chain(self, place: serving.Place) -> Chain:
        """What is presented there (DER, the kubelet's own first), not verified yet; else KubeletUnreachable."""
        # 3. those who wait for one place share the next handshake
        return await self._lines.join(place, None)

    async def _dial(self, place: serving.Place, waiting: Sequence[batches.Waiting[None, Chain]]) -> None:
        async with self._slots:
            chain = await self._presented(place)
        for each in waiting:
            each.settle(chain)

    async def _presented(self, place: serving.Place) -> Chain:
        chains: list[Chain] = []

        async def handshake() -> None:
            chains.append(await _handshake(place))

        try:
            # 2. in time
            in_time = await tasks.within(handshake(), self._clock, SECONDS)
        except ssl.SSLError as error:
            raise KubeletUnreachable(f"{place} does not speak TLS as a kubelet does: {error.reason}") from error
        except OSError as error:
            raise KubeletUnreachable(f"{place} cannot be reached: {error.strerror or error}") from error
        if not in_time:
            raise KubeletUnreachable(f"{place} did not answer within {SECONDS:.0f} seconds")
        return chains[0]


async def _handshake(place: serving.Place) -> Chain:
    # 4. verified afterwards, by rules that give their reasons; 1. nobody is told who asks
    context = tls.unsafe_unverified_context()
    _, writer = await asyncio.open_connection(str(place.address), place.port, ssl=context)
    try:
        return tls.presented_chain(writer.transport)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
