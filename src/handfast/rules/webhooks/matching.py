# SPDX-License-Identifier: Apache-2.0
"""Which admission webhooks a write concerns, and which of them are asked twice.

It calls nobody: the dispatcher (`apiserver.admission.webhooks`) does what is decided here. What answers mean is `webhooks.answers`.

Whether a webhook is asked (`matched`, then `selects`; all must hold):

1. The write is not one to a webhook configuration or an admission policy: nobody may lock these against repair.
2. One of the rules covers operation, group, version, resource (with its subresource) and scope; under the match policy
   Equivalent, the same object under another of its names will do, and is then sent under that name.
3. The namespace selector selects the labels of the object's namespace (its own, for a Namespace); it is not applied
   to other objects without a namespace.
4. The object selector selects the new or the old object.

`matchConditions` are CEL, which is not evaluated: a webhook that has some is asked about every write that the rest of
it selects. It sees more than it wants to, never less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from handfast.api import jsonpath, kinds, objects
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
    if names[0].resource in _EXEMPT:
        return None
    # 2. a rule covers it, under one of its names
    for kind in names[:1] if webhook.exact else names:
        if any(_covers(rule, operation, kind, subresource) for rule in webhook.rules):
            return kind
    return None


def _covers(rule: configurations.Rule, operation: str, kind: kinds.Kind, subresource: str) -> bool:
    if rule.scope not in {"*", "Namespaced" if kind.namespaced else "Cluster"}:
        return False
    for allowed, wanted in ((rule.operations, operation), (rule.groups, kind.group), (rule.versions, kind.version)):
        if wanted not in allowed and "*" not in allowed:
            return False
    return any(plural in {"*", kind.plural} and named in {subresource, "*"} for plural, named in rule.resources)


def selects(
    webhook: configurations.Webhook,
    namespace: Mapping[str, str] | None,
    documents: Iterable[objects.Document | None],
) -> bool:
    """`namespace` is its labels, None for an object that is in none; `documents` are the new object and the old."""
    # 3. the namespace is selected
    if namespace is not None and not webhook.namespace_selector.match(namespace):
        return False
    # 4. the object is selected
    selector = webhook.object_selector
    return selector.empty or any(selector.match(named) for named in map(labels, documents) if named is not None)


def labels(document: objects.Document | None) -> dict[str, str] | None:
    """The labels of what can have labels; what has no metadata cannot."""
    if not isinstance(jsonpath.at(document, "metadata"), dict):
        return None
    return {key: str(value) for key, value in jsonpath.mapping(document, "metadata", "labels").items()}


class Rounds:
    """Which webhooks the second round asks: those with reinvocationPolicy IfNeeded after which something changed."""

    def __init__(self) -> None:
        self._asked: set[tuple[str, int]] = set()
        self._again: set[tuple[str, int]] = set()

    def answered(self, webhook: configurations.Webhook, *, changed: bool) -> None:
        if changed:
            self.changed_by_others()
        if webhook.reinvoked:
            self._asked.add(webhook.key)

    def changed_by_others(self) -> None:
        """The object is no longer what those asked so far have seen."""
        self._again |= self._asked

    def again(self, webhook: configurations.Webhook) -> bool:
        return webhook.key in self._again
