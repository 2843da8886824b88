# SPDX-License-Identifier: Apache-2.0
"""One line for each request: who, by which proof, from where, for what, and what came of it. It decides nothing.

1. It never has a secret, a header or a body. Of what a caller writes it has the pool, `mac` and `serial`, without control characters and
   cut to a length: nobody can forge a line, or fill the file with one request.
2. Strangers get at most fifty lines a second together, and callers who proved who they are fifty for each address. The next line says how
   many requests got none: a flood must not push what matters out of the file.
3. Every answer is counted, by status, reason and proof.

| who | holding | tries | stopped by | shown in tests/unit/machines/test_audit.py |
|---|---|---|---|---|
| a reader of the file | the file | find a secret | 1 | test_a_line_has_no_secret |
| a stranger | a pool's name with line breaks | forge a line | 1 | test_a_line_cannot_be_forged |
| … | a flood of requests | have the trace of another deed rotated away | 2 | test_a_flood_has_few_lines |
| a node, taken over, or a thief of a secret | the proof, and a flood | the same | 2 | test_a_flood_of_one_who_proved_who_they_are_has_few_lines |
"""

from __future__ import annotations

import collections
from typing import Final

import msgspec
import prometheus_client
import structlog

from handfast.api import objects
from handfast.rules import networks
from handfast.rules.machine_config import requester
from handfast.runtime import clock as clocks
from handfast.telemetry import rotating

_LENGTH: Final = 256
_LINES_PER_SECOND: Final = 50
_STRANGERS: Final = ("", "")
ANSWERS: Final = prometheus_client.Counter(
    "handfast_machine_config_answers_total",
    "Requests for configurations, by status of HTTP, reason and proof; 200 hands out a bootstrap credential.",
    ["code", "reason", "proof"],
)
_log = structlog.get_logger("handfast.machine_config")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer."""

    method: str
    pool: str
    source: str
    status: int
    reason: str = ""
    sentence: str = ""
    allowed: requester.Allowed | None = None
    rendering: str = ""
    version: str = ""
    mac: str = ""
    serial: str = ""


class _Line(msgspec.Struct, omit_defaults=True, rename="camel"):
    time: str
    source: str
    method: str
    pool: str
    status: int
    reason: str = ""
    message: str = ""
    proof: str = ""
    user: str = ""
    machine: str = ""
    rendering: str = ""
    version: str = ""
    mac: str = ""
    serial: str = ""
    strangers_without_a_line: int = 0
    proved_without_a_line: int = 0


class Audit:
    """Where requests end up: a counter, the file of `writer`, and refusals in the log."""

    def __init__(self, clock: clocks.Clock, writer: rotating.LineWriter | None = None) -> None:
        self._clock = clock
        self._writer = writer
        self._second = 0
        # 2. lines in this second by who and address, all strangers together; and who had none since the last line
        self._lines: collections.Counter[tuple[str, str]] = collections.Counter()
        self._strangers_unwritten = 0
        self._proved_unwritten = 0

    def note(self, event: Event) -> None:
        """Count it, and write it down."""
        proof = "" if event.allowed is None else event.allowed.proof
        # 3. counted
        ANSWERS.labels(str(event.status), event.reason, proof).inc()
        if self._is_flood(event):
            self._strangers_unwritten += event.allowed is None
            self._proved_unwritten += event.allowed is not None
            return
        line = self._line(event, proof)
        if self._writer is not None:
            self._writer.add(msgspec.json.encode(line) + b"\n")
        if event.status != 200:
            fields = {key: value for key, value in msgspec.to_builtins(line).items() if key not in {"time", "message"}}
            _log.warning("a configuration was refused", detail=line.message, **fields)

    def _is_flood(self, event: Event) -> bool:
        # 2. so many lines in a second
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second = second
            self._lines.clear()
        who = _STRANGERS if event.allowed is None else (event.allowed.who, networks.neighbourhood(event.source))
        self._lines[who] += 1
        return self._lines[who] > _LINES_PER_SECOND

    def _line(self, event: Event, proof: str) -> _Line:
        machine = None if event.allowed is None else event.allowed.machine
        strangers, self._strangers_unwritten = self._strangers_unwritten, 0
        proved, self._proved_unwritten = self._proved_unwritten, 0
        return _Line(
            time=objects.timestamp(self._clock.now()),
            source=_clean(event.source),
            method=_clean(event.method),
            pool=_clean(event.pool),
            status=event.status,
            reason=event.reason,
            message=_clean(event.sentence),
            proof=proof,
            user="" if event.allowed is None else _clean(event.allowed.who),
            machine="" if machine is None else f"{machine.namespace}/{machine.name}",
            rendering=event.rendering,
            version=event.version,
            mac=_clean(event.mac),
            serial=_clean(event.serial),
            strangers_without_a_line=strangers,
            proved_without_a_line=proved,
        )


def _clean(text: str) -> str:
    # 1. printable text, cut to a length
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text[:_LENGTH])
