# SPDX-License-Identifier: Apache-2.0
"""Which admission webhooks a write concerns, and which of them are asked twice.

It calls nobody: the dispatcher (`apiserver.admission.webhooks`) does what is decided here. What answers mean is `webhooks.answers`.

Whether a webhook is asked (`matched`, then `selects`; all must hold):

1. The write is not one to a webhook configuration or an admission policy: nobody may lock these against repair. Nor is it a new
   Revocation: nobody may keep somebody else from being revoked, and a webhook that is down keeps nobody in. Taking one back is judged.
2. One of the rules covers operation, group, version, resource (with its subresource) and scope; under the match policy
   Equivalent, the same object under another of its names will do, and is then sent under that name.
3. The namespace selector selects the labels of the object's namespace (its own, for a Namespace); it is not applied
   to other objects without a namespace.
4. The object selector selects the new or the old object.

The dispatcher evaluates `matchConditions`, in CEL, of those that are left (`rules.policies.verdicts.conditions_hold`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from handfast.api import handfast_kinds, jsonpath, kinds, objects, selectors
from handfast.rules.webhooks import configurations

_GROUP = "admissionregistration.k8s.io"
_EXEMPT = frozenset(
    (_GROUP, plural)
    for plural in (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    )
)
NAMESPACES = ("", "namespaces")


def matched(
    webhook: configurations.Webhook, operation: str, names: Sequence[kinds.Kind], subresource: str
) -> kinds.Kind | None:
    """The name under which the webhook is to see the object; None: not at all.

    `names` are the kind that the request names, and after it other kinds that show the same objects.
    """
    # 1. nobody locks webhooks against repair
    if is_exempt(names[0], operation):
        return None
    # 2. a rule covers it, under one of its names
    for kind in names[:1] if webhook.exact else names:
        if any(covers(rule, operation, kind, subresource) for rule in webhook.rules):
            return kind
    return None


def is_exempt(kind: kinds.Kind, operation: str) -> bool:
    """Whether such writes are nobody's to refuse, or to change."""
    return kind.resource in _EXEMPT or (kind.resource == handfast_kinds.REVOCATIONS and operation == "CREATE")


def covers(rule: configurations.Rule, operation: str, kind: kinds.Kind, subresource: str) -> bool:
    """Whether a rule is about such a write."""
    if rule.scope not in {"*", "Namespaced" if kind.namespaced else "Cluster"}:
        return False
    for allowed, wanted in ((rule.operations, operation), (rule.groups, kind.group), (rule.versions, kind.version)):
        if wanted not in allowed and "*" not in allowed:
            return False
    return any(plural in {"*", kind.plural} and named in {subresource, "*"} for plural, named in rule.resources)


class Selecting(Protocol):
    """What has selectors: a webhook, or a policy."""

    @property
    def namespace_selector(self) -> selectors.LabelSelector: ...

    @property
    def object_selector(self) -> selectors.LabelSelector: ...


def selects(
    chooser: Selecting,
    namespace: Mapping[str, str] | None,
    documents: Iterable[objects.Document | None],
) -> bool:
    """`namespace` is its labels, None for an object that is in none; `documents` are the new object and the old."""
    # 3. the namespace is selected
    if namespace is not None and not chooser.namespace_selector.match(namespace):
        return False
    # 4. the object is selected
    selector = chooser.object_selector
    return selector.empty or any(selector.match(named) for named in map(labels, documents) if named is not None)


def labels(document: objects.Document | None) -> dict[str, str] | None:
    """The labels of what can have labels; what has no metadata cannot."""
    if not isinstance(jsonpath.at(document, "metadata"), dict):
        return None
    return {key: str(value) for key, value in jsonpath.mapping(document, "metadata", "labels").items()}


class Asked(Protocol):
    """What is asked about a write, and perhaps twice: a webhook, or a mutating policy under a binding."""

    @property
    def key(self) -> Hashable: ...

    @property
    def reinvoked(self) -> bool: ...


class Rounds:
    """Whom the second round asks: those with reinvocationPolicy IfNeeded after which something changed."""

    def __init__(self) -> None:
        self._asked: set[Hashable] = set()
        self._again: set[Hashable] = set()

    def answered(self, webhook: Asked, *, changed: bool) -> None:
        if changed:
            self.changed_by_others()
        if webhook.reinvoked:
            self._asked.add(webhook.key)

    def changed_by_others(self) -> None:
        """The object is no longer what those asked so far have seen."""
        self._again |= self._asked

    def again(self, webhook: Asked) -> bool:
        return webhook.key in self._again
