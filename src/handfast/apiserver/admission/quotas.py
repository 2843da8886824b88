# SPDX-License-Identifier: Apache-2.0
"""Holds namespaces to their ResourceQuotas. `rules.quotas` decides; here the use is written down before the object is stored.

1. A namespace without a quota costs one look.
2. The use is added to the quota's status by compare-and-swap: of any number of writers, at whatever server, exactly as many get
   in as the quota allows. While one write is under way, those that come meanwhile gather, and are judged together.
3. An object whose name is taken uses nothing: its creation fails in any case.
4. A dry run is judged and reserves nothing.
5. It is asked last, after webhooks and when the object is encoded: what others refuse uses nothing up, and the object is stored soon after.
   The controller, which counts anew, waits longer than that.
6. What fails all the same stays reserved until the next count, which comes within a minute.
7. Nobody is exempt.
8. What an object uses is worked out before it waits with others: aside, where it is heavy.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_quotas.py |
|---|---|---|---|---|
| many writers | `edit` in a namespace | ask in the same moment | 2 | test_of_many_at_once_as_many_get_in_as_fit |
| many writers | … at two servers | … | 2 | test_another_servers_reservation_counts |
| a tenant | `edit` | use the quota of others up with a name that is taken | 3 | test_a_name_that_is_taken_uses_nothing |
| a tenant | `edit` | … by dry runs | 4 | test_a_dry_run_reserves_nothing |
| a tenant | `edit` | lower `status.used` | RBAC: `resourcequotas/status` is in none of the roles for tenants | test_no_role_for_tenants_writes_quotas |
| two quotas | | let one in that only the first allows | all are asked before one is written | test_what_one_quota_refuses_uses_none_up |
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.api import kinds, objects
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import items, storage
from handfast.rules import decision, quotas
from handfast.runtime import batches
from handfast.store import protocol

NAME: Final = "ResourceQuota"
_QUOTAS: Final = kinds.row("resourcequotas")
# Only writers in other processes, and the controller, get in between.
_TRIES: Final = 16


class _Use(msgspec.Struct, frozen=True):
    """One write that uses something."""

    write: plugin.Write
    change: quotas.Change


_Waiting = batches.Waiting[_Use, None]


class Quotas:
    """The quotas of all namespaces at this server."""

    def __init__(self, store: storage.Storage) -> None:
        self._storage = store
        # By namespace.
        self._uses: batches.Batches[str, _Use, None] = batches.Batches(self._judge)

    @property
    def rows(self) -> tuple[plugin.Row, ...]:
        """What admission has to ask last: about everything new, and about changes of what may come to use more."""
        return (
            plugin.Row(NAME, frozenset({plugin.CREATE}), self.admit),
            plugin.Row(NAME, frozenset({plugin.UPDATE}), self.admit, quotas.CHANGING),
        )

    def admit(self, write: plugin.Write, context: plugin.Context) -> Awaitable[None] | None:
        """Let an object be stored, and write down what it uses; or refuse it."""
        # 1. one look
        if write.namespace not in context.replica.collection(_QUOTAS.prefix).buckets:
            return None
        if write.subresource or write.document is None or not write.kind.namespaced:
            return None
        # 3. a name that is taken
        if write.operation == plugin.CREATE and context.replica.collection(write.kind.prefix).get(
            write.namespace, write.name
        ):
            raise protocol.Mismatch(write.kind.key(write.namespace, write.name), None)
        return self._admit(write, write.document, context.now())

    async def _admit(self, write: plugin.Write, document: objects.Document, now: datetime.datetime) -> None:
        # 8. what it uses, before it waits
        change = await write.work(quotas.change, write.kind.resource, document, write.old, now)
        # 2. with whoever else is writing there now
        await self._uses.join(write.namespace, _Use(write, change))

    async def _judge(self, namespace: str, batch: Sequence[_Waiting]) -> None:
        await self._storage.replica.fresh()
        bucket = self._storage.replica.collection(_QUOTAS.prefix).buckets.get(namespace)
        found = [] if bucket is None else [bucket.items[name] for name in bucket.names]
        documents = [item.document() for item in found]
        # All are asked before one is written.
        before = [quotas.read(document) for document in documents]
        left, states = _judged(before, batch)
        for item, document, old, after in zip(found, documents, before, states, strict=True):
            if after.used != old.used:
                left = await self._written(item, document, after, left)
        for waiting in left:
            waiting.settle(None)

    async def _written(
        self, item: items.Item, document: objects.Document, after: quotas.Quota, left: Sequence[_Waiting]
    ) -> Sequence[_Waiting]:
        """Write the use; those who are left when somebody else has changed the quota since, and it was judged anew."""
        for _ in range(_TRIES):
            try:
                await self._storage.replace(_QUOTAS, _with_use(document, after), item)
            except protocol.Mismatch:
                current = await self._storage.find(_QUOTAS, item.namespace, item.name)
                if current is None:
                    return left
                item, document = current, current.document()
                left, states = _judged([quotas.read(document)], left)
                after = states[0]
            else:
                return left
        raise errors.Unavailable(
            f"the use of the quota {item.name} could not be written down: others change it all the time; please try again",
            reason="QuotaContended",
        )


def _judged(
    states: Sequence[quotas.Quota], batch: Sequence[_Waiting]
) -> tuple[Sequence[_Waiting], Sequence[quotas.Quota]]:
    """Who may go on, judged one after the other, the others refused; and the quotas with what they use."""
    left: list[_Waiting] = []
    for waiting in batch:
        use = waiting.item
        verdicts = [quotas.decide(state, use.change) for state in states]
        refusals = [verdict for verdict in verdicts if isinstance(verdict, decision.Deny)]
        if refusals:
            waiting.fail(plugin.Refusal(use.write, refusals[0]))
            continue
        left.append(waiting)
        # 4. a dry run reserves nothing
        if not use.write.dry_run:
            states = [verdict for verdict in verdicts if isinstance(verdict, quotas.Quota)]
    return left, states


def _with_use(document: objects.Document, quota: quotas.Quota) -> objects.Document:
    status = document.get("status") or {}
    return {**document, "status": {**status, "used": {**(status.get("used") or {}), **quotas.written(quota.used)}}}
