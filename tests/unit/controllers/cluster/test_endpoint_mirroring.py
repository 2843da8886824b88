# SPDX-License-Identifier: Apache-2.0
"""How much comes of Endpoints that somebody wrote. That they are mirrored is in tests/scenarios/test_controllers_endpoints.py."""

from __future__ import annotations

import msgspec

from handfast.api import resources
from handfast.client import cache, watch
from handfast.controllers.cluster import endpoint_mirroring, slicing
from tests.unit.controllers.cluster.test_slicing import service
from tests.unit.controllers.fake_api import FakeClient


async def test_one_object_does_not_become_thousands() -> None:
    client = FakeClient()
    services: cache.Informer[slicing.Service] = cache.Informer(slicing.SERVICES)
    services.put(service(selector=None))
    source = watch.Source(resource=resources.ENDPOINTS, view=endpoint_mirroring.Endpoints)
    endpoints: cache.Informer[endpoint_mirroring.Endpoints] = cache.Informer(source)
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": port}]} for port in range(1, 5000)]
    document = {"metadata": {"name": "web", "namespace": "ns", "uid": "u"}, "subsets": subsets}
    endpoints.put(msgspec.convert(document, endpoint_mirroring.Endpoints))
    slices: cache.Informer[slicing.Slice] = cache.Informer(
        watch.Source(resource=resources.ENDPOINT_SLICES, view=slicing.Slice), {"service": lambda _: []}
    )
    await endpoint_mirroring.Mirroring(client, services, endpoints, slices).reconcile(("ns", "web"))
    assert len(client.calls) == endpoint_mirroring.MAX_SLICES
