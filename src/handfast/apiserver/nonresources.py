# SPDX-License-Identifier: Apache-2.0
"""Paths that are no resources: health, version, metrics, discovery, OpenAPI, OpenID. Callers were authorised before."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from handfast.api import status
from handfast.apiserver import calls, discovery, identity, openapi_pages
from handfast.apiserver.access import openid
from handfast.serving import answers
from handfast.telemetry import health as health_module
from handfast.telemetry import metrics as metrics_module

_encode = msgspec.json.Encoder().encode
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
_HEALTH = frozenset({"healthz", "livez", "readyz"})
_ROOTS = [
    *("/.well-known/openid-configuration", "/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2"),
    *("/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"),
]


class NonResources:
    """Answers them."""

    def __init__(
        self,
        discovery_: discovery.Discovery,
        open_api: openapi_pages.Pages,
        health: health_module.Health,
        metrics: metrics_module.ApiServerMetrics,
        keys: openid.OpenId,
        version: dict[str, str],
    ) -> None:
        self._discovery = discovery_
        self._pages = open_api
        self._health = health
        self._metrics = metrics
        self._keys = keys
        self._version = _encode(version)
        self._rows: dict[str, Callable[[calls.Call], answers.Answer]] = {
            "": lambda _: answers.Answer(_encode({"paths": _ROOTS})),
            "version": lambda _: answers.Answer(self._version),
            "metrics": lambda _: answers.Answer(
                self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"}
            ),
            "api": self._discover,
            "apis": self._discover,
            ".well-known": self._open_id,
            "openid": self._open_id,
            **dict.fromkeys(_HEALTH, self._check),
        }

    async def answer(self, call: calls.Call) -> answers.Answer:
        info = call.info
        if info.verb not in {"get", "head"}:
            raise status.StatusError("MethodNotAllowed", f"the server does not allow {info.verb} on {info.path}")
        segments = info.path.split("/")[1:]
        # The path that was authorised is the one that is served: no segment is skipped.
        first = "/" if "" in segments[:-1] else segments[0]
        if first == "openapi":
            return await self._open_api(call)
        row = self._rows.get(first)
        if row is None:
            raise status.no_such_path()
        return row(call)

    def _check(self, call: calls.Call) -> answers.Answer:
        endpoint, _, name = call.info.path.strip("/").partition("/")
        query = call.info.query
        # Reasons may name files and peers: only who logged in gets them.
        withhold = call.user is identity.ANONYMOUS
        if name:
            verdict = self._health.one(endpoint, name, withhold=withhold)
            if verdict is None:
                raise status.StatusError("NotFound", f"{endpoint} has no check named {name!r}")
            well, text = verdict
        else:
            exclude = query.get("exclude", "").split(",")
            well, text = self._health.report(endpoint, exclude=exclude, verbose="verbose" in query, withhold=withhold)
        return answers.Answer(text.encode(), status=200 if well else 500, headers=_TEXT)

    def _open_id(self, call: calls.Call) -> answers.Answer:
        page = self._keys.pages.get(call.info.path.rstrip("/"))
        if page is None:
            raise status.no_such_path()
        return answers.Answer(page.body, headers=page.headers)

    def _discover(self, call: calls.Call) -> answers.Answer:
        body, content_type, etag = self._discovery.answer(call.info.path.rstrip("/"), call.header("Accept"))
        headers = {"Content-Type": content_type, "ETag": etag, "Vary": "Accept"}
        if call.header("If-None-Match") == etag:
            return answers.Answer(status=304, headers=headers)
        return answers.Answer(body, headers=headers)

    async def _open_api(self, call: calls.Call) -> answers.Answer:
        payer = (call.impersonator or call.user).name
        page = await self._pages.page(call.info.path.rstrip("/"), call.header("Accept"), payer)
        return page.answer(call.header("If-None-Match"))
