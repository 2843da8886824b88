# SPDX-License-Identifier: Apache-2.0
"""Station: may they? Asks the rules in order; the first opinion wins, and no opinion at all is a refusal.

It turns a verdict into a 403 in Kubernetes' words. It decides nothing itself.
"""

from __future__ import annotations

from handfast.api import status
from handfast.apiserver import authn, request
from handfast.rules import access, decision


def authorise(user: authn.User, info: request.RequestInfo) -> decision.Approve:
    """Returns the yes, or raises the 403 with its reason."""
    asked = access.Attributes(
        user=user.name,
        groups=user.groups,
        verb=info.verb,
        is_resource=info.is_resource,
        path=info.path,
        group=info.group,
        version=info.version,
        plural=info.plural,
        subresource=info.subresource,
        namespace=info.namespace,
        name=info.name,
    )
    verdict = access.decide(asked)
    if isinstance(verdict, decision.Approve):
        return verdict
    raise Refusal(info, verdict)


class Refusal(status.StatusError):
    """403 in Kubernetes' words; `why` is the rule's own word, for the log and the metric."""

    def __init__(self, info: request.RequestInfo, verdict: decision.NotMine) -> None:
        if info.is_resource:
            said = status.forbidden(info.plural, info.group, info.name, verdict.sentence)
            super().__init__("Forbidden", said.message, name=said.name, group=said.group, kind=said.kind)
        else:
            super().__init__("Forbidden", f"forbidden: {verdict.sentence}")
        self.why = verdict.reason
