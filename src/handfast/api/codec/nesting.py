# SPDX-License-Identifier: Apache-2.0
"""How deep a document may be, and whether it is: the one thing every decoder checks so that others may recurse.

It walks level by level, so that no depth can exhaust the stack. It does not look at values.
"""

from __future__ import annotations

from typing import Any

# The deepest objects are CustomResourceDefinitions, whose schemas take two levels for each level they describe: a pod
# template in one is estimated, not measured, at 30 to 60. With Python's 1000 frames, 128 leaves seven a level to walkers.
MAX_DEPTH = 128

REASON = "TooDeep"
TOO_DEEP = f"the body is nested too deeply: at most {MAX_DEPTH} levels are allowed"


def is_too_deep(value: Any) -> bool:
    """Whether the document has more than `MAX_DEPTH` levels of objects and arrays."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True
