# SPDX-License-Identifier: Apache-2.0
"""How a proxy says which Pod it is in: JSON with `ns` and `pod`, or `NAMESPACE:POD` as older ones write. It is a claim, and no credential.

1. Both parts are there, and are names. What else the JSON has is skipped.
2. Anything else is refused, and quoted in the refusal up to so many characters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import objects

MAX_LENGTH: Final = 4096
_QUOTED: Final = 256


class InvalidWorkload(errors.Refused):
    """A text that names no Pod (2)."""

    reason = "InvalidWorkload"


@dataclass(frozen=True, slots=True)
class Workload:
    """A Pod, by its name."""

    namespace: str
    pod: str


def parse(text: str) -> Workload:
    """The Pod that a token names; InvalidWorkload where it names none."""
    namespace, pod = _parts(text) if len(text) <= MAX_LENGTH else ("", "")
    # 1. names both
    if not isinstance(namespace, str) or not isinstance(pod, str) or not namespace or not pod:
        raise _invalid(text)
    if objects.dns_label(namespace) is not None or objects.dns_subdomain(pod) is not None:
        raise _invalid(text)
    return Workload(namespace, pod)


def _parts(text: str) -> tuple[Any, Any]:
    if not text.startswith("{"):
        namespace, _, pod = text.partition(":")
        return namespace, pod
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return "", ""
    return said.get("ns"), said.get("pod")


def _invalid(text: str) -> InvalidWorkload:
    # 2. quoted, in bounds
    return InvalidWorkload(
        f"Invalid workload: {text[:_QUOTED]}", hint='as in {"ns":"shop","pod":"web-0"}, or shop:web-0'
    )
