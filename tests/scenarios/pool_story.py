# SPDX-License-Identifier: Apache-2.0
"""A world with pools of machines: their operator writes MachineConfigs, and their agents write on their Nodes.

Nothing here is under test.
"""

from __future__ import annotations

import base64
import contextlib
import pathlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from handfast.api import machine_config_kinds
from handfast.bootstrap import kubeconfig
from handfast.controllers import loop
from handfast.controllers.machines import machine_config_pools, machine_config_render
from handfast.rules.machine_config import names
from handfast.rules.machines import bootstrapper, installation
from handfast.rules.tokens import service_accounts
from tests.scenarios import certified, controlled, fleet_story

POOLS = machine_config_kinds.MACHINE_CONFIG_POOL
CONFIGS = machine_config_kinds.MACHINE_CONFIG
ALL = (machine_config_render.NAME, machine_config_pools.NAME)
SERVERS = ("https://api.example:6443",)
TOKEN = "first.worker.token"


def file(path: str, text: str = "x") -> dict[str, Any]:
    return {"path": path, "mode": 420, "contents": {"source": f"data:,{text}"}}


class Story(fleet_story.Story):
    """The operator, and agents on nodes."""

    async def begin(self, *roles: str) -> None:
        """What an installed fleet has: the namespace, the worker's token, and the pools of these roles."""
        await self.client.create(controlled.NAMESPACES, {"metadata": {"name": bootstrapper.NAMESPACE}})
        await self.token(TOKEN)
        for role in roles:
            await self.client.create(POOLS, machine_config_kinds.pool(role))

    async def own_pool(self, name: str) -> None:
        """A pool of the operator's own, of workers."""
        document = machine_config_kinds.pool(name)
        roles = {"key": names.ROLE_LABEL, "operator": "In", "values": ["worker", name]}
        document["spec"]["machineConfigSelector"] = {"matchExpressions": [roles]}
        await self.client.create(POOLS, document)

    async def token(self, text: str, name: str = bootstrapper.TOKEN_SECRET) -> None:
        """Have this be the worker's token."""
        encoded = base64.b64encode(text.encode()).decode()
        meta = {"name": name, "annotations": {service_accounts.ACCOUNT_NAME: bootstrapper.ACCOUNT}}
        document = {"metadata": meta, "type": service_accounts.LEGACY_TYPE, "data": {"token": encoded}}
        if await self.find(controlled.SECRETS, name, bootstrapper.NAMESPACE) is None:
            await self.client.create(controlled.SECRETS, document, namespace=bootstrapper.NAMESPACE)
        else:
            patch = {"data": {"token": encoded}}
            await self.client.patch(controlled.SECRETS, name, patch, namespace=bootstrapper.NAMESPACE)

    async def masters_certificate(self) -> bytes:
        """Have the masters' kubeconfig with a certificate, which the ConfigMap of the story makes count."""
        cluster = kubeconfig.Cluster(name="local", server=SERVERS[0], certificate_authority_data=controlled.CA_PEM)
        user = kubeconfig.User(name="kubelet", client_certificate_data=b"certificate", client_key_data=b"key")
        text = kubeconfig.render(kubeconfig.Kubeconfig(context="kubelet", cluster=cluster, user=user)).encode()
        data = {installation.KUBECONFIG_KEY: base64.b64encode(text).decode()}
        document = {"metadata": {"name": installation.KUBECONFIG_SECRET}, "data": data}
        await self.client.create(controlled.SECRETS, document, namespace=bootstrapper.NAMESPACE)
        return text

    async def config(self, name: str, *files: Mapping[str, Any], role: str = "worker", **spec: Any) -> None:
        """Write a MachineConfig."""
        ignition = {"ignition": {"version": "3.2.0"}, "storage": {"files": list(files)}}
        body = {"spec": {"config": ignition, **spec}}
        if await self.find(CONFIGS, name, "") is None:
            head = {"apiVersion": CONFIGS.api_version, "kind": CONFIGS.kind}
            meta = {"name": name, "labels": {names.ROLE_LABEL: role}}
            await self.client.create(CONFIGS, {**head, "metadata": meta, **body})
        else:
            await self.client.patch(CONFIGS, name, body)

    @contextlib.asynccontextmanager
    async def configured(self, *all_names: str) -> AsyncIterator[None]:
        """With a MachineConfig of each of these names, before anything is rendered."""
        for name in all_names:
            await self.config(name, file(f"/dummy/{name}"))
        yield

    async def pool(self, name: str = "worker") -> dict[str, Any]:
        return await self.client.get(POOLS, name)

    async def change(self, name: str = "worker", **spec: Any) -> None:
        await self.client.patch(POOLS, name, {"spec": spec})

    async def target(self, before: str = "", name: str = "worker") -> str:
        """What the pool goes to, once that is another than before."""

        async def other() -> str:
            wanted = str((await self.pool(name))["spec"].get("configuration", {}).get("name", ""))
            return wanted if wanted != before else ""

        return str(await self.eventually(other, f"{name} goes elsewhere than {before!r}"))

    async def rendering(self, name: str) -> dict[str, Any]:
        return await self.client.get(CONFIGS, name)

    async def renderings(self) -> set[str]:
        found = {each["metadata"]["name"] for each in await self.client.list(CONFIGS)}
        return {name for name in found if name.startswith("rendered-")}

    async def condition(self, kind: str, name: str = "worker") -> dict[str, Any]:
        rows = (await self.pool(name)).get("status", {}).get("conditions", [])
        return next((row for row in rows if row["type"] == kind), {})

    async def says(self, kind: str, status: str, *words: str, name: str = "worker") -> dict[str, Any]:
        """The condition, once it has this status and these words."""

        async def so() -> Any:
            row = await self.condition(kind, name)
            text = f"{row.get('reason')} {row.get('message')}"
            return row if row.get("status") == status and all(word in text for word in words) else None

        row: dict[str, Any] = await self.eventually(so, f"{name} says {kind}={status} {words}")
        return row

    async def nodes(self, *all_names: str, role: str = "worker", agent: bool = True, current: str = "") -> None:
        """Machines that have joined, with this configuration."""
        for name in all_names:
            meta = {"name": name, "labels": {f"node-role.kubernetes.io/{role}": ""}}
            await self.client.create(controlled.NODES, {"metadata": meta})
            await self.ready(name)
            if agent:
                await self.reports(name, **{names.AGENT: "v1", names.CURRENT: current, names.STATE: names.DONE})

    async def ready(self, name: str, word: str = "True") -> None:
        rows = [{"type": "Ready", "status": word}]
        await self.client.patch(controlled.NODES, name, {"status": {"conditions": rows}}, subresource="status")

    async def reports(self, node: str, **annotations: str) -> None:
        """What the agent on a node writes, with the node's own certificate."""
        path = f"/api/v1/nodes/{node}"
        headers = {"Content-Type": "application/merge-patch+json"}
        body = {"metadata": {"annotations": annotations}}
        answer = await self.world.request("PATCH", path, body, context=self.node(node), headers=headers)
        assert answer.status == 200, answer.body

    async def desired(self, *all_names: str) -> list[str]:
        found = [await self.client.get(controlled.NODES, name) for name in all_names]
        return [each["metadata"].get("annotations", {}).get(names.DESIRED, "") for each in found]

    async def sent(self, target: str, all_names: Iterable[str]) -> list[str]:
        """Who is to have it."""
        ordered = list(all_names)
        return [name for name, each in zip(ordered, await self.desired(*ordered), strict=True) if each == target]

    async def are_sent(self, target: str, *all_names: str) -> None:
        async def so() -> bool:
            return len(await self.sent(target, all_names)) == len(all_names)

        await self.eventually(so, f"{all_names} sent to {target}")

    async def apply(self, *all_names: str) -> None:
        """The agents there apply what they are to have."""
        for name, wanted in zip(all_names, await self.desired(*all_names), strict=True):
            await self.reports(name, **{names.CURRENT: wanted, names.STATE: names.DONE, names.REASON: ""})

    async def rolled_out(self, target: str, *all_names: str) -> None:
        """All of them get there, in whatever steps, and the pool says so."""
        await self.rolled_out_to(target, *all_names)
        await self.says("Updated", "True", target)

    async def rolled_out_to(self, target: str, *all_names: str) -> None:

        async def so() -> bool:
            behind = [name for name in await self.sent(target, all_names) if name not in done]
            await self.apply(*behind)
            done.update(behind)
            return len(done) == len(all_names)

        done: set[str] = set()
        await self.eventually(so, f"{target} rolled out")

    async def events(self, name: str = "worker") -> list[tuple[str, str]]:
        return await self.told_of("default", name)


@contextlib.asynccontextmanager
async def told(directory: pathlib.Path, *roles: str) -> AsyncIterator[Story]:
    """A fleet with these pools, or that of workers, in which no controller is at work yet."""
    async with fleet_story.telling(Story, directory) as story:
        await story.begin(*(roles or ("worker",)))
        yield story


def running(story: Story, *chosen: str) -> contextlib.AbstractAsyncContextManager[list[loop.Controller[Any]]]:
    """One process of the two controllers."""
    return certified.running(story.world, *(chosen or ALL), servers=SERVERS)
