# SPDX-License-Identifier: Apache-2.0
"""`handfast node configuration status|restore|fetch`: what a machine-config server has made of this machine, and taking it back.

The work is in the room `node`; it prints what came of it. None of it needs an API server.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from handfast.cli import durations, node_settings, output

if TYPE_CHECKING:
    from handfast.node import configuration_state

_ROOT: Final = node_settings.setting("root", "The root of the machine.", "/")
_POINTER_LIMIT: Final = 1 << 20
# How many paths people are shown.
_SHOWN: Final = 20


@click.group(name="configuration", short_help="Show, take back or fetch what configures this machine.")
def command() -> None:
    """Show, take back or fetch what configures this machine."""


@contextlib.contextmanager
def _machine(flags: dict[str, Any]) -> Iterator[configuration_state.Machine]:
    from handfast.node import configuration_state, root_files
    from handfast.runtime import files
    from handfast.telemetry import log

    log.configure(level="error")
    with files.otherwise("name another directory with --root"):
        root = root_files.Root(node_settings.resolved(flags, "root").root)
        try:
            yield configuration_state.Machine(root)
        finally:
            root.close()


@command.command(short_help="Show which configuration this machine has, and whether it has drifted.")
@_ROOT
@output.format_option
def status(form: str, **flags: Any) -> int:
    """Show which rendering this machine has, what its agent said last, what has drifted, and what `restore` would put back.

    The exit code is 1 where something is not as the configuration left it, or where the agent could not apply one.
    """
    with _machine(flags) as machine:
        facts = _facts(machine)
    output.result(_shown(facts) if form == "text" else output.document(facts, form))
    bad = facts["drift"] or facts["unfinished"] or facts["heldOff"] or facts["state"] in _BAD
    return output.Code.FAILED if bad else output.Code.DONE


_BAD: Final = frozenset({"Degraded", "Unreconcilable"})


def _facts(machine: configuration_state.Machine) -> dict[str, Any]:
    record, report = machine.record(), machine.report()
    return {
        "root": str(machine.root.path),
        "rendering": record.applied.rendering or None,
        "desired": report.desired or None,
        "state": report.state or None,
        "reason": report.reason or None,
        "paths": len(record.applied.entries),
        "drift": [{"path": row.path, "words": row.words} for row in machine.drifts(record)],
        "unfinished": machine.unfinished(),
        "restorable": None
        if record.before is None
        else {"rendering": record.before.rendering or None, "paths": sorted(record.undo)},
        "heldOff": record.held or None,
    }


def _shown(facts: dict[str, Any]) -> str:
    restorable = facts["restorable"]
    rows = [
        ("root", facts["root"]),
        ("rendering", facts["rendering"] or "none"),
        ("wanted", facts["desired"] or ("none yet" if facts["reason"] else "not known")),
        ("state", facts["state"] or ("waiting" if facts["reason"] else "not known: no agent has followed here")),
    ]
    rows += [("reason", facts["reason"])] if facts["reason"] else []
    rows.append(("paths", str(facts["paths"])))
    drifts = facts["drift"]
    rows += [("drift", f"{row['path']} {row['words']}") for row in drifts[:_SHOWN]] or [("drift", "none")]
    rows += [("drift", f"and {len(drifts) - _SHOWN} more")] if len(drifts) > _SHOWN else []
    if facts["unfinished"]:
        rows.append(
            ("unfinished", "a change is under way, or was cut short: then the agent rolls it back when it starts")
        )
    if facts["heldOff"]:
        rows.append(("held off", f"{facts['heldOff']}, which was taken back; restore --undo lets it be applied again"))
    if restorable is None:
        rows.append(("restorable", "nothing"))
    else:
        before = restorable["rendering"] or "how it was before any configuration"
        rows.append(("restorable", f"{len(restorable['paths'])} paths, back to {before}"))
    return "\n".join(f"{name:<11} {text}" for name, text in rows)


@command.command(short_help="Put back how everything lay before the last configuration.")
@_ROOT
@click.option("--undo", is_flag=True, help="Let the agent apply again what was taken back.")
@output.format_option
def restore(undo: bool, form: str, **flags: Any) -> None:
    """Put back how everything lay before the last configuration: contents, modes, owners, and what was not there.

    It needs no API server. The rendering that was taken back is held off until another is wanted, or until --undo. Services
    are not restarted.
    """
    with _machine(flags) as machine:
        if undo:
            held = machine.release()
            text = f"{held} may be applied again" if held else "no rendering was held off"
            output.result(text if form == "text" else output.document({"released": held or None}, form))
            return
        before = machine.record().applied.rendering
        paths = machine.restore()
        after = machine.record().applied.rendering
    facts = {"takenBack": before, "rendering": after or None, "paths": list(paths)}
    if form != "text":
        output.result(output.document(facts, form))
        return
    lines = [f"  {path}" for path in paths[:_SHOWN]] + (
        [f"  and {len(paths) - _SHOWN} more"] if len(paths) > _SHOWN else []
    )
    output.result(
        f"{before} was taken back; this machine is as it was with {after or 'no configuration'}\n" + "\n".join(lines)
    )
    output.note("the agent does not apply it again, until another rendering is wanted; services were not restarted")


@command.command(short_help="Fetch what a pointer configuration names, as Ignition does at the first boot.")
@_ROOT
@click.option("--pointer", metavar="FILE", required=True, help="The pointer configuration; - for the standard input.")
@click.option("--timeout", default="5m", show_default=True, metavar="DURATION", help="How long to wait for the server.")
@output.format_option
def fetch(pointer: str, timeout: str, form: str, **flags: Any) -> None:
    """Fetch what a pointer configuration names, and write it, as Ignition does at the first boot: for machines without it.

    The server is trusted by the CA in the pointer. Nothing is written where the machine has a configuration already, where a file would be
    replaced that may not be, or where something in it cannot be applied.
    """
    import asyncio

    from handfast.node import first_boot
    from handfast.rules.machine_config import pointed
    from handfast.runtime import clock

    seconds = durations.parse(timeout, "--timeout", "168h").total_seconds()
    read = pointed.read(_pointer(pointer))
    with _machine(flags) as machine:
        first_boot.require_new(machine)
        body = asyncio.run(first_boot.fetched(read, clock.SystemClock(), seconds))
        rendering, paths = first_boot.apply(machine, body)
    facts = {"rendering": rendering or None, "paths": list(paths)}
    name = rendering or "a configuration without a name"
    output.result(f"{name} was written: {len(paths)} paths" if form == "text" else output.document(facts, form))


def _pointer(source: str) -> bytes:
    from handfast.runtime import files

    if source == "-":
        return sys.stdin.buffer.read(_POINTER_LIMIT)
    with files.otherwise("name another file with --pointer"):
        return files.read_given(pathlib.Path(source), limit=_POINTER_LIMIT)
