# SPDX-License-Identifier: Apache-2.0
"""The machine-approver: approves kubelets' requests for machines that the operator knows. Of the others it says why they wait.

For each signer it asks a judge of its own (`machines.client_requests`, `machines.serving_judge`), and does the same with every verdict.
It never denies, but for Revocations. It signs nothing.

1. It looks at open requests that are its own (`rules.machines.ownership`); csrapproving leaves those alone.
2. A request is denied if a Revocation refuses it, as csrapproving does it.
3. One that passes every check is confirmed on the server, and approved by one update that carries the version that was judged. A
   second condition names the Machine, and what proved that the very machine asks.
4. "Not yet" is an Event and a metric, once for each reason and request. Above a hundred alike within an hour it is one Event for
   all, on the settings' ConfigMap.
5. It is judged again when its Machine, its Node, an EgressIP, the kubelets' CA or the settings change, when an older request that it
   waits for is gone, when a bootstrap credential comes or goes, or the clock allows it. Nothing is polled: requests
   are found by the name of their node.
6. Over the flood guard's limit (`rules.machines.pressure`), requests without a Machine are parked, and those that nothing can turn: one
   Event for all, and a gauge. They cost nothing until a Machine of their name comes, or the pressure drops. Requests with a Machine go on.
   Names that no node can have count as one, and are kept nowhere.
7. Without settings that can be read nothing is approved.

| who | holding | tries | stopped by | shown in tests/unit/controllers/machines/test_approver.py |
|---|---|---|---|---|
| an intruder | the bootstrap credential | join without a Machine | the judge | test_an_intruder_without_a_machine_gets_nothing_and_is_told_of |
| … | … | hold up everybody else by a flood | 6 | test_a_flood_parks_what_has_no_machine_and_the_others_go_on |
| … | … | fill the memory with long names | 6 | test_a_long_name_is_kept_nowhere |
| … | … | fill the store with Events | 4, 6 | test_above_a_hundred_alike_it_is_one_event_for_all |
| a revoked machine | the credential, its old key | a new certificate | 2 | test_a_revoked_name_is_denied |
| who may write the settings badly | a typing error | less checks than were asked for | 7 | test_without_settings_nothing_is_approved |
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import prometheus_client

from handfast import errors
from handfast.api import objects, signer_names, signing_requests
from handfast.client import cache, events, machine_inventory, machine_requests, partial, revoked
from handfast.controllers import loop, node_leases
from handfast.controllers.certificates import living_nodes
from handfast.controllers.certificates import requests as certificate_requests
from handfast.controllers.certificates import verdicts as verdicts_module
from handfast.controllers.machines import (
    bindings,
    client_requests,
    crowds,
    flood_guard,
    kubelet_dial,
    rivals,
    serving_judge,
    standing,
)
from handfast.controllers.machines import settings as machine_settings
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, inventory, join_window, pressure, proofs, readmission
from handfast.rules.machines import settings as settings_rules
from handfast.rules.nodes import claim

NAME = "machine-approver-controller"
WORKERS = 8
TOO_MANY = "TooManyPending"
READMITTED = "Readmitted"
# How long to wait for settings that may not be read.
_LOOK_SECONDS = 30.0
# Keys beside the names of requests, which have no slash in them.
SETTINGS: Final = "settings/"
PRESSURE: Final = "pressure/"
BINDING: Final = "clusterrolebindings/"

DECISIONS = prometheus_client.Counter(
    "handfast_machine_approver_decisions",
    "Requests of machines, by signer and what became of them.",
    ["signer", "reason"],
)


class Judge(Protocol):
    """Judges the requests of one signer."""

    async def judge(
        self, item: signing_requests.Request, facts: kubelet.Facts, settings: settings_rules.Settings
    ) -> approval.Verdict:
        """By what is followed."""
        ...

    async def confirm(
        self, item: signing_requests.Request, facts: kubelet.Facts, verdict: approval.Verdict
    ) -> approval.Verdict:
        """By what the server has now, for one that is to be approved."""
        ...

    def gone(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        ...


class MachineApprover:
    """Handles one request, by name; and the pressure."""

    def __init__(
        self,
        requests: certificate_requests.Requests,
        settings: machine_settings.Followed,
        verdicts: verdicts_module.Verdicts,
        recorder: events.Recorder,
        judges: Mapping[str, Judge],
        guard: flood_guard.Guard,
        look: Callable[[str], None],
    ) -> None:
        self._requests = requests
        self._settings = settings
        self._verdicts = verdicts
        self._recorder = recorder
        self._judges = judges
        self._guard = guard
        # Has a key handled soon.
        self._look = look
        self._crowds = crowds.Crowds(guard.clock)
        # 5. which requests wait in the name of which node; and of each, that name and what it waits for
        self._waiting: dict[inventory.Canonical, set[str]] = {}
        self._waits: dict[str, tuple[inventory.Canonical, frozenset[str]]] = {}

    async def reconcile(self, name: str) -> float | None:
        item = self._requests.get(name)
        # 1. open, and its own
        if item is None or not self._settings.waits(item):
            self.gone(name)
            return None
        try:
            facts = self._requests.facts(item)
        except errors.Refused as refused:
            await self._record_event_once(
                item, refused.reason, f"{refused.message}; create a new request that can be read"
            )
            return None
        self._guard.pending.put(name, _node(facts), facts.signer_name, machine_requests.created(item))
        # 2. denied if a Revocation refuses it
        if await self._verdicts.deny_if_revoked(item, facts):
            self.gone(name)
            return None
        settings = self._settings.current
        # 7. nothing without settings
        if settings is None:
            return await self._without_settings(item, facts)
        return await self._judge(item, facts, settings)

    async def _judge(
        self, item: signing_requests.Request, facts: kubelet.Facts, settings: settings_rules.Settings
    ) -> float | None:
        judge = self._judges[facts.signer_name]
        verdict = await judge.judge(item, facts, settings)
        if verdict.failed is None:
            # From here on a change is told of.
            self._wait(item.metadata.name, facts, approval.ANYTHING)
            verdict = await judge.confirm(item, facts, verdict)
        if verdict.failed is None:
            # 3. approved, with the Machine
            await self._approve(item, verdict)
            return None
        self._wait(item.metadata.name, facts, verdict.failed.waits_for)
        is_idle = verdict.failed.reason == approval.NO_MACHINE or not verdict.failed.waits_for
        if is_idle and self._guard.is_over():
            await self._park(item)
            return None
        await self._explain_in_event(item, verdict, verdict.failed)
        return verdict.again

    async def _approve(self, item: signing_requests.Request, verdict: approval.Verdict) -> None:
        matched: tuple[signing_requests.Condition, ...] = ()
        if verdict.machine is not None:
            at = self._verdicts.now_text()
            text = proofs.recorded(verdict, verdict.machine)
            matched = (signing_requests.condition(approval.MATCHED, approval.MATCHED, text, at),)
        await self._verdicts.write_decision(
            item, signing_requests.APPROVED, approval.APPROVED_REASON, approval.APPROVED_MESSAGE, *matched
        )
        self.gone(item.metadata.name)
        if readmission.is_readmission(verdict):
            regarding = certificate_requests.regarding(item)
            await self._recorder.record(
                regarding, READMITTED, f"{matched[0].message}; its new key takes the old one's place"
            )

    async def _without_settings(self, item: signing_requests.Request, facts: kubelet.Facts) -> float | None:
        self._wait(item.metadata.name, facts, frozenset({approval.SETTINGS}))
        trouble = self._settings.trouble or errors.Unavailable("no settings were read yet", reason="SettingsUnreadable")
        await self._record_event_once(item, trouble.reason, f"{trouble.message}; {trouble.hint or ''}")
        return _LOOK_SECONDS if trouble.reason == machine_settings.FORBIDDEN else None

    async def _explain_in_event(
        self, item: signing_requests.Request, verdict: approval.Verdict, failed: approval.Step
    ) -> None:
        # 4. said once, in the words of an explanation
        if not failed.reason:
            return
        if failed.reason == claim.NODE_IS_ALIVE:
            await self._verdicts.write_waiting_condition(item, failed.check.compared)
        text = f"Pending: {failed.check.name}: {failed.check.compared}; to change that: {verdict.change}"
        await self._record_event_once(item, failed.reason, text, by_reason=failed.reason == claim.NODE_IS_ALIVE)

    async def _record_event_once(
        self, item: signing_requests.Request, reason: str, text: str, *, by_reason: bool = False
    ) -> None:
        if not self._verdicts.note_if_news(item, reason, text, by_reason=by_reason):
            return
        telling = self._crowds.next(reason)
        if telling is crowds.Telling.EACH:
            regarding = certificate_requests.regarding(item)
            await self._recorder.record(regarding, reason, text, severity=events.WARNING)
        elif telling is crowds.Telling.ALL:
            many = (
                f"more than {crowds.MOST} requests wait for this reason within an hour, and are not told of one by one"
            )
            example = f"`handfast csr explain {shlex.quote(item.metadata.name)}` explains one of them"
            await self._recorder.record(
                self._settings.regarding(), reason, f"{many}; {example}", severity=events.WARNING
            )

    # 5. who is judged again

    def _wait(self, name: str, facts: kubelet.Facts, waits_for: frozenset[str]) -> None:
        node = kubelet.canonical(_node(facts))
        self._waiting.setdefault(node, set()).add(name)
        self._waits[name] = (node, waits_for)

    def gone(self, name: str) -> None:
        """The request was deleted, or is not one to approve any more."""
        self._verdicts.forget(name)
        self._guard.forget(name)
        for judge in self._judges.values():
            judge.gone(name)
        node, _ = self._waits.pop(name, ("", None))
        names = self._waiting.get(node, set())
        names.discard(name)
        if not names:
            self._waiting.pop(node, None)
        self.of_size(grown=True)

    def of_node(self, node: inventory.Canonical, cause: str) -> None:
        """Something happened that is the cause of waiting in this node's name."""
        for name in self._waiting.get(node, ()):
            if cause in self._waits[name][1]:
                self._look(name)

    def of_all(self, cause: str) -> None:
        """Something happened that is the cause of waiting in whichever node's name."""
        for name, (_, waits_for) in self._waits.items():
            if cause in waits_for:
                self._look(name)

    # 6. the flood guard

    def of_size(self, *, grown: bool) -> None:
        """There may be room for more to wait."""
        if grown and self._guard.parked:
            self._look(PRESSURE)

    async def _park(self, item: signing_requests.Request) -> None:
        guard = self._guard
        if item.metadata.name not in guard.parked:
            guard.parked.add(item.metadata.name)
            DECISIONS.labels(item.spec.signer_name, TOO_MANY).inc()
        if guard.is_told:
            return
        guard.is_told = True
        self._look(PRESSURE)
        text = (
            f"more than {guard.limit()} nodes wait for a certificate, which is more than there are Machines or Nodes and "
            f"{pressure.SLACK}: requests without a Machine are parked, those with a Machine go on; see who asks "
            "(`handfast csr list`), and revoke the bootstrap credential if it leaked"
        )
        await self._recorder.record(self._settings.regarding(), TOO_MANY, text, severity=events.WARNING)

    async def relieve(self) -> datetime.datetime | None:
        """Release who is parked if the pressure has dropped; when to look again."""
        if self._guard.is_over():
            return self._guard.next_look()
        for name in self._guard.released():
            self._look(name)
        return None


