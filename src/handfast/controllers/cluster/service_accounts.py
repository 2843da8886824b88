# SPDX-License-Identifier: Apache-2.0
"""Keeps a ServiceAccount `default` in every namespace that is not on its way out.

A deleted one is made again; an edited one is left as its owner wants it. Tokens are not made here: they are asked
for when needed (`serviceaccounts/NAME/token`).
"""

from __future__ import annotations

from handfast.api import resources, status
from handfast.client import api, cache, partial, watch
from handfast.controllers import loop, views

NAME = "serviceaccount-controller"
_DEFAULT = "default"
_SOURCE = watch.Source(
    resource=resources.SERVICE_ACCOUNTS,
    view=partial.Partial,
    scope=api.Scope(field_selector=f"metadata.name={_DEFAULT}"),
    metadata=True,
)


class ServiceAccounts:
    """Handles one namespace, by name."""

    def __init__(
        self,
        client: api.Client,
        namespaces: cache.Informer[views.Namespace],
        accounts: cache.Informer[partial.Partial],
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._accounts = accounts

    async def reconcile(self, name: str) -> None:
        namespace = self._namespaces.get("", name)
        if namespace is None or namespace.terminating or self._accounts.get(name, _DEFAULT) is not None:
            return
        document = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": _DEFAULT, "namespace": name},
        }
        try:
            await self._client.create(resources.SERVICE_ACCOUNTS, document, namespace=name)
        except status.StatusError as error:
            # Someone was faster, or the namespace has gone since: either way the next event settles it.
            if error.reason not in {"AlreadyExists", "NotFound"} and not views.namespace_ends(error):
                raise


def build(context: loop.Context) -> loop.Controller[str]:
    namespaces = context.informers.get(views.ALL_NAMESPACES)
    accounts = context.informers.get(_SOURCE)
    handler = ServiceAccounts(context.client, namespaces, accounts)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    controller.watches(namespaces, lambda item: [item.metadata.name])
    controller.watches(accounts, lambda item: [item.metadata.namespace])
    return controller
