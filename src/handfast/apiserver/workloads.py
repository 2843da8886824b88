# SPDX-License-Identifier: Apache-2.0
"""Subresources that are actions: /scale of workloads, /binding and /eviction of Pods, /token of ServiceAccounts.

Each translates its small document into an ordinary write or delete of the object. It schedules and stops nothing.
"""

from __future__ import annotations

from handfast.api import kinds, objects, status
from handfast.apiserver import (
    admission,
    admitting,
    bodies,
    call,
    deletes,
    reads,
    standing,
    states,
    strategies,
    token_requests,
    writes,
)
from handfast.runtime import clock as clock_module


class Workloads:
    """Carries the actions out."""

    def __init__(
        self,
        reader: reads.Reader,
        writer: writes.Writer,
        deleter: deletes.Deleter,
        admitter: admitting.Admitter,
        tokens: token_requests.TokenRequests,
        standing_: standing.Standing,
        clock: clock_module.Clock,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._deleter = deleter
        self._admitter = admitter
        self._tokens = tokens
        self._standing = standing_
        self._clock = clock

    async def get_scale(self, asked: call.Call, kind: kinds.Kind) -> objects.Document:
        item = await self._reader.get(kind, asked.info)
        return strategies.scale_of(kind, item.document())

    async def put_scale(self, asked: call.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
        scale = bodies.document(body, asked.header("Content-Type"), "Scale", "autoscaling/v1", "autoscaling.v1.Scale")
        version = str(scale["metadata"].get("resourceVersion") or "")
        item = await self._writer.change(
            asked, kind, lambda document: strategies.set_scale(scale, document), version=version
        )
        return strategies.scale_of(kind, item.document())

    async def bind(self, asked: call.Call, kind: kinds.Kind, body: bytes) -> None:
        """Assign a Pod to a node, once."""
        binding = bodies.document(body, asked.header("Content-Type"), "Binding", "v1", "core.v1.Binding")
        node = (binding.get("target") or {}).get("name")
        if not isinstance(node, str) or not node:
            cause = status.Cause("FieldValueRequired", "Required value", "target.name")
            raise status.invalid("Binding", "", asked.info.name, [cause])
        await self._admit(asked, kind, binding)
        now = objects.timestamp(self._clock.now())

        def bound(document: objects.Document) -> objects.Document:
            spec = document.setdefault("spec", {})
            if spec.get("nodeName"):
                why = f'pod {asked.info.name} is already assigned to node "{spec["nodeName"]}"'
                raise status.conflict("pods/binding", "", asked.info.name, why)
            spec["nodeName"] = node
            conditions = document.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [row for row in conditions if row.get("type") != "PodScheduled"]
            conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now})
            return document

        await self._writer.change(asked, kind, bound)

    async def evict(self, asked: call.Call, kind: kinds.Kind, body: bytes) -> states.Item:
        """Delete a Pod on request of an eviction; there are no disruption budgets to ask."""
        eviction = bodies.document(body, asked.header("Content-Type"), "Eviction", "policy/v1", "policy.v1.Eviction")
        await self._admit(asked, kind, eviction)
        wanted = deletes.options_from(eviction.get("deleteOptions") or {}, asked)
        item, _ = await self._deleter.delete(asked, kind, asked.info.namespace, asked.info.name, wanted)
        return item

    async def token(self, asked: call.Call, kind: kinds.Kind, body: bytes) -> objects.Document:
        """A new token for a ServiceAccount; nothing is stored."""
        wanted = bodies.document(
            body,
            asked.header("Content-Type"),
            "TokenRequest",
            "authentication.k8s.io/v1",
            "authentication.v1.TokenRequest",
        )
        await self._admit(asked, kind, wanted)
        self._standing.require(asked)
        answer, warnings = self._tokens.answer(wanted, asked.info.namespace, asked.info.name)
        asked.warnings.extend(warnings)
        return answer

    async def _admit(self, asked: call.Call, kind: kinds.Kind, document: objects.Document) -> None:
        # The object must be there, and the copy that plugins look at must be current.
        await self._reader.get(kind, asked.info)
        await self._admitter.admit(
            asked,
            admitting.attributes(
                admission.CREATE,
                asked,
                kind,
                name=asked.info.name,
                document=document,
                dry_run=writes.is_dry_run(asked),
            ),
        )