def _node(facts: kubelet.Facts) -> str:
    """The name of the node; empty where no node can be called so."""
    return facts.node_name if objects.dns_subdomain(facts.node_name) is None else ""


def build(
    context: loop.Context,
    *,
    feed: certificate_requests.Feed,
    protect: bool = True,
    join_within: datetime.timedelta = join_window.DEFAULT,
    machines: machine_inventory.Options = machine_inventory.DEFAULT,
    kubelet_ca: bytes = b"",
    dial: kubelet_dial.KubeletDial | None = None,
) -> loop.Controller[str]:
    """`kubelet_ca` verifies kubelets where no ConfigMap names their CA; `dial` asks them what they serve."""
    client, clock = context.client, context.clock
    requests = feed.of(context)
    settings = machine_settings.follow(context, join_within)
    known = machine_inventory.follow(context.client, context.informers, machines)
    nodes = context.informers.get(client_requests.NODES)
    recorder = events.Recorder(client, clock, NAME)
    revocations = revoked.follow(context.informers)

    async def reconcile(key: str) -> loop.Again:
        if key == SETTINGS:
            await keeper.reconcile()
        elif key == PRESSURE:
            return await handler.relieve()
        elif key.startswith(BINDING):
            await watched.reconcile(key.removeprefix(BINDING))
        else:
            return await handler.reconcile(key)
        return None

    controller: loop.Controller[str] = loop.Controller(NAME, reconcile, clock=clock, workers=WORKERS)
    look = controller.queue.add
    leases = node_leases.follow(context, lambda node: look_at_all(living.freed_by(node))) if protect else None
    living = living_nodes.LivingNodes(client, clock, leases)

    def look_at_all(names: Iterable[str]) -> None:
        for name in names:
            look(name)

    serving = serving_judge.follow(context, known, kubelet_ca=kubelet_ca, dial=dial)
    others, credentials = rivals.Rivals(requests, clock), standing.follow(context)
    judges: dict[str, Judge] = {
        signer_names.KUBELET_CLIENT: client_requests.ClientRequests(client, known, nodes, living, others, credentials),
        signer_names.KUBELET_SERVING: serving,
    }
    verdicts = verdicts_module.Verdicts(client, clock, requests, recorder, DECISIONS, revocations)
    guard = flood_guard.Guard(clock, lambda: pressure.limit(len(known.index), len(nodes)))
    handler = MachineApprover(requests, settings, verdicts, recorder, judges, guard, look)
    keeper = machine_settings.Keeper(client, settings, recorder)
    watched = bindings.follow(context, settings, recorder, lambda name: look(f"{BINDING}{name}"))
    _subscribe(handler, requests, settings, look)
    _follow(handler, known, nodes, serving)
    others.subscribe(lambda node: handler.of_node(node, approval.REQUEST))
    credentials.subscribe(lambda: handler.of_all(approval.CREDENTIAL))
    controller.beside(serving.dials.run, "dials")
    controller.needs(requests)
    controller.needs(nodes)
    for each in (settings, known, revocations, serving, credentials, *(() if leases is None else (leases,))):
        controller.uses(each)
    look(SETTINGS)
    return controller


