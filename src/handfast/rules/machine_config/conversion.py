# SPDX-License-Identifier: Apache-2.0
"""A configuration of the newest specification in the version that a machine reads. What that one lacks is refused by name.

Whether the configuration is a good one was judged when it was rendered, and is not judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handfast import errors
from handfast.rules.machine_config import since, spec2


def convert(document: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The configuration as `version` says it: 2.2.0, or one of specification 3."""
    if version == spec2.VERSION:
        return spec2.downgraded(document)
    if version not in since.VERSIONS:
        raise errors.Misuse(f"{version} is no version of Ignition that is served")
    if newer := since.lacking(document, version):
        raise errors.Refused(f"{newer.field[1:]} {newer.sentence}", reason=spec2.NOT_CONVERTED)
    stripped = since.stripped(document, version)
    return {**stripped, "ignition": {**stripped["ignition"], "version": version}}
