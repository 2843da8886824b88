# SPDX-License-Identifier: Apache-2.0
"""The rules of the terminal: what goes to which stream, what an error looks like, and the exit code it gives.

1. What was asked for goes to stdout; all else (errors, hints, progress, events) to stderr.
2. Messages begin in lower case and end without a full stop. A message says what is wrong, with the name and the value;
   a hint says what to do.
3. An error is `error: …`, then perhaps `hint: …`, then `reason: …`, a stable word for machines, as the last line; with
   `-o json` it is one JSON object with the same three. On a terminal, an error without a hint has one: where to read about its reason.
4. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 not available or timed out.
5. No traceback reaches a user, unless HANDFAST_DEBUG is set.
6. A terminal obeys what it is sent, and much of what is printed was fetched, or typed by others: a character that is not
   printable is written as its number (`printable`). Only a result has lines of its own.
7. A result that cannot be written (a full disk, a reader that has gone) is an error with exit code 1. What goes to stderr
   and cannot be written is lost, and changes nothing.

It does not decide anything and knows no command.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO, TypeVar

import click

from handfast import errors
from handfast.telemetry import colour

DEBUG_VARIABLE = "HANDFAST_DEBUG"
_F = TypeVar("_F", bound=Callable[..., Any])


class Code(enum.IntEnum):
    """The exit codes (rule 4)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3


# Reasons that only repeat that there is an error.
_PLAIN: Final = frozenset({"Error", "Failed", "Interrupted", "Refused", "Usage"})
FORMATS = ("text", "json", "yaml")


@dataclass(slots=True)
class _Format:
    """The format that `-o` chose, for the errors that come later."""

    form: str = "text"


class Unwritten(errors.Refused):
    """Standard output does not take what was asked for."""

    reason = "OutputFailed"


class Usage(errors.Refused):
    """The command line is wrong, in a way that only a command can tell."""

    reason = "Usage"
    from_flag = True


def format_option(function: _F) -> _F:
    """Adds `-o`; the command gets it as `form`."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help="How the result is written.",
        callback=remember_format,
    )(function)


def remember_format(ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """The callback of an option `-o`: errors are printed in the same format."""
    # When an error is printed, the command's context is gone. The object that `run` made for the root's is still there.
    root = ctx.find_root()
    if isinstance(root.obj, _Format):
        root.obj.form = value
    return value


def document(value: Mapping[str, Any], form: str) -> str:
    """A result for machines, ready to print."""
    if form == "json":
        return json.dumps(value, indent=2)
    import yaml

    return str(yaml.safe_dump(dict(value), sort_keys=False, default_flow_style=False)).rstrip("\n")


def result(text: str) -> None:
    """What was asked for (rule 1); where it cannot be written, that is an error (rule 7)."""
    try:
        click.echo(printable(text, lines=True))
    except OSError as error:
        raise _unwritten(error) from error


def passed_on(text: str) -> None:
    """A document of somebody's, as it is: byte for byte into a file or a pipe, and on a terminal as any result (rule 6)."""
    try:
        click.echo(printable(text, lines=True) if to_terminal() else text.encode(), nl=False)
    except OSError as error:
        raise _unwritten(error) from error


def styled(parts: Iterable[tuple[str, colour.Style]]) -> None:
    """A result for a person at a terminal, each part of it with its style."""
    painted = colour.wanted(sys.stdout)
    lines = ((line, style) for text, style in parts for line in printable(text, lines=True).split("\n"))
    try:
        click.echo("\n".join(colour.paint(line, style) if painted else line for line, style in lines))
    except OSError as error:
        raise _unwritten(error) from error


def _discard(stream: TextIO) -> None:
    """Give up what is in its buffer. Else the interpreter tries once more at its end, and fails with its own words."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def finish() -> None:
    """Write what is left, or give it up: the exit code stays that of the command (rule 7)."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _discard(stream)


def _unwritten(error: OSError) -> Unwritten:
    _discard(sys.stdout)
    return Unwritten(
        f"standard output cannot be written: {(error.strerror or 'it was closed').lower()}",
        hint="what the command changes may have been changed: look before you run it again",
    )


def to_terminal() -> bool:
    """Does a person read the result? Else it may end up in the log of a service, which is no place for a secret."""
    return sys.stdout.isatty()


def note(text: str) -> None:
    """Something the reader may want to know beside the result."""
    _aside(f"note: {printable(text)}")


def warn(text: str) -> None:
    """Something that may turn out badly."""
    _aside(f"warning: {printable(text)}")


def progress(text: str) -> None:
    """Something that was done on the way to the result."""
    _aside(printable(text))


def live(lines: Sequence[str], *, instead_of: int) -> None:
    """Progress on a terminal: these lines, in place of the last so many. One that would wrap is shortened: it would be two."""
    room = shutil.get_terminal_size().columns - 1
    shown = [text if len(text) <= room else f"{text[: room - 1]}…" for text in map(printable, lines)]
    up = f"\x1b[{instead_of}A" if instead_of else ""
    # Whatever else is left of what was there is cleared, too.
    with contextlib.suppress(OSError):
        click.echo(up + "\x1b[J" + "".join(f"{text}\n" for text in shown), err=True, nl=False)


