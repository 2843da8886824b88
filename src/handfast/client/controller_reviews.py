# SPDX-License-Identifier: Apache-2.0
"""Asks the API whether controllers may do what they need, by SubjectAccessReviews. It changes nothing, and works on any API server.

1. As whom: on Handfast's own server the user that `handfast init` made, elsewhere the account of `serve controllers --print-manifest`, where it is there.
2. Each right that a controller has a list of (`rules.controller_rights`) is asked for once, whoever else needs it, too.
3. A signer may be named by its domain, too, as admission reads it: `kubernetes.io/*`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from handfast.api import jsonpath, resources
from handfast.client import api
from handfast.rules import controller_rights, user_names

# Namespace, group, resource, name, verb.
_Question = tuple[str, str, str, str, str]


class Rights(msgspec.Struct, frozen=True):
    """As whom it was asked, and what is missing, in words."""

    user: str
    missing: tuple[str, ...] = ()


async def missing(client: api.Client, controllers: Sequence[str], *, own_server: bool) -> Rights:
    """What these controllers may not do, and need to."""
    user, groups = user_names.CONTROLLERS, [user_names.AUTHENTICATED]
    if not own_server:
        # 1. the account that the manifest makes
        space, name = controller_rights.NAMESPACE, controller_rights.ACCOUNT
        if await client.find(resources.SERVICE_ACCOUNTS, name, namespace=space, metadata=True) is None:
            return Rights("")
        user = user_names.service_account_user(space, name)
        groups += user_names.service_account_groups(space)
    refused = []
    for question, controller in _questions(controllers).items():
        who = {"user": user, "groups": groups}
        if not any([await _allowed(client, each, who) for each in _ways(question)]):
            refused.append(f"{controller}: {_words(question)}")
    return Rights(user, tuple(refused))


def _questions(controllers: Sequence[str]) -> dict[_Question, str]:
    """Every question, with the first controller that needs it (2)."""
    first: dict[_Question, str] = {}
    for controller in controllers:
        for right in controller_rights.RIGHTS.get(controller, ()):
            for question in _of(right):
                first.setdefault(question, controller)
    return first


def _of(right: controller_rights.Right) -> Iterator[_Question]:
    rule = right.rule
    for group in rule.api_groups:
        for resource in rule.resources:
            for name in rule.resource_names or ("",):
                yield from ((right.namespace, group, resource, name, verb) for verb in rule.verbs)


def _ways(question: _Question) -> tuple[_Question, ...]:
    """The questions of which one answer is enough (3)."""
    namespace, group, resource, name, verb = question
    if resource != "signers":
        return (question,)
    return question, (namespace, group, resource, f"{name.partition('/')[0]}/*", verb)


async def _allowed(client: api.Client, question: _Question, who: dict[str, Any]) -> bool:
    namespace, group, resource, name, verb = question
    plural, _, subresource = resource.partition("/")
    attributes = {
        "namespace": namespace,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "name": name,
        "verb": verb,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, "resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await client.create(resources.SUBJECT_ACCESS_REVIEWS, review)
    return jsonpath.at(answer, "status", "allowed") is True


def _words(question: _Question) -> str:
    namespace, group, resource, name, verb = question
    kind = f"{resource}.{group}" if group else resource
    return f"{verb} {kind}{f' {name}' if name else ''}{f' in {namespace}' if namespace else ''}"
