# SPDX-License-Identifier: Apache-2.0
"""What enabling a unit of systemd means: the symbolic links that its [Install] section asks for. It runs no systemctl.

1. `WantedBy=`, `RequiredBy=` and `UpheldBy=` make a link in the other unit's `.wants`, `.requires` or `.upholds`; `Alias=` makes a link
   beside the unit. An empty value takes back what stands before it. Drop-ins count as if they stood at the end of the unit.
2. The names there are those of units: no slash, no `%`. What systemd would fill in is not known here, and is refused by name.
3. A template (`x@.service`) is enabled as its `DefaultInstance=`; without one it cannot be. An instance (`x@1.service`) is a link to its
   template.
4. `Also=` names units that have to be enabled by the same configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.rules.machine_config import host_paths

MASK: Final = "/dev/null"
CANNOT_ENABLE: Final = "UnitCannotBeEnabled"
_UNIT: Final = re.compile(r"[A-Za-z0-9:_.\\@-]{1,240}\.[a-z]{3,16}")
# By key of [Install], the directory beside the other unit.
_BESIDE: Final = {"WantedBy": "wants", "RequiredBy": "requires", "UpheldBy": "upholds"}
_KEYS: Final = frozenset({*_BESIDE, "Alias", "Also", "DefaultInstance"})


class Enabled(msgspec.Struct, frozen=True):
    """The links of one unit, by path; `also` are units that have to be enabled with it."""

    links: dict[str, str]
    also: tuple[str, ...] = ()


def template_of(name: str) -> str:
    """The unit whose file an instance uses; the unit itself where it is no instance."""
    stem, at, rest = name.partition("@")
    return f"{stem}@.{rest.rpartition('.')[2]}" if at else name


def enabled(name: str, path: str, texts: Sequence[str]) -> Enabled:
    """What enabling a unit makes; `path` is where its file lies, `texts` are the file and its drop-ins."""
    install = _install(texts)
    for key in (*_BESIDE, "Alias", "Also", "DefaultInstance"):
        # 2. names of units
        for word in install[key]:
            if not (_UNIT.fullmatch(word) or (key == "DefaultInstance" and _UNIT.fullmatch(f"{word}.service"))):
                raise _refused(name, f"{key}={word[:80]} in [Install] is no name of a unit that is known here")
    link = _instance(name, install)
    links = {
        f"{host_paths.UNITS}/{other}.{suffix}/{link}": path for key, suffix in _BESIDE.items() for other in install[key]
    }
    links |= {f"{host_paths.UNITS}/{alias}": path for alias in install["Alias"] if alias != link}
    return Enabled(links, tuple(install["Also"]))


def _instance(name: str, install: dict[str, list[str]]) -> str:
    """The name under which a unit is enabled (3)."""
    stem, at, suffix = name.partition("@.")
    if not at:
        return name
    if not install["DefaultInstance"]:
        raise _refused(name, "it is a template without DefaultInstance= in [Install]")
    return f"{stem}@{install['DefaultInstance'][-1]}.{suffix}"


def _install(texts: Sequence[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {key: [] for key in _KEYS}
    for text in texts:
        for key, value in _assignments(text):
            # 1. empty: what stands before is taken back
            if value:
                values[key].extend(value.split())
            else:
                values[key].clear()
    return values


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """The assignments of [Install] that count, in order."""
    section = ""
    for line in re.sub(r"\\\n", " ", text.replace("\r\n", "\n")).split("\n"):
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
        elif section == "Install" and stripped[:1] not in {"#", ";"}:
            key, equals, value = stripped.partition("=")
            if equals and key.strip() in _KEYS:
                yield key.strip(), value.strip()


def _refused(name: str, why: str) -> errors.Refused:
    return errors.Refused(
        f'the unit "{name}" cannot be enabled: {why}',
        reason=CANNOT_ENABLE,
        hint="leave `enabled` out and name the links by a drop-in, or change the unit's [Install] section",
    )
