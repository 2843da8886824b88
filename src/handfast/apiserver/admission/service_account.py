# SPDX-License-Identifier: Apache-2.0
"""Admission: a new Pod gets what its ServiceAccount gives. `rules.pod_service_account` says what; this looks the account up.

A controller makes the account `default` right after its namespace. Whoever creates a namespace and a Pod
right after it is not refused for that: the plugin waits a moment for this one account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from handfast.api import objects
from handfast.apiserver.admission import plugin
from handfast.apiserver.state import collection, items
from handfast.apiserver.strategy import strategies
from handfast.rules import pod_service_account
from handfast.rules.nodes import pod_references
from handfast.runtime import tasks

_ACCOUNTS = "core/serviceaccounts/"
# How long to wait for the account that every namespace gets.
WAIT_SECONDS = 1.0


def admit(write: plugin.Write, context: plugin.Context) -> Awaitable[None] | None:
    """Fill in the account's part of a new Pod, or refuse it."""
    pod = write.document
    if write.subresource or pod is None:
        return None
    if pod_references.is_mirror(pod):
        plugin.require(write, pod_service_account.mirror(pod))
        return None
    name = pod_service_account.choose(pod)
    accounts = context.replica.collection(_ACCOUNTS)
    if accounts.get(write.namespace, name) is None and name == pod_service_account.DEFAULT:
        return _wait(write, pod, accounts)
    _finish(write, pod, accounts.get(write.namespace, name), name)
    return None


async def _wait(write: plugin.Write, pod: objects.Document, accounts: collection.Collection) -> None:
    name = pod_service_account.DEFAULT
    exists = asyncio.Event()

    def changed(_change: items.Change) -> None:
        if accounts.get(write.namespace, name) is not None:
            exists.set()

    # It may have been made between the look and this moment.
    if accounts.get(write.namespace, name) is not None:
        exists.set()
    accounts.listen(exists, changed, collection.Index("metadata.namespace", write.namespace))
    try:
        async with tasks.deadline(WAIT_SECONDS):
            await exists.wait()
    finally:
        accounts.forget(exists)
    _finish(write, pod, accounts.get(write.namespace, name), name)


def _finish(write: plugin.Write, pod: objects.Document, account: items.Item | None, name: str) -> None:
    if account is None:
        plugin.require(write, pod_service_account.absent(write.namespace, name))
    else:
        plugin.require(write, pod_service_account.apply(pod, account.document(), strategies.generated_name("")))


ROW = plugin.Row("ServiceAccount", frozenset({plugin.CREATE}), admit, frozenset({("", "pods")}), changes=True)
