# SPDX-License-Identifier: Apache-2.0
"""Nobody gives what they do not hold: which permissions of some rules are not among those of others.

1. Every wanted rule is taken apart into single permissions: verb, group, resource and name, or verb and path.
2. A permission is held if one rule of the owner covers it: each part equal or `*`; `*/scale` covers `pods/scale`; a
   rule without names covers every name, a rule with names only these; `/api/*` covers what begins so.
3. What is not held is told in Kubernetes' words, permissions on one resource put together again.
4. Rules of so many permissions that looking would stop the server are refused, unless the owner holds everything.

It does not know where rules come from, nor who may do without this check: `apiserver.admission.rbac` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from handfast import errors
from handfast.rules.rbac import grants, policy_rules

# Single permissions looked at for one request: some milliseconds, during which nobody else is served.
LIMIT = 5_000
# Lines of a refusal: who is told a hundred knows enough.
SHOWN = 100


class TooBroad(errors.Refused):
    """The rules have too many permissions to look at each."""

    reason = "RulesTooBroad"


def uncovered(
    owner: Iterable[policy_rules.PolicyRule], wanted: Iterable[policy_rules.PolicyRule]
) -> list[policy_rules.PolicyRule]:
    """The single permissions of `wanted` that `owner` does not hold."""
    held, has_every_resource, has_every_path = grants.Grants(), False, False
    for number, rule in enumerate(dict.fromkeys(owner)):
        held.add(str(number), (rule,))
        has_every_resource = has_every_resource or policy_rules.allows_resource(
            rule, policy_rules.ALL, policy_rules.ALL, (policy_rules.ALL,), None
        )
        has_every_path = has_every_path or policy_rules.allows_path(rule, policy_rules.ALL, policy_rules.ALL)
    missing: list[policy_rules.PolicyRule] = []
    left = LIMIT
    for rule in dict.fromkeys(wanted):
        if (has_every_resource or not rule.resources) and (has_every_path or not rule.non_resource_urls):
            continue
        left -= rule.size
        # 4. not so many that looking would stop the server
        if left < 0:
            raise TooBroad(
                f"the rules name more than {LIMIT} single permissions (verbs times groups times resources times names), "
                "too many to check whether they are held",
                hint='split the role, or use "*"',
            )
        missing.extend(single for single in breakdown(rule) if not _covered(held, single))
    return missing


def breakdown(rule: policy_rules.PolicyRule) -> Iterator[policy_rules.PolicyRule]:
    """The single permissions of a rule, each as a rule (1)."""
    names: tuple[tuple[str, ...], ...] = tuple((name,) for name in rule.resource_names) or ((),)
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in names:
                    yield policy_rules.PolicyRule((verb,), (group,), (resource,), name)
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield policy_rules.PolicyRule((verb,), non_resource_urls=(url,))


def _covered(held: grants.Grants, single: policy_rules.PolicyRule) -> bool:
    """Whether a single permission is held (2)."""
    verb = single.verbs[0]
    if single.non_resource_urls:
        url = single.non_resource_urls[0]
        return any(held.on_path(verb, url)) or any(
            policy_rules.allows_path(rule, verb, url) for rules in held.whole.values() for rule in rules
        )
    group, words = single.api_groups[0], policy_rules.covering_words(single.resources[0])
    name = single.resource_names[0] if single.resource_names else None
    return any(held.on_resource(verb, group, words, name)) or any(
        policy_rules.allows_resource(rule, verb, group, words, name) for rules in held.whole.values() for rule in rules
    )


def compact(rules: Iterable[policy_rules.PolicyRule]) -> list[policy_rules.PolicyRule]:
    """Permissions that differ only in the verb, as one rule (3)."""
    by_object: dict[policy_rules.PolicyRule, list[str]] = {}
    for rule in rules:
        rest = policy_rules.PolicyRule((), rule.api_groups, rule.resources, rule.resource_names, rule.non_resource_urls)
        # Kubernetes leaves paths as they are, one line for each verb.
        key = rule if rule.non_resource_urls else rest
        by_object.setdefault(key, []).extend(rule.verbs)
    return [
        policy_rules.PolicyRule(
            tuple(dict.fromkeys(verbs)), rest.api_groups, rest.resources, rest.resource_names, rest.non_resource_urls
        )
        for rest, verbs in by_object.items()
    ]


def refusal(user: str, groups: Sequence[str], missing: Iterable[policy_rules.PolicyRule]) -> str:
    """Why someone may not grant (3)."""
    lines = sorted({_compact_text(rule) for rule in compact(missing)})
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"… and {len(lines) - SHOWN} more"]
    return (
        f"user {_quoted(user)} (groups={_listed(groups)}) is attempting to grant RBAC permissions not currently held:\n"
        + "\n".join(lines)
    )


def _compact_text(rule: policy_rules.PolicyRule) -> str:
    parts = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{word}:{_listed(values)}" for word, values in parts if values) + "}"


def _listed(values: Sequence[str]) -> str:
    return "[" + " ".join(map(_quoted, values)) + "]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
