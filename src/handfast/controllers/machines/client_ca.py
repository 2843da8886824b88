# SPDX-License-Identifier: Apache-2.0
"""Keeps the client CAs of the API server equal to what their sources give, and tells of sources that are not as they should be.

The sources are in `rules.machines.client_ca_sources`, the merge in `rules.machines.client_cas`, where it goes in
`client_ca_targets`. Who is believed by a CA is the API server's; it does not wait for this when a bootstrap ConfigMap is deleted.

1. Sources are followed for their changes, and read anew before anything is written: a copy of this that lags must not bring
   back what was revoked.
2. A source that cannot be read blocks no other, and no removal. It has an Event, a metric, and the condition in the bundle.
3. What came and what went has an Event on the bundle, and a line in the log. The same is said once for as long as it holds.
4. When the next certificate of a source expires, or a bootstrap ConfigMap comes to the end that it names, this looks again.
5. Nothing of a source is shown but fingerprints and subjects: it may hold a key.
6. A ConfigMap with the bootstrap one's name elsewhere is told of, and nothing else is done: whoever may write there makes
   this read no source.
7. A bootstrap ConfigMap that has come to its end is deleted, when the bundle is without its CAs: only the one that was read, so
   that whoever puts the end off meanwhile wins. One whose end cannot be read gives nothing, and is told of.
"""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Sequence
from typing import Final

import prometheus_client
import structlog

from handfast.api import objects, resources
from handfast.client import api, cache, events, partial, watch
from handfast.controllers import immutable, loop
from handfast.controllers.machines import client_ca_targets
from handfast.pki import certificates, pem
from handfast.rules import client_ca_bundle
from handfast.rules.machines import bootstrapper, client_ca_sources, client_ca_warnings, client_cas, credential_end
from handfast.runtime import clock as clocks
from handfast.runtime import tls

NAME = "client-ca-controller"
KEY: Final = "bundle"
ADDED: Final = "ClientCAAdded"
REMOVED: Final = "ClientCARemoved"
KEPT: Final = "LastClientCAKept"
_CANNOT: Final = "it cannot be used for TLS"
_KEPT_SAID: Final = (
    "no source gives these CAs any more, and without them nobody could log in with a certificate: they stay; put a CA of your "
    "own into client-ca-file, and they go"
)

_log = structlog.get_logger("handfast.controller")

PROBLEMS = prometheus_client.Gauge(
    "handfast_client_ca_source_problems", "What is wrong with a source of client CAs, by source.", ["source"]
)

_Read = dict[tuple[str, str], tuple[objects.Document | None, client_ca_sources.Content]]


def _source(name: str, namespace: str = "") -> watch.Source[partial.Partial]:
    """One ConfigMap, or all of its name; only that it changed is of interest."""
    scope = api.Scope(namespace=namespace, field_selector=f"metadata.name={name}")
    return watch.Source(resource=resources.CONFIG_MAPS, view=partial.Partial, scope=scope, metadata=True)


