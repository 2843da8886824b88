# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from handfast import errors
from handfast.api import kinds, status
from handfast.client import api, partial
from tests.unit.client import scripted

THINGS = api.Resource("example.dev", "v1", "things", True)


@pytest.mark.parametrize(
    ("resource", "more", "expected"),
    [
        (api.Resource("", "v1", "nodes", False), {}, "/api/v1/nodes"),
        (api.Resource("", "v1", "nodes", False), {"namespace": "x", "name": "n"}, "/api/v1/nodes/n"),
        (api.Resource("", "v1", "pods", True), {}, "/api/v1/pods"),
        (THINGS, {"namespace": "ns"}, "/apis/example.dev/v1/namespaces/ns/things"),
        (
            THINGS,
            {"namespace": "ns", "name": "a", "subresource": "status"},
            "/apis/example.dev/v1/namespaces/ns/things/a/status",
        ),
        (
            api.Resource("rbac.authorization.k8s.io", "v1", "clusterroles", False),
            {"name": "system:a/b c?"},
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%2Fb%20c%3F",
        ),
    ],
)
def test_a_resource_has_the_path_that_kubernetes_gives_it(resource: api.Resource, more: dict[str, str], expected: str):
    assert api.path(resource, **more) == expected


def test_a_row_of_the_table_is_a_resource():
    row = next(row for row in kinds.builtin() if row.plural == "configmaps")
    assert api.path(row, namespace="a", name="b") == "/api/v1/namespaces/a/configmaps/b"


