# SPDX-License-Identifier: Apache-2.0
"""Writes the default roles and bindings when the server starts: what is missing is added, nothing is taken away.

Which they are, and what an existing one lacks, is decided in `rules.rbac.defaults`. The rules of aggregated roles are
gathered here a first time, because people may come before the controllers do. The namespaces must be there already.
"""

from __future__ import annotations

import structlog

from handfast.api import kinds, status
from handfast.api.defaulting import defaults
from handfast.apiserver import identity
from handfast.apiserver.state import items, storage
from handfast.apiserver.strategy import strategies
from handfast.rules import access
from handfast.rules.rbac import default_roles, policy_rules
from handfast.rules.rbac import defaults as rbac_defaults
from handfast.runtime import clock as clocks
from handfast.store import protocol

_log = structlog.get_logger("handfast.default_policy")
_SYSTEM = identity.User("system:apiserver", (access.MASTERS,))


async def ensure(store: storage.Storage, clock: clocks.Clock) -> None:
    """Create what is missing, add what an existing one lacks, then gather the rules of aggregated roles."""
    rows = {kind.plural: kind for kind in kinds.builtin() if kind.group == policy_rules.GROUP}
    for default in rbac_defaults.documents():
        kind = rows[default.plural]
        item = await store.find(kind, default.namespace, default.name)
        try:
            if item is None:
                await _create(store, clock, kind, default)
            else:
                await _reconcile(store, clock, kind, item, default)
        except protocol.Mismatch:
            continue  # another server was faster; the next start looks again
        except status.StatusError as error:
            # Whatever was put into one role must not keep the server from starting.
            _log.error("a default could not be written", kind=kind.kind, name=default.name, error=error.message)
    # One round for each role that another may gather from.
    for _ in default_roles.AGGREGATED:
        await _gather(store, rows["clusterroles"])


async def _create(
    store: storage.Storage, clock: clocks.Clock, kind: kinds.Kind, default: rbac_defaults.Default
) -> None:
    document = {"apiVersion": kind.api_version, "kind": kind.kind, **default.document}
    strategies.prepare_create(kind, document, default.namespace, _SYSTEM, clock.now())
    defaults.apply(kind, document)
    await store.create(kind, document)


async def _reconcile(
    store: storage.Storage,
    clock: clocks.Clock,
    kind: kinds.Kind,
    item: items.Item,
    default: rbac_defaults.Default,
) -> None:
    document = item.document()
    if rbac_defaults.is_protected(document):
        return
    if rbac_defaults.needs_new(document, default.document):
        await store.delete(kind, item)
        await _create(store, clock, kind, default)
        return
    await store.replace(kind, rbac_defaults.reconciled(document, default.document), item)


async def _gather(store: storage.Storage, kind: kinds.Kind) -> None:
    await store.replica.fresh()
    everyone = [item.document() for item in store.replica.collection(kind.prefix).snapshot()]
    for name in default_roles.AGGREGATED:
        item = await store.find(kind, "", name)
        if item is None:
            continue
        document = item.document()
        wanted = policy_rules.aggregate(document, everyone)
        if rbac_defaults.is_protected(document) or policy_rules.parse(document.get("rules")) == policy_rules.parse(
            wanted
        ):
            continue
        document["rules"] = wanted
        try:
            await store.replace(kind, document, item)
        except protocol.Mismatch:
            continue  # whoever was faster is followed by the controller
        except status.StatusError as error:
            _log.error("the rules of a role could not be gathered", name=name, error=error.message)
