# SPDX-License-Identifier: Apache-2.0
"""Station: admit. First plugins and webhooks that change the object, then, when it is final, those that only look.

    mutate     mutating rows → mutating policies → mutating webhooks → all once more, for those that want it, if something changed
    (defaults and validation, by the writer)
    validate   validating rows → admission policies → validating webhooks
    (the object is encoded, by the writer)
    reserve    rows that write down what is used (quotas)

The rows stand in `assembly.guard`; what each decides is in its own module, and what a row is in `plugin`.
"""

from __future__ import annotations

from typing import Any

from handfast.api import kinds, objects
from handfast.apiserver import calls
from handfast.apiserver.admission import mutating_policies, plugin, policies, policy_authors, webhooks

_OPTIONS = {plugin.CREATE: "CreateOptions", plugin.UPDATE: "UpdateOptions", plugin.DELETE: "DeleteOptions"}


class Admitter:
    """Asks everyone who has a say in a write."""

    def __init__(
        self,
        mutating: plugin.Chain,
        validating: plugin.Chain,
        hooks: webhooks.Webhooks,
        admission_policies: policies.Policies,
        mutations: mutating_policies.MutatingPolicies,
        reserving: plugin.Chain,
    ) -> None:
        self._mutating = mutating
        self._validating = validating
        self._webhooks = hooks
        self._policies = admission_policies
        self._mutations = mutations
        self._reserving = reserving

    async def mutate(self, call: calls.Call, write: plugin.Write) -> bool:
        """Let plugins, policies and webhooks change the document. True if one of the last two did: then it must be completed anew."""
        await self._mutating.run(write)
        hooked = self._webhooks.has_mutating(write.operation, write.kind, write.subresource)
        by_policies = self._mutations.concerned(write.operation, write.kind, write.subresource)
        if not hooked and not by_policies:
            return False
        options = _options(call, write)
        mutation = self._mutations.begin(write, options, call.work_with) if by_policies else None

        async def again() -> None:
            await self._mutating.run(write)
            if mutation is not None and await mutation.again():
                await self._mutating.run(write)

        changed = mutation is not None and await mutation.first()
        if changed:
            await self._mutating.run(write)
        if hooked and await self._webhooks.mutate(
            write, options, call.warnings, annotations=call.annotations, between=again, work=call.work_with
        ):
            return True
        if changed:
            await again()
        return changed

    async def validate(self, call: calls.Call, write: plugin.Write) -> None:
        """Let plugins and webhooks refuse the document as it will be stored."""
        await self._validating.run(write)
        call.warnings += policy_authors.warnings_of(write) + mutating_policies.warnings_of(write)
        if self._policies.concerned(write.operation, write.kind, write.subresource):
            # Aside where the object is heavy: expressions cost in proportion to it, and to what else they see.
            await self._policies.validate(write, _options(call, write), call.warnings, call.annotations, call.work_with)
        if self._webhooks.has_validating(write.operation, write.kind, write.subresource):
            await self._webhooks.validate(
                write, _options(call, write), call.warnings, annotations=call.annotations, work=call.work_with
            )

    async def reserve(self, write: plugin.Write) -> None:
        """Write down what the document uses. Last of all: what anybody else refuses uses nothing up."""
        await self._reserving.run(write)

    async def admit(self, call: calls.Call, write: plugin.Write) -> None:
        """All three, for what is carried out and not stored: deletes, and documents of subresources that are actions."""
        await self.mutate(call, write)
        await self.validate(call, write)
        await self.reserve(write)


def write_of(
    operation: str,
    call: calls.Call,
    kind: kinds.Kind,
    *,
    name: str,
    document: objects.Document | None,
    old: objects.Document | None = None,
    dry_run: bool = False,
) -> plugin.Write:
    """What plugins see of the write that a request makes."""
    return plugin.Write(
        operation=operation,
        kind=kind,
        subresource=call.info.subresource,
        namespace=call.info.space(kind) or call.info.namespace,
        name=name,
        document=document,
        old=old,
        user=call.user,
        dry_run=dry_run,
        work=call.work,
    )


def _options(call: calls.Call, write: plugin.Write) -> dict[str, Any]:
    operation = "PatchOptions" if call.info.verb == "patch" else _OPTIONS[write.operation]
    options: dict[str, Any] = {"apiVersion": "meta.k8s.io/v1", "kind": operation}
    for key in ("fieldManager", "fieldValidation", "propagationPolicy"):
        if value := call.info.query.get(key):
            options[key] = value
    if write.dry_run:
        options["dryRun"] = ["All"]
    return options
