# SPDX-License-Identifier: Apache-2.0
"""Station: complete. What the server itself fills in on a write, and which part of an object each subresource may change.

Every function takes the document the caller sent and gives the one to validate and store. `api.validation.validation`
decides whether it is valid; defaults are in `api.defaulting.defaults`.
"""

from __future__ import annotations

import copy
import datetime
import secrets
from collections.abc import Callable
from typing import Any

from handfast.api import jsonpath, kinds, objects, status
from handfast.api.custom import definitions
from handfast.apiserver import identity, uids
from handfast.apiserver.strategy import services
from handfast.rules.machines import source_address
from handfast.rules.tokens import maker

# No vowels and no look-alikes, so that generated names spell nothing: the alphabet Kubernetes uses.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_PREFIX = 58
# The status of these comes with the object when it is created; everywhere else it starts empty.
_KEEPS_STATUS_ON_CREATE = frozenset({("", "nodes"), ("", "persistentvolumes")})
_SYSTEM_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_SCHEDULED = "PodScheduled"
_REPLICAS = ".spec.replicas"
_CSR = ("certificates.k8s.io", "certificatesigningrequests")
_PODS = ("", "pods")
_SECRETS = ("", "secrets")
_OBSERVED = "observedGeneration"
_VERDICTS = ("Approved", "Denied")
# The subresources by which the conditions of a certificate request change.
_CONDITION_SUBRESOURCES = frozenset({"approval", "status"})

Strategy = Callable[[kinds.Kind, objects.Document, objects.Document], objects.Document]


def generated_name(prefix: str) -> str:
    suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
    return prefix[:_GENERATED_PREFIX] + suffix


