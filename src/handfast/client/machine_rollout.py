# SPDX-License-Identifier: Apache-2.0
"""The pools, their nodes and the bootstrap credentials of a fleet, over the API of whichever cluster: read once, or followed.

It decides nothing, writes nothing but the mark, and prints nothing. What it reads becomes `rules.machine_config.rollout_facts`.

1. Few objects decide about credentials, and each is followed by its name (`Objects`). Pools, renderings and Nodes are many, and are
   followed only while somebody wants to know (`Fleet`). Of renderings only the metadata is read.
2. A cluster without MachineConfigPools has none: that is no error.
3. What is to be deleted is decided by what is read at that moment (`look`), never by what is followed.
4. The mark is written on the object that was read, and on no later one of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from handfast import errors
from handfast.api import jsonpath, machine_config_kinds, objects, resources
from handfast.client import api, cache, machine_requests, machine_tokens, machines, partial, watch
from handfast.rules.machine_config import (
    credential,
    ignition_secrets,
    members,
    names,
    pools,
    rollout_facts,
    rollout_progress,
)
from handfast.rules.machine_config import in_flight as in_flight_rule
from handfast.rules.machines import bootstrapper, revocation
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

POOLS: Final = machine_config_kinds.MACHINE_CONFIG_POOL
CONFIGS: Final = machine_config_kinds.MACHINE_CONFIG
RESOURCES: Final = {"ConfigMap": resources.CONFIG_MAPS, "Secret": resources.SECRETS}
NO_KIND: Final = "NoPoolKind"
# How often whoever waits looks whether something has changed.
_LOOK_SECONDS: Final = 0.2
_IGNITION: Final = api.Scope(
    namespace=bootstrapper.NAMESPACE, label_selector=f"{ignition_secrets.LABEL}={ignition_secrets.OF_MACHINE}"
)
# How soon a kind that the server does not have is asked for again.
_WITHOUT_SECONDS: Final = 30.0

V = TypeVar("V", bound=partial.Viewed)


class Unseen(errors.Refused):
    """Somebody may not see how far a roll-out is."""

    reason = "Forbidden"


class _Meta(partial.LabelledMeta, frozen=True, gc=False):
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Kept(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A Secret, a ConfigMap or the account."""

    metadata: _Meta = _Meta()
    type: str | None = None
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None

    def __repr__(self) -> str:
        # It may hold a token.
        return f"_Kept({self.metadata.key})"


