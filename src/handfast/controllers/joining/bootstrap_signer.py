# SPDX-License-Identifier: Apache-2.0
"""Keeps cluster-info signed by every bootstrap token that signs, and tells why a token Secret is ignored.

It does not write the kubeconfig that it signs (`cluster_info`), deletes no token (`token_cleaner`), and lets nobody in.

1. One key stands for all signing: whatever happened, all signatures are compared with what they should be, and one
   update, which carries the version it was made from, sets them right. A lost race is a retry.
2. A signature is removed at the instant at which its token expires, by a timer. Those of ids that nobody knows are
   removed, too.
3. Where a ConfigMap cannot hold them all, the tokens that expire last have theirs; the others get a Warning.
4. Secrets of the type, or named like it, that are no use as tokens get a Warning. It has a key and a worker of its own,
   so that signing does not wait for it.
5. The API lets no key be in `data` and in `binaryData`. So keys of signatures among binary data go. An immutable ConfigMap
   gets an Event, and is left (`immutable`).
6. A text with somebody's credentials in it is not signed, whoever wrote it, and an Event says so: a signature would
   have every newcomer believe it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from handfast import errors
from handfast.api import resources
from handfast.bootstrap import cluster_info, jws, token_secrets
from handfast.client import api, cache, events, partial
from handfast.controllers import immutable, loop, views
from handfast.controllers.joining import signing_tokens
from handfast.runtime import clock as clocks

NAME = "bootstrap-signer-controller"
SIGN = "sign"
TELL = "tell"
_NO_ROOM = token_secrets.Fault(
    "NoRoomForSignature",
    f"the ConfigMap {cluster_info.NAMESPACE}/{cluster_info.NAME} has no room for its signature: tokens that expire later "
    "take all of it; delete tokens that nobody needs",
)


class _Remembered:
    """Signatures of the last content: those that were wanted the last time are not made again."""

    def __init__(self) -> None:
        self._content = b""
        self._before: dict[tuple[str, str], str] = {}
        self._now: dict[tuple[str, str], str] = {}

    def begin(self) -> None:
        self._before, self._now = self._now, {}

    def sign(self, content: bytes, token_id: str, secret: str) -> str:
        if content != self._content:
            self._content, self._before, self._now = content, {}, {}
        known = self._before.get((token_id, secret))
        signature = jws.sign(content, token_id, secret) if known is None else known
        self._now[token_id, secret] = signature
        return signature


class BootstrapSigner:
    """Handles the two keys."""

    def __init__(
        self,
        client: api.Client,
        clock: clocks.Clock,
        config_maps: cache.Informer[views.ConfigMap],
        tokens: signing_tokens.Tokens,
        complaints: signing_tokens.Complaints,
    ) -> None:
        self._client = client
        self._clock = clock
        self._config_maps = config_maps
        self._tokens = tokens
        self._complaints = complaints
        self._recorder = events.Recorder(client, clock, NAME)
        self._immutable = immutable.Immutable(self._recorder, NAME)
        self._remembered = _Remembered()
        self._left_out: dict[str, partial.Meta] = {}
        self._judged = ("", "")
        self._reported = ""

    async def reconcile(self, key: str) -> datetime.datetime | None:
        if key == SIGN:
            return await self._sign()
        # 4. Warnings on Secrets that are no use as tokens
        while (complaint := self._complaints.next()) is not None:
            regarding, fault = complaint
            message = f"no use as a bootstrap token: {fault.sentence}"
            await self._recorder.record(regarding, fault.reason, message, severity=events.WARNING)
        return None

    async def _sign(self) -> datetime.datetime | None:
        seen = self._config_maps.get(cluster_info.NAMESPACE, cluster_info.NAME)
        if seen is None:
            return None
        # 1. all signatures are compared: what the watch shows may be old, but whatever is newer will be shown, too
        data, binary = seen.data or {}, seen.binary_data or {}
        wanted = self._wanted(data, binary)
        if not _is_signed(data, binary, wanted):
            config_map = await self._client.find(
                resources.CONFIG_MAPS, cluster_info.NAME, namespace=cluster_info.NAMESPACE
            )
            if config_map is None:
                return None
            data, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
            if config_map["metadata"]["resourceVersion"] != seen.metadata.resource_version:
                wanted = self._wanted(data, binary)
            if not _is_signed(data, binary, wanted):
                # 5. an immutable ConfigMap is left; keys in the way of a signature go
                if await self._immutable.stops(config_map):
                    return None
                config_map["data"] = {**_without_signatures(data), **wanted.data}
                if binary:
                    config_map["binaryData"] = _without_signatures(binary)
                await self._client.update(resources.CONFIG_MAPS, config_map)
        await self._tell_of_credentials(seen, data)
        # 3. those without room get a Warning
        self._complain(wanted.left_out)
        # 2. as many signatures as there are tokens that have not expired
        return wanted.next_change

    def _wanted(self, data: Mapping[str, str], binary_data: Mapping[str, str]) -> cluster_info.Signatures:
        content = data.get(cluster_info.KUBECONFIG_KEY)
        # 6. nobody signs credentials; and signatures of nothing are left over
        if content is None or self._fault(content):
            return cluster_info.Signatures({}, (), None)
        taken = sum(
            len(key) + len(value.encode("utf-8", "surrogatepass"))
            for key, value in (*_without_signatures(data).items(), *_without_signatures(binary_data).items())
        )
        self._remembered.begin()
        return cluster_info.signatures(
            content,
            self._tokens.signing(),
            self._clock.now(),
            cluster_info.MAX_DATA - taken,
            sign=self._remembered.sign,
        )

    def _fault(self, content: str) -> str:
        """What is told of a text with credentials; empty for one without."""
        if self._judged[0] != content:
            try:
                cluster_info.require_no_credentials(content)
            except errors.Refused as refused:
                self._judged = content, refused.message
            else:
                self._judged = content, ""
        return self._judged[1]

    async def _tell_of_credentials(self, seen: views.ConfigMap, data: Mapping[str, str]) -> None:
        """Write the Event about credentials in the text, once for each text (6)."""
        content = data.get(cluster_info.KUBECONFIG_KEY, "")
        fault = self._fault(content)
        if fault and self._reported != content:
            meta = seen.metadata
            regarding = events.Regarding(
                api_version="v1",
                kind="ConfigMap",
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
            message = (
                f"not signed: {fault}; everybody can read it: remove them, and take them back where they are valid"
            )
            await self._recorder.record(regarding, cluster_info.CREDENTIALS, message, severity=events.WARNING)
        self._reported = content if fault else ""

    def _complain(self, left_out: tuple[str, ...]) -> None:
        metas = {token_id: self._tokens.meta(token_id) for token_id in left_out}
        now = {token_id: meta for token_id, meta in metas.items() if meta is not None}
        for token_id, meta in self._left_out.items():
            if token_id not in now:
                self._complaints.note(signing_tokens.ROOM_FAULT, meta, None)
        for meta in now.values():
            self._complaints.note(signing_tokens.ROOM_FAULT, meta, _NO_ROOM)
        self._left_out = now


def _is_signed(data: Mapping[str, str], binary_data: Mapping[str, str], wanted: cluster_info.Signatures) -> bool:
    return _signatures(data) == wanted.data and not _signatures(binary_data)


def _signatures(data: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in data.items() if key.startswith(cluster_info.SIGNATURE_PREFIX)}


def _without_signatures(data: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in data.items() if not key.startswith(cluster_info.SIGNATURE_PREFIX)}


def build(context: loop.Context) -> loop.Controller[str]:
    config_maps = context.informers.get(views.CLUSTER_INFO)
    complaints = signing_tokens.Complaints(lambda: controller.queue.add(TELL))
    tokens = signing_tokens.Tokens(complaints, lambda: controller.queue.add(SIGN))
    handler = BootstrapSigner(context.client, context.clock, config_maps, tokens, complaints)
    controller: loop.Controller[str] = loop.Controller(NAME, handler.reconcile, clock=context.clock, workers=2)
    context.informers.follow(signing_tokens.TOKENS, tokens)
    context.informers.follow(signing_tokens.ELSEWHERE, signing_tokens.Strays(complaints, token_secrets.WRONG_NAMESPACE))
    context.informers.follow(
        signing_tokens.OF_ANOTHER_TYPE,
        signing_tokens.Strays(complaints, token_secrets.WRONG_TYPE, token_secrets.is_meant),
    )
    # Without the tokens every signature would look like one too many.
    controller.needs(tokens)
    controller.watches(config_maps, lambda _: [SIGN])
    return controller
