# SPDX-License-Identifier: Apache-2.0
"""A namespace's life: what it gets at birth, what is kept right in it, and how it goes.

Proves that every namespace has its ServiceAccount and root CA whatever anyone does to them, and that a deleted one is
emptied, says what holds it, and goes only then.
"""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from handfast.client import api
from tests.scenarios import controlled as c

pytestmark = pytest.mark.slow
copies = pytest.mark.parametrize("copies", [1, 2])
ALL = ("namespace-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller")


@copies
async def test_a_namespace_gets_its_account_and_ca_and_keeps_them(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, *ALL, copies=copies) as story:
        await story.client.create(c.NAMESPACES, {"metadata": {"name": "new"}})

        async def account() -> Any:
            return await story.find(c.SERVICE_ACCOUNTS, "default", "new")

        async def published() -> Any:
            found = await story.find(c.CONFIG_MAPS, "kube-root-ca.crt", "new")
            return found if found and found["data"] == {"ca.crt": c.CA_PEM.decode()} else None

        first = await story.eventually(account)
        await story.client.delete(c.SERVICE_ACCOUNTS, "default", namespace="new")

        async def another() -> bool:
            found = await account()
            return found is not None and found["metadata"]["uid"] != first["metadata"]["uid"]

        await story.eventually(another)
        document = await story.eventually(published)
        assert "kubernetes.io/description" in document["metadata"]["annotations"]
        for data in ({"ca.crt": "forged"}, {"ca.crt": c.CA_PEM.decode(), "more": "x"}, {}):
            found = await story.find(c.CONFIG_MAPS, "kube-root-ca.crt", "new")
            found["data"] = data
            found["metadata"].pop("resourceVersion")
            await story.client.update(c.CONFIG_MAPS, found)
            await story.eventually(published, f"restored from {data}")
        await story.client.delete(c.CONFIG_MAPS, "kube-root-ca.crt", namespace="new")
        await story.eventually(published)


@copies
async def test_a_deleted_namespace_is_emptied_and_goes(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, *ALL, copies=copies) as story:
        await story.client.create(c.NAMESPACES, {"metadata": {"name": "old"}})
        for number in range(5):
            await story.config_map(f"c{number}", namespace="old")
        await story.client.create(c.SECRETS, {"metadata": {"name": "s"}, "type": "Opaque"}, namespace="old")

        await story.client.delete(c.NAMESPACES, "old")
        await story.gone(c.NAMESPACES, "old")
        everywhere = [await story.client.list(kind) for kind in (c.CONFIG_MAPS, c.SECRETS, c.SERVICE_ACCOUNTS)]
        assert not [row for rows in everywhere for row in rows if row["metadata"]["namespace"] == "old"]


@copies
async def test_a_finalizer_holds_a_namespace_which_says_so(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, *ALL, copies=copies) as story:
        await story.client.create(c.NAMESPACES, {"metadata": {"name": "held"}})
        await story.config_map("holder", namespace="held", finalizers=["example.dev/hold"])
        await story.config_map("loose", namespace="held")
        await story.client.delete(c.NAMESPACES, "held")

        async def explained() -> Any:
            found = await story.find(c.NAMESPACES, "held")
            rows = {row["type"]: row for row in found["status"].get("conditions", ())}
            remaining = rows.get("NamespaceContentRemaining", {})
            # The first look may still count the CA's ConfigMap, which another controller had made.
            is_told = "configmaps has 1 resource instances" in remaining.get("message", "")
            return rows if remaining.get("status") == "True" and is_told else None

        rows = await story.eventually(explained)
        assert rows["NamespaceFinalizersRemaining"]["status"] == "True"
        assert "example.dev/hold in 1 resource instances" in rows["NamespaceFinalizersRemaining"]["message"]
        assert rows["NamespaceDeletionContentFailure"]["status"] == "False"
        await story.quiet()
        assert await story.find(c.NAMESPACES, "held") is not None
        await story.client.patch(c.CONFIG_MAPS, "holder", {"metadata": {"finalizers": None}}, namespace="held")
        await story.gone(c.NAMESPACES, "held")


@copies
async def test_many_namespaces_come_and_go_at_once(tmp_path: pathlib.Path, copies: int):
    async with c.controlled(tmp_path, *ALL, "garbage-collector-controller", copies=copies) as story:
        names = [f"n{number}" for number in range(20)]
        await asyncio.gather(*(story.client.create(c.NAMESPACES, {"metadata": {"name": name}}) for name in names))
        await asyncio.gather(*(story.client.delete(c.NAMESPACES, name) for name in names))
        await story.gone(c.NAMESPACES, *names)
        left = await story.client.list(c.CONFIG_MAPS, api.Scope(field_selector="metadata.name=kube-root-ca.crt"))
        assert not {row["metadata"]["namespace"] for row in left} & set(names)


async def test_a_pod_on_a_node_that_does_not_exist_holds_no_namespace(tmp_path: pathlib.Path):
    async with c.controlled(tmp_path, *ALL, "pod-garbage-collector-controller") as story:
        await story.client.create(c.NAMESPACES, {"metadata": {"name": "haunted"}})
        await story.client.create(c.NODES, {"metadata": {"name": "going"}})
        for name in ("nowhere", "going"):
            spec = {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}
            await story.client.create(c.PODS, {"metadata": {"name": name}, "spec": spec}, namespace="haunted")
        await story.client.delete(c.NAMESPACES, "haunted")

        async def explained() -> bool:
            found = await story.find(c.NAMESPACES, "haunted")
            return "pods has" in str(found["status"].get("conditions"))

        # Each has its grace period, and the one whose Node is there waits for that.
        await story.eventually(explained)
        await story.clock.advance(31)
        await story.gone(c.PODS, "nowhere", namespace="haunted")
        assert await story.find(c.PODS, "going", "haunted") is not None
        await story.client.delete(c.NODES, "going")
        await story.gone(c.NAMESPACES, "haunted")
