# SPDX-License-Identifier: Apache-2.0
"""What is asked of Secrets, ConfigMaps, Namespaces, Nodes and Events.

No value of a Secret ever stands in a cause. Bootstrap tokens are Secrets like all others here: what makes one usable
is decided where it is used.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects

DATA_LIMIT = 1024 * 1024
_KEY = re.compile(r"[-._a-zA-Z0-9]+\Z")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_REDACTED = "<secret contents redacted>"
_FROZEN = "field is immutable when `immutable` is set"
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_CLUSTER_EVENTS = {"", "default", "kube-system"}


def data_key(key: str) -> str | None:
    """None if `key` may name an entry of a Secret or ConfigMap, else what is wrong."""
    if len(key) > 253:
        return "must be no more than 253 bytes"
    if _KEY.match(key) is None:
        return _KEY_TEXT
    if key in {".", ".."}:
        return f"must not be '{key}'"
    return "must not start with '..'" if key.startswith("..") else None


def _decoded(value: Any) -> bytes | None:
    """The bytes of a base64 string; None if it is none. A null value is an empty one."""
    if value is None:
        return b""
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


def secret(document: dict[str, Any]) -> fields.Causes:
    data = jsonpath.mapping(document, "data")
    contents: dict[str, bytes] = {}
    for key, value in data.items():
        wrong = data_key(key)
        if wrong is not None:
            yield fields.invalid(f"data[{key}]", key, wrong)
        decoded = _decoded(value)
        if decoded is None:
            yield fields.invalid(f"data[{key}]", _REDACTED, "must be base64 encoded")
        contents[key] = decoded or b""
    if sum(map(len, contents.values())) > DATA_LIMIT:
        yield fields.too_long("data", DATA_LIMIT)
    check = _SECRET_TYPES.get(jsonpath.text(document, "type"))
    if check is not None:
        yield from check(document, contents)


def _account_token(document: dict[str, Any], _contents: dict[str, bytes]) -> fields.Causes:
    if not jsonpath.text(document, "metadata", "annotations", _ACCOUNT_NAME):
        yield fields.required(f"metadata.annotations[{_ACCOUNT_NAME}]")


def _docker(key: str) -> Callable[[dict[str, Any], dict[str, bytes]], fields.Causes]:
    def check(_document: dict[str, Any], contents: dict[str, bytes]) -> fields.Causes:
        if key not in contents:
            yield fields.required(f"data[{key}]")
        elif not _is_json_object(contents[key]):
            yield fields.invalid(f"data[{key}]", _REDACTED, "must be a JSON object")

    return check


def _is_json_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def _basic_auth(_document: dict[str, Any], contents: dict[str, bytes]) -> fields.Causes:
    if not {"username", "password"} & contents.keys():
        yield fields.required("data[username]")
        yield fields.required("data[password]")


def _ssh_auth(_document: dict[str, Any], contents: dict[str, bytes]) -> fields.Causes:
    if not contents.get("ssh-privatekey"):
        yield fields.required("data[ssh-privatekey]")


def _tls(_document: dict[str, Any], contents: dict[str, bytes]) -> fields.Causes:
    for key in ("tls.crt", "tls.key"):
        if key not in contents:
            yield fields.required(f"data[{key}]")


_SECRET_TYPES: Mapping[str, Callable[[dict[str, Any], dict[str, bytes]], fields.Causes]] = {
    "kubernetes.io/service-account-token": _account_token,
    "kubernetes.io/dockercfg": _docker(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _docker(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _basic_auth,
    "kubernetes.io/ssh-auth": _ssh_auth,
    "kubernetes.io/tls": _tls,
}


def secret_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    yield from fields.immutable("type", document.get("type"), old.get("type"))
    yield from _frozen(document, old, ("data",))


def configmap_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    yield from _frozen(document, old, ("data", "binaryData"))


def _frozen(document: dict[str, Any], old: dict[str, Any], keys: tuple[str, ...]) -> fields.Causes:
    if old.get("immutable") is not True:
        return
    if document.get("immutable") is not True:
        yield fields.forbidden("immutable", _FROZEN)
    for key in keys:
        if jsonpath.mapping(document, key) != jsonpath.mapping(old, key):
            yield fields.forbidden(key, _FROZEN)


def configmap(document: dict[str, Any]) -> fields.Causes:
    data, binary = jsonpath.mapping(document, "data"), jsonpath.mapping(document, "binaryData")
    size = 0
    for key, value in data.items():
        wrong = data_key(key)
        if wrong is not None:
            yield fields.invalid(f"data[{key}]", key, wrong)
        if key in binary:
            yield fields.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size += len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0
    for key, value in binary.items():
        wrong = data_key(key)
        if wrong is not None:
            yield fields.invalid(f"binaryData[{key}]", key, wrong)
        decoded = _decoded(value)
        if decoded is None:
            yield fields.invalid(f"binaryData[{key}]", key, "must be base64 encoded")
        size += len(decoded or b"")
    if size > DATA_LIMIT:
        # The whole object is meant, which Kubernetes writes as an empty path.
        yield fields.too_long("[]", DATA_LIMIT)


def namespace(document: dict[str, Any]) -> fields.Causes:
    for index, name in enumerate(jsonpath.texts(document, "spec", "finalizers")):
        wrong = objects.qualified_name(name)
        if wrong is None and "/" not in name and name != "kubernetes":
            wrong = "name is neither a standard finalizer name nor is it fully qualified"
        if wrong is not None:
            yield fields.invalid(f"spec.finalizers[{index}]", name, wrong)


def node(document: dict[str, Any]) -> fields.Causes:
    seen = set()
    for index, taint in enumerate(jsonpath.mappings(document, "spec", "taints")):
        path = f"spec.taints[{index}]"
        yield from fields.named(f"{path}.key", jsonpath.text(taint, "key"), objects.qualified_name)
        yield from fields.optional_name(f"{path}.value", jsonpath.text(taint, "value"), objects.label_value)
        yield from fields.one_of(f"{path}.effect", taint.get("effect"), _EFFECTS)
        pair = (jsonpath.text(taint, "key"), jsonpath.text(taint, "effect"))
        if pair in seen:
            yield fields.duplicate(path, taint)
        seen.add(pair)
    for index, value in enumerate(jsonpath.texts(document, "spec", "podCIDRs")):
        yield from fields.cidr(f"spec.podCIDRs[{index}]", value)


def node_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    # Each may be given once, by whoever knows it first; podCIDRs names podCIDR as its first element.
    for field, key in (("podCIDRs", "podCIDR"), ("providerID", "providerID")):
        before, after = jsonpath.at(old, "spec", field), jsonpath.at(document, "spec", field)
        if before and after != before:
            yield fields.forbidden(f"spec.{field}", f'node updates may not change {key} except from "" to valid')


def event(document: dict[str, Any]) -> fields.Causes:
    yield from _event_namespace(document, "involvedObject")


def new_event(document: dict[str, Any]) -> fields.Causes:
    """An events.k8s.io Event, which has to say more, in either of its forms."""
    about = "involvedObject" if "involvedObject" in document else "regarding"
    yield from _event_namespace(document, about)
    reporter = "reportingComponent" if about == "involvedObject" else "reportingController"
    for key in ("eventTime", reporter, "reportingInstance", "action", "reason"):
        if not document.get(key):
            yield fields.required("reportingController" if key == reporter else key)
    yield from fields.optional_name("reportingController", jsonpath.text(document, reporter), objects.qualified_name)
    yield from fields.one_of("type", document.get("type"), ("Normal", "Warning"))


def _event_namespace(document: dict[str, Any], about: str) -> fields.Causes:
    own, other = jsonpath.text(document, "metadata", "namespace"), jsonpath.text(document, about, "namespace")
    if (other != own) if other else (own not in _CLUSTER_EVENTS):
        yield fields.invalid(f"{about}.namespace", other, "does not match event.namespace")
