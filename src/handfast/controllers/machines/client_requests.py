# SPDX-License-Identifier: Apache-2.0
"""Judges requests for a kubelet's first client certificate, by what is followed, and then by what the server has now.

`rules.machines.approval` decides. It approves nothing: `machines.approver` does.

1. Judged by the followed Machines and Nodes, and by the object that makes the request's bootstrap credential count
   (`rules.machines.standing`). Nothing is asked of the server for a request that is not to be approved.
2. Then, as late as can be: a living node keeps its name (`certificates.living_nodes`).
3. The key is reserved on the Machine by a write that carries the version it was judged at. So the Machine is still the one that was
   judged, and of two keys at once one loses. Who is killed after this goes on with the same key.
4. The Node is read on the server, as the last step: the watch may be late.
5. Where Machines may not be read or written, everything waits, and an Event names the missing right.
6. A machine that comes back as the node it was is judged by `rules.machines.readmission`, where the operator allows it, and where
   living nodes are protected. Its Node is still there then, and its key takes the place of the one on the Machine.
7. Then the proofs that the operator asks for (`client.machine_proofs`): nothing is read for a request that fails without them.
8. Last of all, no older request that passes all of these asks for the Machine with another key (`rules.machines.rivals`).

| who | holding | tries | stopped by | shown in tests/unit/controllers/machines/test_client_requests.py |
|---|---|---|---|---|
| two who ask at once | the credential, and one Machine's name | a certificate each | 3 | test_of_two_keys_at_once_one_is_approved |
| an intruder | the credential, and sees the machine's request wait | be approved first, by many requests | 8 | test_of_many_keys_that_wait_the_first_one_is_approved |
| … | a request that waits while the operator readmits the machine | be approved in its place | `machines.approval` | test_who_waited_when_its_machine_was_readmitted_is_not_approved |
| a thief | a request, by a credential that was revoked since, as the seed says it | be approved when its Machine comes | 1 | test_a_revoked_credential_takes_its_requests_along |
| who asks while the watch is late | the name of a Node that has just come | be that node, too | 4 | test_a_node_that_the_watch_has_not_told_of_counts |
| who asks while the watch is late | a Machine that was just deleted | its name | 3 | test_a_machine_that_has_changed_is_judged_again |
| an intruder | the name of a node that runs, whose Node was deleted | be that node, too | 2 | test_a_living_node_keeps_its_name |
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Final

from handfast.api import resources, signing_requests, status
from handfast.client import api, cache, machine_inventory, machine_proofs, machine_requests, partial, watch
from handfast.controllers.certificates import living_nodes
from handfast.controllers.machines import rivals as followed_rivals
from handfast.controllers.machines import standing as followed_standing
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, inventory, readmission, rivals, standing
from handfast.rules.machines import settings as machine_settings
from handfast.rules.nodes import claim

NODES: Final = watch.Source(resource=resources.NODES, view=partial.Partial, metadata=True)
MACHINES_FORBIDDEN: Final = "MachinesForbidden"
_FORBIDDEN_SECONDS: Final = 30.0
_HINT: Final = "apply what `handfast serve controllers --print-manifest` prints, which has the right to list, watch and patch Machines"
_INVENTORY: Final = "inventory"


class ClientRequests:
    """One judge for all of them."""

    def __init__(
        self,
        client: api.Client,
        machines: machine_inventory.Inventory,
        nodes: cache.Informer[partial.Partial],
        living: living_nodes.LivingNodes,
        others: followed_rivals.Rivals,
        credentials: followed_standing.Standing,
    ) -> None:
        self._client = client
        self._machines = machines
        self._nodes = nodes
        self._living = living
        self._others = others
        self._credentials = credentials

    async def judge(
        self, item: signing_requests.Request, facts: kubelet.Facts, settings: machine_settings.Settings
    ) -> approval.Verdict:
        """By what is followed (1)."""
        verdict = self._alone(facts, machine_requests.created(item), settings)
        # 5. what cannot be read is not known
        if self._machines.refusals:
            return _forbidden(verdict, self._machines.refusals[0])
        machine = verdict.machine
        if machine is None or verdict.failed is not None:
            return _looked_again(verdict)
        # 7. the proofs
        proofs = await machine_proofs.wanted(self._client, self._machines.index, machine, settings)
        verdict = machine_proofs.proven(verdict, facts, proofs)
        if verdict.failed is not None:
            return verdict

        def counts(other: rivals.Asking) -> bool:
            judged = self._alone(other.facts, other.created, settings)
            return machine_proofs.proven(judged, other.facts, proofs).failed is None

        # 8. of several keys the first
        return verdict.with_step(rivals.step(await self._others.before(item, machine, counts)))

    def _alone(
        self, facts: kubelet.Facts, created: datetime.datetime, settings: machine_settings.Settings
    ) -> approval.Verdict:
        """As if nobody else asked, and without proofs."""
        node_exists = self._nodes.get("", facts.node_name) is not None
        verdict = approval.judge(
            facts,
            created,
            settings=settings,
            machines=self._machines.index,
            node_exists=node_exists,
            further=(lambda one, _: standing.step(one, created, self._credentials.objects()),),
        )
        # 6. it may be a machine that comes back
        if not self._living.protects:
            return verdict
        linked = self._machines.index.by_node(facts.node_name)
        return readmission.judge(
            verdict, facts, settings=settings, node_exists=node_exists, linked=linked, now=self._living.clock.now()
        )

    async def confirm(
        self, item: signing_requests.Request, facts: kubelet.Facts, verdict: approval.Verdict
    ) -> approval.Verdict:
        """By what the server has now, for a request that is to be approved: the verdict, or one that fails."""
        # 2. a living node keeps its name
        wait = await self._living.judge(item.metadata.name, facts)
        if wait is not None:
            return verdict.with_step(_alive(wait), wait.seconds)
        if verdict.machine is not None:
            # 3. reserved before it is approved
            try:
                await self._reserve(verdict.machine, self._marks(verdict.machine, facts, verdict))
            except status.StatusError as error:
                if error.code != 403:
                    raise
                return _forbidden(verdict, error.message)
        # 4. the watch may be late
        node_exists = await self._client.find(resources.NODES, facts.node_name, metadata=True) is not None
        if readmission.is_readmission(verdict):
            return verdict if node_exists else verdict.with_step(readmission.node_gone(facts))
        return verdict.with_step(approval.node(facts, node_exists=True)) if node_exists else verdict

    def gone(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        self._living.forget(name)

    def _marks(self, machine: inventory.Machine, facts: kubelet.Facts, verdict: approval.Verdict) -> Mapping[str, str]:
        key = approval.key_of(facts)
        # 6. in place of the key that was there
        if readmission.is_readmission(verdict):
            return readmission.marks(machine, key, self._living.clock.now())
        return {inventory.APPROVED_KEY: key}

    async def _reserve(self, machine: inventory.Machine, marks: Mapping[str, str]) -> None:
        patch = {"metadata": {"resourceVersion": machine.version, "annotations": marks}}
        await self._machines.client.patch(
            self._machines.resource(machine), machine.name, patch, namespace=machine.namespace, metadata=True
        )


def _alive(wait: living_nodes.Wait) -> approval.Step:
    waits_for = frozenset({approval.CLOCK})
    if wait.text:
        return approval.Step(kubelet.Check(claim.CHECK, False, wait.text), living_nodes.LEASES_FORBIDDEN, waits_for)
    if wait.check is None:
        # It was found silent just now, and is looked at again: nothing that anybody has to know.
        return approval.Step(kubelet.Check(claim.CHECK, False, "it is silent, and looked at again"), "", waits_for)
    change = "stop the node that has this name, and wait; or approve it all the same by hand"
    return approval.Step(wait.check, claim.NODE_IS_ALIVE, waits_for, change)


def _looked_again(verdict: approval.Verdict) -> approval.Verdict:
    # A right that is given is not told of.
    is_forbidden = verdict.failed is not None and verdict.failed.reason == standing.FORBIDDEN
    return dataclasses.replace(verdict, again=_FORBIDDEN_SECONDS) if is_forbidden else verdict


def _forbidden(verdict: approval.Verdict, message: str) -> approval.Verdict:
    # 5. the missing right, before all else
    check = kubelet.Check(_INVENTORY, False, f"Machines cannot be read or written: {message}")
    step = approval.Step(check, MACHINES_FORBIDDEN, frozenset({approval.CLOCK}), _HINT)
    return approval.Verdict((step, *verdict.steps), verdict.machine, _FORBIDDEN_SECONDS)
