# SPDX-License-Identifier: Apache-2.0
"""One rule of a role, read from a document, and what it allows: the meaning of RBAC. `rbac.policy` knows who holds it.

A resource request is allowed if all of these hold, a request for a path if 1 and 5 do:

1. verb: named, or `*`. `get` and `head` are two verbs.
2. group: named, or `*`; the core group is the empty one.
3. resource: `*` means everything, subresources included; `pods` only the objects; `pods/log` exactly that; `*/scale`
   that subresource of every resource. `pods/*` means nothing.
4. name: any if the rule names none; otherwise one of the named, so a list or a create, which have no name, never.
5. path: named, or begins with what stands before a final `*`.

A rule that cannot be read allows nothing: a list of names with a hole in it must not come to mean all names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from handfast.api import jsonpath, selectors, status

GROUP = "rbac.authorization.k8s.io"
ALL = "*"
_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


class PolicyRule(msgspec.Struct, frozen=True, gc=False):
    """Verbs on resources, or on paths."""

    verbs: tuple[str, ...]
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As a role has it; empty lists are left out."""
        values = (self.verbs, self.api_groups, self.resources, self.resource_names, self.non_resource_urls)
        return {field: list(value) for field, value in zip(_FIELDS, values, strict=True) if value}

    @property
    def size(self) -> int:
        """How many single permissions it says, at most."""
        of_resources = len(self.api_groups) * len(self.resources) * max(1, len(self.resource_names))
        return len(self.verbs) * (of_resources + len(self.non_resource_urls))


class Sets(msgspec.Struct, frozen=True):
    """The same rule for who asks it often: lists of any length answer at once."""

    verbs: frozenset[str]
    api_groups: frozenset[str]
    resources: frozenset[str]
    resource_names: frozenset[str]
    non_resource_urls: frozenset[str]


# What `cluster-admin` may do.
FULL = (
    PolicyRule((ALL,), (ALL,), (ALL,)),
    PolicyRule((ALL,), non_resource_urls=(ALL,)),
)


def parse(rules: Any) -> tuple[PolicyRule, ...]:
    """The rules in a role's `rules`; those that cannot be read are left out."""
    if not isinstance(rules, list):
        return ()
    return tuple(rule for rule in map(_parse, rules) if rule is not None)


def _parse(document: Any) -> PolicyRule | None:
    if not isinstance(document, Mapping):
        return None
    lists = []
    for field in _FIELDS:
        values = document.get(field)
        if values is None:
            values = []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            return None
        lists.append(tuple(dict.fromkeys(values)))
    return PolicyRule(*lists)


def allows_resource(rule: PolicyRule | Sets, verb: str, group: str, words: tuple[str, ...], name: str | None) -> bool:
    """Whether the rule allows this; `words` mean the resource (`resource_words`), a name of None asks for every name."""
    # 1. the verb
    if verb not in rule.verbs and ALL not in rule.verbs:
        return False
    # 2. the group
    if group not in rule.api_groups and ALL not in rule.api_groups:
        return False
    # 3. the resource
    if not any(word in rule.resources for word in words):
        return False
    # 4. the name
    return not rule.resource_names or name in rule.resource_names


def resource_words(resource: str, subresource: str) -> tuple[str, ...]:
    """Every word in a rule's `resources` that means this resource."""
    return covering_words(f"{resource}/{subresource}" if subresource else resource)


def covering_words(word: str) -> tuple[str, ...]:
    """Every word in a rule's `resources` that covers all that `word` of another rule does."""
    _, slash, subresource = word.partition("/")
    return (word, ALL, f"*/{subresource}") if slash else (word, ALL)


def allows_path(rule: PolicyRule | Sets, verb: str, path: str) -> bool:
    """Whether the rule allows this verb on a path that is no resource."""
    # 1. the verb
    if verb not in rule.verbs and ALL not in rule.verbs:
        return False
    # 5. the path
    return any(covers_path(url, path) for url in rule.non_resource_urls)


def covers_path(url: str, path: str) -> bool:
    prefix = path_prefix(url)
    return url == path or (prefix is not None and path.startswith(prefix))


def path_prefix(url: str) -> str | None:
    """What stands before the final `*`; None if there is none."""
    return url.rstrip(ALL) if url.endswith(ALL) else None


def aggregate(role: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rules an aggregated ClusterRole should have.

    Those of every other ClusterRole that one of its selectors matches, in the order of their names, each rule once.
    """
    chosen = []
    for document in jsonpath.mappings(role, "aggregationRule", "clusterRoleSelectors"):
        try:
            chosen.append(selectors.from_label_selector(document))
        except status.StatusError:
            continue  # a selector that says nothing selects nothing
    own = jsonpath.text(role, "metadata", "name")
    matching = [
        other
        for other in others
        if jsonpath.text(other, "metadata", "name") != own
        and any(selector.match(jsonpath.mapping(other, "metadata", "labels")) for selector in chosen)
    ]
    matching.sort(key=lambda other: jsonpath.text(other, "metadata", "name"))
    rules = dict.fromkeys(rule for other in matching for rule in parse(other.get("rules")))
    return [rule.document() for rule in rules]
