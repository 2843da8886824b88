# SPDX-License-Identifier: Apache-2.0
"""Paths that are no resources: health, version, metrics, discovery, OpenAPI, OpenID. Callers were authorised before."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from handfast.api import status
from handfast.apiserver import call, discovery, identity, openid
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
        found: discovery.Discovery,
        health: health_module.Health,
        metrics: metrics_module.ApiServerMetrics,
        keys: openid.OpenId,
        version: dict[str, str],
    ) -> None:
        self._discovery = found
        self._health = health
        self._metrics = metrics
        self._keys = keys
        self._version = _encode(version)
        self._rows: dict[str, Callable[[call.Call], answers.Answer]] = {
            "": lambda _: answers.Answer(_encode({"paths": _ROOTS})),
            "version": lambda _: answers.Answer(self._version),
            "metrics": lambda _: answers.Answer(
                self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"}
            ),
            "api": self._discover,
            "apis": self._discover,
            "openapi": self._open_api,
            ".well-known": self._open_id,
            "openid": self._open_id,
            **dict.fromkeys(_HEALTH, self._check),
        }

    def answer(self, asked: call.Call) -> answers.Answer:
        info = asked.info
        if info.verb not in {"get", "head"}:
            raise status.StatusError("MethodNotAllowed", f"the server does not allow {info.verb} on {info.path}")
        segments = info.path.split("/")[1:]
        # The path that was authorised is the one that is served: no segment is skipped.
        row = None if "" in segments[:-1] else self._rows.get(segments[0] if segments else "/")
        if row is None:
            raise status.no_such_path()
        return row(asked)

    def _check(self, asked: call.Call) -> answers.Answer:
        endpoint, _, name = asked.info.path.strip("/").partition("/")
        query = asked.info.query
        # Reasons may name files and peers: only who logged in gets them.
        withhold = asked.user is identity.ANONYMOUS
        if name:
            found = self._health.one(endpoint, name, withhold=withhold)
            if found is None:
                raise status.StatusError("NotFound", f"{endpoint} has no check named {name!r}")
            well, text = found
        else:
            exclude = query.get("exclude", "").split(",")
            well, text = self._health.report(endpoint, exclude=exclude, verbose="verbose" in query, withhold=withhold)
        return answers.Answer(text.encode(), status=200 if well else 500, headers=_TEXT)

    def _open_id(self, asked: call.Call) -> answers.Answer:
        page = self._keys.pages.get(asked.info.path.rstrip("/"))
        if page is None:
            raise status.no_such_path()
        return answers.Answer(page.body, headers=page.headers)

    def _discover(self, asked: call.Call) -> answers.Answer:
        body, content_type, etag = self._discovery.answer(asked.info.path.rstrip("/"), asked.header("Accept"))
        headers = {"Content-Type": content_type, "ETag": etag, "Vary": "Accept"}
        if asked.header("If-None-Match") == etag:
            return answers.Answer(status=304, headers=headers)
        return answers.Answer(body, headers=headers)

    def _open_api(self, asked: call.Call) -> answers.Answer:
        path = asked.info.path.rstrip("/")
        if path == "/openapi/v2":
            body, content_type = discovery.open_api_v2(asked.header("Accept"))
            return answers.Answer(body, headers={"Content-Type": content_type, "Vary": "Accept"})
        return answers.Answer(self._discovery.open_api(path))
