# SPDX-License-Identifier: Apache-2.0
"""What a MutatingWebhookConfiguration or ValidatingWebhookConfiguration says of its webhooks.

It does not decide whether one is asked (`webhooks.matching`). Validation has refused what is malformed. A webhook that
it let pass and that cannot be used all the same fails at every call, so that its failure policy decides.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from handfast.api import jsonpath, objects, selectors, status

_DEFAULT_SECONDS = 10
_DEFAULT_PORT = 443


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Writes that a webhook wants to see; `*` stands for everything, an empty subresource for the object itself."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service of the cluster, as where to call."""

    namespace: str
    name: str
    path: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One webhook of a configuration. `wrong` says why it cannot be used at all; then every call of it fails."""

    configuration: str
    index: int
    name: str
    url: str
    service: Service | None
    ca_bundle: bytes | None
    rules: tuple[Rule, ...]
    fails_open: bool
    exact: bool
    namespace_selector: selectors.LabelSelector
    object_selector: selectors.LabelSelector
    dry_run: bool
    seconds: int
    reinvoked: bool
    # (name, expression): all have to be true for the webhook to be asked.
    conditions: tuple[tuple[str, str], ...]
    wrong: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return self.configuration, self.index


def parse(document: objects.Document) -> tuple[Webhook, ...]:
    """The webhooks of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration, in their order."""
    configuration = jsonpath.text(document, "metadata", "name")
    webhooks = jsonpath.mappings(document, "webhooks")
    return tuple(_webhook(configuration, index, webhook) for index, webhook in enumerate(webhooks))


def ordered(configurations: Mapping[str, Iterable[Webhook]]) -> tuple[Webhook, ...]:
    """All webhooks as they are asked: configurations by name, then as listed."""
    return tuple(webhook for name in sorted(configurations) for webhook in configurations[name])


def _webhook(configuration: str, index: int, document: dict[str, Any]) -> Webhook:
    config = jsonpath.mapping(document, "clientConfig")
    wrong: list[str] = []
    if "v1" not in jsonpath.texts(document, "admissionReviewVersions"):
        wrong.append("webhook does not accept v1 AdmissionReview")
    seconds = jsonpath.number(document, "timeoutSeconds")
    return Webhook(
        configuration=configuration,
        index=index,
        name=jsonpath.text(document, "name"),
        url=jsonpath.text(config, "url"),
        service=_service(config),
        ca_bundle=_ca_bundle(config, wrong),
        rules=tuple(rule(row) for row in jsonpath.mappings(document, "rules")),
        fails_open=document.get("failurePolicy") == "Ignore",
        exact=document.get("matchPolicy") == "Exact",
        namespace_selector=selector(document, "namespaceSelector", wrong),
        object_selector=selector(document, "objectSelector", wrong),
        dry_run=document.get("sideEffects") in {"None", "NoneOnDryRun"},
        seconds=seconds if 1 <= seconds <= 30 else _DEFAULT_SECONDS,
        reinvoked=document.get("reinvocationPolicy") == "IfNeeded",
        conditions=tuple(
            (jsonpath.text(row, "name"), jsonpath.text(row, "expression"))
            for row in jsonpath.mappings(document, "matchConditions")
        ),
        wrong="; ".join(wrong),
    )


def rule(document: Mapping[str, Any]) -> Rule:
    """Which writes are meant."""
    resources = []
    for resource in jsonpath.texts(document, "resources"):
        plural, _, subresource = resource.partition("/")
        resources.append((plural, subresource))
    return Rule(
        operations=frozenset(jsonpath.texts(document, "operations")),
        groups=frozenset(jsonpath.texts(document, "apiGroups")),
        versions=frozenset(jsonpath.texts(document, "apiVersions")),
        resources=tuple(resources),
        scope=jsonpath.text(document, "scope") or "*",
    )


def _service(config: dict[str, Any]) -> Service | None:
    service = config.get("service")
    if not isinstance(service, dict):
        return None
    return Service(
        namespace=jsonpath.text(service, "namespace"),
        name=jsonpath.text(service, "name"),
        path=jsonpath.text(service, "path") or "/",
        port=jsonpath.number(service, "port") or _DEFAULT_PORT,
    )


def _ca_bundle(config: dict[str, Any], wrong: list[str]) -> bytes | None:
    text = jsonpath.text(config, "caBundle")
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        wrong.append("clientConfig.caBundle is not base64")
        return b""


def selector(document: Mapping[str, Any], key: str, wrong: list[str]) -> selectors.LabelSelector:
    """The selector at a key; `wrong` is told what is wrong with it."""
    try:
        return selectors.from_label_selector(document.get(key) or {})
    except status.StatusError as error:
        # Selects everything, so that the call fails where it might have been wanted.
        wrong.append(f"{key}: {error.message}")
        return selectors.EVERYTHING
