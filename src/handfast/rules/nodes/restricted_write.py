# SPDX-License-Identifier: Apache-2.0
"""What NodeRestriction sees of a write, what it may look up, and how its refusals are made.

It decides nothing; see `nodes.restriction` and its parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from handfast.api import objects
from handfast.rules import access, decision

RULE = "NodeRestriction"
CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"

# Where an object is stored (`core/pods/`), its namespace, its name.
Find = Callable[[str, str, str], objects.Document | None]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write; `document` is None for a deletion and `old` for a creation, as admission has it."""

    operation: str
    resource: tuple[str, str]
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    document: objects.Document | None = None
    old: objects.Document | None = None
    user: str
    groups: tuple[str, ...]

    @property
    def object_name(self) -> str:
        """The name that will be written: that of the document when it is new, else that of the URL."""
        if self.operation == CREATE and not self.subresource and self.document is not None:
            return str(objects.metadata(self.document).get("name") or "")
        return self.name


class Known(msgspec.Struct, frozen=True):
    """What may be asked while deciding: other objects, and the authorizer."""

    find: Find
    decide: access.Ask


def refuse(reason: str, sentence: str) -> decision.Deny:
    """A refusal of this rule."""
    return decision.Deny(reason, sentence, RULE)


def missing(kind: str, name: str) -> decision.Missing:
    """The refusal for what is not there."""
    return decision.Missing("NotFound", f"{kind} {quoted(name)} not found", RULE, kind, name)


def quoted(text: str) -> str:
    """In double quotes, with what could break out of them escaped."""
    return json.dumps(text, ensure_ascii=False)
