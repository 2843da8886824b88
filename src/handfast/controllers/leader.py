# SPDX-License-Identifier: Apache-2.0
"""The leader lock: of several copies of a process, one works and the others wait, by way of a Lease.

It saves work and nothing more: every controller is right without it. Whether a holder is alive is judged by how long
its record has stood unchanged on our own clock, so that clocks need not agree.

A process that cannot even ask, for want of a right, a credential or a server, says so in its log: it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from handfast import errors
from handfast.api import objects, resources
from handfast.client import api
from handfast.controllers import loop
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

_log = structlog.get_logger("handfast.leader")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How long a lease lasts without renewal, when its holder must give up, how often it tries; in seconds.

    Whoever waits sees the last renewal up to one try late, and looks again when the lease ends: it takes over 11 to 13 seconds after that
    renewal, and what its requests take. 15 are promised (docs/two-servers.md).
    """

    duration: int = 11
    renew: float = 8.0
    retry: float = 2.0


class Lock:
    """One Lease, and this process as a candidate for it."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        *,
        name: str,
        identity: str,
        namespace: str = "kube-system",
        terms: Terms = Terms(),  # noqa: B008 - frozen
    ) -> None:
        self._client = client
        self._clock = clock
        self._name = name
        self._identity = identity
        self._namespace = namespace
        self._terms = terms
        self._seen: tuple[Any, ...] = ()
        # Since when the lease has stood so, and for how many seconds it is in force.
        self._seen_at = self._seen_for = 0.0
        self.leading = False
        # Why the lease could not be asked for, as long as that is so.
        self.trouble: errors.HandfastError | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` whenever and as long as the lock is held; returns when `work` does."""
        while True:
            await self._acquire()
            self.leading = True
            _log.info("leading", lease=self._name, identity=self._identity)
            try:
                async with tasks.Group("leader") as group:
                    worker = group.start(_then_end(work, group), name="work")
                    group.start(self._renew(group), name="renew")
                    await group.wait()
                    if worker.done():
                        return
            finally:
                self.leading = False
            _log.warning("leadership lost", lease=self._name, identity=self._identity)

    async def _acquire(self) -> None:
        while not await self._try():
            # Not past the end of the lease that is in the way.
            left = self._seen_at + self._seen_for - self._clock.monotonic()
            await self._clock.sleep(min(left, self._terms.retry) if left > 0 else self._terms.retry)

    async def _renew(self, group: tasks.Group) -> None:
        """Keep the lease; when it could not be renewed in time, stop the group."""
        renewed = self._clock.monotonic()
        while self._clock.monotonic() - renewed < self._terms.renew:
            await self._clock.sleep(self._terms.retry)
            if await self._try():
                renewed = self._clock.monotonic()
            elif self._seen and self._seen[0] != self._identity:
                break
        group.end()

    async def _try(self) -> bool:
        """One attempt to take or renew the lease; False if it is another's or cannot be reached."""
        try:
            taken = await self._taken()
        except (errors.Refused, errors.Unavailable) as error:
            self._troubled(error)
            return False
        self.trouble = None
        return taken

    def _troubled(self, error: errors.HandfastError) -> None:
        """Log a failure once, until it is another one. A lost race is no failure."""
        reported = self.trouble is not None and self.trouble.reason == error.reason
        self.trouble = None if error.reason in loop.RACES else error
        write = _log.debug if reported or self.trouble is None else _log.warning
        write("the lease cannot be taken", lease=self._name, reason=error.reason, error=error.message)

    async def _taken(self) -> bool:
        lease = await self._client.find(resources.LEASES, self._name, namespace=self._namespace)
        if lease is None:
            document = self._record({"metadata": {"name": self._name, "namespace": self._namespace}}, {})
            self._observe(await self._client.create(resources.LEASES, document, namespace=self._namespace))
            return True
        self._observe(lease)
        spec = lease.get("spec") or {}
        if not self._mine_or_expired(spec):
            return False
        self._observe(await self._client.update(resources.LEASES, self._record(lease, spec)))
        return True

    def _observe(self, lease: objects.Document) -> None:
        spec = lease.get("spec") or {}
        record = (spec.get("holderIdentity") or "", spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock.monotonic()
        self._seen_for = float(spec.get("leaseDurationSeconds") or self._terms.duration)

    def _mine_or_expired(self, spec: objects.Document) -> bool:
        holder = spec.get("holderIdentity") or ""
        if holder in {"", self._identity}:
            return True
        return self._clock.monotonic() - self._seen_at >= self._seen_for

    def _record(self, lease: objects.Document, spec: objects.Document) -> objects.Document:
        now = objects.micro_timestamp(self._clock.now())
        renewal = spec.get("holderIdentity") == self._identity
        transitions = int(spec.get("leaseTransitions") or 0)
        return {
            **lease,
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "spec": {
                **spec,
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._terms.duration,
                "acquireTime": spec.get("acquireTime", now) if renewal else now,
                "renewTime": now,
                "leaseTransitions": transitions + (1 if spec and not renewal else 0),
            },
        }

    async def release(self) -> None:
        """Let the next candidate in at once, if the lease is still ours."""
        try:
            lease = await self._client.get(resources.LEASES, self._name, namespace=self._namespace)
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") == self._identity:
                lease["spec"] = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.update(resources.LEASES, lease)
        except (errors.Refused, errors.Unavailable) as error:
            _log.debug("lease not released", lease=self._name, reason=error.reason, error=error.message)


async def _then_end(work: Callable[[], Coroutine[Any, Any, None]], group: tasks.Group) -> None:
    await work()
    group.end()
