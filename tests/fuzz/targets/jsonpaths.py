# SPDX-License-Identifier: Apache-2.0
"""The jsonPath of a printer column on an object: refused, or as many values as the object has at most."""

from __future__ import annotations

from typing import Any

from handfast.api import jsonpath
from tests.fuzz import promises

_DOCUMENT: dict[str, Any] = {
    "spec": {"size": 3, "a.b": "x", "parts": [{"name": "a", "n": [1, 2]}, {"name": "b", "n": []}, 7, None]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]},
    "*": [[[[1, 2], [3]]]],
}
# It has fewer values than this.
_MOST = 50


def _read(data: bytes) -> None:
    values = jsonpath.find(_DOCUMENT, data.decode("utf-8", "replace"))
    promises.require(len(values) <= _MOST, f"{len(values)} values of a small object")


run = promises.refusing(_read)
