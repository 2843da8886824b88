# SPDX-License-Identifier: Apache-2.0
"""What an admission plugin is: a row, what it sees of a write, and how it refuses. The station itself is `admission.station`.

Each plugin is a row: its name, the operations and resources it looks at, a function that returns nothing or raises, and
whether that may change the document. The rows stand, in their order, in `assembly.guard`. What a plugin decides by is in
`rules`; the rows' functions are in modules of their own.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from handfast.api import kinds, objects, status
from handfast.apiserver import identity
from handfast.apiserver.state import replica
from handfast.rules import access, decision

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
# Does what costs in proportion to the document (`calls.Call.work`).
Work = Callable[..., Awaitable[Any]]


async def here(do: Callable[..., Any], *arguments: Any) -> Any:
    """Do it at once, where it is asked for."""
    return do(*arguments)


class Write(msgspec.Struct, frozen=True):
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
    # Aside, where the document is heavy: a plugin hands over what looks at each part of it.
    work: Work = here


@dataclass(frozen=True, slots=True)
class Context:
    """What plugins may ask: the copy of the store, the authorizer, the time."""

    replica: replica.Replica
    decide: access.Ask
    now: Callable[[], datetime.datetime]

    def find(self, prefix: str, namespace: str, name: str) -> objects.Document | None:
        """A fresh copy of one object, by where it is stored (`core/pods/`); None if there is none."""
        item = self.replica.collection(prefix).get(namespace, name)
        return None if item is None else item.document()

    def of(self, user: identity.User) -> Context:
        """The same for this user: whatever is asked of the authorizer in their name is limited by their scopes."""
        scopes = user.extra.get(access.SCOPES)
        if not scopes:
            return self
        decide = self.decide
        return replace(self, decide=lambda question: decide(msgspec.structs.replace(question, scopes=scopes)))


# Most answer at once. One that has to wait returns something to await.
Plugin = Callable[[Write, Context], Awaitable[None] | None]


class Row(msgspec.Struct, frozen=True):
    """One plugin. Without `resources` it looks at every resource; with `changes` it may change the document."""

    name: str
    operations: frozenset[str]
    plugin: Plugin
    resources: frozenset[tuple[str, str]] = frozenset()
    changes: bool = False


class Chain:
    """Rows in order, found by operation and resource: most writes concern few of them."""

    def __init__(self, rows: tuple[Row, ...], context: Context) -> None:
        self._rows = rows
        self._context = context
        self._remembered: dict[tuple[str, tuple[str, str]], tuple[Plugin, ...]] = {}

    async def run(self, write: Write) -> None:
        """Ask every plugin that looks at this write, in order; the first refusal ends it."""
        context = self._context.of(write.user)
        for plugin in self._concerned(write):
            waiting = plugin(write, context)
            if waiting is not None:
                await waiting

    def _concerned(self, write: Write) -> tuple[Plugin, ...]:
        """The plugins that look at such a write."""
        key = (write.operation, write.kind.resource)
        concerned = self._remembered.get(key)
        if concerned is None:
            concerned = tuple(
                row.plugin
                for row in self._rows
                if write.operation in row.operations and (not row.resources or write.kind.resource in row.resources)
            )
            self._remembered[key] = concerned
        return concerned


class Refusal(status.StatusError):
    """403 in Kubernetes' words; `why` is the rule's own word, for the log, the metric and the audit line."""

    def __init__(self, write: Write, verdict: decision.Deny, causes: Sequence[status.Cause] = ()) -> None:
        said = status.forbidden(write.kind.plural, write.kind.group, write.name, verdict.sentence)
        super().__init__("Forbidden", said.message, name=said.name, group=said.group, kind=said.kind, causes=causes)
        self.why = verdict.reason
        # What was refused, as far as it had come.
        self.written = write.document


def require(write: Write, verdict: decision.Decision | None) -> None:
    """Return unless the verdict is no. Then it is a 403 with its reason, or a 404 if what the write is about is missing."""
    if isinstance(verdict, decision.Missing):
        raise status.not_found(verdict.kind, "", verdict.name)
    if isinstance(verdict, decision.Deny):
        raise Refusal(write, verdict)
