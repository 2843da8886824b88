# SPDX-License-Identifier: Apache-2.0
"""The injector's own pair, in a Secret that replicas share, and the CA bundle of its webhook. What is due is decided in `rules.mesh.injector_pair`.

1. The Secret and the webhook are followed. Each step is written over exactly what was read: of two replicas one does it, and the other
   finds it done.
2. The bundle is made what the Secret says, whenever it is not: after a step, and after somebody has changed it. A webhook of another mesh is left alone.
3. A pair is served when its root is in the bundle. Until then the one before is.
4. A next pair is served when its root has been there for a while, as far as this replica has seen.
5. What fails is tried again, a second later at the earliest. Meanwhile the pair that is there is served.

| who | holding | tries | stopped by | shown in tests/scenarios/test_mesh_injector.py |
|---|---|---|---|---|
| somebody | the right to change webhooks | have another bundle, so that no API server believes the injector | 2 | test_a_ca_bundle_that_somebody_overwrote_is_healed |
| two replicas | a renewal that is due | have each serve another certificate | 1 | test_two_replicas_serve_one_certificate |
| time | a certificate that ends | end the injection of Pods | 4 | test_no_pod_is_missed_while_the_certificate_is_renewed |
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Final

import msgspec
import prometheus_client
import structlog

from handfast import errors
from handfast.api import kinds, resources, status
from handfast.client import api, cache, partial, watch
from handfast.mesh import installed
from handfast.pki import pairs
from handfast.rules.mesh import injector_pair, settings, webhook
from handfast.runtime import clock as clocks
from handfast.runtime import tasks

_WEBHOOKS: Final = kinds.row(webhook.PLURAL, webhook.GROUP)
_LOOK_SECONDS: Final = 1.0
_log = structlog.get_logger("handfast.mesh.injector")

LEFT = prometheus_client.Gauge("handfast_mesh_injector_seconds_left", "Until the injector's certificate is over.")


class _Service(msgspec.Struct, frozen=True):
    namespace: str = ""


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str | None = None
    service: _Service | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(msgspec.Struct, frozen=True):
    """A webhook configuration, as far as the bundle is in it."""

    metadata: partial.Meta = partial.Meta()
    webhooks: list[_Webhook] | None = None


class OwnPair:
    """The pair of the moment, for whoever accepts connections; None until there is one."""

    def __init__(
        self,
        client: api.Client,
        informers: cache.Informers,
        namespace: str,
        chosen: Callable[[], settings.Settings | None],
        clock: clocks.Clock,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = webhook.server_name(namespace)
        self._chosen = chosen
        self._clock = clock
        self._changed = asyncio.Event()
        scope = api.Scope(field_selector=f"metadata.name={webhook.NAME}")
        self._webhooks = informers.get(watch.Source(resource=_WEBHOOKS, view=_Configuration, scope=scope))
        self._secrets = informers.get(installed.source(resources.SECRETS, namespace, webhook.PAIR))
        for informer in (self._webhooks, self._secrets):
            informer.subscribe(lambda _old, _new: self._changed.set())
        self._pair: pairs.Pair | None = None
        self._shown: pairs.Pair | None = None
        # The next root, and since when it has been in the bundle.
        self._seen: tuple[bytes, float] = (b"", 0.0)
        self._healed_at = -_LOOK_SECONDS
        self._said = ""
        self.why_not = "nothing was read yet"
        LEFT.set_function(self._left)

    def current(self) -> pairs.Pair | None:
        """What is shown in handshakes."""
        return self._shown

    def not_ready(self) -> str | None:
        """Why no API server would believe the injector, in words for a readiness check."""
        if self._pair is None:
            return self.why_not
        return None if injector_pair.is_believed(self._pair, self._bundle()) else "its root is not in the CA bundle"

    async def run(self) -> None:
        """Keep pair and bundle in order, until cancelled."""
        await self._secrets.wait_answered()
        await self._webhooks.wait_answered()
        while True:
            self._changed.clear()
            await self._try()
            await tasks.wait_for_event(self._changed, self._clock, _LOOK_SECONDS)

    async def _try(self) -> None:
        try:
            await self._look()
        except (errors.Refused, errors.Unavailable) as error:
            # 5. the pair that is there stays
            self.why_not = error.message
            if error.message != self._said:
                self._said = error.message
                _log.warning("the injector's certificate is not in order", reason=error.reason, error=error.message)
            await self._clock.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        secret, chosen, now = self._secrets.get(self._namespace, webhook.PAIR), self._chosen(), self._clock.now()
        if secret is None:
            raise errors.Refused(
                self._secrets.refusal or f"there is no Secret {webhook.PAIR} in namespace {self._namespace}",
                reason="NotInstalled",
                hint="handfast mesh install makes it",
            )
        stored = injector_pair.read(secret.data or {}, self._name, now)
        what = injector_pair.step(stored, now=now, settled=self._settled(stored.following))
        if what is not injector_pair.Step.NOTHING and chosen is not None:
            after = injector_pair.after(stored, what, injector_pair.make(self._name, chosen, now))
            if not await self._write(secret, after, what):
                return
            stored = after
        if stored.pair is not None:
            await self._heal(stored)
            self._serve(stored.pair)

    async def _write(self, secret: installed.Document, after: injector_pair.Stored, what: injector_pair.Step) -> bool:
        # 1. over what was read, and nothing else
        patch = {
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": injector_pair.data(after),
        }
        try:
            await self._client.patch(resources.SECRETS, webhook.PAIR, patch, namespace=self._namespace, metadata=True)
        except status.StatusError as error:
            if error.reason != "Conflict":
                raise
            return False
        _log.info("the injector's certificate", step=what.name.lower(), roots=len(after.roots))
        return True

    async def _heal(self, stored: injector_pair.Stored) -> None:
        """Make the bundle what it has to be (2)."""
        configuration = self._configuration()
        ours = webhook.is_ours(configuration, self._namespace)
        # 5. nobody who writes it as well is answered in an endless race
        if (
            not ours
            or injector_pair.says(stored, webhook.bundle(configuration))
            or self._clock.monotonic() < self._healed_at + _LOOK_SECONDS
        ):
            return
        self._healed_at = self._clock.monotonic()
        document = await self._client.get(_WEBHOOKS, webhook.NAME)
        # As it is now, and not as it was followed.
        if not webhook.is_ours(document, self._namespace):
            return
        try:
            await self._client.update(_WEBHOOKS, webhook.with_bundle(document, stored.bundle))
        except status.StatusError as error:
            if error.reason != "Conflict":
                raise
            return
        _log.info("the CA bundle of the webhook was written", roots=len(stored.roots))

    def _serve(self, pair: pairs.Pair) -> None:
        # 3. believed, or there is no other
        if self._pair == pair or (self._pair is not None and not injector_pair.is_believed(pair, self._bundle())):
            return
        self._pair, self._shown = pair, injector_pair.shown(pair)
        self._said = self.why_not = ""
        _log.info("certificate in use", serial=pair.leaf.serial, until=str(pair.leaf.not_after))

    def _settled(self, following: pairs.Pair | None) -> bool:
        """Whether the next pair's root is known everywhere by now (4)."""
        if following is None or not injector_pair.is_believed(following, self._bundle()):
            self._seen = (b"", 0.0)
            return False
        root, now = following.chain[-1], self._clock.monotonic()
        if self._seen[0] != root:
            self._seen = (root, now)
        return datetime.timedelta(seconds=now - self._seen[1]) >= injector_pair.settling(following)

    def _configuration(self) -> dict[str, object]:
        view = self._webhooks.get("", webhook.NAME)
        return {} if view is None else dict(msgspec.to_builtins(view))

    def _bundle(self) -> bytes:
        return webhook.bundle(self._configuration())

    def _left(self) -> float:
        return 0.0 if self._pair is None else (self._pair.leaf.not_after - self._clock.now()).total_seconds()
