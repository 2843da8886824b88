# SPDX-License-Identifier: Apache-2.0
"""Which version of Ignition an Accept header asks for, as OpenShift's server reads it. It converts nothing.

1. Media types are looked at in the order of their `q`. The first `…/vnd.coreos.ignition+json` with a version that can be read counts.
2. 2.2 and every later 2.x get 2.2.0; 3.0 to 3.5 get what they ask for; a later 3.x gets the newest one.
3. Another version is an error.
4. Without such a media type, without a version or without a header it is 2.2.0: that is what curl has always been given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from handfast import errors
from handfast.rules.machine_config import since, spec2

UNSUPPORTED: Final = "IgnitionVersionUnsupported"
_SUBTYPE: Final = "vnd.coreos.ignition+json"
_VERSION: Final = re.compile(r"(?P<major>0|[1-9]\d{0,8})\.(?P<minor>0|[1-9]\d{0,8})\.(?:0|[1-9]\d{0,8})(?:[-+].*)?")


def version(header: str | None) -> str:
    """The version to serve, such as 3.4.0."""
    # 1. by `q`; equal ones in the order of the header
    for _, text in sorted(_offers(header or ""), key=lambda offer: -offer[0]):
        match = _VERSION.fullmatch(text)
        if match is not None:
            return _supported(int(match["major"]), int(match["minor"]), text)
    # 4. none was named
    return spec2.VERSION


def _offers(header: str) -> Iterator[tuple[float, str]]:
    """The weight and the version of each media type of Ignition; the version is empty where there is none."""
    for value in header.split(","):
        kind, *parameters = (part.strip() for part in value.split(";"))
        if kind.partition("/")[2] != _SUBTYPE:
            continue
        pairs = [parameter.partition("=") for parameter in parameters]
        versions = [text for name, _, text in pairs if name == "version" and _VERSION.fullmatch(text)]
        weights = [weight for name, _, text in pairs if name == "q" and (weight := _weight(text)) is not None]
        yield weights[0] if weights else 1.0, versions[0] if versions else ""


def _weight(text: str) -> float | None:
    try:
        weight = float(text)
    except ValueError:
        return None
    return weight if math.isfinite(weight) else None


def _supported(major: int, minor: int, text: str) -> str:
    # 2. the versions that are served
    if (2, 2) <= (major, minor) < (3, 0):
        return spec2.VERSION
    wanted = f"{major}.{minor}.0"
    if wanted in since.VERSIONS:
        return wanted
    newest_major, newest_minor, _ = (int(number) for number in since.NEWEST.split("."))
    if major == newest_major and minor > newest_minor:
        return since.NEWEST
    # 3. no other version
    raise errors.Refused(
        f"Ignition {text[:40]} is not served: there are {', '.join((spec2.VERSION, *since.VERSIONS))}",
        reason=UNSUPPORTED,
    )