class _Pool(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    spec: dict[str, Any] | None = None


class _NodeStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    conditions: list[dict[str, Any]] | None = None
    node_info: dict[str, Any] | None = None


class _Node(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()
    spec: dict[str, Any] | None = None
    status: _NodeStatus | None = None


class _Rendered(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()


def _named(resource: api.Addressable, namespace: str, name: str) -> watch.Source[_Kept]:
    scope = api.Scope(namespace=namespace, field_selector=f"metadata.name={name}")
    return watch.Source(resource=resource, view=_Kept, scope=scope)


_POOLS: Final = watch.Source(resource=POOLS, view=_Pool, if_served=True, without_seconds=_WITHOUT_SECONDS)
_CONFIGS: Final = watch.Source(
    resource=CONFIGS, view=_Rendered, metadata=True, if_served=True, without_seconds=_WITHOUT_SECONDS
)
_NODES: Final = watch.Source(resource=resources.NODES, view=_Node)


class _Followed:
    """Several informers at once."""

    _informers: tuple[cache.Informer[Any], ...]

    async def wait_synced(self) -> None:
        for informer in self._informers:
            await informer.wait_synced()

    @property
    def synced(self) -> bool:
        return all(informer.synced for informer in self._informers)


class Objects(_Followed):
    """The objects that decide about credentials, followed (1)."""

    def __init__(self, informers: cache.Informers, changed: Callable[[], None]) -> None:
        follow = _Following(informers, changed)
        self._secrets = [follow.one(_named(resources.SECRETS, *place)) for place in credential.SECRETS]
        self._config_maps = [follow.one(_named(resources.CONFIG_MAPS, *place)) for place in credential.CONFIG_MAPS]
        self._account = follow.one(_named(resources.SERVICE_ACCOUNTS, bootstrapper.NAMESPACE, bootstrapper.ACCOUNT))
        self._informers = (*self._secrets, *self._config_maps, self._account)

    def facts(self, fleet: Fleet | None = None) -> rollout_facts.Facts:
        """What is known now; without `fleet` nothing of pools and nodes."""
        secrets = _documents(self._secrets)
        account = _documents([self._account])
        tokens = [each for each in secrets if revocation.is_shared(objects.metadata(each))]
        return rollout_facts.Facts(
            secrets=secrets,
            config_maps=_documents(self._config_maps),
            account=account[0] if account else None,
            tokens=tokens,
            pools=() if fleet is None else tuple(fleet.pools.values()),
            nodes=() if fleet is None else tuple(fleet.nodes.values()),
            renderings={} if fleet is None else fleet.renderings,
        )


class Fleet(_Followed):
    """Pools, renderings and Nodes as facts, followed until `stop` (1)."""

    def __init__(self, informers: cache.Informers, changed: Callable[[], None]) -> None:
        self._follow = _Following(informers, changed)
        self.pools: dict[str, pools.Pool] = {}
        self.nodes: dict[str, members.Node] = {}
        self.renderings: dict[str, members.Rendering] = {}
        self._informers = (
            self._follow.one(_POOLS, self.pools, pools.read),
            self._follow.one(_CONFIGS, self.renderings, members.read_rendering),
            self._follow.one(_NODES, self.nodes, members.read),
        )

    def stop(self) -> None:
        self._follow.stop()


class _Following:
    """Informers of one's own, which can be stopped; each may keep its objects as facts, read once a change."""

    def __init__(self, informers: cache.Informers, changed: Callable[[], None]) -> None:
        self._informers = informers
        self._changed = changed
        self._all: list[cache.Following] = []

    def one(
        self,
        source: watch.Source[V],
        kept: dict[str, Any] | None = None,
        read: Callable[[objects.Document], Any] | None = None,
    ) -> cache.Informer[V]:
        informer = cache.Informer(source)

        def changed(old: V | None, new: V | None) -> None:
            if kept is not None and read is not None:
                if new is not None:
                    kept[new.metadata.name] = read(msgspec.to_builtins(new))
                elif old is not None:
                    kept.pop(old.metadata.name, None)
            self._changed()

        informer.subscribe(changed)
        self._all.append(self._informers.follow(source, informer, informer.refused))
        return informer

    def stop(self) -> None:
        for following in self._all:
            following.stop()


def _documents(informers: Sequence[cache.Informer[_Kept]]) -> list[objects.Document]:
    return [msgspec.to_builtins(item) for informer in informers for item in informer]


async def look(client: api.Client) -> rollout_facts.Facts:
    """Everything, as it is at this moment (3)."""
    served = await client.serves(POOLS)
    secrets = [await client.find(resources.SECRETS, name, namespace=where) for where, name in credential.SECRETS]
    maps = [await client.find(resources.CONFIG_MAPS, name, namespace=where) for where, name in credential.CONFIG_MAPS]
    account = await client.find(resources.SERVICE_ACCOUNTS, bootstrapper.ACCOUNT, namespace=bootstrapper.NAMESPACE)
    # 2. a cluster without pools has none
    rendered = await client.list(CONFIGS, metadata=True) if served else ()
    return rollout_facts.Facts(
        secrets=[each for each in secrets if each is not None],
        config_maps=[each for each in maps if each is not None],
        account=account,
        tokens=await machine_tokens.shared_secrets(client),
        pools=[pools.read(each) for each in (await client.list(POOLS) if served else ())],
        nodes=[members.read(each) for each in (await client.list(resources.NODES) if served else ())],
        renderings={each.name: each for each in map(members.read_rendering, rendered)},
    )


async def pools_and_nodes(client: api.Client) -> rollout_progress.Fleet:
    """How far every pool is, for whoever may see no credential."""
    if not await client.serves(POOLS):
        raise errors.Refused("this cluster has no kind of MachineConfigPool", reason=NO_KIND, hint=machines.INSTALL)
    rendered = map(members.read_rendering, await client.list(CONFIGS, metadata=True))
    return rollout_progress.as_rendered(
        [pools.read(each) for each in await client.list(POOLS)],
        [members.read(each) for each in await client.list(resources.NODES)],
        {each.name: each for each in rendered},
    )


async def in_flight(client: api.Client, kind: str, facts: rollout_facts.Facts) -> tuple[in_flight_rule.InFlight, ...]:
    """The machines that are on their way in with the credential of this kind."""
    known = (await machines.if_served(client)).index
    waiting = {each.facts.node_name: each.facts.name for each in await machine_requests.pending(client)}
    own = await client.list(resources.SECRETS, _IGNITION, metadata=True)
    uids = {jsonpath.text(each, "metadata", "annotations", ignition_secrets.MACHINE_UID) for each in own}
    concerned = [each for each in known if in_flight_rule.of_kind(each, kind, facts.seen)]
    return in_flight_rule.among(concerned, {node.name for node in facts.nodes}, waiting, uids)


async def until(
    client: api.Client,
    clock: clocks.Clock,
    seconds: float,
    is_over: Callable[[rollout_facts.Facts], bool],
) -> tuple[rollout_facts.Facts, bool]:
    """Follow everything until it is over, or for so long; what was seen last, and whether it is over.

    `is_over` is called when something has changed. A server that is away for a while is waited for.
    """
    deadline = clock.monotonic() + seconds
    informers = cache.Informers(client, clock)
    changes = [True]
    objects_ = Objects(informers, lambda: changes.append(True))
    fleet = Fleet(informers, lambda: changes.append(True))
    async with tasks.Group("rollout") as group:
        informers.start(group)
        while True:
            if (refusals := informers.refusals()) != ():
                raise Unseen(f"the roll-out cannot be followed: {refusals[0]}")
            facts = objects_.facts(fleet)
            if changes and objects_.synced and fleet.synced:
                changes.clear()
                if is_over(facts):
                    return facts, True
            if clock.monotonic() >= deadline:
                return facts, False
            await clock.sleep(_LOOK_SECONDS)


async def mark(client: api.Client, target: revocation.Target, uid: str, at: str) -> None:
    """Say of an object that its credential is to be revoked after the roll-out; one that has gone needs no mark (4)."""
    kind, namespace, name = target
    patch = {"metadata": {"uid": uid, "annotations": {names.REVOKE_AFTER_ROLLOUT: at}}}
    with api.MISSING_OK:
        await client.patch(RESOURCES[kind], name, patch, namespace=namespace, metadata=True)
