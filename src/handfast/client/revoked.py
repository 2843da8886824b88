# SPDX-License-Identifier: Apache-2.0
"""The Revocations, followed: whom one of them refuses at this instant. `rules.revocation` decides.

It refuses nobody itself. Where the API server is another there may be no such kind, and nobody is revoked.

1. Where the kind is there and may not be read, what was known counts. Of all others nothing is known, and a decision that needs
   it waits (`RevocationsForbidden`). It is followed again within half a minute after the right is granted.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import msgspec

from handfast import errors
from handfast.api import handfast_kinds
from handfast.client import cache, partial, watch
from handfast.rules import decision, revocation
from handfast.rules.certificates import kubelet


class Revocation(msgspec.Struct, frozen=True, gc=False):
    """All of it: there are few."""

    metadata: partial.Meta = partial.Meta()
    spec: dict[str, Any] = {}


SOURCE = watch.Source(resource=handfast_kinds.REVOCATION, view=Revocation, if_served=True)


class RevocationsForbidden(errors.Unavailable):
    """Whether somebody is revoked cannot be read, for want of a right."""

    reason = "RevocationsForbidden"


class RevocationsNotListed(errors.Unavailable):
    """Whether somebody is revoked is not known: they were not listed so far."""

    reason = "RevocationsNotListed"


class Revoked:
    """The index of a process; `notify` is called when one of them comes, changes or goes."""

    def __init__(self, informer: cache.Informer[Revocation], notify: Callable[[], None] = lambda: None) -> None:
        self.index = revocation.Index()
        self._informer = informer
        self._notify = notify
        informer.subscribe(self._changed)

    async def wait_answered(self) -> None:
        await self._informer.wait_answered()

    @property
    def known(self) -> bool:
        """Whether all of them are here: they were listed, and nothing forbids to follow them (1)."""
        return self._informer.synced and not self._informer.refusal

    def judge_request(self, facts: kubelet.Facts, now: datetime.datetime) -> decision.Decision:
        """Whether one of them refuses this request; RevocationsForbidden where that cannot be known (1)."""
        verdict = self.index.judge_request(facts, now)
        if not isinstance(verdict, decision.Deny):
            self.require_known()
        return verdict

    def require_known(self) -> None:
        """Return unless the server forbids to read them: then nobody knows who is revoked (1)."""
        if self._informer.refusal:
            raise RevocationsForbidden(
                f"whether it is revoked cannot be read: {self._informer.refusal}",
                hint="apply what `handfast serve controllers --print-manifest` prints, which has the right to list and watch "
                "Revocations",
            )

    def require_listed(self) -> None:
        """The same, and they were listed once: for who decides while it starts."""
        self.require_known()
        if not self._informer.synced:
            raise RevocationsNotListed("the Revocations were not listed so far: whether it is revoked is not known")

    def next_end(self, node: str, now: datetime.datetime) -> float | None:
        """In how many seconds the Revocation of a node ends by itself; None: not by itself, or it has none."""
        entry = self.index.of_node(node, now)
        return None if entry is None or entry.expires is None else (entry.expires - now).total_seconds()

    def _changed(self, _old: Revocation | None, new: Revocation | None) -> None:
        if new is None:
            self.index.remove((_old or Revocation()).metadata.name)
        else:
            self.index.add(revocation.read(msgspec.to_builtins(new)))
        self._notify()


def follow(informers: cache.Informers, notify: Callable[[], None] = lambda: None) -> Revoked:
    """The Revocations of a process's watches, which all that follow them share."""
    return Revoked(informers.get(SOURCE), notify)
