# SPDX-License-Identifier: Apache-2.0
"""Asks the API what the machine-approver's judgement of a request depends on, for an explanation, which follows nothing.

It approves nothing. The machine-approver itself follows what is read here, and judges by the same rule.

1. A machine-approver runs where the ConfigMap of its settings is there: it makes one where it is missing.
2. Machines are read of every group that the server has, in the version that it prefers.
3. Unreadable settings are not known: the explanation goes by the defaults, and says so.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from handfast import errors
from handfast.api import jsonpath, objects, resources, signer_names, signing_requests
from handfast.client import api
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, group_versions, inventory, ownership
from handfast.rules.machines import settings as machine_settings


@dataclass(frozen=True, slots=True)
class Known:
    """The settings; and what is wrong with them, where they cannot be read."""

    settings: machine_settings.Settings
    trouble: str = ""


async def settings(client: api.Client) -> Known | None:
    """What the machine-approver is told; None where none runs (1.)."""
    document = await client.find(resources.CONFIG_MAPS, machine_settings.NAME, namespace=machine_settings.NAMESPACE)
    if document is None:
        return None
    try:
        return Known(machine_settings.parse(jsonpath.text(document, "data", machine_settings.KEY)))
    except machine_settings.Unreadable as refused:
        # 3. the defaults, and why
        return Known(machine_settings.DEFAULT, refused.message)


async def machines(client: api.Client) -> inventory.Index:
    """Every Machine there is (2.)."""
    index = inventory.Index()
    for group, versions in group_versions.VERSIONS.items():
        resource = await client.preferred(api.Resource(group, versions[0], group_versions.PLURAL, True), versions)
        for document in () if resource is None else await client.list(resource):
            index.put(inventory.read({**document, "apiVersion": f"{group}/"}))
    return index


async def verdict(
    client: api.Client, item: signing_requests.Request, facts: kubelet.Facts, chosen: machine_settings.Settings
) -> approval.Verdict | None:
    """What the machine-approver says of a request; None where it is not its own."""
    signers = {signer_names.KUBELET_CLIENT}
    if not ownership.is_machine_approvers(item.spec, chosen.identities, signers):
        return None
    is_name = objects.dns_subdomain(facts.node_name) is None
    node = await client.find(resources.NODES, facts.node_name, metadata=True) if is_name else None
    return approval.judge(
        facts,
        created(item),
        settings=chosen,
        machines=await machines(client),
        node_exists=node is not None,
    )


def created(item: signing_requests.Request) -> datetime.datetime:
    """When a request was created, as the server wrote it down."""
    try:
        return objects.parse_timestamp(item.metadata.creation_timestamp or "")
    except ValueError:
        raise errors.Unavailable("the request does not say when it was created", reason="BadAnswer") from None
