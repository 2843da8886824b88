# SPDX-License-Identifier: Apache-2.0
"""A rotation of the client CA over real TLS: what is added counts at once, what is removed is told 401, also later."""

from __future__ import annotations

import json
import pathlib
import ssl
from typing import Any

import aiohttp
import pytest

from handfast.pki import authority, keys, names
from tests.scenarios import callers
from tests.world import world as worlds

PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system"
MERGE = {"Content-Type": "application/merge-patch+json"}


def new_ca(world: worlds.World, name: str = "the next CA") -> authority.Authority:
    return authority.self_signed_ca(names.Subject(common_name=name), keys.generate(), world.clock.now())


async def choose(world: worlds.World, bundle: str, **options: Any) -> worlds.Answer:
    document = {"data": {"client-ca-file": bundle}}
    return await world.request("PATCH", PATH, document, headers=dict(MERGE), **options)


async def fresh_get(world: worlds.World, context: ssl.SSLContext) -> int:
    """The answer on a new connection: a handshake and one request."""
    async with (
        aiohttp.ClientSession(world.base, connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(PATH) as response,
    ):
        return response.status


async def test_a_rotation(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "d"
    async with worlds.world(directory) as world:
        first = world.place.ca_certificate.read_text()
        found = await world.get(PATH)
        assert found.json()["data"] == {"client-ca-file": first}
        ca = new_ca(world)
        following = callers.administrator(world, ca)
        # Both are trusted from the next handshake on.
        assert (await choose(world, first + ca.pem.decode())).status == 200
        assert (await world.get(PATH, context=following)).status == 200
        assert (await world.get(PATH)).status == 200
        # The old one is not any more, on the connection that is open and on a new one.
        assert (await choose(world, ca.pem.decode(), context=following)).status == 200
        assert (await world.get(PATH)).status == 401
        assert await fresh_get(world, world.admin_context()) == 401
        assert (await world.get(PATH, context=following)).status == 200
        # And back.
        assert (await choose(world, first, context=following)).status == 200
        assert (await world.get(PATH, context=following)).status == 401
        assert (await world.get(PATH)).status == 200
    async with worlds.world(directory) as world:
        # A removed CA's certificates are still told, and not cut off.
        assert await fresh_get(world, following) == 401
        assert (await world.get(PATH)).status == 200


async def test_a_ca_never_trusted_does_not_pass_the_handshake(world: worlds.World) -> None:
    stranger = callers.administrator(world, new_ca(world, "nobody's CA"))
    with pytest.raises(aiohttp.ClientError):
        await fresh_get(world, stranger)


async def test_an_editor_of_the_namespace_cannot_add_a_ca(world: worlds.World) -> None:
    eve = world.context_for("eve")
    binding = {
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
    }
    assert (await world.request("POST", f"{ROLES}/rolebindings", binding)).status == 201
    label = {"metadata": {"labels": {"eve": "was-here"}}}
    assert (await world.request("PATCH", PATH, label, headers=dict(MERGE), context=eve)).status == 200
    bundle = world.place.ca_certificate.read_text() + new_ca(world).pem.decode()
    refused = await choose(world, bundle, context=eve)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert 'needs the verb "trust"' in refused.message
    assert (await world.request("DELETE", PATH, context=eve)).status == 403
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000000"}
    adopted = {"metadata": {"ownerReferences": [owner]}}
    assert (await world.request("PATCH", PATH, adopted, headers=dict(MERGE), context=eve)).status == 403


async def test_what_is_no_bundle_is_refused(world: worlds.World) -> None:
    before = (await world.get(PATH)).json()["data"]
    serving = world.place.apiserver_certificate.read_text()
    for bundle in ("", "hello", serving, before["client-ca-file"] + serving):
        refused = await choose(world, bundle)
        assert (refused.status, refused.reason) == (422, "Invalid")
        assert refused.json()["details"]["causes"][0]["field"] == "data[client-ca-file]"
    assert (await world.get(PATH)).json()["data"] == before


async def test_deleting_it_starts_over(world: worlds.World) -> None:
    ca = new_ca(world)
    following = callers.administrator(world, ca)
    assert (await choose(world, world.place.ca_certificate.read_text() + ca.pem.decode())).status == 200
    assert (await world.get(PATH, context=following)).status == 200
    assert (await world.request("DELETE", PATH)).status == 200
    assert (await world.get(PATH, context=following)).status == 401


async def test_a_watch_that_ends_with_the_change_misses_nothing(world: worlds.World) -> None:
    """The change that ends all watches is one that some of them are about."""
    listed = (await world.get(f"{PATH.rsplit('/', 1)[0]}?fieldSelector=metadata.name={PATH.rsplit('/', 1)[1]}")).json()
    name = f"fieldSelector=metadata.name={PATH.rsplit('/', 1)[1]}"
    version = listed["metadata"]["resourceVersion"]
    watched = f"{PATH.rsplit('/', 1)[0]}?watch=1&allowWatchBookmarks=true&{name}"
    async with world.session().get(f"{watched}&resourceVersion={version}") as response:
        bundle = world.place.ca_certificate.read_text() + new_ca(world).pem.decode()
        changed = (await choose(world, bundle)).json()["metadata"]["resourceVersion"]
        events = [json.loads(line) for line in (await response.read()).splitlines()]
    if not any(event["type"] == "MODIFIED" for event in events):
        # It was not told: then it must not be led to believe that it was.
        assert all(int(event["object"]["metadata"]["resourceVersion"]) < int(changed) for event in events)
