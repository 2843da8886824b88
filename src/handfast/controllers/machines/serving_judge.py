# SPDX-License-Identifier: Apache-2.0
"""Judges serving requests of nodes for the machine-approver: brings what `rules.machines.serving` decides by.

It approves nothing. Machines and EgressIPs are followed; the Node is read, and its kubelet asked, only where no Machine is linked.

1. The checks on the request alone come first. Nobody is asked anything for one that fails them.
2. EgressIPs (k8s.ovn.org/v1) are followed where the server has them. Where they may not be read, those that were known count.
3. The CA of kubelets is that of the ConfigMap `openshift-config-managed/csr-controller-ca`; where there is none, the CA that this
   process was given, which signs them in a cluster with one CA. What else that CA signed is told apart by its subject. A ConfigMap
   that cannot be read is not replaced by the other CA.
4. A kubelet is asked beside the work (`machines.dials`). Until it has answered, the request waits, and nothing is said of it.
5. Whoever subscribes is told of the nodes whose requests are to be judged again, and `None` for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import resources, signing_requests
from handfast.client import api, cache, machine_inventory, partial, watch
from handfast.controllers import loop, views
from handfast.controllers.machines import dials, kubelet_dial
from handfast.pki import bundles, pem
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, serving
from handfast.rules.machines import settings as settings_module
from handfast.runtime import clock as clocks

_NODE: Final = "node"


class _Assignment(msgspec.Struct, rename="camel", frozen=True, gc=False):
    node: str = ""
    egress_ip: str = msgspec.field(name="egressIP", default="")


class _Status(msgspec.Struct, frozen=True, gc=False):
    items: list[_Assignment] | None = None


class EgressIP(msgspec.Struct, frozen=True, gc=False):
    """Which of its addresses is on which Node."""

    metadata: partial.Meta = partial.Meta()
    status: _Status | None = None


EGRESS_IPS: Final = watch.Source(
    resource=api.Resource(serving.EGRESS_GROUP, serving.EGRESS_VERSION, serving.EGRESS_PLURAL, False),
    view=EgressIP,
    if_served=True,
)
CA: Final = watch.Source(
    resource=resources.CONFIG_MAPS,
    view=views.ConfigMap,
    scope=api.Scope(namespace=bootstrapper.MANAGED_NAMESPACE, field_selector=f"metadata.name={serving.CA_CONFIG_MAP}"),
)


def _nodes(item: EgressIP) -> Iterable[str]:
    rows = (item.status.items if item.status is not None else None) or ()
    return {row.node for row in rows}


class ServingJudge:
    """The verdict on one serving request at a time."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        machines: machine_inventory.Inventory,
        egress: cache.Informer[EgressIP],
        authority: cache.Informer[views.ConfigMap],
        *,
        kubelet_ca: bytes,
        dial: kubelet_dial.KubeletDial,
    ) -> None:
        self._client = client
        self._clock = clock
        self._machines = machines
        self._egress = egress
        self._authority = authority
        self._kubelet_ca = kubelet_ca
        self.dials = dials.Dials(dial, clock)

    def subscribe(self, changed: Callable[[str | None], None]) -> None:
        """Call `changed` with each node whose requests are to be judged again; None: every node's (5)."""

        def of_egress(old: EgressIP | None, new: EgressIP | None) -> None:
            for node in {node for item in (old, new) if item is not None for node in _nodes(item)}:
                changed(node)

        self._egress.subscribe(of_egress)
        self._authority.subscribe(lambda _old, _new: changed(None))
        self.dials.subscribe(changed)

    async def wait_answered(self) -> None:
        await self._egress.wait_answered()
        await self._authority.wait_answered()

    async def judge(
        self, _: signing_requests.Request, facts: kubelet.Facts, __: settings_module.Settings
    ) -> approval.Verdict:
        """Judge a request for a serving certificate."""
        # 1. on the request alone
        form = serving.content(facts)
        if not all(check.passed for check in form):
            return serving.verdict(facts, form)
        node = facts.node_name
        linked, named = self._machines.index.by_node(node), self._machines.index.by_dns(node)
        if linked:
            checks = serving.by_machine(facts, linked, named, self._assigned(node))
            return serving.verdict(facts, (*form, *checks), linked[0] if len(linked) == 1 else None)
        presented = await self._presented(node, facts.name)
        if presented is None:
            return _asking(facts, form)
        return serving.verdict(facts, (*form, *serving.by_kubelet(facts, presented, named)))

    async def confirm(
        self, _: signing_requests.Request, __: kubelet.Facts, verdict: approval.Verdict
    ) -> approval.Verdict:
        """The same: what was compared is no older than the watch, or was just presented."""
        return verdict

    def gone(self, name: str) -> None:
        """Nothing is kept of a request."""

    def _assigned(self, node: str) -> tuple[str, ...]:
        # 2. those of this node
        documents: list[dict[str, Any]] = [msgspec.to_builtins(item) for item in self._egress.by_index(_NODE, node)]
        return serving.of_egress(documents, node)

    async def _presented(self, node: str, request: str) -> serving.Presented | None:
        """What the kubelet serves now, verified; None: it is being asked (4.)."""
        if self.dials.joins(node, request):
            return None
        document = await self._client.find(resources.NODES, node)
        if document is None:
            return serving.NotServed(f'there is no Node "{node}"')
        try:
            roots = self._roots()
            place = serving.place_of(document)
        except errors.Refused as error:
            return serving.NotServed(error.message)
        answer = self.dials.ask(node, place, request)
        if answer is None or answer.trouble:
            return None if answer is None else serving.NotServed(answer.trouble)
        return serving.verified(place, answer.chain, roots, self._clock.now())

    def _roots(self) -> bundles.TrustBundle:
        # 3. by whom kubelets are verified
        config_map = self._authority.get(bootstrapper.MANAGED_NAMESPACE, serving.CA_CONFIG_MAP)
        text = self._kubelet_ca
        if config_map is None and self._authority.refusal:
            raise errors.Refused(
                f"the CA of kubelets cannot be read: {self._authority.refusal}", reason=serving.NOT_SERVED
            )
        if config_map is not None:
            text = (config_map.data or {}).get(bootstrapper.BUNDLE_KEY, "").encode()
        if not text:
            raise errors.Refused("no CA of kubelets is known", reason=serving.NOT_SERVED)
        try:
            roots, _ = bundles.TrustBundle.readable(pem.certificates_from_pem(text))
        except errors.Refused as refused:
            where = "that of this process" if config_map is None else f"the ConfigMap {serving.CA_CONFIG_MAP}"
            raise errors.Refused(
                f"the CA of kubelets, {where}, cannot be read: {refused.message}", reason=serving.NOT_SERVED
            ) from None
        return roots


def _asking(facts: kubelet.Facts, form: Sequence[kubelet.Check]) -> approval.Verdict:
    # 4. nothing that anybody has to know
    check = kubelet.Check(serving.SERVED, False, "its kubelet is being asked")
    waits_for = frozenset({approval.MACHINE, approval.NODE})
    return serving.verdict(facts, form).with_step(approval.Step(check, "", waits_for))


def follow(
    context: loop.Context,
    machines: machine_inventory.Inventory,
    *,
    kubelet_ca: bytes,
    dial: kubelet_dial.KubeletDial | None = None,
) -> ServingJudge:
    """A judge by what this process follows."""
    return ServingJudge(
        context.client,
        context.clock,
        machines,
        context.informers.get(EGRESS_IPS, {_NODE: _nodes}),
        context.informers.get(CA),
        kubelet_ca=kubelet_ca,
        dial=dial or kubelet_dial.KubeletDial(context.clock),
    )
