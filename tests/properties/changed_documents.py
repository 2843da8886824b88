# SPDX-License-Identifier: Apache-2.0
"""Sample documents with single places changed, and what validation says of them. It asserts nothing."""

from __future__ import annotations

from typing import Any

from handfast.api.defaulting import defaults
from handfast.api.validation import validation
from tests.properties import sample_documents

REMOVED = object()


def changed(group: str, plural: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The defaulted sample of a kind with the values at some `|`-separated paths set or removed."""
    kind = sample_documents.kind(group, plural)
    document = sample_documents.document(kind)
    defaults.apply(kind, document)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("|")]
        holder: Any = document
        for key in parents:
            holder = holder[key]
        if value is REMOVED:
            del holder[last]
        elif isinstance(holder, list) and last == len(holder):
            holder.append(value)
        else:
            holder[last] = value
    return document


def created(group: str, plural: str, changes: dict[str, Any]) -> list[str]:
    """What is wrong with the changed sample as a new object: `field: message`, one by one."""
    causes = validation.create(sample_documents.kind(group, plural), changed(group, plural, changes))
    return [f"{cause.field}: {cause.message}" for cause in causes]


def updated(group: str, plural: str, changes: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with changing the sample (itself changed by `before`)."""
    kind, before = sample_documents.kind(group, plural), before or {}
    causes = validation.update(kind, changed(group, plural, {**before, **changes}), changed(group, plural, before))
    return [f"{cause.field}: {cause.message}" for cause in causes]


def begin(found: list[str], wanted: list[str]) -> bool:
    """Whether there are as many texts as wanted and each begins as wanted."""
    return len(found) == len(wanted) and all(text.startswith(start) for text, start in zip(found, wanted, strict=True))
