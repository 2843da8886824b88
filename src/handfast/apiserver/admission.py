# SPDX-License-Identifier: Apache-2.0
"""Station: admission. Ordered plugins that may change or refuse a write after the caller was authorised.

Each plugin is a row: its name, the operations and resources it looks at, and a function that returns nothing or raises.
Rows of `MUTATING` run first, in order, and may change the document; rows of `VALIDATING` run when nothing will change it
any more, and only look. What a plugin decides by is in `rules`; the rows' functions are in modules of their own.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from handfast.api import kinds, objects
from handfast.apiserver import identity, replica
from handfast.rules import access, decision

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What plugins see of a write. `document` may be changed; `old` is None for a create.

    For a subresource that takes a document of its own (a TokenRequest, an Eviction, a Binding), `kind` is the parent's,
    `document` is what was sent and `old` is None; for `/status` and `/approval` both are the whole object.
    """

    operation: str
    kind: kinds.Kind
    subresource: str
    namespace: str
    name: str
    document: objects.Document | None
    old: objects.Document | None
    user: identity.User
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Context:
    """What plugins may ask: the copy of the store, the authoriser, the time."""

    replica: replica.Replica
    decide: Callable[[access.Attributes], decision.Decision]
    now: Callable[[], datetime.datetime]

    def find(self, prefix: str, namespace: str, name: str) -> objects.Document | None:
        """A fresh copy of one object, by where it is stored (`core/pods/`); None if there is none."""
        found = self.replica.collection(prefix).get(namespace, name)
        return None if found is None else found.document()


# Most answer at once; one that has to wait for something returns what to await.
Plugin = Callable[[Attributes, Context], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One plugin; `resources` empty: every resource."""

    name: str
    operations: frozenset[str]
    plugin: Plugin
    resources: frozenset[tuple[str, str]] = frozenset()


class Chain:
    """Rows in order, found by operation and resource: most writes concern few of them."""

    def __init__(self, rows: tuple[Row, ...], context: Context) -> None:
        self._rows = rows
        self._context = context
        self._found: dict[tuple[str, tuple[str, str]], tuple[Plugin, ...]] = {}

    async def run(self, asked: Attributes) -> None:
        """Ask every plugin that looks at this write, in order; the first refusal ends it."""
        key = (asked.operation, asked.kind.resource)
        plugins = self._found.get(key)
        if plugins is None:
            plugins = self._found[key] = tuple(
                row.plugin
                for row in self._rows
                if asked.operation in row.operations and (not row.resources or asked.kind.resource in row.resources)
            )
        for plugin in plugins:
            waiting = plugin(asked, self._context)
            if waiting is not None:
                await waiting
