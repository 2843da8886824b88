# SPDX-License-Identifier: Apache-2.0
"""Admission: a new Pod gets what its ServiceAccount gives. `rules.pod_service_account` says what; here it is looked up.

A controller makes the account `default` right after its namespace. Who creates a namespace and a Pod in one breath is
not refused for that: the plugin waits for this one account, for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from handfast.api import objects
from handfast.apiserver import admission, collection, states, strategies
from handfast.rules import pod_references, pod_service_account
from handfast.runtime import tasks

_ACCOUNTS = "core/serviceaccounts/"
# How long to wait for the account that every namespace gets.
WAIT_SECONDS = 1.0


def admit(asked: admission.Attributes, context: admission.Context) -> Awaitable[None] | None:
    """Fill in the account's part of a new Pod, or refuse it."""
    pod = asked.document
    if asked.subresource or pod is None:
        return None
    if pod_references.is_mirror(pod):
        admission.require(asked, pod_service_account.mirror(pod))
        return None
    name = pod_service_account.choose(pod)
    accounts = context.replica.collection(_ACCOUNTS)
    if accounts.get(asked.namespace, name) is None and name == pod_service_account.DEFAULT:
        return _wait(asked, pod, accounts)
    _finish(asked, pod, accounts.get(asked.namespace, name), name)
    return None


async def _wait(asked: admission.Attributes, pod: objects.Document, accounts: collection.Collection) -> None:
    name = pod_service_account.DEFAULT
    made = asyncio.Event()

    def changed(_change: states.Change) -> None:
        if accounts.get(asked.namespace, name) is not None:
            made.set()

    # It may have been made between the look and this moment.
    if accounts.get(asked.namespace, name) is not None:
        made.set()
    accounts.listen(made, changed, collection.Index("metadata.namespace", asked.namespace))
    try:
        async with tasks.deadline(WAIT_SECONDS):
            await made.wait()
    finally:
        accounts.forget(made)
    _finish(asked, pod, accounts.get(asked.namespace, name), name)


def _finish(asked: admission.Attributes, pod: objects.Document, account: states.Item | None, name: str) -> None:
    if account is None:
        admission.require(asked, pod_service_account.absent(asked.namespace, name))
    else:
        admission.require(asked, pod_service_account.apply(pod, account.document(), strategies.generated_name("")))


ROW = admission.Row("ServiceAccount", frozenset({admission.CREATE}), admit, frozenset({("", "pods")}), changes=True)
