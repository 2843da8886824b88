# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.client import cache
from handfast.controllers.cluster import endpoints, slicing
from tests.unit.controllers.cluster.test_slicing import pod, service
from tests.unit.controllers.fake_api import FakeClient, failing


def subsets(document: Any) -> list[tuple[list[str], list[str], list[int]]]:
    return [
        (
            [row["ip"] for row in subset.get("addresses", ())],
            [row["ip"] for row in subset.get("notReadyAddresses", ())],
            [row["port"] for row in subset.get("ports", ())],
        )
        for subset in document.get("subsets", ())
    ]


def test_ready_and_not():
    found = endpoints.document(service(), [pod(2, ready=False), pod(1), pod(3, deleting=True), pod(4, phase="Failed")])
    assert subsets(found) == [(["10.0.0.1"], ["10.0.0.2"], [8080])]
    assert found["subsets"][0]["addresses"][0]["targetRef"]["name"] == "p001"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "service-uid"
    assert found["metadata"]["labels"] == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


def test_publishing_those_not_ready():
    found = endpoints.document(
        service(publishNotReadyAddresses=True, clusterIP="None", ports=None),
        [pod(1, ready=False), pod(2, deleting=True)],
    )
    assert subsets(found) == [(["10.0.0.2", "10.0.0.1"], [], [])]
    assert found["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


def test_a_service_without_pods_has_no_subsets():
    assert "subsets" not in endpoints.document(service(), [])


def test_named_ports_and_hostnames():
    ports = [{"name": "", "port": 80, "targetPort": "web"}]
    one = pod(1, hostname="h", subdomain="web", containers=[{"ports": [{"name": "web", "containerPort": 1}]}])
    two = pod(2, containers=[{"ports": [{"name": "web", "containerPort": 2}]}])
    found = endpoints.document(service(ports=ports), [one, two])
    assert sorted(subsets(found)) == [(["10.0.0.1"], [], [1]), (["10.0.0.2"], [], [2])]
    (first,) = [row for row in found["subsets"] if row["addresses"][0]["ip"] == "10.0.0.1"]
    assert first["addresses"][0]["hostname"] == "h"
    assert first["ports"] == [{"port": 1, "protocol": "TCP"}]


def test_a_thousand_and_no_more_the_ready_ones_first():
    pods = [pod(number, ready=number >= 500) for number in range(1400)]
    found = endpoints.document(service(), pods)
    ((ready, unready, _),) = subsets(found)
    assert (len(ready), len(unready)) == (900, 100)
    assert found["metadata"]["annotations"] == {"endpoints.kubernetes.io/over-capacity": "truncated"}
    assert "annotations" not in endpoints.document(service(), pods[:1000])["metadata"]


def handler(client: FakeClient, made: slicing.Service) -> endpoints.Endpoints:
    services: cache.Informer[slicing.Service] = cache.Informer(slicing.SERVICES, slicing.BY_NAMESPACE)
    services.put(made)
    pods: cache.Informer[slicing.Pod] = cache.Informer(slicing.PODS, slicing.BY_NAMESPACE)
    pods.put(pod(1))
    return endpoints.Endpoints(client, services, pods)


async def test_written_once_and_again_when_changed():
    client = FakeClient()
    mine = handler(client, service())
    for _ in range(2):
        await mine.reconcile(("ns", "web"))
    assert client.calls == [("create", "endpoints", "web")]
    client.objects["endpoints", "ns", "web"]["metadata"]["labels"] = {}
    await mine.reconcile(("ns", "web"))
    await mine.reconcile(("ns", "web"))
    assert client.calls[1:] == [("update", "endpoints", "web")]


async def test_left_alone():
    client = FakeClient()
    await handler(client, service(selector=None)).reconcile(("ns", "web"))
    await handler(client, service()).reconcile(("ns", "unknown"))
    assert client.calls == []
    client.before = failing(status.forbidden("endpoints", "", "web", "no"))
    with pytest.raises(errors.Refused, match="forbidden"):
        await handler(client, service()).reconcile(("ns", "web"))
