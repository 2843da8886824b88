# SPDX-License-Identifier: Apache-2.0
"""What `kubectl explain` says of kinds and fields: short sentences for those that this system is about.

They are in data/descriptions.json, by message and by field; the empty field is the message itself. What every kind has alike
stands there under `*`. A kind or field without a sentence says nothing. It knows no schema: a test compares the two.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping

import msgspec

_OF_ALL = "*"


@functools.cache
def _data() -> Mapping[str, Mapping[str, str]]:
    packaged = importlib.resources.files("handfast").joinpath("data/descriptions.json")
    return msgspec.json.decode(packaged.read_bytes(), type=dict[str, dict[str, str]])


def messages() -> Mapping[str, Mapping[str, str]]:
    """Every message that something is said of, without what all kinds share."""
    return {name: texts for name, texts in _data().items() if name != _OF_ALL}


def of(message: str, field: str = "") -> str:
    """The sentence about a field of a message, or about the message; empty if there is none."""
    return _data().get(message, {}).get(field, "")


def shared(field: str) -> str:
    """The sentence about a field that objects of every kind have: apiVersion, kind, metadata, and the items of a list."""
    return _data()[_OF_ALL][field]
