# SPDX-License-Identifier: Apache-2.0
"""Tells of ClusterRoleBindings that go round the inventory: a Warning Event on each, which names it. `rules.machines.bypass` decides.

It changes no binding. Where bindings or roles may not be read, nothing is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from handfast.api import resources
from handfast.client import cache, events, partial, watch
from handfast.controllers import loop
from handfast.controllers.machines import settings as machine_settings
from handfast.rules.machines import bypass
from handfast.rules.rbac import policy_rules

_BY_ROLE: Final = "role"


class Binding(msgspec.Struct, rename="camel", frozen=True):
    """Who is bound to what."""

    metadata: partial.Meta = partial.Meta()
    role_ref: dict[str, Any] = {}
    subjects: list[dict[str, Any]] | None = None


class Role(msgspec.Struct, frozen=True):
    """What a role says."""

    metadata: partial.Meta = partial.Meta()
    rules: list[dict[str, Any]] | None = None


BINDINGS: Final = watch.Source(resource=resources.CLUSTER_ROLE_BINDINGS, view=Binding, optional=True)
ROLES: Final = watch.Source(resource=resources.CLUSTER_ROLES, view=Role, optional=True)


class Bindings:
    """Handles one ClusterRoleBinding, by name."""

    def __init__(
        self,
        bindings: cache.Informer[Binding],
        roles: cache.Informer[Role],
        settings: machine_settings.Followed,
        recorder: events.Recorder,
    ) -> None:
        self._bindings = bindings
        self._roles = roles
        self._settings = settings
        self._recorder = recorder
        # What was told of each: its UID and the text.
        self._told: dict[str, tuple[str, str]] = {}

    async def reconcile(self, name: str) -> None:
        binding = self._bindings.get("", name)
        text = None if binding is None else self._judged(binding)
        if binding is None or text is None:
            self._told.pop(name, None)
            return
        said = (binding.metadata.uid, text)
        if self._told.get(name) == said:
            return
        self._told[name] = said
        regarding = events.Regarding(
            api_version=f"{policy_rules.GROUP}/v1", kind="ClusterRoleBinding", name=name, uid=binding.metadata.uid
        )
        await self._recorder.record(regarding, bypass.REASON, text, severity=events.WARNING)

    def _judged(self, binding: Binding) -> str | None:
        role = self._roles.get("", str(binding.role_ref.get("name", "")))
        rules = None if role is None else msgspec.to_builtins(role)
        return bypass.judge(msgspec.to_builtins(binding), rules, self._settings.identities)


def follow(
    context: loop.Context,
    settings: machine_settings.Followed,
    recorder: events.Recorder,
    look: Callable[[str], None],
) -> Bindings:
    """`look` is given the name of each binding that is to be looked at."""
    # Not shared: the role aggregation sees roles in a way of its own.
    roles, bindings = cache.Informer(ROLES), cache.Informer(BINDINGS, {_BY_ROLE: lambda item: [_role(item)]})

    def of_role(old: Role | None, new: Role | None) -> None:
        for binding in bindings.by_index(_BY_ROLE, (new or old or Role()).metadata.name):
            look(binding.metadata.name)

    def of_settings() -> None:
        for binding in bindings:
            look(binding.metadata.name)

    bindings.subscribe(lambda old, new: look((new or old or Binding()).metadata.name))
    roles.subscribe(of_role)
    settings.subscribe(of_settings)
    context.informers.follow(ROLES, roles)
    context.informers.follow(BINDINGS, bindings)
    return Bindings(bindings, roles, settings, recorder)


def _role(binding: Binding) -> str:
    return str(binding.role_ref.get("name", ""))
