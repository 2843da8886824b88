# SPDX-License-Identifier: Apache-2.0
"""The MeshPolicies, followed, and what they come to for a Pod. `rules.mesh.policy` decides; whoever serves proxies or agents asks here.

    policies = policies_module.Policies(informers, cluster)
    policies.subscribe(lambda namespace: ...)
    rules = policies.compiled(pod).inbound(8080)

1. Nothing is known before the policies, the cluster and the settings were read once: `require_known`. Whoever answered before would open what
   is closed. Where policies may not be read any more, what was known counts.
2. Pods that the same policies are about share one computation. It lasts until a policy of their namespace changes, or how accounts are called. Of
   one namespace so many are kept: labels can be had in any number of mixtures.
3. Where names have UIDs, an account that comes, goes or is made anew changes what its rows mean, in every namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from handfast import errors
from handfast.api import handfast_kinds
from handfast.client import cache, partial, watch
from handfast.mesh import cluster as cluster_module
from handfast.rules.mesh import names, policy, policy_documents, views

# Every namespace.
ALL: Final = ""
MOST_COMPILED: Final = 256
_log = structlog.get_logger("handfast.mesh")


class MeshPolicy(msgspec.Struct, frozen=True, gc=False):
    """All of it, whatever its form: what cannot be read closes, and is not skipped."""

    metadata: partial.Meta = partial.Meta()
    spec: Any = None


SOURCE: Final = watch.Source(resource=handfast_kinds.MESH_POLICY, view=MeshPolicy, if_served=True)


class NotKnown(errors.Unavailable):
    """What the policies say cannot be known now (1)."""

    reason = "PoliciesNotKnown"


class Policies:
    """The policies of a process."""

    def __init__(self, informers: cache.Informers, cluster: cluster_module.Cluster) -> None:
        self._cluster = cluster
        self._listeners: list[Callable[[str], None]] = []
        self._parsed: dict[str, dict[str, policy_documents.Policy]] = {}
        # Namespace -> the names of policies -> what they come to.
        self._compiled: dict[str, dict[tuple[str, ...], policy.Compiled]] = {}
        self._informer = informers.get(SOURCE)
        self._informer.subscribe(self._changed)
        cluster.subscribe(self._cluster_changed)

    def subscribe(self, notify: Callable[[str], None]) -> None:
        """Call `notify` with a namespace, or ALL, when what is said of its Pods may have changed."""
        self._listeners.append(notify)

    @property
    def why_not(self) -> str:
        """Why nothing can be said now; empty where it can (1)."""
        if not self._informer.synced:
            return self._informer.refusal or "the policies were not listed"
        if not self._cluster.synced:
            return "the cluster was not listed"
        return "" if self._cluster.mesh is not None else self._cluster.why_not

    def require_known(self) -> None:
        """Return if what the policies say is known, else NotKnown (1)."""
        # 1. nothing by half of them
        if why_not := self.why_not:
            raise NotKnown(why_not)

    def of(self, namespace: str) -> list[policy_documents.Policy]:
        """The policies of a namespace."""
        return list(self._parsed.get(namespace, {}).values())

    def compiled(self, pod: views.Pod) -> policy.Compiled:
        """What is enforced for a Pod."""
        self.require_known()
        target = target_of(pod)
        about = sorted(
            (each for each in self.of(target.namespace) if each.is_about(target)), key=lambda each: each.name
        )
        # 2. one computation for all that the same are about
        known = self._compiled.setdefault(target.namespace, {})
        key = tuple(each.name for each in about)
        if key not in known:
            if len(known) >= MOST_COMPILED:
                known.clear()
            known[key] = policy.compiled(about, target, self.naming)
        return known[key]

    @property
    def naming(self) -> policy.Naming:
        """How accounts are called now."""
        mesh = self._cluster.mesh
        if mesh is None:
            raise NotKnown(self._cluster.why_not)
        return policy.Naming(mesh, self._uid)

    def _uid(self, namespace: str, name: str) -> str:
        account = self._cluster.account(namespace, name)
        return "" if account is None else account.metadata.uid

    def _changed(self, old: MeshPolicy | None, new: MeshPolicy | None) -> None:
        meta = (new or old or MeshPolicy()).metadata
        home = self._parsed.setdefault(meta.namespace, {})
        if new is None:
            home.pop(meta.name, None)
        else:
            home[meta.name] = policy_documents.parse(msgspec.to_builtins(new))
            if problem := home[meta.name].problem:
                _log.warning(
                    "a MeshPolicy lets in nobody for what cannot be read", policy=home[meta.name].title, what=problem
                )
        self._forget(meta.namespace)

    def _cluster_changed(self, change: cluster_module.Change) -> None:
        # 3. another account of the same name
        is_another = change.resource == cluster_module.ACCOUNTS and _uid(change.old) != _uid(change.new)
        if change.resource == cluster_module.INSTALLATION or (is_another and self._has_uids):
            self._forget(ALL)

    @property
    def _has_uids(self) -> bool:
        mesh = self._cluster.mesh
        return mesh is not None and mesh.scheme is names.Scheme.UID

    def _forget(self, namespace: str) -> None:
        if namespace == ALL:
            self._compiled.clear()
        else:
            self._compiled.pop(namespace, None)
        for notify in self._listeners:
            notify(namespace)


def target_of(pod: views.Pod) -> policy_documents.Target:
    """A Pod as policies know it."""
    return policy_documents.Target(
        namespace=pod.metadata.namespace, account=pod.account, labels=pod.metadata.labels or {}
    )


def _uid(item: views.Named | None) -> str:
    return "" if item is None else item.metadata.uid
