# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors: refused, or matched against labels; written out, they are read again as the same."""

from __future__ import annotations

from handfast.api import selectors
from tests.fuzz import promises

_LABELS = {"app": "web", "example.com/tier": "7", "empty": ""}
_FIELDS = {"metadata.name": "web", "spec.nodeName": "", "status.phase": "Running"}


def _read(data: bytes) -> None:
    text = data[1:].decode("utf-8", "replace")
    if data[:1] == b"f":
        fields = selectors.parse_fields(text)
        fields.match(_FIELDS)
        fields.requires_exact("metadata.name")
        promises.require(selectors.parse_fields(str(fields)) == fields, "a field selector is not read again as it was")
        return
    labels = selectors.parse_labels(text)
    labels.match(_LABELS)
    labels.match(None)
    promises.require(selectors.parse_labels(str(labels)) == labels, "a label selector is not read again as it was")


run = promises.refusing(_read)
