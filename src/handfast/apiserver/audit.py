# SPDX-License-Identifier: Apache-2.0
"""Around all stations: what happened. Counts every request, and writes it down.

Refusals and failures also go to the log, with who, what, the answer and the reason; never a body, header or token.
`audit_log` makes the line of the audit log. It decides nothing.
"""

from __future__ import annotations

import structlog

from handfast.api import status
from handfast.apiserver import audit_log, calls, identity, join_failures
from handfast.apiserver.access import authz
from handfast.apiserver.admission import plugin
from handfast.telemetry import metrics as metrics_module

_log = structlog.get_logger("handfast.request")
# Nobody is there to be answered; the metric needs a number, and this is the one proxies use.
_CLIENT_GONE = 499
_DETAIL_LENGTH = 1024
_NAME_LENGTH = 256


class Audit:
    """Where requests end up."""

    def __init__(
        self,
        metrics: metrics_module.ApiServerMetrics,
        log: audit_log.AuditLog | None = None,
        joins: join_failures.JoinFailures | None = None,
    ) -> None:
        self._metrics = metrics
        self._lines = log
        self._joins = joins
        if log is not None:
            writer = log.writer
            metrics.counter("handfast_audit_lines", "Lines of the audit log, with the lost ones.", lambda: writer.lines)
            metrics.counter("handfast_audit_lost", "Lines of the audit log never written.", lambda: writer.lost)
            metrics.gauge(
                "handfast_audit_waiting_bytes",
                "Lines of the audit log in memory, which a crash would lose.",
                lambda: writer.waiting,
            )

    def started(self, call: calls.Call, code: int, seconds: float) -> None:
        """A long answer begins: a watch is in the audit log from its beginning, and again at its end."""
        if self._lines is not None:
            self._lines.write(call, code, seconds, stage=audit_log.RESPONSE_STARTED)

    def answered(self, call: calls.Call, code: int, seconds: float, error: status.StatusError | None = None) -> None:
        """The answer is on its way, or at its end; `error` is what it says if it is a refusal."""
        self._count(call, code, seconds)
        if self._lines is not None:
            self._lines.write(call, code, seconds, error)

    def abandoned(self, call: calls.Call, seconds: float) -> None:
        """The client went away before there was an answer; what it asked may have been done."""
        self._count(call, _CLIENT_GONE, seconds)
        if self._lines is not None:
            self._lines.write(call, 0, seconds)

    def refused(self, call: calls.Call, error: status.StatusError) -> None:
        """Tell the operator why somebody was turned away."""
        if self._joins is not None:
            self._joins.refused(call, error)
        if isinstance(error, identity.Unauthorized):
            self._note(call, "authenticate", error.why, error.detail)
        elif isinstance(error, authz.Refusal):
            self._note(call, "authorise", error.why, error.message)
        elif isinstance(error, plugin.Refusal):
            self._note(call, "admission", error.why, error.message)
        elif error.code == 403:
            # A webhook's: its own words must not become labels.
            self._note(call, "admission", "Forbidden", error.message)
        elif error.code == 429:
            # Counted only: a line for each would turn a flood of requests into one of writes.
            self._metrics.refused.labels("ratelimit", "TooManyRequests").inc()

    def failed(self, call: calls.Call, error: BaseException) -> None:
        """A bug: the caller gets a bare 500 with the request id, the log gets the rest."""
        _log.error("request failed", **self._fields(call), error=repr(error), exc_info=error)

    def _count(self, call: calls.Call, code: int, seconds: float) -> None:
        info, kind = call.info, call.kind
        if kind is None:
            self._metrics.request(info.verb, "", "", "", code, seconds)
        else:
            # Only what exists becomes a label: callers must not invent time series.
            sub = info.subresource
            known = sub if not sub or kind.subresource(sub) is not None else "other"
            self._metrics.request(info.verb, kind.group, kind.plural, known, code, seconds)

    def _note(self, call: calls.Call, station: str, reason: str, detail: str) -> None:
        self._metrics.refused.labels(station, reason).inc()
        # It may quote names that the caller chose.
        shown = audit_log.clean(detail, _DETAIL_LENGTH)
        _log.warning("request refused", **self._fields(call), station=station, reason=reason, detail=shown)

    def _fields(self, call: calls.Call) -> dict[str, str]:
        fields = {
            "id": call.id,
            "user": audit_log.clean(call.user.name, _NAME_LENGTH),
            "method": call.user.method,
            "allowed_by": call.decision,
            "verb": audit_log.clean(call.info.verb, _NAME_LENGTH),
            "path": audit_log.request_uri(call.info.path),
            "source": call.source,
        }
        if call.impersonator is not None:
            fields["impersonator"] = audit_log.clean(call.impersonator.name, _NAME_LENGTH)
        return fields
