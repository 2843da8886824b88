# SPDX-License-Identifier: Apache-2.0
"""Which roles allow this: the rules of many roles, turned around, so that a question costs a few dictionary lookups.

A rule is taken apart into single permissions (verb, group, resource, name), and each remembers the roles that give it.
What a permission means is in `rbac.policy_rules`. It does not know who is bound to a role.

Taking apart multiplies: a few hundred words in each list of one rule would be millions of permissions, and whoever may
write a role could fill the memory. Above a budget for each role, rules stay whole and are read when asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import TypeVar

from handfast.rules.rbac import policy_rules

_K = TypeVar("_K", bound=Hashable)

# Permissions of one role that are taken apart; the largest default role (`admin`) has about a thousand.
BUDGET = 4096


class _Cell:
    """Who gives one verb on one resource: for every name, and for single ones."""

    __slots__ = ("every", "named")

    def __init__(self) -> None:
        self.every: set[str] = set()
        self.named: dict[str, set[str]] = {}


class Grants:
    """Permissions -> roles, where a role is any word."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str, str], _Cell] = {}
        self._paths: dict[tuple[str, str], set[str]] = {}
        self._prefixes: dict[tuple[str, str], set[str]] = {}
        # How many entries of `_prefixes` have a prefix of this length: only these need to be tried.
        self._lengths: dict[int, int] = {}
        # The rules over the budget, by role.
        self.whole: dict[str, tuple[policy_rules.Sets, ...]] = {}

    def add(self, role: str, rules: Collection[policy_rules.PolicyRule]) -> None:
        """Take the rules of a role in; a role is taken in once."""
        apart, whole = _budgeted(rules)
        if whole:
            self.whole[role] = tuple(map(_sets, whole))
        for rule in apart:
            for key in _keys(rule):
                cell = self._cells.get(key)
                if cell is None:
                    cell = self._cells[key] = _Cell()
                for name in rule.resource_names:
                    cell.named.setdefault(name, set()).add(role)
                if not rule.resource_names:
                    cell.every.add(role)
            for verb in rule.verbs:
                for url in rule.non_resource_urls:
                    self._add_path(role, verb, url)

    def _add_path(self, role: str, verb: str, url: str) -> None:
        prefix = policy_rules.path_prefix(url)
        if prefix is None:
            self._paths.setdefault((verb, url), set()).add(role)
            return
        key = (verb, prefix)
        if key not in self._prefixes:
            self._prefixes[key] = set()
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        self._prefixes[key].add(role)

    def remove(self, role: str, rules: Collection[policy_rules.PolicyRule]) -> None:
        """Take the rules of a role out, all that were taken in."""
        self.whole.pop(role, None)
        for rule in _budgeted(rules)[0]:
            for key in _keys(rule):
                self._forget(key, role, rule.resource_names)
            for verb in rule.verbs:
                for url in rule.non_resource_urls:
                    self._remove_path(role, verb, url)

    def _forget(self, key: tuple[str, str, str], role: str, names: tuple[str, ...]) -> None:
        cell = self._cells.get(key)
        if cell is None:
            return  # two rules of the role say the same
        for name in names:
            _discard(cell.named, name, role)
        if not names:
            cell.every.discard(role)
        if not cell.every and not cell.named:
            del self._cells[key]

    def _remove_path(self, role: str, verb: str, url: str) -> None:
        prefix = policy_rules.path_prefix(url)
        if prefix is None:
            _discard(self._paths, (verb, url), role)
        elif _discard(self._prefixes, (verb, prefix), role):
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]

    def on_resource(self, verb: str, group: str, words: tuple[str, ...], name: str | None) -> Iterator[Collection[str]]:
        """The roles that allow this, set by set; `words` are those of `rbac.resource_words`, None asks for every name."""
        cells = self._cells
        for a_verb in (verb, policy_rules.ALL):
            for a_group in (group, policy_rules.ALL):
                for word in words:
                    cell = cells.get((a_verb, a_group, word))
                    if cell is None:
                        continue
                    if cell.every:
                        yield cell.every
                    if name is not None and name in cell.named:
                        yield cell.named[name]

    def on_path(self, verb: str, path: str) -> Iterator[Collection[str]]:
        """The roles that allow a verb on a path, set by set."""
        for a_verb in (verb, policy_rules.ALL):
            roles = self._paths.get((a_verb, path))
            if roles is not None:
                yield roles
            for length in self._lengths:
                if length <= len(path):
                    roles = self._prefixes.get((a_verb, path[:length]))
                    if roles is not None:
                        yield roles


def size(rules: Collection[policy_rules.PolicyRule]) -> int:
    """How many permissions the rules of a role are taken apart into; one at least, since a role is one entry."""
    return max(1, sum(rule.size for rule in _budgeted(rules)[0]))


def _keys(rule: policy_rules.PolicyRule) -> Iterator[tuple[str, str, str]]:
    for verb in rule.verbs:
        for group in rule.api_groups:
            for resource in rule.resources:
                yield (verb, group, resource)


def _budgeted(
    rules: Collection[policy_rules.PolicyRule],
) -> tuple[list[policy_rules.PolicyRule], tuple[policy_rules.PolicyRule, ...]]:
    """Rules to take apart, and rules to keep whole: always the same ones for the same rules."""
    apart, whole, left = [], [], BUDGET
    for rule in dict.fromkeys(rules):
        if rule.size <= left:
            left -= rule.size
            apart.append(rule)
        else:
            whole.append(rule)
    return apart, tuple(whole)


def _sets(rule: policy_rules.PolicyRule) -> policy_rules.Sets:
    values = (rule.verbs, rule.api_groups, rule.resources, rule.resource_names, rule.non_resource_urls)
    return policy_rules.Sets(*map(frozenset, values))


def _discard(index: dict[_K, set[str]], key: _K, role: str) -> bool:
    """Whether the entry went with its last role."""
    roles = index.get(key)
    if roles is None:
        return False
    roles.discard(role)
    if roles:
        return False
    del index[key]
    return True
