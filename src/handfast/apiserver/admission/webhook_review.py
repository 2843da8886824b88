# SPDX-License-Identifier: Apache-2.0
"""The documents of webhooks: the AdmissionReview that is sent, and the object under the version that a webhook asks for.

It calls nobody (`webhook_client` does), and does not read answers (`rules.webhooks.answers` does).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from handfast.api import conversion, jsonpath, kinds, objects, status
from handfast.api.schema import schema
from handfast.apiserver import bodies, identity
from handfast.apiserver.admission import plugin
from handfast.rules.webhooks import answers, matching


def review(attributes: plugin.Attributes, options: Mapping[str, Any], kind: kinds.Kind, uid: str) -> dict[str, Any]:
    """The AdmissionReview to send to a webhook that sees the object as `kind`."""
    document = as_kind(attributes.kind, kind, attributes.document)
    old = as_kind(attributes.kind, kind, attributes.old)
    shown = document or old
    # Webhooks see a Namespace as in itself.
    space = attributes.name if attributes.kind.resource == matching.NAMESPACES else attributes.namespace
    request: dict[str, Any] = {
        "uid": uid,
        "kind": _kind(kind, shown),
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "subResource": attributes.subresource,
        "requestKind": _kind(attributes.kind, shown),
        "requestResource": {
            "group": attributes.kind.group,
            "version": attributes.kind.version,
            "resource": attributes.kind.plural,
        },
        "requestSubResource": attributes.subresource,
        "name": attributes.name,
        "namespace": space if attributes.kind.namespaced or attributes.kind.resource == matching.NAMESPACES else "",
    }
    request = {key: value for key, value in request.items() if value}
    request |= {
        "operation": attributes.operation,
        "userInfo": _user(attributes.user),
        "object": document,
        "oldObject": old,
        "dryRun": attributes.dry_run,
        "options": options or None,
    }
    return {"kind": "AdmissionReview", "apiVersion": answers.API_VERSION, "request": request}


def _kind(kind: kinds.Kind, document: objects.Document | None) -> dict[str, str]:
    own = jsonpath.text(document, "kind")
    if own and own != kind.kind:
        # A subresource with a document of its own, such as an Eviction.
        group, _, version = jsonpath.text(document, "apiVersion").rpartition("/")
        return {"group": group, "version": version, "kind": own}
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _user(user: identity.User) -> dict[str, Any]:
    fields = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in fields.items() if value}


def as_kind(own: kinds.Kind, kind: kinds.Kind, document: objects.Document | None) -> objects.Document | None:
    """An object of the kind `own`, served or stored, as `kind` shows it; other documents, and None, as they are."""
    if document is None or document.get("kind") != own.kind:
        return document
    return conversion.to_served(kind, conversion.to_stored(own, document))


def restored(attributes: plugin.Attributes, kind: kinds.Kind, document: objects.Document) -> objects.Document:
    """The way back from `as_kind`: the document with the apiVersion that `attributes.document` has."""
    had = jsonpath.text(attributes.document, "apiVersion")
    if document.get("kind") != attributes.kind.kind or document.get("apiVersion") == had:
        return document
    stored = conversion.to_stored(kind, document)
    return stored if stored.get("apiVersion") == had else conversion.to_served(attributes.kind, stored)


@functools.cache
def _messages() -> Mapping[tuple[str, str], str]:
    """The schema of every built-in kind, by apiVersion and kind."""
    return {(f"{row['group']}/{row['version']}".lstrip("/"), row["kind"]): row["message"] for row in schema.kind_rows()}


def check_types(document: objects.Document) -> None:
    """Refuse what has not the types of its kind. Of custom objects only the metadata is looked at: the writer has their schema."""
    message = _messages().get((jsonpath.text(document, "apiVersion"), jsonpath.text(document, "kind")), "")
    try:
        bodies.check_fields(document, message, bodies.IGNORE)
    except status.StatusError as error:
        raise answers.BadPatch(f"received a patch that does not leave a valid object: {error.message}") from None