async def test_verbs_on_the_wire():
    document: dict[str, Any] = {"metadata": {"name": "a", "namespace": "ns"}, "data": 1}
    ok = scripted.answer(200, {"ok": True})
    async with scripted.serving(*[ok] * 10) as server, scripted.client_of(server) as client:
        assert await client.get(THINGS, "a", namespace="ns", metadata=True) == {"ok": True}
        await client.create(THINGS, document, namespace="ns")
        await client.create(THINGS, document, namespace="ns", name="a", subresource="token")
        await client.update(THINGS, document)
        await client.update_status(THINGS, document)
        await client.patch(THINGS, "a", {"x": None}, namespace="ns")
        await client.patch(THINGS, "a", [{"op": "test"}], namespace="ns", content_type=api.JSON_PATCH)
        await client.delete(THINGS, "a", namespace="ns")
        await client.delete(
            THINGS, "a", namespace="ns", uid="u", resource_version="7", propagation=api.FOREGROUND, grace_seconds=0
        )
        await client.delete_collection(THINGS, api.Scope(namespace="ns", label_selector="x=y"))
    at = "/apis/example.dev/v1/namespaces/ns/things"
    assert [(request.method, request.path.removeprefix(at)) for request in server.requests] == [
        ("GET", "/a"),
        ("POST", ""),
        ("POST", "/a/token"),
        ("PUT", "/a"),
        ("PUT", "/a/status"),
        ("PATCH", "/a"),
        ("PATCH", "/a"),
        ("DELETE", "/a"),
        ("DELETE", "/a"),
        ("DELETE", ""),
    ]
    got, _, _, put, _, merge, patch, plain, guarded, collection = server.requests
    assert got.headers["accept"].startswith("application/json;as=PartialObjectMetadata;")
    assert msgspec.json.decode(put.body) == document
    assert (merge.headers["content-type"], merge.body) == (api.MERGE_PATCH, b'{"x":null}')
    assert (patch.headers["content-type"], patch.body) == (api.JSON_PATCH, b'[{"op":"test"}]')
    assert msgspec.json.decode(plain.body) == {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert msgspec.json.decode(guarded.body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }
    assert collection.params == {"labelSelector": "x=y"}


async def test_a_list_is_read_page_by_page():
    async with (
        scripted.serving(
            scripted.listing("5", scripted.thing("a", 1), more="next"), scripted.listing("5", scripted.thing("b", 2))
        ) as server,
        scripted.client_of(server) as client,
    ):
        found = await client.list(THINGS, api.Scope(namespace="ns"))
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert [request.params for request in server.requests] == [{"limit": "500"}, {"limit": "500", "continue": "next"}]


async def test_a_list_of_nothing_may_be_null():
    """As Go writes it."""
    nothing = scripted.answer(200, {"metadata": {"resourceVersion": "7"}, "items": None})
    async with scripted.serving(nothing, nothing) as server, scripted.client_of(server) as client:
        assert await client.list(THINGS) == []
        decoder = msgspec.json.Decoder(api.Listing[partial.Partial])
        assert [page.items async for page in client.pages(THINGS, api.EVERYTHING, decoder)] == [[]]


async def test_a_view_decodes_only_what_it_names():
    decoder = msgspec.json.Decoder(partial.OwnedPartial)
    owners = [{"uid": "o", "kind": "K", "name": "n", "apiVersion": "v1", "controller": True}]
    document = scripted.thing("a", 1, ownerReferences=owners, finalizers=None, labels={"x": "y"}, odd=[1])
    async with scripted.serving(scripted.answer(200, document)) as server, scripted.client_of(server) as client:
        found = await client.view(THINGS, "a", decoder, namespace="ns", metadata=True)
    assert found.metadata.key == ("ns", "a")
    assert found.metadata.finalizers is None
    assert found.metadata.owner_references == (
        partial.OwnerReference(uid="o", kind="K", name="n", api_version="v1", controller=True),
    )


async def test_a_view_that_is_whole_is_replaced():
    whole = scripted.answer(200, {"metadata": {"name": "a", "resourceVersion": "2"}, "more": 1})
    async with (
        scripted.serving(whole, scripted.answer(200, {"metadata": 1})) as server,
        scripted.client_of(server) as client,
    ):
        decoder = msgspec.json.Decoder(partial.Partial)
        item = partial.Partial(partial.Meta(name="a", resource_version="1"))
        found = await client.replace(THINGS, "a", item, decoder, namespace="ns", subresource="status")
        assert found.metadata.resource_version == "2"
        with pytest.raises(errors.Unavailable, match="cannot be decoded"):
            await client.replace(THINGS, "a", item, decoder)
    first = server.requests[0]
    assert (first.method, first.path) == ("PUT", "/apis/example.dev/v1/namespaces/ns/things/a/status")
    assert msgspec.json.decode(first.body, type=partial.Partial) == item


async def test_an_odd_object_is_left_out_of_a_list_and_told_of_once():
    odd = {"metadata": {"name": "odd", "namespace": "ns", "finalizers": [None]}}
    nameless = {"metadata": 5}
    decoder = msgspec.json.Decoder(api.Listing[partial.OwnedPartial])
    pages = [
        scripted.listing("1", scripted.thing("a", 1), odd, nameless, more="x"),
        scripted.listing("2", scripted.thing("b", 1)),
    ] * 2
    async with scripted.serving(*pages) as server, scripted.client_of(server) as client:
        with capture_logs() as logs:
            for _ in range(2):
                found = [page async for page in client.pages(THINGS, api.EVERYTHING, decoder)]
                assert [item.metadata.name for page in found for item in page.items] == ["a", "b"]
                assert found[-1].metadata.resource_version == "2"
    assert [(log["log_level"], log["resource"], log["namespace"], log["name"]) for log in logs] == [
        ("warning", "things", "ns", "odd"),
        ("warning", "things", "", ""),
    ]
    assert "finalizers" in logs[0]["error"]


async def test_what_is_no_list_fails():
    decoder = msgspec.json.Decoder(api.Listing[partial.Partial])
    answers = [scripted.answer(200, {"items": 5}), scripted.answer(200, raw=b"{")]
    async with scripted.serving(*answers) as server, scripted.client_of(server) as client:
        for _ in answers:
            with pytest.raises(msgspec.DecodeError):
                [page async for page in client.pages(THINGS, api.EVERYTHING, decoder)]


async def test_an_odd_object_that_is_asked_for_is_an_error_of_ours():
    decoder = msgspec.json.Decoder(partial.OwnedPartial)
    odd = scripted.answer(200, {"metadata": {"name": "odd", "finalizers": [None]}})
    async with scripted.serving(odd) as server, scripted.client_of(server) as client:
        with pytest.raises(errors.Unavailable, match="things/odd cannot be decoded") as caught:
            await client.view(THINGS, "odd", decoder, namespace="ns")
        assert caught.value.reason == "BadAnswer"


async def test_find_takes_only_not_found_for_an_answer():
    there, gone = scripted.answer(200, {"ok": True}), status.not_found("things", "example.dev", "a")
    denied = status.forbidden("things", "example.dev", "a", "no")
    answers = (there, scripted.answer(404, gone.document()), scripted.answer(403, denied.document()))
    async with scripted.serving(*answers) as server, scripted.client_of(server) as client:
        assert await client.find(THINGS, "a", namespace="ns", metadata=True) == {"ok": True}
        assert await client.find(THINGS, "a", namespace="ns") is None
        with pytest.raises(status.StatusError) as caught:
            await client.find(THINGS, "a", namespace="ns")
        assert caught.value.reason == "Forbidden"
    assert [request.method for request in server.requests] == ["GET"] * 3


def test_oddities_are_remembered_up_to_a_limit():
    oddities = partial.Oddities(2)
    error = msgspec.ValidationError("odd")
    with capture_logs() as logs:
        for name in ("a", "b", "a", "c", "c", "a"):
            oddities.skip("things", partial.Partial(partial.Meta(name=name)), error)
    assert [log["name"] for log in logs] == ["a", "b", "c", "a"]


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[]", b'"\\ud800"', b'{"a":' * 100_000])
async def test_an_answer_that_is_no_object_is_unavailable(raw: bytes):
    async with scripted.serving(*[scripted.answer(200, raw=raw)] * 2) as server, scripted.client_of(server) as client:
        for work in (client.get(THINGS, "a", namespace="ns"), client.create(THINGS, {}, namespace="ns")):
            with pytest.raises(errors.Unavailable, match="the answer is no object") as caught:
                await work
            assert caught.value.reason == "BadAnswer"
