# SPDX-License-Identifier: Apache-2.0
"""The Pods of one node: which question is asked, and that no other is."""

from __future__ import annotations

import asyncio

import structlog

from handfast.client import partial
from handfast.node import pods
from tests.unit.client import scripted
from tests.world.clock import MovableClock, settle

POD = {"metadata": {"name": "p", "namespace": "d", "resourceVersion": "3"}, "spec": {"nodeName": "worker-1"}}


def test_the_selector_is_the_one_the_authorizer_allows():
    assert pods.scope("worker-1").params() == {"fieldSelector": "spec.nodeName=worker-1"}


async def test_one_list_and_one_watch():
    steps = (scripted.listing("3", POD), scripted.stream({"type": "DELETED", "object": POD}, then="hold"))
    async with scripted.serving(*steps) as server, scripted.client_of(server) as client:
        found = pods.Pods(client, "worker-1", MovableClock())
        assert found.problem() == "the Pods of this node are not listed yet"
        with structlog.testing.capture_logs() as lines:
            task = asyncio.ensure_future(found.run())
            await asyncio.wait_for(found.wait_synced(), 5)
            assert found.problem() is None
            for _ in range(200):
                if not len(found.informer):
                    break
                await asyncio.sleep(0.005)
        task.cancel()
        await settle()
    assert [line["event"] for line in lines] == ["Pod bound to this node", "Pod gone from this node"]
    assert [request.path for request in server.requests] == ["/api/v1/pods"] * 2
    assert {request.params["fieldSelector"] for request in server.requests} == {"spec.nodeName=worker-1"}


def test_a_change_is_not_told():
    pod = pods.Pod(partial.Meta(name="p"))
    with structlog.testing.capture_logs() as lines:
        pods.Pods._changed(pod, pod)
        pods.Pods._changed(None, None)
    assert lines == []