def _aside(line: str) -> None:
    # Rule 7: what cannot be written to stderr is lost.
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def printable(text: str, *, lines: bool = False) -> str:
    """The text with numbers for what is not printable (rule 6). With `lines`, line breaks and tabs stay.

    In JSON the numbers mean the same characters.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(each if each.isprintable() or each in kept else _number(each) for each in text)


def _number(character: str) -> str:
    octets = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{octets[at : at + 2].hex()}" for at in range(0, len(octets), 2))


def quoted(text: str) -> str:
    """As a shell takes it."""
    return shlex.quote(text)


def event(level: str, text: str, stream: TextIO | None = None, **fields: Any) -> None:
    """Something that happened, on stderr: a line to read on a terminal, JSON (as the logs beside it) otherwise."""
    stream = sys.stderr if stream is None else stream
    try:
        if stream.isatty():
            extra = "".join(f" ({name}: {value})" for name, value in fields.items())
            print(f"{_level(level, stream)}{printable(f'{text}{extra}')}", file=stream, flush=True)
        else:
            # Here, because the clock imports asyncio, which `--help` does not need.
            from handfast.runtime import clock

            when = clock.SystemClock().now().isoformat().replace("+00:00", "Z")
            line = {"event": text, "level": level, "logger": "handfast.supervisor", "time": when, **fields}
            print(json.dumps(line, separators=(",", ":")), file=stream, flush=True)
    except OSError:
        # Whoever read along has gone. That is no reason to stop serving.
        return


def _level(level: str, stream: TextIO) -> str:
    """The word before an event that is more than information."""
    if level == "info":
        return ""
    return (colour.paint(level, colour.LEVELS[level]) if colour.wanted(stream) else level) + ": "


def describe(error: BaseException) -> tuple[dict[str, str], Code]:
    """An error as its three lines, and its exit code."""
    lines: dict[str, str]
    if isinstance(error, click.UsageError):
        return _usage(error), Code.USAGE
    if isinstance(error, click.ClickException):
        return {"error": error.format_message(), "reason": "Failed"}, Code.FAILED
    if isinstance(error, errors.HandfastError) and not isinstance(error, errors.Misuse):
        lines = {"error": error.message}
        if error.hint:
            lines["hint"] = error.hint
        lines["reason"] = error.reason
        return lines, _code(error)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return {"error": "interrupted", "reason": "Interrupted"}, Code.FAILED
    # The text of an unexpected error may hold anything, also a secret; its type and place do not.
    lines = {
        "error": f"internal error: {type(error).__name__}{_place(error)}",
        "hint": f"this is a bug; set {DEBUG_VARIABLE}=1 to see the details, and please report it",
        "reason": "InternalError",
    }
    return lines, Code.FAILED


def _code(error: errors.HandfastError) -> Code:
    if isinstance(error, errors.Unavailable):
        return Code.UNAVAILABLE
    return Code.USAGE if getattr(error, "from_flag", False) else Code.FAILED


def _usage(error: click.UsageError) -> dict[str, str]:
    message, _, meant = error.format_message().partition(" Did you mean ")
    # Click puts each of several choices on a line of its own.
    message = " ".join(message.split()).rstrip(".")
    lines = {"error": message[:1].lower() + message[1:]}
    # Rule 2: what to do is a hint.
    hints = [f"did you mean {meant}"] if meant else []
    if error.ctx is not None:
        hints.append(f"`{error.ctx.command_path} --help` shows what is allowed")
    if hints:
        lines["hint"] = " ".join(hints)
    lines["reason"] = "Usage"
    return lines


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""


def show_error(error: BaseException, *, as_json: bool = False) -> Code:
    """Print an error on stderr (rule 3); return its exit code."""
    lines, code = describe(error)
    if not as_json and "hint" not in lines and sys.stderr.isatty():
        lines = _with_pointer(lines)
    if os.environ.get(DEBUG_VARIABLE):
        print(printable("".join(traceback.format_exception(error)), lines=True), file=sys.stderr, end="")
    try:
        if as_json:
            print(json.dumps(lines), file=sys.stderr, flush=True)
        else:
            for name, text in lines.items():
                print(f"{name}: {printable(text)}", file=sys.stderr, flush=True)
    except OSError:
        return code
    return code


def _with_pointer(lines: dict[str, str]) -> dict[str, str]:
    """An error without a hint, with the command that explains its reason; unless it says no more than the error."""
    from handfast.cli import reasons

    reason = lines["reason"]
    if reason in _PLAIN or not reasons.is_known(reason):
        return lines
    # Rule 3: the reason stays last.
    return {"error": lines["error"], "hint": f"`handfast explain {reason}` tells what it means", "reason": reason}


def _printing(error: OSError) -> bool:
    """Whether the error comes from click's own `echo`, by which click prints help."""
    return traceback.extract_tb(error.__traceback__)[-1].filename == click.utils.__file__


def run(command: click.Command, arguments: Sequence[str]) -> int:
    """Run the command line; every error ends here."""
    chosen = _Format()
    try:
        code = command.main(list(arguments), "handfast", standalone_mode=False, obj=chosen)
    except click.exceptions.NoArgsIsHelpError as incomplete:
        _aside(incomplete.format_message())
        return Code.USAGE
    except OSError as error:
        return show_error(_unwritten(error) if _printing(error) else error, as_json=chosen.form == "json")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - rule 5: this is the one place where all end
        return show_error(error, as_json=chosen.form == "json")
    return code if isinstance(code, int) else Code.DONE
