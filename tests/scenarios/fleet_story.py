# SPDX-License-Identifier: Apache-2.0
"""A world in which the machine-approver is at work beside the other controllers of certificates, and machines ask."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from prometheus_client import parser

from handfast.api import kinds, machine_kinds
from handfast.assembly import controllers
from handfast.client import api, connection, transport
from handfast.controllers import loop
from handfast.controllers.machines import approver as machine_approver
from handfast.rules import controller_rights
from handfast.rules.machines import bootstrapper, settings
from tests.scenarios import callers, certified, controlled, granting
from tests.world import warm

MACHINES = api.Resource("machine.openshift.io", "v1beta1", "machines", True)
DEFINITIONS = api.Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", False)
ALL = (*certified.ALL, machine_approver.NAME)
FLEET = "openshift-machine-api"
APPROVED = ("NodeCSRApprove", "This CSR was approved by the Node CSR Approver (cluster-machine-approver)")


class Story(certified.Story):
    """The operator, who makes Machines; and machines, which have the bootstrap credential."""

    def bootstrapper(self, *groups: str) -> ssl.SSLContext:
        return self.world.context_for(bootstrapper.USER, *(groups or bootstrapper.GROUPS))

    async def define(self) -> None:
        """Have the kind of Machines, its namespace, and the right to file requests."""
        for document in machine_kinds.definitions():
            await self.client.create(DEFINITIONS, document)
        for name in (FLEET, settings.NAMESPACE, bootstrapper.CONFIG_NAMESPACE):
            await self.client.create(controlled.NAMESPACES, {"metadata": {"name": name}})
        # The object that the masters' certificate stands on.
        trust = {"metadata": {"name": bootstrapper.CONFIG_MAP}, "data": {}}
        await self.client.create(controlled.CONFIG_MAPS, trust, namespace=bootstrapper.CONFIG_NAMESPACE)
        role = "system:node-bootstrapper"
        subject = {"kind": "User", "name": bootstrapper.USER, "apiGroup": "rbac.authorization.k8s.io"}
        await granting.made(
            self.world, granting.CLUSTER_BINDINGS, granting.binding("bootstrapper", "ClusterRole", role, subject)
        )

    async def machine(self, name: str, *names: str, **status: Any) -> dict[str, Any]:
        """Make a Machine with these InternalDNS names, or with its own."""
        head = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine"}
        document = await self.client.create(MACHINES, {**head, "metadata": {"name": name}, "spec": {}}, namespace=FLEET)
        rows = [{"type": "InternalDNS", "address": text} for text in names or (name,)]
        return await self.client.update_status(MACHINES, {**document, "status": {"addresses": rows, **status}})

    async def settings(self, text: str) -> None:
        """Write the settings of the machine-approver, once it has made their ConfigMap."""

        async def there() -> Any:
            return await self.find(controlled.CONFIG_MAPS, settings.NAME, settings.NAMESPACE)

        document = await self.eventually(there, "the ConfigMap of the settings")
        await self.client.update(controlled.CONFIG_MAPS, {**document, "data": {settings.KEY: text}})

    async def reason(self, name: str) -> str:
        """The last reason that was told of a request, once there is one."""

        async def said() -> Any:
            return await self.told(name)

        rows = await self.eventually(said, f"{name} told")
        return str(rows[-1][0])

    async def operator(self, *words: str, code: int = 0) -> str:
        """A command, as an operator types it; what it prints, and where it fails what it complains of."""
        text = self.world.place.admin_kubeconfig.read_text().replace("https://127.0.0.1:6443", self.world.base)
        path = self.world.place.root / "served.conf"
        path.write_text(text)
        done = await asyncio.to_thread(warm.run, [*words, "--kubeconfig", str(path)], os.environ, 60)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout + (done.stderr if code else "")

    async def told_of(self, namespace: str, name: str) -> list[tuple[str, str]]:
        """The Events about an object."""
        events = await self.client.list(controlled.EVENTS, api.Scope(namespace=namespace))
        return [(row["reason"], row["message"]) for row in events if row["involvedObject"].get("name") == name]


@contextlib.asynccontextmanager
async def told(directory: pathlib.Path) -> AsyncIterator[Story]:
    async with telling(Story, directory) as story:
        yield story


_S = TypeVar("_S", bound=Story)


@contextlib.asynccontextmanager
async def telling(kind: type[_S], directory: pathlib.Path) -> AsyncIterator[_S]:
    """A story of its own kind."""
    async with controlled.story_of(kind, directory) as story:
        await story.define()
        yield story


def running(
    story: Story, *chosen: str, **more: Any
) -> contextlib.AbstractAsyncContextManager[list[loop.Controller[Any]]]:
    """One process of the controllers of a fleet."""
    names = chosen or ALL
    return certified.running(story.world, *names, selection=controllers.Selection(names=names, **more))


def forbidden(story: Story) -> int:
    """How many requests were answered 403."""
    families = parser.text_string_to_metric_families(story.world.server.metrics.text().decode())
    samples = [sample for family in families for sample in family.samples]
    return sum(
        int(sample.value)
        for sample in samples
        if sample.name == "apiserver_request_total" and sample.labels["code"] == "403"
    )


@contextlib.asynccontextmanager
async def running_as_printed(story: Story, *chosen: str, **more: Any) -> AsyncIterator[None]:
    """These controllers with the account and the rights of `--print-manifest`, as on another API server."""
    for document in controller_rights.documents(chosen):
        row = next(row for row in kinds.builtin() if (row.api_version, row.kind) == _identity(document))
        # The namespaces of the settings and of a credential are there already.
        if row.kind != "Namespace" or await story.find(row, document["metadata"]["name"], "") is None:
            await story.client.create(row, document, namespace=document["metadata"].get("namespace", ""))
    path = f"/api/v1/namespaces/{controller_rights.NAMESPACE}/serviceaccounts/{controller_rights.ACCOUNT}/token"
    token = (await callers.make(story.world, path, {"spec": {}}))["status"]["token"]
    admin = connection.load(str(story.world.place.admin_kubeconfig))
    place = dataclasses.replace(admin, server=story.world.base, cert_pem=None, key_pem=None, token=token)
    builds = controllers.known(controlled.CA_PEM, selection=controllers.Selection(names=chosen), **more)

    @contextlib.asynccontextmanager
    async def client() -> AsyncIterator[api.Client]:
        link = transport.Transport(place, clock=story.clock)
        try:
            yield api.Client(link)
        finally:
            await link.close()

    async with controlled.copied(story.clock, client, lambda: (builds[name] for name in chosen)):
        yield


def _identity(document: dict[str, Any]) -> tuple[str, str]:
    return str(document["apiVersion"]), str(document["kind"])
