# SPDX-License-Identifier: Apache-2.0
"""Which requests wait for a living node that has their name. `rules.nodes.claim` says when one has; nothing is written here.

Shared by the two approvers, csrapproving and the machine-approver.

1. A request in the name of a living node, by somebody else, waits. It is judged again when the Lease can have ended, and when the
   Lease is deleted. The Lease is read from the server before anything is approved: the watch may be late.
2. Where Leases may not be read (the rights may be those of an earlier release), a request in somebody else's node name waits if
   there is a Node of that name. All others go on. A living node whose Node was deleted is not protected then.
3. Who follows no Leases protects nobody.
"""

from __future__ import annotations

import msgspec

from handfast.api import resources, status
from handfast.client import api
from handfast.controllers import node_leases
from handfast.rules.certificates import kubelet
from handfast.rules.nodes import claim, liveness
from handfast.runtime import clock as clocks

LEASES_FORBIDDEN = "LeasesForbidden"
_FORBIDDEN_SECONDS = 30.0
_LEASES_HINT = (
    "apply what `handfast serve controllers --print-manifest` prints, which has the right to get, list and watch Leases in "
    f"{liveness.NAMESPACE}; or approve the request by hand"
)


class Wait(msgspec.Struct, frozen=True):
    """How many seconds to wait.

    `check`: a living node has the name. `text`: Leases may not be read. Neither: the Lease has just ended, and is looked at
    once more.
    """

    seconds: float
    check: kubelet.Check | None = None
    text: str = ""


class LivingNodes:
    """The requests that wait for Leases."""

    def __init__(self, client: api.Client, clock: clocks.Clock, leases: node_leases.NodeLeases | None) -> None:
        self._client = client
        self.clock = clock
        # None: the names of living nodes are not protected (3).
        self._leases = leases
        # Which requests wait for the Lease of which node, and the other way round.
        self._waiting: dict[str, set[str]] = {}
        self._nodes: dict[str, str] = {}
        # And which nodes were found silent, since when.
        self._silences: dict[str, liveness.Silence] = {}

    @property
    def protects(self) -> bool:
        """Whether Leases are followed, so that living nodes keep their names (3)."""
        return self._leases is not None

    def forget(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        if name in self._nodes:
            self._wait_no_more(self._nodes[name], name)

    def freed_by(self, node: str) -> tuple[str, ...]:
        """The requests to look at again, now that something happened to the Lease of this node."""
        # 1. only a Lease that has gone matters: a renewal changes nothing
        if self._leases is None or self._leases.pulse(node) is not None:
            return ()
        return self.waiting_for(node)

    def waiting_for(self, node: str) -> tuple[str, ...]:
        """The requests that wait for the Lease of this node."""
        return tuple(self._waiting.get(node, ()))

    async def judge(self, name: str, facts: kubelet.Facts) -> Wait | None:
        """How long the request of this name has to wait for the node that has its node's name; None: not at all."""
        if self._leases is None or not claim.concerns(facts):
            return None
        node = facts.node_name
        # From here on a Lease that is deleted is told of.
        self._waiting.setdefault(node, set()).add(name)
        self._nodes[name] = node
        try:
            pulse = await self._leases.read(self._client, node)
        except status.StatusError as error:
            if error.code != 403:
                raise
            return await self._without_leases(name, node, error)
        now, monotonic = self.clock.now(), self.clock.monotonic()
        check = claim.check(facts, pulse, now, monotonic)
        if pulse is not None and check.passed:
            silence = liveness.found_silent(pulse, self._silences.get(node), monotonic)
            if silence.left() > 0:
                self._silences[node] = silence
                return Wait(liveness.LOOK_AGAIN_SECONDS)
        if pulse is None or check.passed:
            self._wait_no_more(node, name)
            return None
        return Wait(pulse.left(now, monotonic), check)

    async def _without_leases(self, name: str, node: str, error: status.StatusError) -> Wait | None:
        # 2. where the Lease may not be read
        if await self._client.find(resources.NODES, node) is None:
            self._wait_no_more(node, name)
            return None
        text = f'there is a Node "{node}", and whether it is alive cannot be read: {error.message}'
        return Wait(_FORBIDDEN_SECONDS, text=f"{text}; to change that: {_LEASES_HINT}")

    def _wait_no_more(self, node: str, name: str) -> None:
        names = self._waiting.get(node, set())
        names.discard(name)
        self._nodes.pop(name, None)
        # Whatever is judged next begins anew: this one's approval may fail.
        self._silences.pop(node, None)
        if not names:
            self._waiting.pop(node, None)