def _subscribe(
    handler: MachineApprover,
    requests: certificate_requests.Requests,
    settings: machine_settings.Followed,
    look: Callable[[str], None],
) -> None:
    """Judge requests as they come, and all of them anew when the settings change: they say whose requests count."""

    def changed(item: signing_requests.Request) -> None:
        if settings.waits(item):
            look(item.metadata.name)
        else:
            handler.gone(item.metadata.name)

    def of_settings() -> None:
        look(SETTINGS)
        for item in requests:
            changed(item)

    requests.subscribe(changed, handler.gone)
    settings.subscribe(of_settings)


def _follow(
    handler: MachineApprover,
    known: machine_inventory.Inventory,
    nodes: cache.Informer[partial.Partial],
    serving: serving_judge.ServingJudge,
) -> None:
    """Judge again what waits for a Machine, for a Node, or for what serving requests are judged by (5)."""

    def of_machine(old: inventory.Machine | None, new: inventory.Machine | None) -> None:
        there = [machine for machine in (old, new) if machine is not None]
        # Which of two of one name counts may have changed, too.
        twins = [twin for machine in there[:1] for twin in known.index.named(machine.name)]
        names = {name for machine in (*there, *twins) for name in machine.values(inventory.INTERNAL_DNS)}
        # Its Node may have another name.
        names |= {kubelet.canonical(machine.node) for machine in there if machine.node}
        for name in names:
            handler.of_node(name, approval.MACHINE)
        handler.of_size(grown=old is None)

    def of_node(old: partial.Partial | None, new: partial.Partial | None) -> None:
        # A Node that only changes, as each does every few minutes, is no matter.
        if old is None or new is None:
            handler.of_node(kubelet.canonical((new or old or partial.Partial()).metadata.name), approval.NODE)
            handler.of_size(grown=old is None)

    def of_serving(node: str | None) -> None:
        if node is None:
            handler.of_all(approval.NODE)
        else:
            handler.of_node(kubelet.canonical(node), approval.MACHINE)

    known.subscribe(of_machine)
    nodes.subscribe(of_node)
    serving.subscribe(of_serving)
