# SPDX-License-Identifier: Apache-2.0
"""Renders what a pool selects into one MachineConfig, with the pool's bootstrap credential by digest. It sends no node there.

`rules.machine_config.rendering` merges and names it, `credential` says which credential a pool has. `kubeconfig_data` keeps where
machines reach the API server.

1. The pool, the MachineConfigs that it selects and the objects of the credential are read from the API server. Watches only say when to
   look. So every step may be repeated, and a crash between any two does no harm.
2. If something cannot be rendered, or a credential is missing, the condition RenderDegraded of the pool and an Event name the
   MachineConfig, the field and the value. The pool keeps its rendering until the MachineConfig is mended.
3. The rendering is written first. Then the pool is pointed to it, at the version that was read. The rendering is owned by the pool, and is
   deleted with it. A rendering that somebody changed is set back: its name says what has to be in it.
4. A rendering is deleted when no pool and no Node has named it for ten minutes.
5. Machines are sent to no other API server: while `kubeconfig-data` names another than this control plane's, or another CA, nothing is
   rendered of it. It is set back first; an immutable one is refused by name. Where this control plane keeps no address, it counts as it is.

| who | holding | tries | stopped by | shown in tests/unit/controllers/machines/test_machine_config_render.py |
|---|---|---|---|---|
| who may write `kubeconfig-data` | a server and a CA of their own | have machines show their token there, and be run from there | 5 | test_machines_are_not_sent_to_a_server_that_somebody_else_named |
| … | an immutable ConfigMap in its place | the same, for good | 5 | test_an_immutable_address_of_somebody_else_is_not_rendered |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata as packages
from typing import Any, Final

import prometheus_client
import structlog

from handfast import errors
from handfast.api import objects, resources, status
from handfast.client import api, cache, events, partial, watch
from handfast.controllers import loop, views
from handfast.controllers.machines import kubeconfig_data, pool_views
from handfast.rules.machine_config import credential, merging, names, pool_status, pools, rendering
from handfast.rules.machines import bootstrapper

NAME = "machine-config-render-controller"
KEEP: Final = "/kubeconfig-data"
RENDERED: Final = "Rendered"
RESTORED: Final = "RenderingRestored"
TOO_LARGE: Final = "RenderingRefused"
_KEPT_SECONDS: Final = 600.0
# What the server says of a rendering that it will never take.
_NEVER: Final = frozenset({"BadRequest", "Invalid", "RequestEntityTooLarge"})

_log = structlog.get_logger("handfast.machine_config")
RENDERINGS = prometheus_client.Counter(
    "handfast_pool_renderings", "Renderings of pools, by what came of them: rendered, or a reason.", ["result"]
)


class Render:
    """Handles one pool, by name; or the ConfigMap, by its key."""

    def __init__(
        self,
        context: loop.Context,
        all_pools: cache.Informer[pool_views.Pool],
        configs: cache.Informer[pool_views.Config],
        nodes: cache.Informer[views.Node],
        *,
        servers: Sequence[str],
        ca: bytes,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._pools = all_pools
        self._configs = configs
        self._nodes = nodes
        self._recorder = events.Recorder(context.client, context.clock, NAME)
        self._data = kubeconfig_data.KubeconfigData(context.client, self._recorder, NAME, servers, ca)
        self._version = packages.version("handfast")
        self._reader = merging.Reader()
        # 2. what was last told of each pool
        self._told: dict[str, tuple[str, str]] = {}
        # 4. since when nobody names a rendering
        self._unnamed: dict[str, float] = {}

    async def reconcile(self, key: str) -> float | None:
        if key == KEEP:
            await self._data.keep()
            return None
        # 1. from the API server
        document = await self._client.find(pool_views.POOLS, key)
        if document is None or objects.metadata(document).get("deletionTimestamp"):
            self._told.pop(key, None)
            return None
        pool = pools.read(document)
        configs = await self._selected(pool)
        seen = await self._seen()
        if self._data.is_foreign(seen):
            # 5. set back first
            await self._data.keep()
            seen = await self._seen()
        try:
            chosen = pools.configs_for(pool, configs)
            result = self._rendered(pool, chosen, seen)
        except errors.Refused as refused:
            # 2. a condition, and the pool keeps its rendering
            await self._degraded(pool, refused)
            return None
        return await self._publish(pool, chosen, result)

    async def _selected(self, pool: pools.Pool) -> Sequence[objects.Document]:
        labels = pool.configs.labels
        if pool.configs.trouble or labels.empty:
            return []
        return await self._client.list(pool_views.CONFIGS, api.Scope(label_selector=str(labels)))

    async def _seen(self) -> credential.Seen:
        return credential.read(
            await self._there(resources.SECRETS, credential.SECRETS),
            await self._there(resources.CONFIG_MAPS, credential.CONFIG_MAPS),
        )

    async def _there(self, resource: api.Addressable, places: Sequence[tuple[str, str]]) -> Sequence[objects.Document]:
        documents = [await self._client.find(resource, name, namespace=namespace) for namespace, name in places]
        return [document for document in documents if document is not None]

    def _rendered(
        self, pool: pools.Pool, configs: Sequence[objects.Document], seen: credential.Seen
    ) -> objects.Document:
        choice = credential.choose(pool.name, seen)
        if isinstance(choice, credential.Missing):
            raise errors.Refused(choice.sentence, reason=choice.reason)
        # 5. to no other server; a certificate has its own in its kubeconfig
        if choice.kind == names.SERVICE_ACCOUNT and self._data.is_foreign(seen):
            raise kubeconfig_data.foreign()
        return rendering.of_pieces(pool.name, self._reader.read_all(configs), choice, self._version)

    async def _publish(
        self, pool: pools.Pool, configs: Sequence[objects.Document], document: objects.Document
    ) -> float | None:
        # 3. the rendering first
        try:
            await self._write(pool, document)
        except status.StatusError as error:
            if error.reason not in _NEVER:
                raise
            await self._degraded(pool, errors.Refused(error.message, reason=TOO_LARGE))
            return None
        name = objects.metadata(document)["name"]
        version = pool.version
        wanted = {**_reference(name), "source": [_reference(each["metadata"]["name"]) for each in configs]}
        if pool.configuration != wanted:
            patch = {
                "metadata": {"resourceVersion": version},
                "spec": {"configuration": pool_views.instead(pool.configuration, wanted)},
            }
            written = await self._client.patch(pool_views.POOLS, pool.name, patch, metadata=True)
            version = objects.metadata(written)["resourceVersion"]
        if name != pool.target:
            _log.info("a pool goes to another rendering", pool=pool.name, rendering=name)
            await self._recorder.record(
                pool_views.regarding(pool), RENDERED, f"the machines of the pool are to have {name}"
            )
        RENDERINGS.labels("rendered").inc()
        self._told.pop(pool.name, None)
        condition = pool_status.Condition(pool_status.RENDER_DEGRADED, False, pool_status.RENDERED)
        await self._say(pool, version, condition)
        return await self._clean(pool, name)

    async def _write(self, pool: pools.Pool, document: objects.Document) -> None:
        name = objects.metadata(document)["name"]
        there = await self._client.find(pool_views.CONFIGS, name)
        owner = {**_reference(pool.name, pool_views.POOLS), "uid": pool.uid, "controller": True}
        owned = {"ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
        if there is None:
            metadata = {**objects.metadata(document), **owned}
            await self._client.create(pool_views.CONFIGS, {**document, "metadata": metadata})
            return
        kept = objects.metadata(there)
        annotations = {**(kept.get("annotations") or {}), **objects.metadata(document)["annotations"]}
        # Which release rendered it first is no difference.
        annotations[names.RENDERED_BY] = (kept.get("annotations") or {}).get(names.RENDERED_BY, self._version)
        if kept.get("annotations") != annotations or not _as_rendered(there):
            metadata = {**kept, **owned, "annotations": annotations}
            await self._client.update(pool_views.CONFIGS, {**there, "metadata": metadata, "spec": document["spec"]})
            _log.warning("a rendering was changed by somebody else, and was set back", rendering=name, reason=RESTORED)
            sentence = f"{name} was changed by somebody else, and was set back to what was rendered"
            await self._recorder.record(pool_views.regarding(pool), RESTORED, sentence, severity=events.WARNING)

    async def _degraded(self, pool: pools.Pool, refused: errors.Refused) -> None:
        RENDERINGS.labels(refused.reason).inc()
        said = (pool.uid, refused.message)
        if self._told.get(pool.name) != said:
            self._told[pool.name] = said
            _log.warning("a pool cannot be rendered", pool=pool.name, reason=refused.reason, why=refused.message)
            await self._recorder.record(
                pool_views.regarding(pool), refused.reason, refused.message, severity=events.WARNING
            )
        condition = pool_status.Condition(pool_status.RENDER_DEGRADED, True, refused.reason, refused.message)
        await self._say(pool, pool.version, condition)

    async def _say(self, pool: pools.Pool, version: str, condition: pool_status.Condition) -> None:
        """Set the condition, unless it says so already."""
        wanted = pool_status.with_conditions(dict(pool.status), [condition], self._clock.now())
        if wanted == pool.status:
            return
        patch = {"metadata": {"resourceVersion": version}, "status": {"conditions": wanted["conditions"]}}
        with api.MISSING_OK:
            await self._client.patch(pool_views.POOLS, pool.name, patch, subresource="status", metadata=True)

    async def _clean(self, pool: pools.Pool, target: str) -> float | None:
        # 4. what nobody names
        now, named = self._clock.monotonic(), self._named() | {target, pool.settled}
        own = [item.metadata for item in self._configs if pool_views.is_rendered(item) and _owned(item, pool.uid)]
        left = {meta.name: self._unnamed.get(meta.name, now) for meta in own if meta.name not in named}
        for meta in own:
            if meta.name not in left:
                self._unnamed.pop(meta.name, None)
            elif now - left[meta.name] >= _KEPT_SECONDS:
                del left[meta.name]
                self._unnamed.pop(meta.name, None)
                with api.MISSING_OK:
                    await self._client.delete(pool_views.CONFIGS, meta.name, uid=meta.uid)
        self._unnamed.update(left)
        return min(left.values()) + _KEPT_SECONDS - now if left else None

    def _named(self) -> set[str]:
        """The renderings that a pool goes to or had, or that a Node has or is to have."""
        followed = [pool_views.pool(item) for item in self._pools]
        annotations: list[Mapping[str, Any]] = [item.metadata.annotations or {} for item in self._nodes]
        return {
            *(name for pool in followed for name in (pool.target, pool.settled)),
            *(row[key] for row in annotations for key in (names.CURRENT, names.DESIRED) if key in row),
        }


def _reference(name: str, kind: Any = pool_views.CONFIGS) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": name}


def _as_rendered(document: objects.Document) -> bool:
    """Whether it still has what its name says."""
    try:
        rendering.read(document)
    except errors.Refused:
        return False
    return True


def _owned(item: pool_views.Config, uid: str) -> bool:
    return any(owner.uid == uid for owner in item.metadata.owner_references or ())


def _followed(resource: api.Addressable, place: tuple[str, str]) -> watch.Source[partial.Partial]:
    namespace, name = place
    scope = api.Scope(namespace=namespace, field_selector=f"metadata.name={name}")
    return watch.Source(resource=resource, view=partial.Partial, scope=scope, metadata=True)


def _concerns(pool: pools.Pool) -> tuple[object, ...]:
    """What of a pool has it rendered again when it changes."""
    return (
        pool.uid,
        pool.configs,
        pool.configuration,
        pool.settled,
        pool_status.is_true(pool, pool_status.RENDER_DEGRADED),
    )


def build(context: loop.Context, *, servers: Sequence[str] = (), ca: bytes = b"") -> loop.Controller[str]:
    all_pools = context.informers.get(pool_views.ALL_POOLS)
    configs = context.informers.get(pool_views.ALL_CONFIGS)
    nodes = context.informers.get(views.ALL_NODES)
    handler = Render(context, all_pools, configs, nodes, servers=servers, ca=ca)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)

    def pool_changed(old: pool_views.Pool | None, new: pool_views.Pool | None) -> None:
        before, after = (None if item is None else pool_views.pool(item) for item in (old, new))
        if (before and _concerns(before)) != (after and _concerns(after)):
            controller.queue.add((after or before or pools.Pool(name="")).name)

    def of_config(item: pool_views.Config) -> list[str]:
        owners = {owner.name for owner in item.metadata.owner_references or () if owner.kind == pool_views.POOLS.kind}
        labels = item.metadata.labels or {}
        return [each.metadata.name for each in all_pools if each.metadata.name in owners or _selects(each, labels)]

    def everything(_item: object) -> list[str]:
        return [KEEP, *(each.metadata.name for each in all_pools)]

    all_pools.subscribe(pool_changed)
    for informer in (all_pools, nodes):
        controller.needs(informer)
    controller.watches(configs, of_config)
    places = [(resources.SECRETS, place) for place in credential.SECRETS]
    places += [(resources.CONFIG_MAPS, place) for place in credential.CONFIG_MAPS]
    for resource, place in places:
        controller.watches(context.informers.get(_followed(resource, place)), everything)
    namespace = api.Scope(field_selector=f"metadata.name={bootstrapper.NAMESPACE}")
    source = watch.Source(resource=resources.NAMESPACES, view=views.Namespace, scope=namespace)
    controller.watches(context.informers.get(source), lambda _: [KEEP])
    controller.queue.add(KEEP)
    return controller


def _selects(item: pool_views.Pool, labels: Mapping[str, str]) -> bool:
    return pool_views.pool(item).configs.match(dict(labels))
