# SPDX-License-Identifier: Apache-2.0
"""What a cluster has to serve, and what it knows of callers. All of it is followed, and nothing is fetched for a request.

`rules.machine_config` decides: `requester` who is let in, `credential` which credential they get, `chosen` which rendering.

1. Nobody is answered before everything was listed once, nor while a right is missing or the API server does not answer: what was known
   before is old, and whoever was revoked since must not be served. A machine that comes then could not join anyway.
2. While Revocations, or Machines, are not known, only callers who cannot be judged without them are refused.
3. The credential is read anew when one of its objects changes, and not for each request.
4. A pool that is not there is an error (500), as in OpenShift's server. A pool without a rendering or a credential will have one: 503.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from handfast.api import machine_config_kinds
from handfast.client import api, cache, machine_inventory, revoked
from handfast.machines import offers, sources
from handfast.rules import networks as networks_module
from handfast.rules.machine_config import chosen, credential, ignition_secrets, members, pools, requester
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

UNKNOWN_POOL: Final = "UnknownPool"


class Cluster:
    """The objects that count, followed from `start` on."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        *,
        networks: networks_module.Networks,
        kubelet_ca: Callable[[], bytes],
        unheard: Callable[[], str | None],
    ) -> None:
        self._informers = informers = cache.Informers(client, clock)
        self._networks = networks
        self._kubelet_ca = kubelet_ca
        self._unheard = unheard
        self._machines = machine_inventory.follow(client, informers)
        self._revoked = revoked.follow(informers)
        self._pools = informers.get(sources.POOLS)
        self._configs = informers.get(sources.CONFIGS)
        self._nodes = informers.get(sources.NODES)
        self._secrets = informers.get(sources.SECRETS)
        self._maps = [informers.get(source) for source in sources.CONFIG_MAPS]
        self._by_digest: dict[str, ignition_secrets.Entry] = {}
        self._pool_facts: dict[str, pools.Pool] = {}
        self._renderings: dict[str, members.Rendering] = {}
        self._credentials: dict[str, credential.Credential | credential.Missing] = {}
        self._seen: credential.Seen | None = None
        self._pools.subscribe(self._pool_changed)
        self._configs.subscribe(self._config_changed)
        self._secrets.subscribe(self._secret_changed)
        for each in self._maps:
            each.subscribe(self._credential_changed)

    def start(self, group: tasks.Group) -> None:
        """Follow everything, in this group."""
        self._informers.start(group)

    def not_ready(self) -> str | None:
        # 1. the API server answers, nothing is forbidden, and everything was listed
        if (trouble := self._unheard()) is not None:
            return trouble
        needed: list[cache.Informer[Any]] = [self._pools, self._configs, self._nodes, self._secrets, *self._maps]
        refusals = list(dict.fromkeys(each.refusal for each in needed if each.refusal))
        if refusals:
            return f"a right is missing: {', '.join(refusals)}"
        waiting = list(dict.fromkeys(each.source.resource.plural for each in needed if not each.synced))
        if not self._machines.answered:
            waiting.append("machines")
        return f"not synced: {', '.join(waiting)}" if waiting else None

    def note(self) -> str | None:
        """What cannot be judged now, while others are served (2)."""
        refusals = [*self._machines.refusals]
        if not self._revoked.known:
            refusals.append("Revocations are not known: nobody passes by certificate")
        return "; ".join(refusals) or None

    def known(self) -> requester.Known:
        return requester.Known(
            secrets=self._by_digest,
            # 2. what may not be read is not known
            machines=None if self._machines.refusals or not self._machines.answered else self._machines.index,
            revocations=self._revoked.index if self._revoked.known else None,
            networks=self._networks,
            pool_of=self._pool_of,
        )

    def offer(self, pool: str, node: str, /) -> offers.Offer | requester.Refusal:
        known = self._pool_facts.get(pool)
        # 4. no such pool
        if known is None:
            return requester.Refusal(500, UNKNOWN_POOL, f"there is no pool {pool!r}")
        held = self._credential(pool)
        if isinstance(held, credential.Missing):
            return requester.Refusal(503, held.reason, held.sentence)
        desired = "" if not node else self._node(node).desired
        name = chosen.choose(known, desired, self._renderings, f"{held.kind} {held.digest}")
        if isinstance(name, chosen.NotYet):
            return requester.Refusal(503, name.reason, name.sentence)
        config = self._configs.get("", name)
        if config is None:
            return requester.Refusal(503, chosen.NOT_RENDERED, f"{name} has just gone")
        ca = self._kubelet_ca()
        return offers.Offer(
            rendering=name,
            key=(name, config.metadata.uid, config.metadata.resource_version, held.digest, ca),
            document=functools.partial(_document, config),
            kubeconfig=held.kubeconfig,
            kubelet_ca=ca,
        )

    def _node(self, name: str) -> members.Node:
        return members.read(msgspec.to_builtins(self._nodes.get("", name) or sources.Node()))

    def _pool_of(self, name: str) -> str | None:
        if self._nodes.get("", name) is None:
            return None
        pool = pools.primary(self._pool_facts.values(), self._node(name))
        return pool.name if isinstance(pool, pools.Pool) else ""

    def _credential(self, pool: str) -> credential.Credential | credential.Missing:
        # 3. read anew only when something changed
        if self._seen is None:
            maps = [msgspec.to_builtins(item) for informer in self._maps for item in informer]
            secrets = [self._secrets.get(*place) for place in credential.SECRETS]
            self._seen = credential.read([msgspec.to_builtins(each) for each in secrets if each is not None], maps)
            self._credentials.clear()
        held = self._credentials.get(pool)
        if held is None:
            held = self._credentials[pool] = credential.choose(pool, self._seen)
        return held

    # What informers call.

    def _pool_changed(self, old: sources.Pool | None, new: sources.Pool | None) -> None:
        if new is not None:
            self._pool_facts[new.metadata.name] = pools.read(msgspec.to_builtins(new))
        elif old is not None:
            self._pool_facts.pop(old.metadata.name, None)
            self._credentials.pop(old.metadata.name, None)

    def _config_changed(self, old: sources.Config | None, new: sources.Config | None) -> None:
        if new is not None:
            document = {"metadata": msgspec.to_builtins(new.metadata)}
            self._renderings[new.metadata.name] = members.read_rendering(document)
        elif old is not None:
            self._renderings.pop(old.metadata.name, None)

    def _secret_changed(self, old: sources.Secret | None, new: sources.Secret | None) -> None:
        for entry in _entries(old):
            self._by_digest.pop(entry.digest, None)
        for entry in _entries(new):
            self._by_digest[entry.digest] = entry
        self._credential_changed(old, new)

    def _credential_changed(self, _old: object, _new: object) -> None:
        self._seen = None


def _document(config: sources.Config) -> dict[str, Any]:
    meta = config.metadata
    return {
        "apiVersion": machine_config_kinds.MACHINE_CONFIG.api_version,
        "kind": machine_config_kinds.MACHINE_CONFIG.kind,
        "metadata": {"name": meta.name, "labels": meta.labels or {}, "annotations": meta.annotations or {}},
        "spec": config.spec,
    }


def _entries(secret: sources.Secret | None) -> tuple[ignition_secrets.Entry, ...]:
    if secret is None or secret.metadata.deletion_timestamp is not None:
        return ()
    return ignition_secrets.read(msgspec.to_builtins(secret))
