# SPDX-License-Identifier: Apache-2.0
"""Ignition configurations and pointers, as a MachineConfig or a machine has them: JSON behind a first byte that picks the reader.

1. It is refused, or read; written out, it is read again as the same.
2. A configuration of specification 2 becomes one of 3, or is refused.
"""

from __future__ import annotations

import msgspec

from handfast.rules.machine_config import conversion, ignition, pointed, spec2, unit_text
from tests.fuzz import promises

_WHERE = "spec.config"


def _read(data: bytes) -> None:
    first = data[:1]
    if first == b"p":
        pointed.read(data[1:])
        return
    if first == b"u":
        unit_text.problem(data[1:].decode("utf-8", "replace"))
        return
    try:
        document = msgspec.json.decode(data[1:])
    except (ValueError, RecursionError):
        return
    # 2. of specification 2
    if spec2.is_one(document):
        document = spec2.upgraded(document, _WHERE)
    config = ignition.parse(document, _WHERE)
    # 1. read again as the same
    again = ignition.parse(config.document(), _WHERE)
    promises.require(again == config, "a configuration is not read again as it was")
    for version in ("3.5.0", "3.1.0", "2.2.0"):
        conversion.convert(config.document(), version)


run = promises.refusing(_read)
