# SPDX-License-Identifier: Apache-2.0
"""Parts that the schemas and columns of custom resources are written from. What a schema may say is `custom.structural_schema`'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


def text(about: str, **more: Any) -> dict[str, Any]:
    """A string, in a schema."""
    return {"type": "string", "description": about, **more}


def column(name: str, path: str, about: str, *, kind: str = "string", priority: int = 0) -> dict[str, Any]:
    """A column of `kubectl get`; with a priority, of `-o wide` alone."""
    more = {"priority": priority} if priority else {}
    return {"name": name, "type": kind, "description": about, "jsonPath": path, **more}


def whole(about: str, **more: Any) -> dict[str, Any]:
    """A whole number."""
    return {"type": "integer", "description": about, **more}


def truth(about: str) -> dict[str, Any]:
    """True or false."""
    return {"type": "boolean", "description": about}


def instant(about: str, **more: Any) -> dict[str, Any]:
    """A time."""
    return text(about, format="date-time", **more)


def structure(about: str, properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An object with these fields."""
    return {"type": "object", "description": about, "properties": dict(properties), **more}


def anything(about: str) -> dict[str, Any]:
    """An object whose fields are not known here."""
    return {"type": "object", "description": about, "x-kubernetes-preserve-unknown-fields": True}


def texts(about: str) -> dict[str, Any]:
    """An object of strings."""
    return {"type": "object", "description": about, "additionalProperties": {"type": "string"}}


def atomic(about: str, items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A list that is replaced as a whole."""
    return {
        "type": "array",
        "description": about,
        "items": dict(items),
        "x-kubernetes-list-type": "atomic",
        **more,
    }


def keyed(about: str, key: str, items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A list that is merged by a key."""
    return {
        "type": "array",
        "description": about,
        "items": dict(items),
        "x-kubernetes-list-map-keys": [key],
        "x-kubernetes-list-type": "map",
        **more,
    }


STRING: Final = {"type": "string"}
ATOMIC: Final = {"x-kubernetes-map-type": "atomic"}
REFERENCE: Final = {
    "apiVersion": text("Version of the object's API."),
    "fieldPath": text("Part of the object."),
    "kind": text("Kind of the object."),
    "name": text("Name of the object."),
    "namespace": text("Namespace of the object."),
    "resourceVersion": text("Version of the object when it was referred to."),
    "uid": text("UID of the object."),
}


def document(kind: str, about: str, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A kind."""
    first = {
        "apiVersion": text("Version of this form of the object."),
        "kind": text(f"{kind}."),
        "metadata": {"type": "object"},
        "spec": dict(spec),
    }
    return structure(about, first | more.pop("properties", {}), **more)


CONDITION: Final = {
    "lastTransitionTime": instant("When it last changed."),
    "message": text("Why, in words."),
    "reason": text("Why, in one word."),
    "severity": text("How bad it is where it is not as it should be: Error, Warning or Info."),
    "status": text("True, False or Unknown."),
    "type": text("What it is about."),
}
