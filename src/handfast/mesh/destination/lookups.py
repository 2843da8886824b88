# SPDX-License-Identifier: Apache-2.0
"""What is looked up while an answer is computed, and by which keys: so that a change of one of them, and of nothing else, means another look.

It decides nothing. One is made for each computation, with the instant that the computation is about.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from handfast.client import revoked as revoked_module
from handfast.mesh import cluster as cluster_module
from handfast.rules import decision, revocation, user_names
from handfast.rules.mesh import authorities, meshed, names, views

Key = tuple[str, str, str]
_ADDRESS = "address"


class Lookups:
    """The cluster at one instant; `keys` is what was looked up."""

    def __init__(
        self,
        cluster: cluster_module.Cluster,
        revocations: revoked_module.Revoked,
        mesh: names.Mesh,
        now: datetime.datetime,
    ) -> None:
        self._cluster = cluster
        self._revocations = revocations
        self._now = now
        self.mesh = mesh
        self.keys: set[Key] = set()

    def pod(self, namespace: str, name: str) -> views.Pod | None:
        self.keys.add((cluster_module.PODS, namespace, name))
        return self._cluster.pod(namespace, name)

    def pods_at(self, ip: str) -> Sequence[views.Pod]:
        self.keys.add((_ADDRESS, "", ip))
        return self._cluster.pods_at(ip)

    def service(self, namespace: str, name: str) -> views.Service | None:
        self.keys.add((cluster_module.SERVICES, namespace, name))
        return self._cluster.service(namespace, name)

    def services_at(self, ip: str) -> Sequence[views.Service]:
        self.keys.add((_ADDRESS, "", ip))
        return self._cluster.services_at(ip)

    def slices(self, namespace: str, name: str) -> Sequence[views.Slice]:
        self.keys.add((cluster_module.SLICES, namespace, name))
        return self._cluster.slices(namespace, name)

    def facts(self, pod: views.Pod) -> meshed.Facts:
        """What a Pod is judged by beside itself."""
        settings = self._cluster.settings
        return meshed.Facts(
            mesh=self.mesh,
            enabled=settings is not None and settings.enabled,
            uid=self._uid(pod),
            revoked=self._is_revoked(pod),
        )

    def _uid(self, pod: views.Pod) -> str:
        if self.mesh.scheme is not names.Scheme.UID:
            return ""
        key = (pod.metadata.namespace, pod.account)
        self.keys.add((cluster_module.ACCOUNTS, *key))
        account = self._cluster.account(*key)
        return "" if account is None else account.metadata.uid

    def _is_revoked(self, pod: views.Pod) -> bool:
        meta = pod.metadata
        user = user_names.service_account_user(meta.namespace, pod.account)
        who = revocation.pod_text(meta.namespace, meta.name, meta.uid)
        verdict = self._revocations.index.judge(user, "", "", pod.spec.node_name or "", self._now, who)
        return isinstance(verdict, decision.Deny)


def keys_of(change: cluster_module.Change) -> Iterator[Key]:
    """The keys by which what changed is looked up."""
    for item in (change.old, change.new):
        if item is None:
            continue
        if isinstance(item, views.Slice):
            yield change.resource, item.metadata.namespace, item.service
            continue
        yield change.resource, *item.metadata.key
        if isinstance(item, views.Pod | views.Service):
            for ip in item.ips:
                yield _ADDRESS, "", authorities.canonical(ip)
