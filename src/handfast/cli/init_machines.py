# SPDX-License-Identifier: Apache-2.0
"""`handfast init --machines`: what a fleet of machines begins with. Its flags, and the work behind them.

It prints nothing. What is applied is in `client.machine_installation`; the credential is `datadir.machine_credentials`'.

1. Everything that was typed is read and judged before anything is created.
2. A cluster that was made ready for machines before gets what a later release added, and is left alone otherwise: a revoked credential is not
   made again.
3. The credential is made once. It is in the directory before it counts in the cluster.
4. That it counted is written down in the directory before it does. A later start never makes it count again, whatever is
   missing in the cluster by then; a start that was cut short there says what to type.
"""

from __future__ import annotations

import datetime
import functools
import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from handfast.cli import machine_declare, output, token_input
from handfast.datadir import layout
from handfast.runtime import files

if TYPE_CHECKING:
    from handfast.client import api
    from handfast.rules.machines import declaration
    from handfast.runtime import clock as clocks

_F = TypeVar("_F", bound=Callable[..., Any])
_MAX_BYTES: Final = 16 << 20
_FLAGS: Final = {"inventory": "--inventory", "revoke_after": "--revoke-after"}


def options(function: _F) -> _F:
    """Adds --inventory and --revoke-after, of commands that can make a cluster ready for machines."""
    for option in (
        click.option(
            "--revoke-after",
            metavar="DURATION",
            default=None,
            help="With --machines: how long the masters' bootstrap credential counts, as in 4h.  [default: until it is revoked]",
        ),
        click.option(
            "--inventory",
            type=click.Path(),
            default=None,
            help="With --machines: the machines to begin with, as `handfast machine import` reads them.",
        ),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was typed of a fleet; `out` is where the masters' credential goes."""

    out: pathlib.Path
    inventory: declaration.Declaration | None
    inventory_name: str
    revoke_after: datetime.timedelta | None
    # Whether the credential in `out` counted before this start.
    counted: bool


def taken(flags: dict[str, Any]) -> dict[str, Any]:
    """Its flags, taken out of those of a command: what is left are settings."""
    return {field: flags.pop(field) for field in _FLAGS}


def typed(values: Mapping[str, Any], *, machines: bool, out: pathlib.Path | None) -> Fleet | None:
    """What was typed of a fleet; None without --machines (1)."""
    if not machines:
        for field, value in values.items():
            if value is not None:
                raise output.Usage(f"{_FLAGS[field]} is given without --machines")
        return None
    if out is None:
        raise output.Usage(
            "--machines with --kubeconfig needs --machines-out",
            hint="name a directory of your own for the masters' bootstrap credential",
        )
    after = values["revoke_after"]
    return Fleet(
        out=out,
        inventory=_read(values["inventory"]),
        inventory_name=values["inventory"] or "",
        revoke_after=None if after is None else token_input.parse_ttl(after, "--revoke-after"),
        counted=_has_counted(out),
    )


def _has_counted(out: pathlib.Path) -> bool:
    from handfast.datadir import machine_credentials

    return machine_credentials.has_counted(out)


def as_flags(values: Mapping[str, Any], place: layout.Layout) -> list[str]:
    """The same for `handfast init`, as `up` runs it."""
    words = ["--machines", "--machines-out", str(place.machines)]
    if values["inventory"] is not None:
        words += ["--inventory", str(pathlib.Path(values["inventory"]).absolute())]
    if values["revoke_after"] is not None:
        words += ["--revoke-after", values["revoke_after"]]
    return words


def _read(inventory: str | None) -> declaration.Declaration | None:
    if inventory is None:
        return None
    from handfast.rules.machines import inventory_file

    with files.otherwise("name another file with --inventory"):
        data = files.read_given(pathlib.Path(inventory), limit=_MAX_BYTES)
    declared = inventory_file.read(data)
    machine_declare.require_good(declared, inventory)
    return declared


async def _add(client: api.Client, declared: declaration.Declaration, name: str) -> list[tuple[str, str]]:
    from handfast.client import machine_import

    return await machine_import.add(client, declared, name)


async def install(
    client: api.Client, fleet: Fleet, server: str, server_ca: bytes | None, clock: clocks.Clock
) -> list[tuple[str, str]]:
    """Make the cluster ready for machines; what was done with each object."""
    from handfast.client import machine_installation
    from handfast.datadir import machine_credentials

    # 2. made ready before
    if await machine_installation.is_installed(client):
        return await machine_installation.add_later_parts(client, clock)
    # 3. made once, and in the directory first
    kept = machine_credentials.first(fleet.out) or machine_credentials.create(fleet.out, server, server_ca, clock.now())
    declared = fleet.inventory
    add = None if declared is None else functools.partial(_add, declared=declared, name=fleet.inventory_name)
    credential = None
    if fleet.counted:
        # 4. it may have been revoked since
        output.note(
            f"the masters' credential counted before, and is not made to count again; if that is meant: kubectl apply "
            f"--filename {output.quoted(str(kept.manifest))}"
        )
    else:
        credential = machine_installation.Credential(
            bundle=files.read(kept.bundle, limit=_MAX_BYTES),
            kubeconfig=files.read_private(kept.kubeconfig, limit=_MAX_BYTES),
            before_it_counts=functools.partial(machine_credentials.note_counted, fleet.out),
            revoke_at=None if fleet.revoke_after is None else clock.now() + fleet.revoke_after,
        )
    wanted = machine_installation.Wanted(credential=credential, add_machines=add)
    return await machine_installation.ensure(client, wanted, clock)
