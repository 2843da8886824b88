# SPDX-License-Identifier: Apache-2.0
"""Station: may they? Asks the authorizers in order; the first opinion wins, and no opinion at all is a refusal.

It turns a request into the facts that access is decided by, and a refusal into a 403 in Kubernetes' words. It decides
nothing itself: see `rules.access`.
"""

from __future__ import annotations

from handfast.api import status
from handfast.apiserver import identity, request
from handfast.rules import access, decision


def attributes(user: identity.User, info: request.RequestInfo) -> access.Attributes:
    """The facts of a request."""
    return access.Attributes(
        user.name,
        user.groups,
        info.verb,
        info.is_resource,
        info.path,
        info.group,
        info.version,
        info.plural,
        info.subresource,
        info.namespace,
        info.authorised_name if info.fields else info.name,
        info.fields,
        user.extra.get(access.SCOPES, ()),
    )


def require(authorizers: access.Authorizers, attributes: access.Attributes) -> decision.Approve:
    """Returns the yes, or raises the 403 with its reason."""
    verdict = authorizers.decide(attributes)
    if isinstance(verdict, decision.Approve):
        return verdict
    raise Refusal(attributes, verdict)


class Refusal(status.StatusError):
    """403 in Kubernetes' words; `why` is the rule's own word, for the log and the metric, `sentence` says it to a person."""

    def __init__(self, attributes: access.Attributes, verdict: decision.Deny | decision.NotMine) -> None:
        sentence = access.refusal(attributes, verdict)
        if attributes.is_resource:
            said = status.forbidden(attributes.plural, attributes.group, attributes.name, sentence)
            super().__init__("Forbidden", said.message, name=said.name, group=said.group, kind=said.kind)
        else:
            super().__init__("Forbidden", f"forbidden: {sentence}")
        self.why = verdict.reason
        self.sentence = sentence
