# SPDX-License-Identifier: Apache-2.0
"""Asks the API what the machine-approver's judgement of a request depends on, for an explanation, which follows nothing.

It approves nothing. The machine-approver itself follows what is read here, and judges by the same rule.

1. A machine-approver runs where the ConfigMap of its settings is there: it makes one where it is missing.
2. Machines are read of every group that the server has, in the version that it prefers.
3. Unreadable settings are not known: the explanation goes by the defaults, and says so.
4. The other requests are read for one that passes everything else: an older one with another key may stand first.
5. No kubelet is asked what it serves: the machine-approver does, from where it is, and says in an Event what it found.
"""

from __future__ import annotations

import datetime

import msgspec

from handfast.api import jsonpath, objects, resources, signer_names, signing_requests, status
from handfast.client import api, machine_proofs, machine_requests, machines
from handfast.rules.certificates import kubelet
from handfast.rules.machines import (
    approval,
    inventory,
    ownership,
    readmission,
    rivals,
    serving,
    standing,
)
from handfast.rules.machines import settings as machine_settings


class Known(msgspec.Struct, frozen=True):
    """The settings; and what is wrong with them, where they cannot be read."""

    settings: machine_settings.Settings
    trouble: str = ""


async def settings(client: api.Client) -> Known | None:
    """What the machine-approver is told; None where none runs (1)."""
    document = await client.find(resources.CONFIG_MAPS, machine_settings.NAME, namespace=machine_settings.NAMESPACE)
    if document is None:
        return None
    try:
        return Known(machine_settings.parse(jsonpath.text(document, "data", machine_settings.KEY)))
    except machine_settings.Unreadable as refused:
        # 3. the defaults, and why
        return Known(machine_settings.DEFAULT, refused.message)


async def verdict(
    client: api.Client,
    item: signing_requests.Request,
    facts: kubelet.Facts,
    chosen: machine_settings.Settings,
    now: datetime.datetime,
) -> approval.Verdict | None:
    """What the machine-approver says of a request; None where it is not its own."""
    if not ownership.is_machine_approvers(item.spec, chosen.identities):
        return None
    # 2. every group that there is
    index = (await machines.if_served(client)).index
    if facts.signer_name == signer_names.KUBELET_SERVING:
        return await _serving(client, facts, index)
    is_name = objects.dns_subdomain(facts.node_name) is None
    node = await client.find(resources.NODES, facts.node_name, metadata=True) if is_name else None
    there = node is not None
    known = await credentials(client)

    def alone(one: kubelet.Facts, at: datetime.datetime) -> approval.Verdict:
        further = (lambda facts_, _: standing.step(facts_, at, known),)
        judged = approval.judge(one, at, settings=chosen, machines=index, node_exists=there, further=further)
        linked = index.by_node(one.node_name)
        return readmission.judge(judged, one, settings=chosen, node_exists=there, linked=linked, now=now)

    judged = alone(facts, machine_requests.created(item))
    machine = judged.machine
    if machine is None or judged.failed is not None:
        return judged
    proofs = await machine_proofs.wanted(client, index, machine, chosen)
    judged = machine_proofs.proven(judged, facts, proofs)
    if judged.failed is not None:
        return judged

    def counts(one: rivals.Asking) -> bool:
        return machine_proofs.proven(alone(one.facts, one.created), one.facts, proofs).failed is None

    # 4. whether an older one stands first
    others = [each for each in await machine_requests.pending(client) if each.facts.name != facts.name]
    return judged.with_step(rivals.step(rivals.first(machine_requests.asking(item, facts), others, machine, counts)))


async def credentials(client: api.Client) -> standing.Objects:
    """The objects that make bootstrap credentials count, as far as they may be read."""
    there, refusals = {}, {}
    for place in standing.PLACES:
        kind, namespace, name = place
        resource = resources.SECRETS if kind == "Secret" else resources.CONFIG_MAPS
        try:
            document = await client.find(resource, name, namespace=namespace, metadata=True)
        except status.StatusError as error:
            if error.code != 403:
                raise
            refusals[place] = error.message
            continue
        at = standing.instant(
            jsonpath.text(document, "metadata", "creationTimestamp"),
            jsonpath.text(document, "metadata", "deletionTimestamp"),
        )
        if at is not None and standing.counts(place, jsonpath.mapping(document, "metadata", "annotations")):
            there[place] = at
    return standing.Objects(there, refusals)


async def _serving(client: api.Client, facts: kubelet.Facts, index: inventory.Index) -> approval.Verdict:
    form = serving.content(facts)
    linked, named = index.by_node(facts.node_name), index.by_dns(facts.node_name)
    if not all(check.passed for check in form):
        return serving.verdict(facts, form)
    if linked:
        resource = api.Resource(serving.EGRESS_GROUP, serving.EGRESS_VERSION, serving.EGRESS_PLURAL, False)
        served = await client.preferred(resource, (serving.EGRESS_VERSION,))
        documents = () if served is None else await client.list(served)
        assigned = serving.of_egress(documents, facts.node_name)
        return serving.verdict(facts, (*form, *serving.by_machine(facts, linked, named, assigned)), linked[0])
    # 5. the machine-approver asks
    presented = serving.NotServed("what its kubelet serves is not asked from here: see the Events")
    return serving.verdict(facts, (*form, *serving.by_kubelet(facts, presented, named)))
