# SPDX-License-Identifier: Apache-2.0
"""Questions asked as objects: who does this token belong to, who am I, may somebody do something, what may I do.

The answers come from the same authenticator and authorizers that judge requests, so a review never disagrees with what
would happen. Nothing is stored. A TokenReview is answered with its token, as in Kubernetes: typed clients require it. Whoever
gets it sent it, and no body is in the audit log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from handfast.api import objects, selectors, status
from handfast.apiserver import calls, identity
from handfast.apiserver.access import authn
from handfast.rules import access, decision, user_names
from handfast.rules.rbac import policy as rbac_policy
from handfast.rules.rbac import policy_rules
from handfast.runtime import clock as clocks

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_MANY = 1000


class Reviews:
    """Answers reviews; `handlers` finds the one for a resource."""

    def __init__(
        self,
        authenticator: authn.Authenticator,
        authorizers: access.Authorizers,
        policy: rbac_policy.Policy,
        clock: clocks.Clock,
    ) -> None:
        self._authenticator = authenticator
        self._authorizers = authorizers
        self._policy = policy
        self._clock = clock
        self.handlers: Mapping[tuple[str, str], Callable[[calls.Call, objects.Document], None]] = {
            (_AUTHENTICATION, "tokenreviews"): self._token_review,
            (_AUTHENTICATION, "selfsubjectreviews"): self._self_subject_review,
            (_AUTHORIZATION, "subjectaccessreviews"): self._subject_access_review,
            (_AUTHORIZATION, "selfsubjectaccessreviews"): self._self_access_review,
            (_AUTHORIZATION, "localsubjectaccessreviews"): self._local_access_review,
            (_AUTHORIZATION, "selfsubjectrulesreviews"): self._rules_review,
        }

    def answer(self, call: calls.Call, resource: tuple[str, str], document: objects.Document) -> objects.Document:
        """The document with its status filled in."""
        document.pop("status", None)
        self.handlers[resource](call, document)
        return document

    def _token_review(self, call: calls.Call, document: objects.Document) -> None:
        spec = _spec(document)
        token = spec.get("token") or ""
        if not token:
            raise status.bad_request("token is required for TokenReview in authentication")
        wanted = tuple(spec.get("audiences") or ()) or self._authenticator.audiences
        try:
            user, audiences = self._authenticator.reviewed(token, wanted, self._clock.now())
        except identity.Unauthorized as refused:
            told = f"[invalid bearer token, {refused.detail}]" if refused.explained else "invalid bearer token"
            document["status"] = {"user": {}, "error": told}
            call.noted = f"{refused.why}: {refused.detail}"
        else:
            document["status"] = {"authenticated": True, "user": user_info(user), "audiences": list(audiences)}

    def _self_subject_review(self, call: calls.Call, document: objects.Document) -> None:
        document["status"] = {"userInfo": user_info(call.user)}

    def _subject_access_review(self, _: calls.Call, document: objects.Document) -> None:
        _require_empty_metadata(document, "SubjectAccessReview", {})
        self._judge_other(document, "SubjectAccessReview")

    def _local_access_review(self, call: calls.Call, document: objects.Document) -> None:
        namespace = call.info.namespace
        _require_empty_metadata(document, "LocalSubjectAccessReview", {"namespace": namespace})
        spec = _spec(document)
        causes = []
        if spec.get("nonResourceAttributes"):
            text = "Invalid value: disallowed on this kind of request"
            causes.append(status.Cause("FieldValueInvalid", text, "spec.nonResourceAttributes"))
        named = (spec.get("resourceAttributes") or {}).get("namespace") or ""
        if spec.get("resourceAttributes") and named != namespace:
            text = f'Invalid value: "{named}": must match metadata.namespace'
            causes.append(status.Cause("FieldValueInvalid", text, "spec.resourceAttributes.namespace"))
        if causes:
            raise status.invalid("LocalSubjectAccessReview", _AUTHORIZATION, "", causes)
        self._judge_other(document, "LocalSubjectAccessReview")

    def _judge_other(self, document: objects.Document, kind: str) -> None:
        spec = _spec(document)
        user, groups = spec.get("user") or "", tuple(spec.get("groups") or ())
        if not user and not groups:
            text = 'Invalid value: "": at least one of user or group must be specified'
            raise status.invalid(kind, _AUTHORIZATION, "", [status.Cause("FieldValueInvalid", text, "spec.user")])
        scopes = tuple((spec.get("extra") or {}).get(access.SCOPES) or ())
        document["status"] = self._verdict(_attributes(user, groups, scopes, spec, kind))

    def _self_access_review(self, call: calls.Call, document: objects.Document) -> None:
        kind = "SelfSubjectAccessReview"
        _require_empty_metadata(document, kind, {})
        user = call.user
        scopes = user.extra.get(access.SCOPES, ())
        document["status"] = self._verdict(_attributes(user.name, user.groups, scopes, _spec(document), kind))

    def _verdict(self, attributes: access.Attributes) -> dict[str, Any]:
        verdict = self._authorizers.decide(attributes)
        answer: dict[str, Any] = {"allowed": isinstance(verdict, decision.Approve)}
        if isinstance(verdict, decision.Deny):
            answer["denied"] = True
        if verdict.sentence:
            answer["reason"] = verdict.sentence
        return answer

    def _rules_review(self, call: calls.Call, document: objects.Document) -> None:
        namespace = _spec(document).get("namespace") or ""
        if not namespace:
            raise status.bad_request("no namespace on request")
        user = call.user
        rules = self._policy.rules_for(user.name, user.groups, namespace)
        if access.MASTERS in user.groups:
            # They need no binding for this. Where they have one, its rule is not listed twice.
            rules = [*policy_rules.FULL, *(rule for rule in rules if rule not in policy_rules.FULL)]
        resources = [rule for rule in rules if rule.resources]
        paths = [rule for rule in rules if rule.non_resource_urls]
        answer: dict[str, Any] = {
            "resourceRules": [
                _compact(
                    verbs=rule.verbs,
                    apiGroups=rule.api_groups,
                    resources=rule.resources,
                    resourceNames=rule.resource_names,
                )
                for rule in resources
            ],
            "nonResourceRules": [_compact(verbs=rule.verbs, nonResourceURLs=rule.non_resource_urls) for rule in paths],
            "incomplete": False,
        }
        incomplete = []
        if user_names.node(user.name, user.groups) is not None:
            incomplete.append("node authorizer does not support user rule resolution")
        if user.extra.get(access.SCOPES):
            incomplete.append("the scopes of the credential limit these rules")
        if incomplete:
            answer["incomplete"] = True
            answer["evaluationError"] = "; ".join(incomplete)
        document["status"] = answer


def user_info(user: identity.User) -> dict[str, Any]:
    """A UserInfo document."""
    info: dict[str, Any] = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


def _compact(**lists: Sequence[str]) -> dict[str, list[str]]:
    return {key: list(values) for key, values in lists.items() if values}


def _spec(document: objects.Document) -> dict[str, Any]:
    spec = document.get("spec")
    return spec if isinstance(spec, dict) else {}


def _require_empty_metadata(document: objects.Document, kind: str, allowed: Mapping[str, str]) -> None:
    """Nothing is stored, so a name would promise what is not kept."""
    metadata = document.get("metadata") or {}
    rest = {
        key: value
        for key, value in metadata.items()
        if value and key != "managedFields" and not (key in allowed and value == allowed[key])
    }
    if rest:
        text = f"Invalid value: {sorted(rest)}: must be empty"
        raise status.invalid(kind, _AUTHORIZATION, "", [status.Cause("FieldValueInvalid", text, "metadata")])


def _attributes(
    user: str, groups: tuple[str, ...], scopes: tuple[str, ...], spec: Mapping[str, Any], kind: str
) -> access.Attributes:
    resource, path = spec.get("resourceAttributes") or {}, spec.get("nonResourceAttributes") or {}
    if resource and path:
        text = "Invalid value: cannot be specified in combination with resourceAttributes"
        cause = status.Cause("FieldValueInvalid", text, "spec.nonResourceAttributes")
        raise status.invalid(kind, _AUTHORIZATION, "", [cause])
    if not resource and not path:
        text = "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        cause = status.Cause("FieldValueInvalid", text, "spec.resourceAttributes")
        raise status.invalid(kind, _AUTHORIZATION, "", [cause])
    if path:
        return access.Attributes(user, groups, path.get("verb") or "", False, path.get("path") or "", scopes=scopes)
    return access.Attributes(
        user,
        groups,
        resource.get("verb") or "",
        True,
        group=resource.get("group") or "",
        version=resource.get("version") or "*",
        plural=resource.get("resource") or "",
        subresource=resource.get("subresource") or "",
        namespace=resource.get("namespace") or "",
        name=resource.get("name") or "",
        fields=_fields(resource.get("fieldSelector") or {}),
        scopes=scopes,
    )


def _fields(selector: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The equalities of a FieldSelectorAttributes: a part that is not understood only ever allows less."""
    if raw := selector.get("rawSelector"):
        return tuple((term.field, term.value) for term in selectors.parse_fields(raw).terms if term.equal)
    rows = (selector.get("requirements") or ())[:_MANY]
    return tuple(
        (row["key"], row["values"][0])
        for row in rows
        if row.get("operator") == "In" and len(row.get("values") or ()) == 1 and row.get("key")
    )
