# SPDX-License-Identifier: Apache-2.0
"""`handfast demo`: the whole of Handfast on this machine, in a minute. The story is in `demo.story`.

1. Ctrl-C, SIGTERM and SIGHUP end it at any step. Everything is cleaned up all the same; more of them change nothing.
2. With --stay, they are its good end.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import click

from handfast import errors
from handfast.cli import invocation, output

if TYPE_CHECKING:
    from handfast.runtime import addresses

_FORMATS: Final = ("text", "json")
_STDIN: Final = 0
# Of the extra `console`.
_CONSOLE_LIBRARIES: Final = ("jinja2", "segno")


def _address(_context: click.Context, parameter: click.Parameter, text: str | None) -> addresses.Address | None:
    from handfast.runtime import addresses

    if text is None:
        return None
    try:
        address = addresses.parse(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}", param=parameter) from error
    if not addresses.is_loopback(address.host):
        raise click.BadParameter(f"{text!r} is not on this machine alone, as 127.0.0.1:6443 is", param=parameter)
    return address


@click.command(name="demo", short_help="Show what it does, on this machine, in a minute.")
@click.option("--stay", is_flag=True, help="Keep everything running at the end, until Ctrl-C.")
@click.option("--step", "by_step", is_flag=True, help="Wait for Enter before each step.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=_address,
    default=None,
    help="Where its API server listens.  [default: a free port of 127.0.0.1]",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How it is shown: json is one line for each step.",
    callback=output.remember_format,
)
def command(stay: bool, by_step: bool, listen: addresses.Address | None, form: str) -> None:
    """Show what Handfast does, on this machine, in a minute: machines join in three ways, intruders are refused, a certificate is renewed, a
    fleet meets a machine that nobody knows, two programs talk over mutual TLS, and a token, a CA and a workload are revoked.

    Everything that happens is a command that you can type, and is shown as such, with what it printed. It needs no root. It happens in a
    temporary directory (TMPDIR), and at the end, also after Ctrl-C, no process, port or file is left. The exit code is 0 if everything was seen that the
    story promises.

    Without the extras mesh and proxy the steps about programs are left out.
    """
    import uvloop

    from handfast.cli import demo_output
    from handfast.demo import telling
    from handfast.runtime import clock as clocks

    clock = clocks.SystemClock()
    audience = demo_output.Lines() if form == "json" else demo_output.Page(clock)
    options = telling.Options(
        listen=listen,
        script=invocation.script(),
        stay=stay,
        before=_enter if by_step else None,
        console=_has_console(),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        ended_by = runner.run(_until_signal(telling.tell(options, audience, clock)))
    # 2. its good end
    if ended_by and not audience.is_staying:
        raise errors.Refused(f"{ended_by} in step {audience.step}; it was cleaned up", reason="Interrupted")


def _has_console() -> bool:
    """Whether this program has a console, and what that needs is installed."""
    from handfast.cli import main

    return "console" in main.COMMANDS and all(importlib.util.find_spec(each) for each in _CONSOLE_LIBRARIES)


async def _until_signal(work: Coroutine[Any, Any, None]) -> str:
    """Run it; the name of the signal that ended it, empty if none did."""
    task = asyncio.current_task()
    if task is None:
        raise errors.Misuse("the demo runs inside a task")
    seen: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        # 1. more of them change nothing
        if not seen:
            task.cancel()
        seen.append(number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    with contextlib.suppress(asyncio.CancelledError):
        await work
    return seen[0].name if seen else ""


async def _enter() -> None:
    """Wait for Enter; an input that has ended, or that nobody types on, is not waited for."""
    output.progress("Enter: the next step")
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        loop.add_reader(_STDIN, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(_STDIN)
        os.read(_STDIN, 4096)
