# SPDX-License-Identifier: Apache-2.0
"""What is asked of volumes, claims, the storage kinds and runtime classes: the basics that kubelets rely on.

No volume is looked for and no driver is asked; parameters of single drivers are theirs to judge.
"""

from __future__ import annotations

from typing import Any

from handfast.api import field_errors as fields
from handfast.api import jsonpath, objects
from handfast.api.schema import quantities, schema
from handfast.api.validation import workloads

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_MOST_PARAMETERS = 512
_PARAMETER_BYTES = 256 << 10
_RESIZABLE = ("resources", "volumeAttributesClassName")
# The old name of a claim's class, which goes before the field: quotas count by it, so that it is as fixed.
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


def _access_modes(spec: dict[str, Any]) -> fields.Causes:
    modes = jsonpath.sequence(spec, "accessModes")
    if not modes:
        yield fields.required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield fields.not_supported("spec.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield fields.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes")


def _storage_amount(path: str, amounts: dict[str, Any]) -> fields.Causes:
    storage = amounts.get("storage")
    amount = quantities.parse(storage)
    if storage is not None and amount is not None and amount <= 0:
        yield fields.invalid(path, str(storage), "must be greater than zero")


def persistentvolume(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    yield from _access_modes(spec)
    capacity = jsonpath.mapping(spec, "capacity")
    if not capacity:
        yield fields.required("spec.capacity")
    yield from _storage_amount("spec.capacity[storage]", capacity)
    sources = _sources(spec)
    if not sources:
        yield fields.required("spec", "must specify a volume type")
    for key in sources[1:]:
        yield fields.forbidden(f"spec.{key}", "may not specify more than 1 volume type")
    yield from fields.optional_one_of(
        "spec.persistentVolumeReclaimPolicy",
        spec.get("persistentVolumeReclaimPolicy"),
        ("Delete", "Recycle", "Retain"),
    )
    yield from fields.optional_one_of("spec.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)


def _sources(spec: dict[str, Any]) -> list[str]:
    return [key for key in schema.message("core.v1.PersistentVolumeSource").fields if spec.get(key) is not None]


def persistentvolume_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    new_spec, old_spec = jsonpath.mapping(document, "spec"), jsonpath.mapping(old, "spec")
    before, after = _sources(old_spec), _sources(new_spec)
    if before != after or any(fields.differ(new_spec[key], old_spec[key]) for key in after):
        yield fields.forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
    yield from fields.immutable("spec.volumeMode", new_spec.get("volumeMode"), old_spec.get("volumeMode"))


def persistentvolumeclaim(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    yield from _access_modes(spec)
    requests = jsonpath.mapping(spec, "resources", "requests")
    if requests.get("storage") is None:
        yield fields.required("spec.resources[storage]")
    yield from _storage_amount("spec.resources[storage]", requests)
    yield from fields.optional_name(
        "spec.storageClassName", jsonpath.text(spec, "storageClassName"), objects.dns_subdomain
    )
    yield from fields.optional_one_of("spec.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)


def persistentvolumeclaim_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    new_spec, old_spec = jsonpath.mapping(document, "spec"), jsonpath.mapping(old, "spec")
    bound = jsonpath.at(old, "status", "phase") == "Bound"
    # A claim is bound by naming its volume, once; a bound one may ask for more.
    free = (*(_RESIZABLE if bound else ()), *(() if old_spec.get("volumeName") else ("volumeName",)))
    fixed = [{key: value for key, value in spec.items() if key not in free} for spec in (new_spec, old_spec)]
    if fields.differ(fixed[0], fixed[1]):
        yield fields.forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        )
    after, before = (jsonpath.mapping(each, "metadata", "annotations").get(_OLD_CLASS) for each in (document, old))
    yield from fields.immutable(f"metadata.annotations[{_OLD_CLASS}]", after, before)
    wanted = quantities.parse(jsonpath.at(new_spec, "resources", "requests", "storage"))
    has = quantities.parse(jsonpath.at(old, "status", "capacity", "storage"))
    if wanted is not None and has is not None and wanted < has:
        yield fields.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")


def storageclass(document: dict[str, Any]) -> fields.Causes:
    yield from fields.named("provisioner", jsonpath.text(document, "provisioner").lower(), objects.qualified_name)
    yield from fields.one_of("reclaimPolicy", document.get("reclaimPolicy"), ("Delete", "Retain"))
    yield from fields.one_of(
        "volumeBindingMode", document.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer")
    )


def storageclass_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    for key in ("parameters", "provisioner", "reclaimPolicy"):
        if fields.differ(document.get(key) or {}, old.get(key) or {}):
            yield fields.forbidden(key, f"updates to {key} are forbidden.")
    yield from fields.immutable("volumeBindingMode", document.get("volumeBindingMode"), old.get("volumeBindingMode"))


def csinode(document: dict[str, Any]) -> fields.Causes:
    names = set()
    for index, driver in enumerate(jsonpath.mappings(document, "spec", "drivers")):
        path, name = f"spec.drivers[{index}]", jsonpath.text(driver, "name")
        yield from fields.named(f"{path}.name", name.lower(), objects.dns_subdomain)
        if name in names:
            yield fields.duplicate(f"{path}.name", name)
        names.add(name)
        if not jsonpath.text(driver, "nodeID"):
            yield fields.required(f"{path}.nodeID")


def csidriver(document: dict[str, Any]) -> fields.Causes:
    spec, name = jsonpath.mapping(document, "spec"), jsonpath.text(document, "metadata", "name")
    if len(name) > 63:
        yield fields.too_long("metadata.name", 63)
    yield from fields.optional_one_of(
        "spec.fsGroupPolicy", spec.get("fsGroupPolicy"), ("ReadWriteOnceWithFSType", "File", "None")
    )
    for mode in jsonpath.sequence(spec, "volumeLifecycleModes"):
        yield from fields.optional_one_of("spec.volumeLifecycleModes", mode, ("Ephemeral", "Persistent"))


def volumeattachment(document: dict[str, Any]) -> fields.Causes:
    spec = jsonpath.mapping(document, "spec")
    yield from fields.named("spec.attacher", jsonpath.text(spec, "attacher").lower(), objects.dns_subdomain)
    yield from fields.named("spec.nodeName", jsonpath.text(spec, "nodeName"), objects.dns_subdomain)
    source = jsonpath.mapping(spec, "source")
    named = [key for key in ("inlineVolumeSpec", "persistentVolumeName") if source.get(key)]
    if not named:
        yield fields.required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif len(named) > 1:
        yield fields.forbidden("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")


def volumeattachment_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    yield from fields.immutable("spec", document.get("spec"), old.get("spec"))


def runtimeclass(document: dict[str, Any]) -> fields.Causes:
    yield from fields.named("handler", jsonpath.text(document, "handler"), objects.dns_label)


def runtimeclass_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    yield from fields.immutable("handler", document.get("handler"), old.get("handler"))


def csistoragecapacity(document: dict[str, Any]) -> fields.Causes:
    if document.get("nodeTopology") is not None:
        yield from workloads.label_selector("nodeTopology", document["nodeTopology"])
    name = jsonpath.text(document, "storageClassName")
    wrong = objects.dns_subdomain(name)
    if wrong is not None:
        yield fields.invalid("storageClassName", name, wrong)
    amount = quantities.parse(document.get("capacity"))
    if amount is not None and amount < 0:
        yield fields.invalid("capacity", str(document["capacity"]), fields.NOT_NEGATIVE)


def csistoragecapacity_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    for key in ("nodeTopology", "storageClassName"):
        yield from fields.immutable(key, document.get(key), old.get(key))


def volumeattributesclass(document: dict[str, Any]) -> fields.Causes:
    yield from fields.named("driverName", jsonpath.text(document, "driverName").lower(), objects.qualified_name)
    parameters = jsonpath.mapping(document, "parameters")
    if not parameters:
        yield fields.required("parameters", "must contain at least one key/value pair")
    if len(parameters) > _MOST_PARAMETERS:
        yield fields.too_many("parameters", len(parameters), _MOST_PARAMETERS)
    size = 0
    for key, value in parameters.items():
        if not key:
            yield fields.invalid("parameters", key, "field can not be empty.")
        size += len(key.encode("utf-8", "replace")) + len(str(value).encode("utf-8", "replace"))
    if size > _PARAMETER_BYTES:
        yield fields.too_long("parameters", _PARAMETER_BYTES)


def volumeattributesclass_update(document: dict[str, Any], old: dict[str, Any]) -> fields.Causes:
    for key in ("driverName", "parameters"):
        if fields.differ(document.get(key) or {}, old.get(key) or {}):
            yield fields.forbidden(key, f"updates to {key} are forbidden.")
