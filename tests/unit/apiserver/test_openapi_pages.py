# SPDX-License-Identifier: Apache-2.0
"""The pages of the API's description: made when asked for, kept while they are true, and made anew when they are not."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from handfast.api import kinds, status
from handfast.api.openapi import openapi, swagger
from handfast.apiserver import openapi_pages

PROTOBUF = swagger.PROTOBUF.content_type
FOO = kinds.Kind(
    group="example.com",
    version="v1",
    kind="Foo",
    plural="foos",
    singular="foo",
    namespaced=True,
    schema={"type": "object", "properties": {"spec": {"type": "object"}}},
)
BAR = dataclasses.replace(FOO, kind="Bar", plural="bars", singular="bar")


class World:
    """Pages about a table, and how often something of them was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table = kinds.Table(kinds.builtin()[:3])
        self.pages = openapi_pages.Pages(self.table)
        self.made: list[str] = []
        for module, name in ((swagger, "custom_pieces"), (swagger, "builtin_pieces"), (openapi, "document")):
            monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))

    def _counted(self, name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.made.append(name)
            return do(*arguments)

        return counted

    async def page(self, path: str = "/openapi/v2", accept: str = "") -> openapi_pages.Page:
        return await self.pages.page(path, accept, "ann")

    async def definitions(self) -> set[str]:
        return set(json.loads((await self.page()).body)["definitions"])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_nothing_is_made_before_it_is_asked_for(world: World) -> None:
    assert world.made == []


async def test_a_page_is_made_once(world: World) -> None:
    world.table.add(FOO)
    first = await world.page()
    assert await world.page() is first
    assert world.made == ["builtin_pieces", "custom_pieces"]


async def test_whoever_asks_while_a_page_is_made_gets_the_same(world: World) -> None:
    pages = await asyncio.gather(*(world.page() for _ in range(5)))
    assert len({id(page) for page in pages}) == 1
    assert world.made == ["builtin_pieces"]


async def test_a_definition_that_comes_changes_or_goes_is_seen_at_once_and_costs_its_own_piece(world: World) -> None:
    world.table.add(FOO)
    assert "com.example.v1.Foo" in await world.definitions()
    world.made.clear()
    world.table.add(BAR)
    assert {"com.example.v1.Foo", "com.example.v1.Bar", "com.example.v1.BarList"} <= await world.definitions()
    assert world.made == ["custom_pieces"]
    world.table.remove(FOO)
    world.table.add(dataclasses.replace(FOO, version="v2"))
    left = await world.definitions()
    assert "com.example.v2.Foo" in left
    assert "com.example.v1.Foo" not in left
    world.table.remove(BAR)
    assert "com.example.v1.Bar" not in await world.definitions()


async def test_many_definitions_are_made_a_few_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Aside:
        async def run(self, _owner: str, do: Callable[..., Any], *arguments: Any) -> Any:
            if do.__name__ == "_pieces_of":
                sizes.append(len(arguments[0]))
            return do(*arguments)

    monkeypatch.setattr(world.pages, "_aside", Aside())
    for number in range(20):
        world.table.add(dataclasses.replace(FOO, plural=f"foos{number}", kind=f"Foo{number}"))
    await world.page()
    assert sizes == [8, 8, 4]


async def test_each_form_has_its_own_page_and_its_own_content_type(world: World) -> None:
    as_json, as_protobuf = await world.page(), await world.page(accept=PROTOBUF)
    assert as_json.answer("").headers["Content-Type"] == "application/json"
    assert as_protobuf.answer("").headers["Content-Type"] == PROTOBUF
    assert as_json.etag != as_protobuf.etag
    assert as_json.answer("").headers["Vary"] == "Accept"


async def test_whoever_has_a_page_does_not_get_it_again(world: World) -> None:
    page = await world.page()
    for header in (page.etag, f'"other", {page.etag}', f"W/{page.etag}"):
        answer = page.answer(header)
        assert (answer.status, answer.body) == (304, b"")
        assert answer.headers["ETag"] == page.etag
    assert page.answer('"other"').status == 200
    world.table.add(FOO)
    assert (await world.page()).etag != page.etag


async def test_the_index_makes_no_page_of_a_custom_resource_and_its_hashes_change_with_them(world: World) -> None:
    world.table.add(FOO)
    openapi_pages._hash_of_rows((FOO,))  # the sample that every hash begins with, once
    world.made.clear()

    async def address() -> str:
        paths = json.loads((await world.page("/openapi/v3")).body)["paths"]
        return str(paths["apis/example.com/v1"]["serverRelativeURL"])

    before = await address()
    assert world.made == ["document"], "that of the built-in group, and no other"
    assert await address() == before
    world.table.remove(FOO)
    world.table.add(dataclasses.replace(FOO, schema={"type": "object"}))
    assert await address() != before
    assert world.made == ["document"]


async def test_a_page_of_a_group_version(world: World) -> None:
    world.table.add(FOO)
    page = await world.page("/openapi/v3/apis/example.com/v1")
    assert "com.example.v1.Foo" in json.loads(page.body)["components"]["schemas"]
    assert await world.page("/openapi/v3/apis/example.com/v1") is page
    assert "paths" in json.loads((await world.page("/openapi/v3/api/v1")).body)


async def test_pages_of_custom_resources_are_kept_within_bounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        world.table.add(dataclasses.replace(FOO, group=f"g{number}.example.com"))
    paths = [f"/openapi/v3/apis/g{number}.example.com/v1" for number in range(3)]
    builtin = await world.page("/openapi/v3/api/v1")
    size = len((await world.page(paths[0])).body)
    monkeypatch.setattr(openapi_pages, "_KEPT_BYTES", 2 * size + 10)
    first, second = await world.page(paths[0]), await world.page(paths[1])
    assert await world.page(paths[0]) is first
    await world.page(paths[2])
    assert await world.page(paths[0]) is first
    assert await world.page(paths[1]) is not second
    assert await world.page("/openapi/v3/api/v1") is builtin


@pytest.mark.parametrize(
    "path",
    [
        "/openapi",
        "/openapi/v4",
        "/openapi/v3/api",
        "/openapi/v3/api/v9",
        "/openapi/v3/apis/example.com",
        "/openapi/v3/apis/example.com/v1",
        "/openapi/v3/apis/example.com/v1/more",
        "/openapi/v2/apis/example.com/v1",
    ],
)
async def test_a_path_without_a_page_is_not_found(world: World, path: str) -> None:
    with pytest.raises(status.StatusError, match="could not find the requested resource"):
        await world.page(path)
