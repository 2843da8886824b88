# SPDX-License-Identifier: Apache-2.0
"""The units of a configuration as files and links: what lies in the directory of units once it is applied. It runs no systemctl.

1. A unit's contents and drop-ins are files. Contents that are absent change nothing: the operating system may bring the unit.
2. A masked unit is a link to nowhere, whatever else is said of it.
3. An enabled unit has the links of its [Install] section (`unit_links`). For a unit with `enabled: false` these links are not to be there.
4. A unit that is to be enabled has contents, here or on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from handfast import errors
from handfast.rules.machine_config import host_paths, ignition, unit_links

# Where an operating system keeps the units that it brings, first to last.
VENDOR_UNITS: Final = ("/usr/local/lib/systemd/system", "/usr/lib/systemd/system")


class VendorUnit(msgspec.Struct, frozen=True):
    """A unit that the operating system brings."""

    path: str
    text: str


def vendor_wanted(config: ignition.Config) -> tuple[str, ...]:
    """The units of which the machine's own file counts: those that are enabled or disabled, and have no contents."""
    have = {unit.name for unit in config.units if unit.contents is not None}
    used = (unit_links.template_of(unit.name) for unit in config.units if unit.enabled is not None)
    return tuple(dict.fromkeys(name for name in used if name not in have))


def files(config: ignition.Config) -> Iterator[tuple[str, bytes]]:
    for unit in config.units:
        place = f"{host_paths.UNITS}/{unit.name}"
        if unit.contents is not None and not unit.mask:
            yield place, unit.contents.encode()
        for dropin in unit.dropins:
            yield f"{place}.d/{dropin.name}", (dropin.contents or "").encode()


def links(config: ignition.Config, vendor_units: Mapping[str, VendorUnit]) -> tuple[dict[str, str], list[str]]:
    """The links to make, and those not to be there."""
    wanted: dict[str, str] = {}
    absent: list[str] = []
    on = {unit.name for unit in config.units if unit.enabled and not unit.mask}
    for unit in config.units:
        if unit.mask:
            wanted[f"{host_paths.UNITS}/{unit.name}"] = unit_links.MASK
            continue
        if unit.enabled is None:
            continue
        enabled = _enabled(config, unit, vendor_units)
        if unit.enabled:
            _require_also(unit, enabled, on)
            wanted |= enabled.links
        else:
            absent += enabled.links
    return wanted, absent


def _enabled(
    config: ignition.Config, unit: ignition.Unit, vendor_units: Mapping[str, VendorUnit]
) -> unit_links.Enabled:
    template = unit_links.template_of(unit.name)
    source = next((row for row in config.units if row.name in {unit.name, template} and row.contents is not None), None)
    vendor = vendor_units.get(template)
    dropins = [row.contents or "" for row in sorted(unit.dropins, key=lambda row: row.name)]
    if source is not None:
        return unit_links.enabled(unit.name, f"{host_paths.UNITS}/{source.name}", [source.contents or "", *dropins])
    if vendor is not None:
        return unit_links.enabled(unit.name, vendor.path, [vendor.text, *dropins])
    if not unit.enabled:
        return unit_links.Enabled({})
    # 4. contents, here or on the machine
    raise errors.Refused(
        f'the unit "{unit.name}" is to be enabled and has no contents, and this machine brings no unit of that name',
        reason="UnitWithoutContents",
        hint="add its contents to the MachineConfig, or install what brings the unit",
    )


def _require_also(unit: ignition.Unit, enabled: unit_links.Enabled, on: set[str]) -> None:
    missing = [name for name in enabled.also if name not in on]
    if missing:
        raise errors.Refused(
            f'the unit "{unit.name}" is enabled together with {", ".join(missing)} (Also=), which this configuration does not enable',
            reason=unit_links.CANNOT_ENABLE,
            hint="name these units in the MachineConfig, with enabled: true",
        )
