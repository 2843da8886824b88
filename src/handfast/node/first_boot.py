# SPDX-License-Identifier: Apache-2.0
"""What Ignition does at the first boot, for machines without it: fetch what a pointer configuration names, and write it below a root.

What the pointer says is read by `rules.machine_config.pointed`; how it is written is in `configuration_state`.

1. A machine that has a configuration already gets no other in this way: its agent brings it to the next one.
2. A file that lies there is replaced only if the configuration says so (`overwrite`), or if it is the same. Ignition does so, too.
3. If something in a configuration cannot be applied, nothing of it is written.
"""

from __future__ import annotations

from handfast import errors
from handfast.client import machine_configs
from handfast.node import configuration_state
from handfast.rules.machine_config import applying, drift, planned_units, pointed
from handfast.runtime import backoff
from handfast.runtime import clock as clocks

_RETRY = backoff.Schedule(initial=1.0, cap=20.0)


async def fetched(pointer: pointed.Pointed, clock: clocks.Clock, seconds: float) -> bytes:
    """What the pointer leads to; a server that is not ready is asked again, as Ignition does, for `seconds`."""
    target = machine_configs.Target(
        url=pointer.url, ca_pem=pointer.ca, headers=pointer.headers, trusted_by="the pointer configuration"
    )
    waits = backoff.Backoff(_RETRY)
    end = clock.monotonic() + seconds
    while True:
        wait = next(waits)
        try:
            body = await machine_configs.fetch(target)
        except errors.Unavailable as error:
            if clock.monotonic() + wait >= end:
                raise
            await clock.sleep(max(wait, min(getattr(error, "retry_after", 0.0), end - clock.monotonic())))
        else:
            pointer.require(body)
            return body


def require_new(machine: configuration_state.Machine) -> None:
    """Refuse a machine that has a configuration (1)."""
    rendering = machine.record().applied.rendering
    if rendering:
        raise errors.Refused(
            f"the machine below {machine.root.path} has a configuration already: {rendering}",
            reason="AlreadyConfigured",
            hint="its agent follows another by itself: handfast node run --machine-config",
        )


def apply(machine: configuration_state.Machine, body: bytes) -> tuple[str, tuple[str, ...]]:
    """Write a configuration; its rendering, and the paths that were not so before."""
    config = applying.parse(body)
    vendor = configuration_state.vendor_units(machine.root, planned_units.vendor_wanted(config))
    plan = applying.plan(config, None, applying.Machine(own=(configuration_state.DIRECTORY,), vendor_units=vendor))
    # 2. only what may be replaced
    for file in plan.files:
        entry = machine.root.entry(file.path)
        if entry.kind != drift.ABSENT and not file.overwrite and not file.same_as(entry):
            raise errors.Refused(
                f"{file.path} is there already, and the configuration does not say that it may be replaced (overwrite: true)",
                reason="WouldOverwrite",
                hint="move it away, or set overwrite in the MachineConfig",
            )
    return plan.rendering, machine.apply(plan)
