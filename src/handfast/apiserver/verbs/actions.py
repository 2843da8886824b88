# SPDX-License-Identifier: Apache-2.0
"""Subresources that are actions: /scale of workloads, /binding and /eviction of Pods, /token of ServiceAccounts.

Each translates its small document into an ordinary write or delete of the object. It schedules and stops nothing.
"""

from __future__ import annotations

import dataclasses

from handfast.api import kinds, objects, status
from handfast.apiserver import bodies, calls
from handfast.apiserver.access import standing as standing_module
from handfast.apiserver.admission import plugin, station
from handfast.apiserver.state import items
from handfast.apiserver.strategy import strategies
from handfast.apiserver.verbs import deletes, reads, token_requests, writes
from handfast.apiserver.verbs import evictions as evictions_module
from handfast.rules import disruption
from handfast.runtime import clock as clocks


class Actions:
    """Carries the actions out."""

    def __init__(
        self,
        reader: reads.Reader,
        writer: writes.Writer,
        deleter: deletes.Deleter,
        admitter: station.Admitter,
        tokens: token_requests.TokenRequests,
        standing: standing_module.Standing,
        evictions: evictions_module.Evictions,
        clock: clocks.Clock,
    ) -> None:
        self._evictions = evictions
        self._reader = reader
        self._writer = writer
        self._deleter = deleter
        self._admitter = admitter
        self._tokens = tokens
        self._standing = standing
        self._clock = clock

    async def get_scale(self, call: calls.Call, kind: kinds.Kind) -> objects.Document:
        item = await self._reader.get(kind, call.info)
        return strategies.scale_of(kind, item.document())

    async def put_scale(self, call: calls.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
        scale = bodies.document(body, call.header("Content-Type"), "Scale", "autoscaling/v1", "autoscaling.v1.Scale")
        version = str(scale["metadata"].get("resourceVersion") or "")
        item = await self._writer.change(
            call, kind, lambda document: strategies.set_scale(scale, document), version=version
        )
        return strategies.scale_of(kind, item.document())

    async def bind(self, call: calls.Call, kind: kinds.Kind, body: bytes) -> None:
        """Assign a Pod to a node, once."""
        binding = bodies.document(body, call.header("Content-Type"), "Binding", "v1", "core.v1.Binding")
        node = (binding.get("target") or {}).get("name")
        if not isinstance(node, str) or not node:
            cause = status.Cause("FieldValueRequired", "Required value", "target.name")
            raise status.invalid("Binding", "", call.info.name, [cause])
        await self._admit(call, kind, binding)
        now = objects.timestamp(self._clock.now())

        def bound(document: objects.Document) -> objects.Document:
            spec = document.setdefault("spec", {})
            if spec.get("nodeName"):
                why = f'pod {call.info.name} is already assigned to node "{spec["nodeName"]}"'
                raise status.conflict("pods/binding", "", call.info.name, why)
            spec["nodeName"] = node
            conditions = document.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [row for row in conditions if row.get("type") != "PodScheduled"]
            conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now})
            return document

        await self._writer.change(call, kind, bound)

    async def evict(self, call: calls.Call, kind: kinds.Kind, body: bytes) -> items.Item:
        """Delete a Pod on request of an eviction, if its disruption budget allows that."""
        eviction = bodies.document(body, call.header("Content-Type"), "Eviction", "policy/v1", "policy.v1.Eviction")
        await self._admit(call, kind, eviction)
        wanted = deletes.options_from(eviction.get("deleteOptions") or {}, call)
        pod = await self._reader.get(kind, call.info)
        budget = await self._evictions.take(call, pod.document(), dry_run=wanted.dry_run)
        if not budget or wanted.version:
            item, _ = await self._deleter.delete(call, kind, call.info.namespace, call.info.name, wanted)
            return item
        # It was not ready, and must not have become so.
        unchanged = dataclasses.replace(wanted, version=str(pod.version))
        try:
            item, _ = await self._deleter.delete(call, kind, call.info.namespace, call.info.name, unchanged)
        except status.StatusError as error:
            raise disruption.too_early(budget) if error.reason == "Conflict" else error from None
        return item

    async def token(self, call: calls.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
        """A new token for a ServiceAccount; nothing is stored."""
        wanted = bodies.document(
            body,
            call.header("Content-Type"),
            "TokenRequest",
            "authentication.k8s.io/v1",
            "authentication.v1.TokenRequest",
        )
        await self._admit(call, kind, wanted)
        self._standing.require(call)
        answer, warnings = self._tokens.answer(wanted, call.info.namespace, call.info.name)
        call.warnings.extend(warnings)
        return answer

    async def _admit(self, call: calls.Call, kind: kinds.Kind, document: objects.Document) -> None:
        # The object must be there, and the copy that plugins look at must be current.
        await self._reader.get(kind, call.info)
        await self._admitter.admit(
            call,
            station.write_of(
                plugin.CREATE,
                call,
                kind,
                name=call.info.name,
                document=document,
                dry_run=writes.is_dry_run(call),
            ),
        )
