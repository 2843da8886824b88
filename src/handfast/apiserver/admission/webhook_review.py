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


def review(write: plugin.Write, options: Mapping[str, Any], kind: kinds.Kind, uid: str) -> dict[str, Any]:
    """The AdmissionReview to send to a webhook that sees the object as `kind`."""
    document = as_kind(write.kind, kind, write.document)
    old = as_kind(write.kind, kind, write.old)
    shown = document or old
    # Webhooks see a Namespace as in itself.
    space = write.name if write.kind.resource == matching.NAMESPACES else write.namespace
    request: dict[str, Any] = {
        "uid": uid,
        "kind": _kind(kind, shown),
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "subResource": write.subresource,
        "requestKind": _kind(write.kind, shown),
        "requestResource": {
            "group": write.kind.group,
            "version": write.kind.version,
            "resource": write.kind.plural,
        },
        "requestSubResource": write.subresource,
        "name": write.name,
        "namespace": space if write.kind.namespaced or write.kind.resource == matching.NAMESPACES else "",
    }
    request = {key: value for key, value in request.items() if value}
    request |= {
        "operation": write.operation,
        "userInfo": _user(write.user),
        "object": document,
        "oldObject": old,
        "dryRun": write.dry_run,
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


def restored(write: plugin.Write, kind: kinds.Kind, document: objects.Document) -> objects.Document:
    """The way back from `as_kind`: the document with the apiVersion that `write.document` has."""
    had = jsonpath.text(write.document, "apiVersion")
    if document.get("kind") != write.kind.kind or document.get("apiVersion") == had:
        return document
    stored = conversion.to_stored(kind, document)
    return stored if stored.get("apiVersion") == had else conversion.to_served(write.kind, stored)


@functools.cache
def _messages() -> Mapping[tuple[str, str], str]:
    """The schema of every built-in kind, by apiVersion and kind."""
    return {(f"{row['group']}/{row['version']}".lstrip("/"), row["kind"]): row["message"] for row in schema.kind_rows()}


def message_of(document: objects.Document) -> str:
    """The schema of a document of a built-in kind; nothing for others."""
    return _messages().get((jsonpath.text(document, "apiVersion"), jsonpath.text(document, "kind")), "")


def check_types(document: objects.Document) -> None:
    """Refuse what has not the types of its kind. Of custom objects only the metadata is looked at: the writer has their schema."""
    try:
        bodies.check_fields(document, message_of(document), bodies.IGNORE)
    except status.StatusError as error:
        raise answers.BadPatch(f"received a patch that does not leave a valid object: {error.message}") from None
