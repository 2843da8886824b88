# SPDX-License-Identifier: Apache-2.0
"""A fleet in a served world: the bootstrap account, Machines with their status, and machines that ask from an address of theirs.

Nothing here is under test.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from handfast.bootstrap import first_objects
from handfast.client import api, machine_tokens, machines
from handfast.rules.machines import bootstrapper
from tests.scenarios import callers, certified, fleet_story, wire
from tests.scenarios import controlled as c
from tests.scenarios.test_proxy_protocol import BALANCER, balancing, version_2

EGRESS_IPS = api.Resource("k8s.ovn.org", "v1", "egressips", False)


class Fleet(fleet_story.Story):
    """An operator with Machines, and whoever asks as one of them."""

    async def prepare(self) -> None:
        """The namespaces, the account and the kinds."""
        await self.define()
        for namespace in (bootstrapper.NAMESPACE, bootstrapper.MANAGED_NAMESPACE):
            await self.client.create(c.NAMESPACES, {"metadata": {"name": namespace}})
        account = {"metadata": {"name": bootstrapper.ACCOUNT}}
        await self.client.create(c.SERVICE_ACCOUNTS, account, namespace=bootstrapper.NAMESPACE)
        # What the workers' token stands on.
        secret = {"metadata": {"name": bootstrapper.TOKEN_SECRET}}
        await self.client.create(c.SECRETS, secret, namespace=bootstrapper.NAMESPACE)
        await self.bind("file", first_objects.NODE_GROUP)

        async def served() -> bool:
            return await self.client.serves(fleet_story.MACHINES)

        await self.eventually(served, "Machines are served")

    async def known(self, name: str, *rows: tuple[str, str], node: str = "") -> dict[str, Any]:
        """A Machine with its own name as InternalDNS name, these other addresses, and perhaps a Node."""
        addresses = [{"type": kind, "address": text} for kind, text in (("InternalDNS", name), *rows)]
        reference = {"nodeRef": {"kind": "Node", "name": node}} if node else {}
        return await self.machine(name, addresses=addresses, **reference)

    async def shared_token(self) -> str:
        """A token of the account that is nobody's in particular."""
        path = f"/api/v1/namespaces/{bootstrapper.NAMESPACE}/serviceaccounts/{bootstrapper.ACCOUNT}/token"
        answer = await callers.make(self.world, path, {"spec": {}})
        return str(answer["status"]["token"])

    async def own_token(self, name: str) -> str:
        """The token of this machine."""
        machine = await machines.find(self.client, name)
        return (await machine_tokens.create(self.client, machine, 86400)).token

    async def file(self, document: dict[str, Any], token: str, address: str = "", **headers: str) -> dict[str, Any]:
        """File a request with a token, from this address by way of the balancer, or from this machine."""
        body, headers = msgspec.json.encode(document), {**callers.bearer(token), **headers}
        async with contextlib.AsyncExitStack() as stack:
            port = self.world.server.address[1]
            if address:
                port = await stack.enter_async_context(balancing(self.world, version_2(address)))
            line = await stack.enter_async_context(wire.line(port, self.world.anonymous_context()))
            reply = await line.ask("POST", certified.PATH, body, Content_Type="application/json", **headers)
        assert reply.status == 201, reply.body
        filed: dict[str, Any] = reply.json()
        return filed


@contextlib.asynccontextmanager
async def fleet(directory: pathlib.Path) -> AsyncIterator[Fleet]:
    """A fleet behind a balancer, without a Machine yet, and without controllers."""
    async with c.story_of(Fleet, directory, balancers=f"{BALANCER}/32") as story:
        await story.prepare()
        yield story


async def impersonating(story: Fleet, document: dict[str, Any], **headers: str) -> dict[str, Any]:
    """File a request as the bootstrap account, by an administrator who acts as it."""
    names = {"Impersonate-User": bootstrapper.USER, **headers}
    answer = await story.world.request("POST", certified.PATH, document, headers=names)
    assert answer.status == 201, answer.body
    filed: dict[str, Any] = answer.json()
    return filed
