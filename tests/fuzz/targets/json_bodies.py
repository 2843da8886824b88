# SPDX-License-Identifier: Apache-2.0
"""JSON bodies of every built-in kind. The first byte picks the kind, the second bit of it strict field validation.

1. A body is refused, or becomes a document that can be written as JSON and read again as the same.
2. YAML, which JSON is a part of, is read as the same document, where it is read at all.
3. It is defaulted once and for all, judged, and given a row.
"""

from __future__ import annotations

import copy
import datetime
from typing import Any

import msgspec

from handfast import errors
from handfast.api import conversion, kinds
from handfast.api.codec import yaml_document
from handfast.api.defaulting import defaults
from handfast.api.printing import printers
from handfast.api.validation import validation
from handfast.apiserver import bodies
from tests.fuzz import promises

NOW = datetime.datetime(2026, 1, 2, 4, tzinfo=datetime.UTC)
KINDS = [row for row in kinds.builtin() if "get" in row.verbs]
_MODES = (bodies.WARN, bodies.STRICT, bodies.IGNORE)


def _read(data: bytes) -> None:
    first = data[0] if data else 0
    kind = KINDS[first % len(KINDS)]
    document, _ = bodies.for_kind(data[1:], "application/json", kind, _MODES[first // len(KINDS) % 3])
    require_same(document)
    require_lives(kind, document)


def require_same(document: dict[str, Any]) -> None:
    """Written as JSON, a document is read again as the same: by both readers."""
    text = msgspec.json.encode(document)
    promises.require(msgspec.json.decode(text) == document, "JSON is not read again as it was")
    try:
        again, repeated = yaml_document.load(text)
    except errors.Refused:
        return
    promises.require(not repeated and again == document, "YAML and JSON disagree")


def require_lives(kind: kinds.Kind, served: dict[str, Any]) -> None:
    """What is done with each object, in the form in which it is stored."""
    row = kinds.stored_row(kind)
    document = conversion.to_stored(kind, served)
    defaults.apply(row, document)
    once = copy.deepcopy(document)
    defaults.apply(row, document)
    promises.require(document == once, "defaulting twice is not defaulting once")
    causes = validation.create(row, document)
    msgspec.json.encode([cause.document() for cause in causes])
    promises.require(document == once, "judging changes the object")
    printers.cells(row, document, NOW)
    promises.require(bool(conversion.to_served(kind, document)["apiVersion"]), "an object without a version")


run = promises.refusing(_read)
