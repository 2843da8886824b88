# SPDX-License-Identifier: Apache-2.0
"""Rules of one port as a stock proxy understands them: a list of authorizations, of which the first that fits counts. No messages.

A stock proxy knows no conditions, only permissions: whoever fits none is refused. So a condition is written into each permission.

1. Where nobody is restricted, one authorization has everybody; where an identity is required, everybody who has one.
2. Where an identity is required, "everybody" is everybody who has one. The names of a row have one anyway.
3. The proxy logs and counts what it lets in by an authorization called `audit`. It is the last, and has whoever is let in now and would be
   refused if what is in audit were enforced.

Nobody is let in by this list who is refused by the rules, and nobody refused who is let in: a property test says so.
A stock proxy lets in whatever comes from its own Pod, before it looks at any of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from handfast.rules.mesh import policy

AUDIT: Final = "audit"
EVERYBODY: Final = "all-unauthenticated"
IDENTIFIED: Final = "all-authenticated"


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """Who is let in by it: everybody, or clients by names, and by what names end in; an empty ending is any name.

    `policy` is whose it is, as namespace/name; `default` is what it is called where it is of none.
    """

    policy: str = ""
    default: str = ""
    anyone: bool = False
    identities: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


def of(rules: policy.PortRules) -> tuple[Authorization, ...]:
    """The list for one port."""
    enforced, audited = rules.enforced, rules.audited
    now = _allowed(enforced, needs_identity=enforced.needs_identity)
    if audited is None:
        return now
    # 3. what would be refused by names comes last; what is restricted already has every row of it
    base = enforced if enforced.restricted else audited
    first = _allowed(base, needs_identity=audited.needs_identity)
    told = [each for each in now if each not in first and (each.anyone or not enforced.restricted)]
    return (*first, *(_as_audit(each) for each in told[:1]))


def _allowed(rules: policy.Rules, *, needs_identity: bool) -> tuple[Authorization, ...]:
    # 1. everybody, or everybody with an identity
    if not rules.restricted:
        return (_everybody("", needs_identity=needs_identity),)
    rows: list[Authorization] = []
    by_policy: dict[str, list[policy.Permit]] = {}
    for permit in rules.permits:
        by_policy.setdefault(permit.policy, []).append(permit)
    for title, permits in by_policy.items():
        # 2. everybody who has one
        if any(permit.anyone for permit in permits):
            rows.append(_everybody(title, needs_identity=needs_identity))
        else:
            rows.append(_named(title, permits))
    return tuple(rows)


def _everybody(title: str, *, needs_identity: bool) -> Authorization:
    default = "" if title else IDENTIFIED if needs_identity else EVERYBODY
    return Authorization(
        policy=title, default=default, anyone=not needs_identity, suffixes=("",) if needs_identity else ()
    )


def _named(title: str, permits: Iterable[policy.Permit]) -> Authorization:
    return Authorization(
        policy=title,
        identities=tuple(dict.fromkeys(permit.identity for permit in permits if permit.identity)),
        suffixes=tuple(dict.fromkeys(permit.suffix for permit in permits if permit.suffix)),
    )


def _as_audit(each: Authorization) -> Authorization:
    return Authorization(default=AUDIT, anyone=each.anyone, suffixes=each.suffixes)