class ClientCAs:
    """Handles the bundle, as `KEY`, and ConfigMaps in wrong namespaces, as `namespace/name`."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        named: cache.Informer[partial.Partial],
        target: client_ca_targets.Target,
        recorder: events.Recorder,
    ) -> None:
        self._client = client
        self._clock = clock
        # Every ConfigMap with the name of the bootstrap one.
        self._named = named
        self._target = target
        self._recorder = recorder
        # What was said of the sources, and of ConfigMaps elsewhere, for as long as it holds.
        self._said: set[tuple[str, str, str]] = set()
        self._saying: set[tuple[str, str, str]] = set()
        self._elsewhere: dict[str, str] = {}

    async def reconcile(self, key: str) -> loop.Again:
        if key != KEY:
            await self._reconcile_elsewhere(key)
            return None
        now = self._clock.now()
        self._saying = set()
        # 1. read anew
        read = {place: await self._read(place, now) for place in client_ca_sources.ALL}
        contents = {place: content for place, (_, content) in read.items()}
        for place, content in contents.items():
            PROBLEMS.labels(client_ca_sources.key(place)).set(len(content.problems))
        # 2. the sources are told of first: nothing that fails below keeps it back
        await self._warn(read, ())
        settled = await self._target.settle(contents, now)
        if settled is not None:
            await self._tell(settled)
            await self._warn(read, settled.unscoped)
            self._said = self._saying
        # 7. after the bundle
        await self._end(read, now)
        # 4. until the next one expires, or ends
        return self._next(read, now)

    def _next(self, read: _Read, now: datetime.datetime) -> loop.Again:
        expires = client_cas.ends((content.certificates for _, content in read.values()), now)
        ends = [_end_of(read, place) for place in client_ca_sources.BOOTSTRAP]
        seconds = self._target.look_again
        looks = None if seconds is None else now + datetime.timedelta(seconds=seconds)
        return min((each for each in (expires, looks, *ends) if each is not None and each > now), default=None)

    async def _end(self, read: _Read, now: datetime.datetime) -> None:
        """Delete what has come to its end (7.)."""
        for place in client_ca_sources.BOOTSTRAP:
            document, end = read[place][0], _end_of(read, place)
            if document is None or end is None or not credential_end.is_over(end, now):
                continue
            meta = objects.metadata(document)
            if meta.get("deletionTimestamp") is not None:
                continue
            with api.MISSING_OK:
                await self._client.delete(
                    *(resources.CONFIG_MAPS, place[1]),
                    namespace=place[0],
                    uid=str(meta["uid"]),
                    resource_version=str(meta["resourceVersion"]),
                )
            said = f"{credential_end.sentence(end)}: the ConfigMap was deleted"
            _log.info(said, controller=NAME, reason=credential_end.ENDED, about=client_ca_sources.key(place))
            await self._recorder.record(immutable.regarding(document), credential_end.ENDED, said)

    async def _read(
        self, place: tuple[str, str], now: datetime.datetime
    ) -> tuple[objects.Document | None, client_ca_sources.Content]:
        namespace, name = place
        document = await self._client.find(resources.CONFIG_MAPS, name, namespace=namespace)
        if document is None:
            return None, client_ca_sources.Content()
        bootstrap = place in client_ca_sources.BOOTSTRAP
        content = client_ca_sources.read_bootstrap(document, now) if bootstrap else client_ca_sources.read(document)
        useless = tls.useless([each.der for each in content.certificates])
        return document, content.leaving_out(map(certificates.fingerprint, useless), _CANNOT)

    async def _warn(self, read: _Read, unscoped: Sequence[bytes]) -> None:
        contents = {place: content for place, (_, content) in read.items()}
        for warned in client_ca_warnings.of(contents, unscoped):
            document = read[warned.place][0]
            if document is not None:
                await self._say(immutable.regarding(document), warned.reason, warned.sentence, events.WARNING)

    async def _reconcile_elsewhere(self, key: str) -> None:
        """Say once of a ConfigMap that nobody reads it (6)."""
        namespace, _, name = key.partition("/")
        item = self._named.get(namespace, name)
        warned = client_ca_warnings.wrong_namespace((namespace, name))
        if item is None or warned is None:
            self._elsewhere.pop(key, None)
        elif self._elsewhere.get(key) != item.metadata.uid:
            _log.warning(warned.sentence, controller=NAME, reason=warned.reason)
            await self._recorder.record(_regarding(item), warned.reason, warned.sentence, severity=events.WARNING)
            self._elsewhere[key] = item.metadata.uid

    async def _tell(self, settled: client_ca_targets.Settled) -> None:
        if settled.added or settled.removed:
            _log.info(
                "the client CAs were changed",
                controller=NAME,
                added=[each.fingerprint for each in settled.added],
                removed=list(settled.removed),
            )
        if settled.config_map is None:
            # A file has no Events.
            if settled.kept:
                _log.warning(_KEPT_SAID, controller=NAME, reason=KEPT, fingerprints=list(settled.kept))
            return
        bundle = immutable.regarding(settled.config_map)
        # 3. what came and what went; 5. by their names
        for certificate in settled.added:
            await self._recorder.record(bundle, ADDED, _shown(certificate))
        for fingerprint in settled.removed:
            sentence = f"the CA with SHA-256 {fingerprint} is not trusted any more: no source gives it"
            await self._recorder.record(bundle, REMOVED, sentence)
        if settled.kept:
            await self._say(bundle, KEPT, f"{_KEPT_SAID}: {', '.join(settled.kept)}", events.WARNING)
        if settled.trouble:
            await self._say(bundle, client_ca_targets.UNREADABLE, settled.trouble, events.WARNING)

    async def _say(self, regarding: events.Regarding, reason: str, sentence: str, severity: str) -> None:
        # 3. once for as long as it is there
        said = (regarding.uid, reason, sentence)
        if said in self._said | self._saying:
            self._saying.add(said)
            return
        _log.warning(sentence, controller=NAME, reason=reason, about=f"{regarding.namespace}/{regarding.name}")
        if await self._recorder.record(regarding, reason, sentence, severity=severity) is None:
            self._saying.add(said)


def _end_of(read: _Read, place: tuple[str, str]) -> datetime.datetime | None:
    """When a bootstrap ConfigMap ends; None: not by itself, or nobody can read when."""
    document = read[place][0]
    end = None if document is None else credential_end.of(document)
    return end if end is not None and credential_end.is_readable(end) else None


def _key(item: partial.Partial) -> str:
    place = item.metadata.key
    return KEY if place in client_ca_sources.BOOTSTRAP else client_ca_sources.key(place)


def _shown(certificate: certificates.Certificate) -> str:
    return (
        f"the CA {certificate.subject} (SHA-256 {certificate.fingerprint}) is trusted from now on, until "
        f"{certificate.not_after.isoformat()}"
    )


def _regarding(item: partial.Partial) -> events.Regarding:
    meta = item.metadata
    return events.Regarding(api_version="v1", kind="ConfigMap", name=meta.name, namespace=meta.namespace, uid=meta.uid)


def build(context: loop.Context, *, own_cas: bytes, file_out: str = "") -> loop.Controller[str]:
    """`own_cas` (PEM) are never removed. With `file_out` the merged bundle goes there, for another API server."""
    own = (
        frozenset(certificates.fingerprint(der) for der in pem.certificates_from_pem(own_cas))
        if own_cas
        else frozenset()
    )
    recorder = events.Recorder(context.client, context.clock, NAME)
    named = context.informers.get(_source(bootstrapper.CONFIG_MAP))
    target: client_ca_targets.Target = (
        client_ca_targets.FileTarget(pathlib.Path(file_out), own)
        if file_out
        else client_ca_targets.ConfigMapTarget(context.client, own, immutable.Immutable(recorder, NAME))
    )
    handler = ClientCAs(context.client, context.clock, named, target, recorder)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock)
    followed = [_source(name, namespace) for namespace, name in client_ca_sources.UNSCOPED]
    if not file_out:
        followed.append(_source(client_ca_bundle.NAME, client_ca_bundle.NAMESPACE))
    controller.watches(named, lambda item: [_key(item)])
    for source in followed:
        controller.watches(context.informers.get(source), lambda _: [KEY])
    # Also where there is no source at all.
    controller.queue.add(KEY)
    return controller
