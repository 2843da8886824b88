# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import msgspec
import pytest

from handfast.api import status
from handfast.client import cache, partial
from handfast.controllers import views
from handfast.controllers.cluster import service_accounts
from tests.unit.controllers.fake_api import FakeClient, failing


class World:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.namespaces: cache.Informer[views.Namespace] = cache.Informer(views.ALL_NAMESPACES)
        self.accounts: cache.Informer[partial.Partial] = cache.Informer(service_accounts._SOURCE)
        self.handler = service_accounts.ServiceAccounts(self.client, self.namespaces, self.accounts)

    def namespace(self, name: str, **metadata: str) -> None:
        self.namespaces.put(msgspec.convert({"metadata": {"name": name, **metadata}}, views.Namespace))


async def test_made_where_it_is_missing():
    world = World()
    world.namespace("new")
    world.namespace("has")
    world.namespace("going", deletionTimestamp="2030-01-01T00:00:00Z")
    world.accounts.put(partial.Partial(metadata=partial.Meta(name="default", namespace="has")))
    for name in ("new", "has", "going", "unknown"):
        await world.handler.reconcile(name)
    assert list(world.client.objects) == [("serviceaccounts", "new", "default")]
    # The watch has not told yet: the create is refused, and that is fine.
    await world.handler.reconcile("new")
    assert world.client.calls == [("create", "serviceaccounts", "default")]


async def test_other_refusals_are_told():
    world = World()
    world.namespace("new")
    world.client.before = failing(status.forbidden("serviceaccounts", "", "default", "no"))
    with pytest.raises(status.StatusError, match="forbidden"):
        await world.handler.reconcile("new")
