# SPDX-License-Identifier: Apache-2.0
"""A certificate of the ledger as pages show it: its facts, its bar, and the steps to its request, rule, token and who made that. It judges nothing."""

from __future__ import annotations

from typing import Any

from handfast.bootstrap import tokens
from handfast.console import known as known_module
from handfast.console import needs
from handfast.rules import user_names
from handfast.rules.console import ledger_index, timeline, trails
from handfast.rules.ledger import entries
from handfast.rules.nodes import overview
from handfast.rules.tokens import maker


def shown(known: known_module.Known, line: ledger_index.Line, axis: timeline.Axis) -> dict[str, Any]:
    """One line of the ledger, for a template; `entry` is None where no rule can read it."""
    entry = line.entry
    bar: timeline.Bar | None = None
    trail: tuple[trails.Step, ...] = ()
    if entry is not None:
        bar = timeline.bar(axis, entry.issued_at, overview.window(entry), entry.not_after)
        trail = trails.trail(entry, _facts(known, entry))
    return {"line": line, "entry": entry, "bar": bar, "trail": trail}


def _facts(known: known_module.Known, entry: entries.Entry) -> trails.Facts:
    requests, secrets = known.of(needs.REQUESTS), known.of(needs.TOKENS)
    joined_with, joined_by = (
        ("", "") if entry.authenticated_by == entries.BOOTSTRAP_TOKEN else _joined_with(known, entry.requester)
    )
    token_id = joined_with or entry.token_id
    token = secrets.get(tokens.NAMESPACE, tokens.secret_name(token_id)) if token_id else None
    return trails.Facts(
        request_there=requests.get("", entry.request) is not None if known.trouble(needs.REQUESTS) is None else None,
        token_there=token is not None if known.trouble(needs.TOKENS) is None else None,
        made_by=entry.token_maker or joined_by or ("" if token is None else maker.of(token.document())),
        joined_with=joined_with,
    )


def _joined_with(known: known_module.Known, requester: str) -> tuple[str, str]:
    """The token with which the node joined that asked for this one itself, and who made it; empty: that is not on record."""
    node = requester.removeprefix(user_names.NODE_PREFIX)
    record = known.fleet.table.get(node) if node != requester else None
    if record is None or not record.came_by.startswith(overview.BY_TOKEN):
        return "", ""
    return record.came_by.removeprefix(overview.BY_TOKEN), record.token_maker
