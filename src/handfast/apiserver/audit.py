# SPDX-License-Identifier: Apache-2.0
"""Station: what happened. Counts every request and writes down refusals and failures, decorating the pipeline.

The line names who, what, the answer and the reason; never a body, header or token. It decides nothing.
"""

from __future__ import annotations

import structlog

from handfast.api import status
from handfast.apiserver import authn, authz, call
from handfast.telemetry import metrics as metrics_module

_log = structlog.get_logger("handfast.request")


class Audit:
    """Where requests end up."""

    def __init__(self, metrics: metrics_module.ApiServerMetrics) -> None:
        self._metrics = metrics

    def answered(self, asked: call.Call, code: int, seconds: float) -> None:
        info, kind = asked.info, asked.kind
        if kind is None:
            self._metrics.request(info.verb, "", "", "", code, seconds)
        else:
            # Only what exists becomes a label: callers must not invent time series.
            sub = info.subresource
            known = sub if not sub or kind.subresource(sub) is not None else "other"
            self._metrics.request(info.verb, kind.group, kind.plural, known, code, seconds)

    def refused(self, asked: call.Call, error: status.StatusError) -> None:
        """Tell the operator why somebody was turned away."""
        if isinstance(error, authn.Unauthorized):
            self._note(asked, "authenticate", error.why, error.detail)
        elif isinstance(error, authz.Refusal):
            self._note(asked, "authorise", error.why, error.message)
        elif error.code == 403:
            self._note(asked, "admission", "Forbidden", error.message)
        elif error.code == 429:
            # Counted only: a line for each would turn a flood of requests into one of writes.
            self._metrics.refused.labels("ratelimit", "TooManyRequests").inc()

    def failed(self, asked: call.Call, error: BaseException) -> None:
        """A bug: the caller gets a bare 500 with the request id, the log gets the rest."""
        _log.error("request failed", **self._fields(asked), error=repr(error), exc_info=error)

    def _note(self, asked: call.Call, station: str, reason: str, detail: str) -> None:
        self._metrics.refused.labels(station, reason).inc()
        _log.warning("request refused", **self._fields(asked), station=station, reason=reason, detail=detail)

    def _fields(self, asked: call.Call) -> dict[str, str]:
        return {
            "id": asked.id,
            "user": asked.user.name,
            "method": asked.user.method,
            "allowed_by": asked.decision,
            "verb": asked.info.verb,
            "path": asked.info.path,
            "source": asked.source,
        }