def prepare_create(
    kind: kinds.Kind,
    document: objects.Document,
    namespace: str,
    user: identity.User,
    now: datetime.datetime,
    source: str = "",
) -> None:
    """Fill in what only the server knows; clear what only the server may set. `source` is the address of `user`, if known."""
    metadata = document["metadata"]
    if metadata.get("resourceVersion"):
        raise status.bad_request("resourceVersion should not be set on objects to be created")
    for field in ("resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        metadata.pop(field, None)
    if kind.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(str(metadata["generateName"]))
    metadata["uid"] = uids.new()
    metadata["creationTimestamp"] = objects.timestamp(now)
    if kind.has_generation:
        metadata["generation"] = 1
    _drop_nulls(metadata)
    settle_create(kind, document, user, source)


def settle_create(kind: kinds.Kind, document: objects.Document, user: identity.User, source: str = "") -> None:
    """Set what only the server decides of a new object. Done again after a webhook has changed it."""
    if kind.subresource("status") is not None and kind.resource not in _KEEPS_STATUS_ON_CREATE:
        document.pop("status", None)
    if kind.resource == _CSR:
        _stamp_requester(document, user, source)
    if kind.resource == _SECRETS:
        maker.stamp(document, user.name)


def _drop_nulls(metadata: dict[str, Any]) -> None:
    for field in [key for key, value in metadata.items() if value is None or value in ({}, [])]:
        del metadata[field]


def _stamp_requester(document: objects.Document, user: identity.User, source: str) -> None:
    # Who asks for a certificate, and from where, is what authentication found, never what the request says.
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return
    for field in ("username", "uid", "groups", "extra"):
        spec.pop(field, None)
    spec["username"] = user.name
    if user.uid:
        spec["uid"] = user.uid
    spec["groups"] = list(user.groups)
    extra = source_address.stamped(user.extra, spec.get("signerName"), user.name, source)
    extra = maker.stamped(extra, user.token_maker)
    if extra:
        spec["extra"] = extra


def _keep_system_metadata(document: objects.Document, old: objects.Document) -> None:
    metadata, before = document["metadata"], old["metadata"]
    metadata["name"] = before["name"]
    if "namespace" in before:
        metadata["namespace"] = before["namespace"]
    for field in _SYSTEM_METADATA:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    metadata.pop("selfLink", None)
    _drop_nulls(metadata)


def prepare_update(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
    """A write to the object itself: the status stays as it was."""
    _keep_system_metadata(document, old)
    if kind.subresource("status") is not None:
        _copy_field(document, old, "status")
    if kind.resource == _CSR:
        _copy_field(document, old, "spec")
    if kind.resource == ("", "services"):
        services.settle(document, old)
    if kind.resource == _SECRETS:
        maker.keep(document, old)
    return document


def count_generation(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> None:
    """Raise the generation if more than metadata and status changed; asked when defaults are filled in, not before."""
    if kind.has_generation and _spec_changed(kind, document, old):
        document["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _copy_field(document: objects.Document, old: objects.Document, field: str) -> None:
    if field in old:
        document[field] = old[field]
    else:
        document.pop(field, None)


def _spec_changed(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> bool:
    # Without a subresource of its own, the status of a custom object is a field like any other.
    ignored = {"metadata", "status"} if kind.message or kind.subresource("status") else {"metadata"}
    names = (document.keys() | old.keys()) - ignored
    return any(document.get(name) != old.get(name) for name in names)


def _status(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
    """A write to /status: everything but status and the user's metadata stays."""
    merged = _with_free_metadata(document, old)
    if "status" in document:
        merged["status"] = document["status"]
    else:
        merged.pop("status", None)
    if kind.resource == _CSR:
        _keep_verdicts(merged, old)
    if kind.resource == definitions.RESOURCE:
        definitions.keep_computed(merged, old)
    if kind.resource == _PODS:
        _keep_observed(merged, old)
    return merged


def _keep_observed(document: objects.Document, old: objects.Document) -> None:
    """A Pod's status keeps the generation that was observed, and so does each condition, where a writer does not know the field."""
    sent, before = jsonpath.mapping(document, "status"), jsonpath.mapping(old, "status")
    known: dict[str, list[Any]] = {}
    for row in jsonpath.mappings(before, "conditions"):
        known.setdefault(jsonpath.text(row, "type"), []).append(row.get(_OBSERVED))
    document["status"] = _observed(sent, before.get(_OBSERVED))
    if jsonpath.sequence(sent, "conditions"):
        # There may be several of one type: in the order in which they stand.
        rows = [(row, known.get(jsonpath.text(row, "type"))) for row in jsonpath.mappings(sent, "conditions")]
        document["status"]["conditions"] = [_observed(row, left.pop(0) if left else None) for row, left in rows]


def _observed(part: dict[str, Any], before: Any) -> dict[str, Any]:
    return {**part, _OBSERVED: before} if before and not part.get(_OBSERVED) else dict(part)


def _with_free_metadata(document: objects.Document, old: objects.Document) -> objects.Document:
    """`old`, with the labels and annotations that a write to a part of it brings."""
    merged = copy.copy(old)
    merged["metadata"] = document["metadata"]
    _keep_system_metadata(merged, old)
    for field in ("ownerReferences", "finalizers"):
        _copy_field(merged["metadata"], old["metadata"], field)
    return merged


def _keep_verdicts(document: objects.Document, old: objects.Document) -> None:
    """A signer sends back Approved and Denied as it read them, perhaps with the times spelt otherwise: no change."""
    before = {condition.get("type"): condition for condition in (old.get("status") or {}).get("conditions") or ()}
    sent = document.get("status") or {}
    if sent.get("conditions"):
        kept = [
            before.get(condition["type"], condition) if condition.get("type") in _VERDICTS else condition
            for condition in sent["conditions"]
        ]
        document["status"] = {**sent, "conditions": kept}


def _approval(_: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
    """A write to /approval of a CSR: the conditions and the user's metadata change, the certificate is the signer's."""
    merged = _with_free_metadata(document, old)
    new_status = dict(old.get("status") or {})
    conditions = (document.get("status") or {}).get("conditions")
    if conditions:
        new_status["conditions"] = conditions
    else:
        new_status.pop("conditions", None)
    merged["status"] = new_status
    return merged


def _finalize(_: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
    """A write to /finalize of a Namespace: only spec.finalizers change."""
    merged = copy.copy(old)
    spec = dict(old.get("spec") or {})
    finalizers = (document.get("spec") or {}).get("finalizers")
    if finalizers:
        spec["finalizers"] = finalizers
    else:
        spec.pop("finalizers", None)
    merged["spec"] = spec
    return merged


def _binding(_: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
    """A write through /binding of a Pod: the node and the condition that says so, both set by the server."""
    merged = copy.copy(old)
    merged["spec"] = {**(old.get("spec") or {}), "nodeName": document["spec"]["nodeName"]}
    before = old.get("status") or {}
    conditions = [row for row in before.get("conditions") or () if row.get("type") != _SCHEDULED]
    conditions += [row for row in document["status"]["conditions"] if row.get("type") == _SCHEDULED]
    merged["status"] = {**before, "conditions": conditions}
    return merged


def _scale(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
    """A write to /scale: the number of replicas, where the kind has it, and the record of who owns it."""
    merged = copy.deepcopy(old)
    path = replicas_path(kind)
    count = jsonpath.at(document, *path.split(".")[1:])
    if count is not None:
        definitions.set_replicas(merged, path, count)
    _copy_field(merged["metadata"], document["metadata"], "managedFields")
    return merged


# Writes whose change the server itself made: the rules for what a client may change do not apply to them.
SERVER_MADE = frozenset({"binding"})
# Every subresource that changes an object, and what of it.
SUBRESOURCES: dict[str, Strategy] = {
    "": prepare_update,
    "status": _status,
    "approval": _approval,
    "finalize": _finalize,
    "binding": _binding,
    "scale": _scale,
}
# … and which of them change what an object's generation counts.
COUNTED = frozenset({"", "scale"})


def strategy(subresource: str, now: datetime.datetime) -> Strategy:
    """What a write through `subresource` may change. One that has no row changes nothing: it is refused.

    The conditions of certificate requests get the times that whoever wrote them left out: `now`.
    """
    row = SUBRESOURCES.get(subresource)
    if row is None:
        raise status.StatusError("MethodNotAllowed", f'nothing can be written through the subresource "{subresource}"')
    return _with_times(row, objects.timestamp(now)) if subresource in _CONDITION_SUBRESOURCES else row


def _with_times(row: Strategy, now_text: str) -> Strategy:
    def stamped(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
        written = row(kind, document, old)
        if kind.resource == _CSR:
            _stamp_conditions(written, old, now_text)
        return written

    return stamped


def _stamp_conditions(document: objects.Document, old: objects.Document, now_text: str) -> None:
    """lastUpdateTime: now. lastTransitionTime: that of a condition with this type and status, or now."""
    conditions = jsonpath.sequence(document, "status", "conditions")
    if not conditions:
        return
    since = {
        (row.get("type"), row.get("status")): row.get("lastTransitionTime")
        for row in jsonpath.mappings(old, "status", "conditions")
    }
    stamped = [_stamped(row, since, now_text) if isinstance(row, dict) else row for row in conditions]
    # The stored conditions are shared with `old`, so that they are replaced and never changed.
    document["status"] = {**document["status"], "conditions": stamped}


def _stamped(condition: dict[str, Any], since: dict[tuple[Any, Any], Any], now_text: str) -> dict[str, Any]:
    before = since.get((condition.get("type"), condition.get("status")))
    return {
        **condition,
        "lastUpdateTime": condition.get("lastUpdateTime") or now_text,
        "lastTransitionTime": condition.get("lastTransitionTime") or before or now_text,
    }


def replicas_path(kind: kinds.Kind) -> str:
    """Where a kind has the number that /scale reads and writes."""
    return kind.scale_paths[0] or _REPLICAS


def scale_of(kind: kinds.Kind, document: objects.Document) -> objects.Document:
    """The Scale of a workload."""
    metadata = document["metadata"]
    shown = {
        key: metadata[key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in metadata
    }
    if kind.scale_paths[0]:
        return _custom_scale(kind, document, shown)
    spec = document.get("spec") or {}
    current = (document.get("status") or {}).get("replicas", 0)
    labels = spec.get("selector") or {}
    if kind.resource != ("", "replicationcontrollers"):
        labels = labels.get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": shown,
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {"replicas": current, "selector": ",".join(f"{key}={labels[key]}" for key in sorted(labels))},
    }


def _custom_scale(kind: kinds.Kind, document: objects.Document, metadata: dict[str, Any]) -> objects.Document:
    wanted, actual, labels = kind.scale_paths
    status: dict[str, Any] = {"replicas": definitions.replicas(document, actual)}
    if selector := definitions.selector(document, labels):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": definitions.replicas(document, wanted)},
        "status": status,
    }


def set_scale(scale: objects.Document, old: objects.Document) -> objects.Document:
    """The workload with the replicas a Scale asks for."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise status.invalid(
            "Scale",
            "autoscaling",
            str(old["metadata"]["name"]),
            [
                status.Cause(
                    "FieldValueInvalid",
                    f"Invalid value: {replicas}: must be greater than or equal to 0",
                    "spec.replicas",
                )
            ],
        )
    document = copy.deepcopy(old)
    spec = document.get("spec")
    # Only a custom object can have a spec that is none.
    document["spec"] = {**(spec if isinstance(spec, dict) else {}), "replicas": replicas}
    return document
