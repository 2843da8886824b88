# SPDX-License-Identifier: Apache-2.0
"""Structured log lines: one line per thing that happened, on stderr, with secrets taken out.

JSON when nobody reads along, text when stderr is a terminal. It does not decide what is worth a line, and it keeps
no audit: that is the API server's. What is taken out, whoever logs it:

1. the value of every field whose name says that it is secret (token, password, key, data, authorization, …);
2. inside any text: bearer credentials, private key blocks, the secret half of bootstrap tokens, JSON web tokens;
3. bytes, of which only the length is told.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import msgspec
import structlog

from handfast.telemetry import colour

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
REDACTED: Final = "[redacted]"

_SECRET_NAMES: Final = frozenset({"key", "keys", "data", "stringdata", "cookie", "setcookie", "body"})
_SECRET_ENDINGS: Final = (
    "token",
    "secret",
    "password",
    "passphrase",
    "authorization",
    "privatekey",
    "keydata",
    "keypem",
)
# Tokens whose alphabet is known; each group 1 is what may stay.
_SECRET_TEXT: Final = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(\b[Bb]earer\s+)\S+"
    # Only from the start of a run of such letters, and without backtracking: else the time would grow with its square.
    r"|((?<![\w-])(?=[\w-]*eyJ))[\w-]{8,}+\.[\w-]+\.[\w-]*"
    r"|(\b[a-z0-9]{6}\.)[a-z0-9]{16}\b",
    re.DOTALL,
)
_MAX_DEPTH: Final = 6
_PLAIN: Final = re.compile(r"[^\s\"'=\x00-\x1f\x7f-\x9f]+\Z")

_encode = msgspec.json.Encoder(enc_hook=repr, order="deterministic").encode


class _Lines:
    """Where lines go. A line that cannot be written is lost: a full disk must not fail the request it tells of."""

    def __init__(self, stream: BinaryIO, name: str = "") -> None:
        self._stream = stream
        self.name = name

    def msg(self, line: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + b"\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


@functools.lru_cache(maxsize=1024)
def _is_secret_name(name: str) -> bool:
    plain = name.lower().replace("_", "").replace("-", "")
    return plain in _SECRET_NAMES or plain.endswith(_SECRET_ENDINGS)


def _keep(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None) + REDACTED


def redact(value: Any, depth: int = 0) -> Any:
    """`value` without secrets, as far as names and shapes tell; the original is not changed."""
    if isinstance(value, str):
        return _SECRET_TEXT.sub(_keep, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= _MAX_DEPTH:
        return "[too deep]"
    if isinstance(value, Mapping):
        return {
            str(name): REDACTED if _is_secret_name(str(name)) else redact(item, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, depth + 1) for item in value]
    return redact(repr(value), depth + 1)


def _redact_event(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {
        name: REDACTED if _is_secret_name(name) and value is not None else redact(value)
        for name, value in event.items()
    }


def _add_name(logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if logger.name:
        event.setdefault("logger", logger.name)
    return event


def _as_json(_logger: Any, _method: str, event: structlog.typing.EventDict) -> bytes:
    return _encode(event)


def _as_text(_logger: Any, _method: str, event: structlog.typing.EventDict, *, coloured: bool = False) -> bytes:
    when, level, what = event.pop("time", ""), event.pop("level", ""), event.pop("event", "")
    trace = event.pop("exception", None)
    fields = "".join(f" {name}={_quoted(value)}" for name, value in event.items())
    word = f"{str(level).upper():<7}"
    if coloured:
        word, fields = colour.paint(word, colour.LEVELS[str(level)]), colour.paint(fields, colour.Style.FAINT)
    line = f"{str(when)[11:19]} {word} {_printable(str(what))}{fields}"
    if trace is not None:
        line += "".join(f"\n    {_printable(part)}" for part in str(trace).splitlines())
    return line.encode("utf-8", "replace")


def _printable(text: str) -> str:
    """Without what could move the cursor or forge a line."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else _encode(value).decode()
    return text if _PLAIN.match(text) else repr(text)


class _Bridge(logging.Handler):
    """Brings the lines of libraries, which use `logging`, to the same place."""

    def emit(self, record: logging.LogRecord) -> None:
        # Libraries may invent levels between the named ones; structlog knows only those.
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        structlog.get_logger().log(level, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def configure(*, level: str = "info", stream: BinaryIO | None = None, terminal: bool | None = None) -> None:
    """Set up logging for this process, once, before anything is logged."""
    terminal = sys.stderr.isatty() if terminal is None else terminal
    written = sys.stderr.buffer if stream is None else stream
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_name,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            _redact_event,
            functools.partial(_as_text, coloured=colour.wanted(written)) if terminal else _as_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=functools.partial(_Lines, written),
        # Lines are rare and loggers many: caching would save little, and tie each to the configuration it first met.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    # Libraries narrate at info; only what may need a person is taken over, unless all was asked for.
    root.setLevel(logging.DEBUG if level == "debug" else max(LEVELS[level], logging.WARNING))


@contextlib.contextmanager
def fields(**values: Any) -> Iterator[None]:
    """Add `values` to every line logged within the block, by this task and those it starts."""
    with structlog.contextvars.bound_contextvars(**values):
        yield
