# SPDX-License-Identifier: Apache-2.0
"""What the agent leaves on disk about itself for `handfast node status`, and how it is asked to renew: two small files
beside the certificates.

Nothing is believed for lying there: the certificate itself is read from where it is kept. They are their owner's alone: an
error may quote what somebody wrote in a manifest, which need not be for everybody on this machine.

1. `STATUS` is replaced when something in it has changed, and at least every `REFRESH` seconds; whoever reads an older
   one knows that the agent does not run. A disk that is full costs the report, never the agent.
2. `ROTATE` asks for a renewal by being there. It is removed before the renewal begins, so that a wish that comes
   meanwhile counts again. Whoever may write there could replace the key, so that no other permission is needed; and an
   agent that is not running does it at its next start. A signal would need a process id that may be another's by now.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from handfast import errors
from handfast.api import objects
from handfast.runtime import clock as clocks
from handfast.runtime import files

STATUS: Final = "handfast-node.json"
ROTATE: Final = "handfast-node.rotate"
REFRESH: Final = 30.0
PERIOD: Final = 2.0
MAX_BYTES: Final = 1 << 20

_log = structlog.get_logger("handfast.node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One look at a running agent. Instants are texts as in the API; `problems` are its failing checks by name."""

    node: str
    pid: int
    written: str = ""
    phase: str = ""
    server: str = ""
    kubeconfig: str = ""
    endpoint: str = ""
    rotation: bool = False
    server_rotation: bool = False
    certificate: str = ""
    next_renewal: str = ""
    last_error: str = ""
    serving_not_after: str = ""
    problems: dict[str, str] = field(default_factory=dict)
    static_pods: tuple[str, ...] = ()
    pods: int = 0


def write(directory: pathlib.Path, report: Report) -> None:
    """Replace the report."""
    text = json.dumps(dataclasses.asdict(report), indent=2) + "\n"
    files.write_atomically(directory / STATUS, text.encode("utf-8"))


def read(directory: pathlib.Path) -> Report | None:
    """The last report; None if there is none that makes sense; Refused to who is not its owner."""
    try:
        found: Any = json.loads(files.read(directory / STATUS, limit=MAX_BYTES))
        known = {row.name for row in dataclasses.fields(Report)}
        report = Report(**{key: value for key, value in found.items() if key in known})
        objects.parse_timestamp(report.written)
    except (errors.Refused, errors.Unavailable, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, errors.Refused) and error.reason == "PermissionDenied":
            raise errors.Refused(
                error.message,
                reason=error.reason,
                hint="what an agent says of itself is for the user that it runs as: ask as that user, as with sudo",
            ) from None
        return None
    return dataclasses.replace(report, static_pods=tuple(report.static_pods))


def is_fresh(report: Report, now: datetime.datetime) -> bool:
    """Whether the agent that wrote it can be taken to run."""
    return abs((now - objects.parse_timestamp(report.written)).total_seconds()) <= 3 * REFRESH and _alive(report.pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def ask_to_rotate(directory: pathlib.Path) -> None:
    """Asks the agent of this directory for a renewal (2)."""
    files.write_atomically(directory / ROTATE, b"")


class Reporter:
    """Writes the report, and listens for the wish to renew."""

    def __init__(
        self,
        directory: pathlib.Path,
        look: Callable[[], Report],
        renew: Callable[[], None],
        clock: clocks.Clock,
    ) -> None:
        self._directory = directory
        self._look = look
        self._renew = renew
        self._clock = clock
        self._written: Report | None = None
        self._written_at = 0.0
        self._failing = False

    async def run(self) -> None:
        """Never returns."""
        while True:
            self.turn()
            await self._clock.sleep(PERIOD)

    def turn(self) -> None:
        """One look at both files."""
        if self._asked():
            _log.info("a renewal was asked for")
            self._renew()
        latest = self._look()
        now = self._clock.monotonic()
        if latest == self._written and now - self._written_at < REFRESH:
            return
        try:
            write(self._directory, dataclasses.replace(latest, written=objects.timestamp(self._clock.now())))
        except (errors.Refused, errors.Unavailable) as error:
            # 1. a full disk costs the report alone
            if not self._failing:
                _log.warning("the status was not written", reason=error.reason, error=error.message)
            self._failing = True
            return
        self._failing = False
        self._written, self._written_at = latest, now

    def _asked(self) -> bool:
        try:
            (self._directory / ROTATE).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            if not self._failing:
                wrong = files.explain(error, "remove", self._directory / ROTATE)
                _log.warning("a wish to renew cannot be taken", error=wrong.message)
            self._failing = True
            return False
        return True

    def remove(self) -> None:
        """The agent ends: what it says of itself ends, too."""
        try:
            (self._directory / STATUS).unlink(missing_ok=True)
        except OSError as error:
            wrong = files.explain(error, "remove", self._directory / STATUS)
            _log.warning("the status was not removed", error=wrong.message)
