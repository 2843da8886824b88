# SPDX-License-Identifier: Apache-2.0
"""What admission policies say of a certificate request, for `handfast csr explain`: fetched, and shown. `rules.policies` explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from handfast import errors
from handfast.cli import output

if TYPE_CHECKING:
    from handfast.api import signing_requests
    from handfast.client import api
    from handfast.rules.policies import explanation


async def rows(client: api.Client, request: signing_requests.Request) -> list[explanation.Row]:
    """What each policy says of it, as far as the caller may read policies."""
    from handfast.api import resources
    from handfast.rules.policies import explanation

    try:
        policies = await client.list(resources.VALIDATING_ADMISSION_POLICIES)
        bindings = await client.list(resources.VALIDATING_ADMISSION_POLICY_BINDINGS) if policies else []
    except (errors.Refused, errors.Unavailable) as error:
        output.note(f"admission policies could not be read: {error.message}")
        return []
    return explanation.explain(policies, bindings, request.document())


def documents(listed: Sequence[explanation.Row]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {
            "policy": row.policy,
            "binding": row.binding,
            "operation": row.operation,
            "actions": list(row.actions),
            "result": row.result,
            "expression": row.expression,
            "message": row.message,
            "part": row.part,
            "inputs": dict(row.inputs),
        }
        for row in listed
    ]


def show(listed: Sequence[explanation.Row]) -> None:
    """The same for people: a line each, and below those that do not hold what they saw."""
    for row in listed:
        where = f"policy {row.policy}, binding {row.binding} ({', '.join(row.actions)}), on {row.operation}"
        lines = [f"{where}: {row.result}{f': {row.message}' if row.message else ''}", f"  expression: {row.expression}"]
        if row.part and row.part != row.expression:
            lines.append(f"  false part: {row.part}")
        lines += [f"  {name} = {value}" for name, value in row.inputs]
        # Whoever sent the request chose much of this: a line break in it must not begin a line.
        output.result("\n".join(map(output.printable, lines)))
