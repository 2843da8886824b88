# SPDX-License-Identifier: Apache-2.0
"""Policies of the mesh as Envoy enforces them: rules of a port become who is permitted. It sends nothing, and knows no Envoy that runs.

1. Where nobody is restricted, everybody may; where an identity is required, everybody who has one.
2. Where somebody is, one row has to fit. A row for everybody is everybody, or everybody with an identity where one is required.
3. Every port that policies name has its rules, and port 0 those of all others. A port that probes ask has its rules, too, and open paths.
4. Before any policy is known the default counts: `all-unauthenticated`, `all-authenticated`, and whatever else is nobody.
5. What the policy service answered for a port counts before the policies of the workload are known, and its open paths after that, too.
6. What is in audit is counted where a client is let in now, and would be refused. Rows of enforcing policies are rows in audit, too: so where rows say
   who is let in, nobody of them would be refused. Where an identity is required now, who has none is refused anyway.
7. While it is not known who is denied, nobody is let in by a name: it might be a denied one. Where everybody may call, a denied client could come without.

A property test holds `permits` and `policy.Rules.decide` together, and what is in audit with `policy.PortRules.would_refuse`: tests/properties/test_mesh_enforcement_properties.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from handfast.rules.envoy import judging
from handfast.rules.mesh import policy, settings

_DEFAULTS: Final = {
    settings.EVERYBODY: judging.EVERYBODY,
    settings.EVERY_WORKLOAD: judging.Permits(identified=True),
}


def permits(rules: policy.Rules) -> judging.Permits:
    """Who is let in by the rules of one port."""
    # 1. nobody is restricted; 2. or one row has everybody
    if not rules.restricted or any(permit.anyone for permit in rules.permits):
        return judging.Permits(identified=True) if rules.needs_identity else judging.EVERYBODY
    # 2. names have an identity anyway
    return judging.Permits(
        names=frozenset(permit.identity for permit in rules.permits if permit.identity),
        suffixes=tuple(sorted({permit.suffix for permit in rules.permits if permit.suffix})),
    )


def by_policy(compiled: policy.Compiled, port: int, paths: tuple[str, ...] = ()) -> judging.PortJudgement:
    """What holds for one port by the policies of its workload."""
    rules = compiled.inbound(port)
    enforced = permits(rules.enforced)
    audited = None if rules.audited is None else _audited(enforced, permits(rules.audited))
    return judging.PortJudgement(port=port, permits=enforced, audited=audited, open_paths=paths)


def _audited(enforced: judging.Permits, audited: judging.Permits) -> judging.Permits | None:
    # 6. who is let in now, and would be refused
    if not (enforced.anyone or enforced.identified):
        return None
    return dataclasses.replace(audited, anonymous=enforced.identified)


def by_default(default: str, port: int) -> judging.PortJudgement:
    """What holds for one port before its policies are known (4)."""
    return judging.PortJudgement(port=port, permits=_DEFAULTS.get(default, judging.Permits()), reason=judging.NOT_KNOWN)


def rows(
    number: int,
    default: str,
    compiled: policy.Compiled | None,
    answers: Mapping[int, judging.PortJudgement],
    *,
    awaits_denials: bool = False,
) -> tuple[judging.PortJudgement, ...]:
    """What holds for a port, or for all of them (port 0), by policies, else by what the policy service answered, else by default.

    `awaits_denials` says that there will be a deny list, which is not known (7).
    """
    known = (number,) if number != policy.OTHER_PORTS else _numbers(compiled, answers)
    judged = (_row(each, default, compiled, answers.get(each)) for each in known)
    return tuple(map(_unnamed, judged) if awaits_denials else judged)


def _numbers(compiled: policy.Compiled | None, answers: Iterable[int]) -> tuple[int, ...]:
    # 3. those with rules of their own, those of which something is known, and port 0
    ruled = () if compiled is None else (rules.port for rules in compiled.ports)
    return tuple(sorted({policy.OTHER_PORTS, *ruled, *answers}))


def _unnamed(row: judging.PortJudgement) -> judging.PortJudgement:
    # 7. nobody by a name
    if row.permits.anyone:
        return row
    return dataclasses.replace(row, permits=judging.Permits(), reason=judging.NOT_KNOWN)


def _row(
    number: int, default: str, compiled: policy.Compiled | None, answer: judging.PortJudgement | None
) -> judging.PortJudgement:
    if compiled is None:
        return answer or by_default(default, number)
    # 5. probes are the policy service's to say
    return by_policy(compiled, number, () if answer is None else answer.open_paths)
