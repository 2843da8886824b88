# SPDX-License-Identifier: Apache-2.0
"""Turns a document of a kind that is served under two names from one to the other: Events, autoscalers and custom resources.

`core/v1` is how Events are stored; `events.k8s.io/v1` says the same with other keys. The versions of a custom resource
differ in nothing but their apiVersion, and an object may still be stored in a version that was the storage version once.
A document that is in the wanted form already is returned as it is, and no other kind is touched. It does not check or
default anything.
"""

from __future__ import annotations

from typing import Any

from handfast.api import autoscaler_versions, kinds

# (key of core/v1, key of events.k8s.io/v1); every other key is the same in both.
_EVENT_KEYS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_AUTOSCALERS = ("autoscaling", "horizontalpodautoscalers")
_TO_STORED = {new: old for old, new in _EVENT_KEYS}
_TO_SERVED = dict(_EVENT_KEYS)


def to_stored(kind: kinds.Kind, document: dict[str, Any]) -> dict[str, Any]:
    """The document as it is stored; a new dictionary if anything had to change."""
    if _is_single(kind) or document.get("apiVersion") == kind.storage_api_version:
        return document
    if kind.resource == _AUTOSCALERS:
        return autoscaler_versions.to_v2(document)
    return _renamed(document, _TO_STORED if kind.message else {}, kind.storage_api_version, kind.kind)


def to_served(kind: kinds.Kind, document: dict[str, Any]) -> dict[str, Any]:
    """The stored document as this kind serves it; a new dictionary if anything had to change."""
    if _is_single(kind) or document.get("apiVersion") == kind.api_version:
        return document
    if kind.resource == _AUTOSCALERS:
        return autoscaler_versions.to_v1(document)
    return _renamed(document, _TO_SERVED if kind.message else {}, kind.api_version, kind.kind)


def _is_single(kind: kinds.Kind) -> bool:
    return bool(kind.message) and kind.storage_api_version == kind.api_version


def _renamed(document: dict[str, Any], names: dict[str, str], api_version: str, kind: str) -> dict[str, Any]:
    rest = {names.get(key, key): value for key, value in document.items() if key not in {"apiVersion", "kind"}}
    return {"kind": kind, "apiVersion": api_version, **rest}
