# SPDX-License-Identifier: Apache-2.0
"""Services find their Pods.

Proves that EndpointSlices follow Pods as they come, become ready and go; that named ports, headless Services and
more than a hundred Pods are right; that foreign slices are left alone; and that Events end after an hour.
"""

from __future__ import annotations

import asyncio
import datetime
import pathlib
from typing import Any

import pytest

from handfast.api import objects
from handfast.client import api
from tests.scenarios import controlled as c

pytestmark = pytest.mark.slow
ENDPOINTS = api.Resource("", "v1", "endpoints", True)
copies = pytest.mark.parametrize("copies", [1, 2])


async def make_service(story: c.Story, **spec: Any) -> Any:
    document = {
        "metadata": {"name": "web", "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}], **spec},
    }
    return await story.client.create(c.SERVICES, document, namespace="default")


async def make_pod(story: c.Story, name: str, address: str, *, port: int = 8080, ready: bool = True) -> None:
    container = {"name": "main", "image": "image", "ports": [{"name": "http", "containerPort": port}]}
    document = {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [container], "nodeName": "node-1"},
    }
    made = await story.client.create(c.PODS, document, namespace="default")
    made["status"] = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    await story.client.update_status(c.PODS, made)


async def slices(story: c.Story) -> list[Any]:
    scope = api.Scope(label_selector="kubernetes.io/service-name=web")
    return list(await story.client.list(c.SLICES, scope))


async def endpoints(story: c.Story) -> dict[str, tuple[bool, int | None]]:
    """Address -> ready and port, over all slices of the Service."""
    found = {}
    for row in await slices(story):
        port = row["ports"][0]["port"] if row.get("ports") else None
        for entry in row["endpoints"] or ():
            found[entry["addresses"][0]] = (entry["conditions"]["ready"], port)
    return found


