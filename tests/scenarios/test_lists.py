# SPDX-License-Identifier: Apache-2.0
"""Lists: order, paging, versions, selectors, shapes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.world import world as worlds

PATH = "/api/v1/namespaces/default/configmaps"


async def fill(world: worlds.World, count: int, namespace: str = "default") -> None:
    for number in range(count):
        await world.create_config_map(f"n{number:03}", namespace=namespace)


def names(document: Any) -> list[str]:
    return [item["metadata"]["name"] for item in document["items"]]


async def pages(world: worlds.World, path: str, limit: int) -> list[Any]:
    found = []
    token = ""
    while True:
        answer = await world.get(path, params={"limit": str(limit), **({"continue": token} if token else {})})
        assert answer.status == 200, answer.body
        found.append(answer.json())
        token = found[-1]["metadata"].get("continue", "")
        if not token:
            return found


async def test_an_empty_list_has_items(world: worlds.World) -> None:
    assert (await world.get("/api/v1/namespaces/default/pods")).json()["items"] == []


async def test_items_are_in_order_without_kind(world: worlds.World) -> None:
    await fill(world, 5)
    document = (await world.get(PATH)).json()
    assert (document["kind"], document["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(document) == [f"n{number:03}" for number in range(5)]
    assert "kind" not in document["items"][0]


async def test_pages_cover_everything_once(world: worlds.World) -> None:
    await fill(world, 25)
    found = await pages(world, PATH, 10)
    assert [len(page["items"]) for page in found] == [10, 10, 5]
    assert [page["metadata"].get("remainingItemCount") for page in found] == [15, 5, None]
    assert len({page["metadata"]["resourceVersion"] for page in found}) == 1
    assert [name for page in found for name in names(page)] == [f"n{number:03}" for number in range(25)]


async def test_pages_across_namespaces_follow_the_order_of_keys(world: worlds.World) -> None:
    # "a-b" sorts before "a" as a key (a-b/… < a/…): the pages must agree with the whole list.
    for namespace in ("a", "a-b", "a.b"[:1] + "0"):
        await world.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        await fill(world, 4, namespace)
    whole = (await world.get("/api/v1/configmaps")).json()
    found = await pages(world, "/api/v1/configmaps", 3)
    assert [item for page in found for item in page["items"]] == whole["items"]


async def test_pages_show_one_instant_while_writes_go_on(world: worlds.World) -> None:
    await fill(world, 12)
    first = (await world.get(f"{PATH}?limit=5")).json()
    await world.request("DELETE", f"{PATH}/n007")
    await world.create_config_map("n0065")
    await world.request("PUT", f"{PATH}/n008", {"metadata": {"name": "n008"}, "data": {"late": "yes"}})
    rest = (await world.get(PATH, params={"continue": first["metadata"]["continue"]})).json()
    assert names(first) + names(rest) == [f"n{number:03}" for number in range(12)]
    assert all(not item.get("data") for item in rest["items"])
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_compacted_page_is_expired_and_offers_to_go_on(world: worlds.World) -> None:
    await fill(world, 6)
    first = (await world.get(f"{PATH}?limit=2")).json()
    await world.create_config_map("n0005")
    await world.create_config_map("z")
    await world.server.storage.compact(world.server.replica.version)
    answer = await world.get(PATH, params={"continue": first["metadata"]["continue"]})
    assert (answer.status, answer.reason) == (410, "Expired")
    rest = (await world.get(PATH, params={"continue": answer.json()["metadata"]["continue"]})).json()
    assert names(rest) == ["n002", "n003", "n004", "n005", "z"]


async def test_exact_shows_the_past(world: worlds.World) -> None:
    await fill(world, 2)
    before = (await world.get(PATH)).json()
    await world.request("DELETE", f"{PATH}/n000")
    params = {"resourceVersion": before["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
    assert (await world.get(PATH, params=params)).json() == before
    params["limit"] = "1"
    page = (await world.get(PATH, params=params)).json()
    assert names(page) == ["n000"]
    assert names((await world.get(PATH, params={"continue": page["metadata"]["continue"]})).json()) == ["n001"]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Sometimes", "resourceVersion": "1"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersion": "abc"}, 400),
        ({"continue": "abc"}, 400),
        ({"limit": "many"}, 400),
        ({"labelSelector": "a=b=c"}, 400),
        ({"fieldSelector": "data.k=v"}, 400),
        ({"resourceVersion": "99999999"}, 504),
        ({"resourceVersion": "99999999", "resourceVersionMatch": "Exact"}, 504),
    ],
)
async def test_options_that_make_no_sense(world: worlds.World, params: dict[str, str], code: int) -> None:
    asking = asyncio.ensure_future(world.get(PATH, params=params))
    await world.pass_time_until(asking)
    answer = await asking
    assert answer.status == code, answer.body
    assert answer.json()["kind"] == "Status"


async def test_not_older_than(world: worlds.World) -> None:
    made = await world.create_config_map("a")
    params = {"resourceVersion": made["metadata"]["resourceVersion"], "resourceVersionMatch": "NotOlderThan"}
    assert names((await world.get(PATH, params=params)).json()) == ["a"]


async def test_label_and_field_selectors_choose_what_is_listed(world: worlds.World) -> None:
    for name, labels in (("a", {"t": "x"}), ("b", {"t": "y"}), ("c", {})):
        await world.request("POST", PATH, {"metadata": {"name": name, "labels": labels}})
    for selector, found in (("t=x", ["a"]), ("t!=x", ["b", "c"]), ("t in (x,y)", ["a", "b"]), ("!t", ["c"])):
        assert names((await world.get(PATH, params={"labelSelector": selector})).json()) == found
    for selector, found in (("metadata.name=b", ["b"]), ("metadata.name!=b", ["a", "c"])):
        assert names((await world.get(PATH, params={"fieldSelector": selector})).json()) == found


async def test_pages_with_a_selector_say_nothing_of_what_remains(world: worlds.World) -> None:
    await fill(world, 6)
    page = (await world.get(PATH, params={"limit": "2", "labelSelector": "!x"})).json()
    assert page["metadata"]["continue"]
    assert "remainingItemCount" not in page["metadata"]


async def test_pods_by_node(world: worlds.World) -> None:
    path = "/api/v1/namespaces/default/pods"
    for name, node in (("a", "n1"), ("b", "n2")):
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        assert (await world.request("POST", path, {"metadata": {"name": name}, "spec": spec})).status == 201
    assert names((await world.get("/api/v1/pods", params={"fieldSelector": "spec.nodeName=n2"})).json()) == ["b"]
    assert names((await world.get("/api/v1/pods", params={"fieldSelector": "spec.hostNetwork=false"})).json()) == [
        "a",
        "b",
    ]


async def test_table_and_metadata_shapes(world: worlds.World) -> None:
    await world.create_config_map("a", k="v")
    table = (await world.get(PATH, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})).json()
    assert (table["kind"], [column["name"] for column in table["columnDefinitions"]]) == (
        "Table",
        ["Name", "Data", "Age"],
    )
    assert table["rows"][0]["cells"][:2] == ["a", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    partial = (await world.get(PATH, headers={"Accept": accept})).json()
    assert partial["kind"] == "PartialObjectMetadataList"
    assert "data" not in partial["items"][0]


async def test_a_large_list_arrives_whole(world: worlds.World) -> None:
    for number in range(60):
        await world.create_config_map(f"big{number:02}", k="x" * 20_000)
    document = (await world.get(PATH)).json()
    assert names(document) == [f"big{number:02}" for number in range(60)]
