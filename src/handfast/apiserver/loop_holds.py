# SPDX-License-Identifier: Apache-2.0
"""Who held the event loop for too long: a metric, and one line in the log that names the request.

1. A step of a request of more than `STEP_SECONDS` is counted by verb and resource, and has a line: which request, whose,
   from where, how long. A body, a query or a header is never in it.
2. The lateness of the loop, whoever caused it, is a histogram. One of more than `LATE_SECONDS` has a line of its own if no
   request was named for it.
3. There are at most `LINES_PER_SECOND` lines; the next one tells how many had none.

It measures nothing (`runtime.loop_time` does), and refuses nobody: bounds on what a request may ask are where it is read.
"""

from __future__ import annotations

from typing import Final

import structlog

from handfast.apiserver import audit_log, calls
from handfast.runtime import clock as clocks
from handfast.serving import buckets
from handfast.telemetry import metrics as metrics_module

# No request takes so long on a quiet machine, since what each may ask is bounded: one that does is a fault to be found.
STEP_SECONDS: Final = 0.05
# A machine with too much to do makes every process late, by tens of milliseconds and for hours. That is in the histogram.
LATE_SECONDS: Final = 1.0
LINES_PER_SECOND: Final = 10
_NAME_LENGTH: Final = 256

_log = structlog.get_logger("handfast.loop")


class LoopHolds:
    """What one server says of its loop."""

    def __init__(self, metrics: metrics_module.ApiServerMetrics, clock: clocks.Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lines = buckets.Buckets(LINES_PER_SECOND, LINES_PER_SECOND)
        # Lines that were one too many since the last one that was not.
        self._unwritten = 0
        # Whether a request has been named since the loop was last measured.
        self._named = False

    def step(self, call: calls.Call, seconds: float) -> None:
        """One step of this request held the loop for so long (1)."""
        self._named = True
        self._metrics.held(call.info.verb, "" if call.kind is None else call.kind.plural)
        acting = call.impersonator
        self._tell(
            "a request held the event loop",
            seconds,
            id=call.id,
            method=audit_log.clean(call.http.method, _NAME_LENGTH),
            # From the request line: where parsing it took the time, there is nothing else yet.
            path=audit_log.request_uri(call.http.raw_path.partition("?")[0]),
            user=audit_log.clean(call.user.name, _NAME_LENGTH),
            source=call.source,
            **({} if acting is None else {"impersonator": audit_log.clean(acting.name, _NAME_LENGTH)}),
        )

    def late(self, seconds: float) -> None:
        """The loop was late by so much (2)."""
        self._metrics.loop_lateness.observe(seconds)
        if seconds > LATE_SECONDS and not self._named:
            self._tell("the event loop was held, and by no request", seconds)
        self._named = False

    def _tell(self, text: str, seconds: float, **fields: str) -> None:
        # 3. a flood of slow requests must not become one of lines
        if self._lines.wait("", self._clock.monotonic()) > 0.0:
            self._unwritten += 1
            return
        unwritten, self._unwritten = self._unwritten, 0
        more = {"lines_left_out": unwritten} if unwritten else {}
        _log.warning(text, milliseconds=round(seconds * 1000), **fields, **more)