@copies
async def test_slices_follow_the_pods(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(
        tmp_path, "endpointslice-controller", "garbage-collector-controller", copies=copies
    ) as story:
        service = await make_service(story)

        async def is_now(wanted: dict[str, Any]) -> bool:
            return await endpoints(story) == wanted

        async def empty_slice() -> Any:
            return [row for row in await slices(story) if not row["endpoints"]]

        (placeholder,) = await story.eventually(empty_slice)
        assert placeholder["metadata"]["labels"] == {
            "team": "a",
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        assert [row["uid"] for row in placeholder["metadata"]["ownerReferences"]] == [service["metadata"]["uid"]]
        await make_pod(story, "p1", "10.0.0.1")
        await make_pod(story, "p2", "10.0.0.2", ready=False)
        await make_pod(story, "p3", "10.0.0.3", port=9090)
        wanted = {"10.0.0.1": (True, 8080), "10.0.0.2": (False, 8080), "10.0.0.3": (True, 9090)}
        await story.eventually(lambda: is_now(wanted))
        # It has a node, so it ends gracefully: still serving, but no longer to be chosen.
        await story.client.delete(c.PODS, "p1", namespace="default", grace_seconds=30)
        await story.eventually(lambda: is_now({**wanted, "10.0.0.1": (False, 8080)}))
        entries = [entry for row in await slices(story) for entry in row["endpoints"]]
        (leaving,) = (entry for entry in entries if entry["addresses"] == ["10.0.0.1"])
        assert leaving["conditions"] == {"ready": False, "serving": True, "terminating": True}
        await story.client.delete(c.PODS, "p1", namespace="default", grace_seconds=0)
        del wanted["10.0.0.1"]
        await story.eventually(lambda: is_now(wanted))
        await story.quiet()
        mine = await slices(story)
        assert len(mine) == 2
        entry = next(entry for row in mine for entry in row["endpoints"] if entry["addresses"] == ["10.0.0.3"])
        assert entry["nodeName"] == "node-1"
        assert entry["targetRef"]["kind"] == "Pod"
        assert entry["conditions"] == {"ready": True, "serving": True, "terminating": False}
        await story.client.delete(c.SERVICES, "web", namespace="default")
        await story.eventually(lambda: is_now({}))

        async def none_left() -> bool:
            return not await empty_slice()

        await story.eventually(none_left)


@copies
async def test_deleted_slices_come_back_and_foreign_ones_stay(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, "endpointslice-controller", copies=copies) as story:
        foreign = {
            "metadata": {"name": "mine", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [],
        }
        await story.client.create(c.SLICES, foreign, namespace="default")
        await make_service(story, clusterIP="None")
        await make_pod(story, "p1", "10.0.0.1")

        async def there() -> Any:
            return [row for row in await slices(story) if row["endpoints"]]

        (first,) = await story.eventually(there)
        assert first["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
        await story.client.delete(c.SLICES, first["metadata"]["name"], namespace="default")

        async def again() -> bool:
            return [row["metadata"]["uid"] for row in await there()] not in ([], [first["metadata"]["uid"]])

        await story.eventually(again)
        assert await story.find(c.SLICES, "mine") is not None


@copies
async def test_the_older_endpoints_object_says_the_same(tmp_path: pathlib.Path, copies: int):
    names = ("endpoints-controller", "endpointslice-controller", "garbage-collector-controller")
    async with c.controlled(tmp_path, *names, copies=copies) as story:
        by_hand = {"metadata": {"name": "manual"}, "subsets": [{"addresses": [{"ip": "192.0.2.9"}]}]}
        await story.client.create(ENDPOINTS, by_hand, namespace="default")
        manual = {"metadata": {"name": "manual"}, "spec": {"ports": [{"port": 1}]}}
        await story.client.create(c.SERVICES, manual, namespace="default")
        await make_service(story)
        await make_pod(story, "p1", "10.0.0.1")
        await make_pod(story, "p2", "10.0.0.2", ready=False)

        async def right() -> Any:
            found = await story.find(ENDPOINTS, "web")
            rows = [
                [[row["ip"] for row in subset.get(kind, ())] for kind in ("addresses", "notReadyAddresses")]
                for subset in (found or {}).get("subsets", ())
            ]
            return found if rows == [[["10.0.0.1"], ["10.0.0.2"]]] else None

        found = await story.eventually(right)
        assert found["subsets"][0]["ports"] == [{"port": 8080, "protocol": "TCP"}]
        found["subsets"] = []
        await story.client.update(ENDPOINTS, found)
        await story.eventually(right, "restored")
        await story.client.delete(ENDPOINTS, "web", namespace="default")
        await story.eventually(right, "made again")
        await story.client.delete(c.SERVICES, "web", namespace="default")
        await story.gone(ENDPOINTS, "web")
        kept = await story.find(ENDPOINTS, "manual")
        assert kept["subsets"][0]["addresses"][0]["ip"] == "192.0.2.9"


async def test_a_hundred_to_a_slice(tmp_path: pathlib.Path):
    async with c.controlled(tmp_path, "endpointslice-controller", copies=2) as story:
        await make_service(story)
        await asyncio.gather(*(make_pod(story, f"p{number}", f"10.0.1.{number}") for number in range(120)))

        async def all_there() -> bool:
            return len(await endpoints(story)) == 120

        await story.eventually(all_there)
        await story.quiet()
        sizes = [len(row["endpoints"]) for row in await slices(story)]
        assert sum(sizes) == 120
        assert max(sizes) <= 100
        assert len(sizes) == 2


@copies
async def test_events_end_an_hour_after_they_last_happened(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, "event-ttl-controller", copies=copies) as story:

        async def happen(name: str, minutes_ago: int) -> None:
            last = story.clock.now() - datetime.timedelta(minutes=minutes_ago)
            document = {
                "metadata": {"name": name, "namespace": "default"},
                "involvedObject": {"kind": "Node", "name": "n", "namespace": "default"},
                "lastTimestamp": objects.timestamp(last),
                "reason": "Test",
                "type": "Normal",
            }
            await story.client.create(c.EVENTS, document, namespace="default")

        await happen("new", 0)
        await happen("renewed", 0)
        await story.clock.advance(1800)
        renewed = await story.find(c.EVENTS, "renewed")
        renewed["lastTimestamp"] = objects.timestamp(story.clock.now())
        await story.client.update(c.EVENTS, renewed)
        await story.quiet()
        await story.clock.advance(1700)
        await story.quiet()
        assert await story.find(c.EVENTS, "new") is not None
        await story.clock.advance(110)
        await story.gone(c.EVENTS, "new")
        assert await story.find(c.EVENTS, "renewed") is not None
        await story.clock.advance(1800)
        await story.gone(c.EVENTS, "renewed")


@copies
async def test_endpoints_that_people_write_are_mirrored(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, "endpointslice-mirroring-controller", copies=copies) as story:
        await make_service(story, selector=None)
        subset = {"ports": [{"port": 80}], "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]}
        metadata = {"name": "web", "labels": {"team": "a"}}
        made = await story.client.create(ENDPOINTS, {"metadata": metadata, "subsets": [subset]}, namespace="default")

        async def mirrored(**wanted: bool) -> None:
            async def same() -> bool:
                found = await endpoints(story)
                return found == {address: (ready, 80) for address, ready in wanted.items()}

            await story.eventually(same, str(wanted))

        await mirrored(**{"192.0.2.1": True, "2001:db8::1": True})
        rows = await slices(story)
        assert {row["addressType"] for row in rows} == {"IPv4", "IPv6"}
        assert {row["metadata"]["labels"]["team"] for row in rows} == {"a"}
        made["subsets"] = [{"ports": [{"port": 80}], "notReadyAddresses": [{"ip": "192.0.2.2"}]}]
        made = await story.client.update(ENDPOINTS, made)
        await mirrored(**{"192.0.2.2": False})
        made["metadata"]["labels"] = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        await story.client.update(ENDPOINTS, made)
        await mirrored()
