# SPDX-License-Identifier: Apache-2.0
"""The Machines of a cluster, read once over its API, for commands. Those who go on follow them: `client.machine_inventory`.

1. Every group that the server has is read, in the version that the server prefers of those that can be read.
2. A name may stand for one Machine only. Where there are several of that name, in whichever group, the namespace has to be said.
3. What is written carries the version that was read: whoever was faster makes it a conflict.
4. Where a machine may ask with another key, the requests that wait in its name at that instant do not count any more: somebody else
   may have filed them. The newest creation among them is written on the Machine. So two instants of the same server are
   compared, and the clock of whoever gives the command is no matter.
5. A link is taken back by an operator alone (`rules.machines.linking`), and only with a Node that is gone: one that is there keeps its
   machine.
6. The secret by which the machine once asked for its configuration ends before its key is forgotten: else it would count again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import objects, resources
from handfast.client import api, ignition_secrets, machine_requests
from handfast.rules.certificates import kubelet
from handfast.rules.machines import group_versions, inventory, rivals

NO_KIND: Final = "NoMachineKind"
# With more of one name there is something else wrong.
_MOST_NAMED: Final = 5
INSTALL: Final = "make the cluster ready for machines: `handfast init --machines`, or `handfast up --machines`"


class Machines(msgspec.Struct):
    """Those that there are, and where each group of them is written."""

    index: inventory.Index = msgspec.field(default_factory=inventory.Index)
    groups: dict[str, api.Addressable] = msgspec.field(default_factory=dict)

    def one(self, name: str, namespace: str = "") -> inventory.Machine:
        """The Machine that is named as NAME or NAMESPACE/NAME (2)."""
        before, _, plain = name.rpartition("/")
        namespaces = {before, namespace} - {""}
        named = [each for each in self.index.named(plain) if namespaces <= {each.namespace}]
        where = f" in the namespace {namespace}" if namespace else ""
        if not named:
            raise errors.Refused(
                f'there is no Machine "{name}"{where}',
                reason="NoMachine",
                hint="`handfast machine list` shows those that there are",
            )
        if len(named) > 1:
            titles = ", ".join(each.title for each in named[:_MOST_NAMED])
            raise errors.Refused(
                f'"{name}" is the name of {len(named)} Machines: {titles}',
                reason="AmbiguousMachine",
                hint="name it as NAMESPACE/NAME",
            )
        return named[0]


async def read(client: api.Client, scope: api.Scope = api.EVERYTHING) -> Machines:
    """Every Machine in scope, of every group that the server has (1); errors.Refused where it has none."""
    machines = await if_served(client, scope)
    if not machines.groups:
        raise no_kind()
    return machines


async def find(client: api.Client, named: str) -> inventory.Machine:
    """The Machine that is named as NAME or NAMESPACE/NAME, without reading the others (2)."""
    scope = api.Scope(field_selector=f"metadata.name={named.rpartition('/')[2]}")
    return (await read(client, scope)).one(named)


async def if_served(client: api.Client, scope: api.Scope = api.EVERYTHING) -> Machines:
    """As `read`; none where the server has no such group."""
    machines = Machines()
    for group, versions in group_versions.VERSIONS.items():
        row = api.Resource(group, versions[0], group_versions.PLURAL, True)
        resource = await client.preferred(row, versions)
        if resource is None:
            continue
        machines.groups[group] = resource
        for document in await client.list(resource, scope):
            # Lists leave out what every item has in common.
            machines.index.put(inventory.read({**document, "apiVersion": f"{group}/{resource.version}"}))
    return machines


def no_kind() -> errors.Refused:
    """There is nothing to read or write: no definition was applied."""
    return errors.Refused("this cluster has no kind of Machine", reason=NO_KIND, hint=INSTALL)


class Readmission(msgspec.Struct, frozen=True):
    """Whether there was something to forget; and the requests that waited then, which do not count any more."""

    changed: bool
    waited: tuple[str, ...] = ()


async def readmit(client: api.Client, machines: Machines, machine: inventory.Machine) -> Readmission:
    """Forget which key was approved for a machine, and the Node that is gone, so that it can join anew."""
    forgets_node = await _lost_node(client, machine)
    if not forgets_node and not machine.approved_key:
        return Readmission(changed=False)
    resource = machines.groups[machine.group]
    waiting = await _waiting(client, machine)
    after = objects.timestamp(max(each.created for each in waiting)) if waiting else None
    marks = {inventory.APPROVED_KEY: None, inventory.REQUESTS_AFTER: after}
    # 6. before the key: the secret counted until there was one
    await ignition_secrets.forget(client, machine)
    # 3. only as it was read; and 4. before the link, which keeps everybody out
    change: Mapping[str, Any] = {"metadata": {"annotations": marks, "resourceVersion": machine.version}}
    answer = await client.patch(resource, machine.name, change, namespace=machine.namespace)
    if forgets_node:
        version = answer["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version}, "status": {"nodeRef": None}}
        await client.patch(resource, machine.name, change, namespace=machine.namespace, subresource="status")
    return Readmission(changed=True, waited=tuple(sorted(each.facts.name for each in waiting)))


async def _waiting(client: api.Client, machine: inventory.Machine) -> list[rivals.Asking]:
    """The requests that wait in the machine's name (4)."""
    names = machine.values(inventory.INTERNAL_DNS)
    rows = await machine_requests.pending(client) if names else []
    return [each for each in rows if kubelet.canonical(each.facts.node_name) in names]


async def _lost_node(client: api.Client, machine: inventory.Machine) -> bool:
    """Whether its Node was deleted (5). Cluster API looks after its own links."""
    if not machine.node or machine.group != inventory.OPENSHIFT:
        return False
    return await client.find(resources.NODES, machine.node, metadata=True) is None
