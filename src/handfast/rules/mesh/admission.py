# SPDX-License-Identifier: Apache-2.0
"""What the injector answers to a review: a proxy for a Pod, an annotation for a Service, nothing, or no. It asks nobody.

1. A Pod that is to have no proxy passes as it is, with the reasons. So does what is neither a Pod nor a Service, and the mirror of a static Pod,
   which the node would run as it was all the same.
2. One that is to have a proxy, and cannot, is refused with a reason and the next step: it would run without what it was to have.
3. A Pod whose form is wrong passes where it was to have no proxy: it is not the mesh's to refuse. Else it is refused.
4. A Pod gets its own annotations about ports, else those of the namespace, else the usual ones.
5. A Service gets the annotation of opaque ports likewise, and nothing else. `linkerd.io/identity: enabled` on it is refused.
6. What its namespace and its labels are called is said by the request, and not by the object.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_admission.py |
|---|---|---|---|---|
| a tenant | an account with a dot in its name | have a proxy with somebody else's identity | 2 | test_what_cannot_be_injected_is_refused_with_its_reason |
| … | a volume `linkerd-identity-store` of its own | have the proxy's key on the node's disk | 2 | test_what_cannot_be_injected_is_refused_with_its_reason |
| … | an object that names another namespace | be labelled as a workload from there | 6 | test_the_request_says_which_namespace_it_is |
| an operator | `identity: enabled` on a Service | believe that it gives its Pods an identity | 5 | test_identity_enabled_on_a_service_is_refused |
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from handfast import errors
from handfast.api import jsonpath
from handfast.rules.mesh import admission_reviews as reviews
from handfast.rules.mesh import injectable, injection, port_annotations, sidecar, workloads
from handfast.rules.nodes import references

# Why a Service is left as it is.
NOTHING: Final = "nothing_to_annotate"
_MOST_WARNINGS: Final = 8
_MOST_SAID: Final = 1024
_DEFAULT: Final = "default"


class Result(enum.StrEnum):
    """What becomes of an object."""

    INJECTED = "injected"
    ANNOTATED = "annotated"
    SKIPPED = "skipped"
    REFUSED = "refused"


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the review: the annotations of the namespace, and the UID of the Pod's account where names have it."""

    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    uid: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered, and why: reasons that metrics count, and a sentence for people."""

    result: Result
    reasons: tuple[str, ...] = ()
    sentence: str = ""
    answer: reviews.Answer


def judge(review: reviews.Review, plan: sidecar.Plan, around: Around) -> Verdict:
    """The answer to a review."""
    try:
        if review.kind == reviews.POD and not _is_mirror(review):
            return _pod(review, plan, around)
        if review.kind == reviews.SERVICE:
            return _service(review, around)
    except errors.Refused as refused:
        # 2. it cannot, and is told why
        sentence = (f"{refused.message}; {refused.hint}" if refused.hint else refused.message)[:_MOST_SAID]
        answer = reviews.Answer(allowed=False, reason=refused.reason, message=sentence)
        return Verdict(result=Result.REFUSED, reasons=(refused.reason,), sentence=sentence, answer=answer)
    # 1. nothing that could be changed
    return _skipped((injectable.Reason.UNSUPPORTED,))


def _is_mirror(review: reviews.Review) -> bool:
    return references.MIRROR in jsonpath.mapping(review.document, "metadata", "annotations")


def account(review: reviews.Review) -> str:
    """The service account of a Pod in a review; empty for everything else."""
    spec = jsonpath.mapping(review.document, "spec")
    name = jsonpath.text(spec, "serviceAccountName") or jsonpath.text(spec, "serviceAccount") or _DEFAULT
    return name if review.kind == reviews.POD else ""


def _pod(review: reviews.Review, plan: sidecar.Plan, around: Around) -> Verdict:
    inject = around.annotations.get(injectable.INJECT, "")
    try:
        # A Pod always is one.
        workload = cast("workloads.Workload", workloads.find(review.document))
    except workloads.Misshapen:
        own = jsonpath.text(review.document, "metadata", "annotations", injectable.INJECT)
        # 3. not the mesh's to refuse
        if against := injectable.reasons(injectable.Facts(pod=own, namespace=inject, by_request=True)):
            return _skipped(against)
        raise
    own_token = plan.settings.own_token
    against = injectable.reasons(injectable.facts(workload, namespace=inject, by_request=True, own_token=own_token))
    # 1. as it is
    if against:
        return _skipped(against)
    target = sidecar.Target(
        workload=workload,
        # 6. by the request
        namespace=review.namespace,
        identity=injectable.has_identity(workload, plan.settings),
        uid=around.uid,
        # 4. its own, else the namespace's
        inherited=port_annotations.inherited(workload.annotations, around.annotations),
        owner=owner(review),
    )
    answer = reviews.Answer(
        operations=injection.operations(plan, target), warnings=_warnings(workload.annotations, around.annotations)
    )
    return Verdict(result=Result.INJECTED, answer=answer)


def owner(review: reviews.Review) -> tuple[str, str] | None:
    """Kind and name of what makes a Pod; the Deployment of a ReplicaSet that is named after its hash."""
    row = reviews.owner(review.document)
    kind, name = jsonpath.text(row, "kind"), jsonpath.text(row, "name")
    template_hash = jsonpath.text(review.document, "metadata", "labels", workloads.TEMPLATE_HASH)
    return workloads.maker(kind, name, template_hash) if kind and name else None


def _warnings(own: Mapping[str, Any], namespace: Mapping[str, str]) -> list[str]:
    keys = port_annotations.unread({**namespace, **own})
    return [f"{key[:100]} is not read by this mesh" for key in keys[:_MOST_WARNINGS]]


def _service(review: reviews.Review, around: Around) -> Verdict:
    document = review.document
    # 5. not for Services
    injectable.require_none(document)
    own = jsonpath.mapping(document, "metadata", "annotations")
    key = port_annotations.OPAQUE
    # 5. its own, else the namespace's, else the usual ones
    usual = port_annotations.usually_opaque(port_annotations.service_ports(document))
    value = port_annotations.inherited(own, around.annotations).get(key) or usual
    if key in own or not value:
        return _skipped((NOTHING,))
    parent = [] if own else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
    place = f"/metadata/annotations/{injection.escaped(key)}"
    answer = reviews.Answer(operations=[*parent, {"op": "add", "path": place, "value": value}])
    return Verdict(result=Result.ANNOTATED, answer=answer)


def _skipped(reasons: tuple[str, ...]) -> Verdict:
    words = [injectable.WORDS.get(injectable.Reason(reason), reason) for reason in reasons if reason != NOTHING]
    return Verdict(
        result=Result.SKIPPED,
        reasons=tuple(str(reason) for reason in reasons),
        sentence=", ".join(words),
        answer=reviews.Answer(),
    )
