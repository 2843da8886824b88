# SPDX-License-Identifier: Apache-2.0
"""What is asked of every object's metadata: name, namespace, labels, annotations, owners and finalizers.

Each kind has its own rule for the name; all the rest is the same for all kinds. A resourceVersion is not looked at: stale
ones are the store's business.

1. name: there, and following the kind's rule; generateName likewise, as a prefix.
2. namespace: a DNS label on namespaced kinds, absent on the others.
3. labels and annotations: qualified keys, label values, at most 256 KiB of annotations.
4. ownerReferences: complete, none an Event, at most one controller.
5. finalizers: qualified names; `orphan` and `foregroundDeletion` exclude each other.
On update also:
6. name, namespace, uid and the two timestamps never change.
7. an object that is being deleted gets no new finalizers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, kinds, objects

ANNOTATIONS_LIMIT = 256 * 1024
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_OWNER = ("apiVersion", "kind", "name", "uid")
_RBAC = "rbac.authorization.k8s.io"

NameRule = Callable[[str], str | None]


def _address(name: str) -> str | None:
    """Why this is no name of an IPAddress; None if it is one."""
    address = fields.address(name)
    if address is None:
        return "must be a valid IP address"
    return None if str(address) == name else f'must be in canonical form ("{address}")'


_NAME_RULES: dict[tuple[str, str], NameRule] = {
    ("", "namespaces"): objects.dns_label,
    ("", "services"): objects.dns_1035_label,
    (_RBAC, "roles"): objects.path_segment,
    (_RBAC, "clusterroles"): objects.path_segment,
    (_RBAC, "rolebindings"): objects.path_segment,
    (_RBAC, "clusterrolebindings"): objects.path_segment,
    ("certificates.k8s.io", "certificatesigningrequests"): objects.path_segment,
    ("networking.k8s.io", "ipaddresses"): _address,
}


def name_rule(kind: kinds.Kind) -> NameRule:
    """What names of this kind look like: a DNS subdomain, with few exceptions."""
    return _NAME_RULES.get(kind.resource, objects.dns_subdomain)


def create(kind: kinds.Kind, document: dict[str, Any]) -> fields.Causes:
    metadata = objects.metadata(document)
    yield from _names(kind, metadata)  # 1. a name that follows the kind's rule
    yield from _namespace(kind, metadata)  # 2. a namespace on namespaced kinds only
    if "labels" in metadata:  # 3. labels and annotations
        yield from fields.labels("metadata.labels", jsonpath.mapping(metadata, "labels"))
    if "annotations" in metadata:
        yield from _annotations(jsonpath.mapping(metadata, "annotations"))
    if "ownerReferences" in metadata:  # 4. complete owners, at most one controller
        yield from _owners(jsonpath.mappings(metadata, "ownerReferences"))
    if "finalizers" in metadata:  # 5. qualified finalizers
        yield from _finalizers(jsonpath.texts(metadata, "finalizers"))


def update(kind: kinds.Kind, document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    yield from create(kind, document)
    new_metadata, old_metadata = objects.metadata(document), objects.metadata(old)
    # 6. what never changes; what a client leaves out is carried over by the server and is no change
    for key in ("name", "namespace", *_KEPT):
        if new_metadata.get(key) not in (None, "", old_metadata.get(key)):
            yield fields.invalid(f"metadata.{key}", new_metadata[key], fields.IMMUTABLE)
    # 7. an object that is being deleted gets no new finalizers
    if not old_metadata.get("deletionTimestamp"):
        return
    before = frozenset(jsonpath.texts(old_metadata, "finalizers"))
    added = [name for name in jsonpath.texts(new_metadata, "finalizers") if name not in before]
    if added:
        names = ", ".join(f'"{name}"' for name in added)
        yield fields.forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{names}}}",
        )


def _names(kind: kinds.Kind, metadata: dict[str, Any]) -> fields.Causes:
    rule = name_rule(kind)
    prefix, name = jsonpath.text(metadata, "generateName"), jsonpath.text(metadata, "name")
    # A prefix may end in a dash, since more is to follow.
    masked = f"{prefix[:-1]}a" if prefix.endswith("-") and len(prefix) > 1 else prefix
    wrong = rule(masked) if masked else None
    if wrong is not None:
        yield fields.invalid("metadata.generateName", prefix, wrong)
    if not name:
        yield fields.required("metadata.name", "name or generateName is required")
    yield from fields.optional_name("metadata.name", name, rule)


def _namespace(kind: kinds.Kind, metadata: dict[str, Any]) -> fields.Causes:
    namespace = jsonpath.text(metadata, "namespace")
    if kind.namespaced:
        yield from fields.named("metadata.namespace", namespace, objects.dns_label)
    elif namespace:
        yield fields.forbidden("metadata.namespace", "not allowed on this type")


def _annotations(annotations: dict[str, Any]) -> fields.Causes:
    size = 0
    for key, value in annotations.items():
        wrong = objects.qualified_name(key.lower())
        if wrong is not None:
            yield fields.invalid("metadata.annotations", key, wrong)
        size += len(key.encode("utf-8", "replace"))
        size += len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0
    if size > ANNOTATIONS_LIMIT:
        yield fields.too_long("metadata.annotations", ANNOTATIONS_LIMIT)


def _owners(owners: list[dict[str, Any]]) -> fields.Causes:
    controllers = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        for key in _OWNER:
            if not jsonpath.text(owner, key):
                what = "version" if key == "apiVersion" else key
                yield fields.invalid(f"{path}.{key}", "", f"{what} must not be empty")
        if owner.get("kind") == "Event" and jsonpath.text(owner, "apiVersion") in {"v1", "events.k8s.io/v1"}:
            yield fields.invalid(path, owner, f"{owner['apiVersion']}, Kind=Event is disallowed from being an owner")
        if owner.get("controller") is True:
            controllers.append(jsonpath.text(owner, "name"))
    if len(controllers) > 1:
        yield fields.invalid(
            "metadata.ownerReferences",
            owners,
            "Only one reference can have Controller set to true. Found "
            f'"true" in references for {controllers[0]} and {controllers[1]}',
        )


def _finalizers(finalizers: list[str]) -> fields.Causes:
    for index, name in enumerate(finalizers):
        wrong = objects.qualified_name(name)
        if wrong is not None:
            yield fields.invalid(f"metadata.finalizers[{index}]", name, wrong)
    if {objects.FINALIZER_ORPHAN, objects.FINALIZER_FOREGROUND} <= set(finalizers):
        yield fields.invalid(
            "metadata.finalizers", finalizers, "finalizer foregroundDeletion and orphan cannot be both set"
        )
