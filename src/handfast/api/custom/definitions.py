# SPDX-License-Identifier: Apache-2.0
"""What a CustomResourceDefinition adds to the API: which names it gets, its status, and a row of the table per version.

It decides from documents alone. The server follows definitions and serves their objects. The rules for the
definition as a document are `validation.definitions`; those here need its schemas, its past or the other definitions.

1. Names belong to who had them first: a plural, singular or short name, a kind or list kind that another definition
   of the group holds is refused, and the definition waits (NamesAccepted False) until it is free. Built-in kinds were
   there before everyone: what they are called is never another's, whatever a stored status says.
2. A definition whose names were all accepted once is established, and stays so, unless it takes a built-in kind's place.
3. An established definition has a row for each served version. All of them show the same objects, which are stored as
   the storage version; versions differ in nothing but their apiVersion (no conversion webhook is called).
4. A version in which objects may still be stored (`status.storedVersions`) cannot be taken away.
5. While a definition is being deleted, its objects can be read and deleted but not created.
6. Names, conditions and stored versions follow from the stored definition and from the rules above. They decide what is
   served and what is deleted. So nobody writes them, not even through /status.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import field_errors as fields
from handfast.api import handfast_kinds, jsonpath, kinds, status
from handfast.api.cel import engine
from handfast.api.custom import rules, structural_schema, structural_values

RESOURCE: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
RULES_WARNING: Final = f"x-kubernetes-validations are stored and not evaluated: {engine.INSTALL}"
CONVERSION_WARNING: Final = "spec.conversion.webhook is stored and not called: versions differ in their apiVersion only"
_COMPUTED: Final = ("acceptedNames", "conditions", "storedVersions")
_CONDITIONS: Final = frozenset({"Established", "NamesAccepted", "Terminating"})
_APPROVAL: Final = "api-approved.kubernetes.io"
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,9})(?:(alpha|beta)([1-9][0-9]{0,9}))?\Z")
_MAX_SELECTABLE: Final = 8
_SIMPLE_PATH: Final = re.compile(r"(?:\.[A-Za-z_][-A-Za-z0-9_]*)+\Z")


# --- names and status -------------------------------------------------------------------------------------------------


class Claim(msgspec.Struct, frozen=True):
    """The names that one definition holds in its group; `name` is the definition's own."""

    name: str
    group: str
    resources: frozenset[str]
    kinds: frozenset[str]


def claim(document: Mapping[str, Any]) -> Claim:
    """What a definition holds: the names it was given, not those it asks for."""
    names = jsonpath.mapping(document, "status", "acceptedNames")
    resources = (jsonpath.text(names, "plural"), jsonpath.text(names, "singular"), *jsonpath.texts(names, "shortNames"))
    held = (jsonpath.text(names, "kind"), jsonpath.text(names, "listKind"))
    return Claim(
        jsonpath.text(document, "metadata", "name"),
        jsonpath.text(document, "spec", "group"),
        frozenset(filter(None, resources)),
        frozenset(filter(None, held)),
    )


@functools.cache
def _builtin_claim(group: str) -> Claim:
    """The names that belong to the built-in kinds of a group."""
    rows = [row for row in _builtin_rows() if row.group == group]
    resources = frozenset(name for row in rows for name in (row.plural, row.singular, *row.short_names))
    return Claim("", group, resources, frozenset(name for row in rows for name in (row.kind, row.list_kind)))


@functools.cache
def _builtin_rows() -> tuple[kinds.Kind, ...]:
    return (*kinds.builtin(), *handfast_kinds.rows())


@functools.cache
def _builtin_prefixes() -> frozenset[str]:
    return frozenset(row.prefix for row in _builtin_rows())


def is_builtin_resource(group: str, plural: str) -> bool:
    """Whether the server brings this resource itself, in whatever version."""
    return any(row.resource == (group, plural) for row in _builtin_rows())


def is_builtin_kind(group: str, kind: str) -> bool:
    """Whether the server brings a kind of this name itself, in whatever version."""
    return any((row.group, row.kind) == (group, kind) for row in _builtin_rows())


def is_builtin_prefix(prefix: str) -> bool:
    """Whether objects of built-in kinds are stored there: no definition owns them."""
    return prefix in _builtin_prefixes()


def accept(document: Mapping[str, Any], others: Iterable[Claim], now_text: str) -> dict[str, Any]:
    """The status of a definition, from the one it has: names, conditions and stored versions."""
    updated = dict(jsonpath.mapping(document, "status"))
    name, group = jsonpath.text(document, "metadata", "name"), jsonpath.text(document, "spec", "group")
    rivals = [each for each in others if each.group == group and each.name != name]
    names, conflict = _names(document, rivals, _builtin_claim(group))
    updated["acceptedNames"] = names
    conditions = _Conditions(jsonpath.mappings(updated, "conditions"), now_text)
    reason, message = conflict or ("NoConflicts", "no conflicts updated")
    conditions.put("NamesAccepted", "False" if conflict else "True", reason, message)
    if not is_established(document):  # 2. once established, it stays so
        if conflict:
            conditions.put("Established", "False", "NotAccepted", "not all names are accepted")
        else:
            conditions.put("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    if is_terminating(document):
        conditions.put("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
    updated["conditions"] = conditions.rows
    stored = jsonpath.texts(updated, "storedVersions")
    storage = storage_version(document)
    updated["storedVersions"] = stored if storage in stored else [*stored, storage]
    return updated


def _names(
    document: Mapping[str, Any], rivals: list[Claim], builtin: Claim
) -> tuple[dict[str, Any], tuple[str, str] | None]:
    """The names a definition gets, and the last conflict if it does not get all (1)."""
    wanted, held = jsonpath.mapping(document, "spec", "names"), jsonpath.mapping(document, "status", "acceptedNames")
    resources = frozenset().union(*(rival.resources for rival in rivals))
    taken_kinds = frozenset().union(*(rival.kinds for rival in rivals))
    accepted, conflict = dict(held), None
    for key, reason, taken, reserved in (
        ("plural", "PluralConflict", resources, builtin.resources),
        ("singular", "SingularConflict", resources, builtin.resources),
        ("shortNames", "ShortNamesConflict", resources, builtin.resources),
        ("kind", "KindConflict", taken_kinds, builtin.kinds),
        ("listKind", "ListKindConflict", taken_kinds, builtin.kinds),
    ):
        words, had = _words(wanted.get(key)), _words(held.get(key))
        used = [word for word in words if word in reserved or (word in taken and word not in had)]
        if not reserved.isdisjoint(had):
            accepted.pop(key)
        if used:
            conflict = reason, ", ".join(f'"{word}" is already in use' for word in used)
        elif words:
            accepted[key] = wanted[key]
        else:
            accepted.pop(key, None)
    accepted.pop("categories", None)
    return accepted | ({"categories": wanted["categories"]} if wanted.get("categories") else {}), conflict


def _words(value: Any) -> list[str]:
    words = value if isinstance(value, list) else [value]
    return [word for word in words if isinstance(word, str) and word]


class _Conditions:
    """Conditions by type, in the order in which they came up."""

    def __init__(self, rows: list[dict[str, Any]], now_text: str) -> None:
        self.rows = [dict(row) for row in rows]
        self._now = now_text

    def put(self, kind: str, state: str, reason: str, message: str) -> None:
        row = next((row for row in self.rows if row.get("type") == kind), None)
        if row is None:
            row = {"type": kind}
            self.rows.append(row)
        if row.get("status") != state:
            row["status"], row["lastTransitionTime"] = state, self._now
        row["reason"], row["message"] = reason, message


def prepare(document: dict[str, Any], others: Iterable[Claim], now_text: str) -> None:
    """What the server fills in when a definition is written: its status, and the finalizer under which objects go first."""
    metadata = document["metadata"]
    finalizers = metadata.get("finalizers") or []
    if not is_terminating(document) and FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, FINALIZER]
    document["status"] = accept(document, others, now_text)


def keep_computed(document: dict[str, Any], old: Mapping[str, Any]) -> None:
    """A write to /status: what the server computes stays as it is stored (6). Conditions of other types are whose they are.

    Stored versions may be taken out: only whoever moved the objects knows that none is stored in a version any more.
    """
    before, written = jsonpath.mapping(old, "status"), jsonpath.mapping(document, "status")
    sent = {key: value for key, value in written.items() if key not in _COMPUTED}
    document["status"] = sent | {key: before[key] for key in _COMPUTED if key in before}
    own = [row for row in jsonpath.mappings(before, "conditions") if row.get("type") in _CONDITIONS]
    others = [row for row in jsonpath.mappings(written, "conditions") if row.get("type") not in _CONDITIONS]
    if own or others:
        document["status"]["conditions"] = own + others
    left = [
        version for version in jsonpath.texts(before, "storedVersions") if version in written.get("storedVersions", ())
    ]
    if left:
        document["status"]["storedVersions"] = left


def is_established(document: Mapping[str, Any]) -> bool:
    rows = jsonpath.mappings(document, "status", "conditions")
    said = any(row.get("type") == "Established" and row.get("status") == "True" for row in rows)
    return said and not _is_builtin(document)  # 2. unless it takes a built-in kind's place


def _is_builtin(document: Mapping[str, Any]) -> bool:
    """Whether a definition would be served, or its objects stored, in the place of a built-in kind."""
    names, group = jsonpath.mapping(document, "status", "acceptedNames"), jsonpath.text(document, "spec", "group")
    plural = jsonpath.text(names, "plural")
    return (
        is_builtin_resource(group, plural)
        or is_builtin_kind(group, jsonpath.text(names, "kind"))
        or is_builtin_prefix(f"{group}/{plural}/")
    )


def is_terminating(document: Mapping[str, Any]) -> bool:
    return bool(jsonpath.at(document, "metadata", "deletionTimestamp"))


# --- rows -------------------------------------------------------------------------------------------------------------


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: v2, v1, v1beta2, v1alpha1, then anything else by name."""
    match = _VERSION.match(version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), "")


def storage_version(document: Mapping[str, Any]) -> str:
    versions = jsonpath.mappings(document, "spec", "versions")
    return next((jsonpath.text(row, "name") for row in versions if row.get("storage") is True), "")


def rows(document: Mapping[str, Any]) -> list[kinds.Kind]:
    """The rows of an established definition, the preferred version first (3)."""
    if not is_established(document):
        return []
    versions = [row for row in jsonpath.mappings(document, "spec", "versions") if row.get("served") is True]
    versions.sort(key=lambda row: version_order(jsonpath.text(row, "name")))
    return [_row(document, version) for version in versions]


def stored_row(document: Mapping[str, Any]) -> kinds.Kind:
    """The row of the storage version, served or not: where the objects lie."""
    versions = jsonpath.mappings(document, "spec", "versions")
    return _row(document, next((row for row in versions if row.get("storage") is True), {}))


def _row(document: Mapping[str, Any], version: Mapping[str, Any]) -> kinds.Kind:
    spec = jsonpath.mapping(document, "spec")
    names = jsonpath.mapping(document, "status", "acceptedNames")
    group, name, storage = jsonpath.text(spec, "group"), jsonpath.text(version, "name"), storage_version(document)
    kind = jsonpath.text(names, "kind")
    scale = jsonpath.mapping(version, "subresources", "scale")
    subresources = []
    if jsonpath.at(version, "subresources", "status") is not None:
        subresources.append(kinds.Subresource(name="status", kind=kind))
    if scale:
        subresources.append(kinds.Subresource(name="scale", kind="Scale", group="autoscaling", version="v1"))
    return kinds.Kind(
        group=group,
        version=name,
        kind=kind,
        plural=jsonpath.text(names, "plural"),
        singular=jsonpath.text(names, "singular"),
        namespaced=spec.get("scope") == "Namespaced",
        listed_as=jsonpath.text(names, "listKind"),
        short_names=tuple(jsonpath.texts(names, "shortNames")),
        categories=tuple(jsonpath.texts(names, "categories")),
        # 5. no objects are created while the definition is being deleted
        verbs=tuple(verb for verb in kinds.ALL_VERBS if verb != "create" or not is_terminating(document)),
        subresources=tuple(subresources),
        selectable=_selectable(spec),
        stored_group=group if storage != name else "",
        stored_version=storage if storage != name else "",
        needs_resource_version=True,
        has_generation=True,
        schema=jsonpath.mapping(version, "schema", "openAPIV3Schema"),
        columns=tuple(jsonpath.mappings(version, "additionalPrinterColumns")),
        scale_paths=(
            jsonpath.text(scale, "specReplicasPath"),
            jsonpath.text(scale, "statusReplicasPath"),
            jsonpath.text(scale, "labelSelectorPath"),
        ),
    )


def _selectable(spec: Mapping[str, Any]) -> dict[str, str]:
    """The selectable fields of all versions together: they name the same places of the same objects."""
    paths = [
        jsonpath.text(field, "jsonPath").removeprefix(".")
        for version in jsonpath.mappings(spec, "versions")
        for field in jsonpath.mappings(version, "selectableFields")
    ]
    return {path: path for path in paths if path}


# --- checks -----------------------------------------------------------------------------------------------------------


def problems(document: Mapping[str, Any]) -> Iterator[status.Cause]:
    """What is wrong with a definition beside what `validation.definitions` finds."""
    spec = jsonpath.mapping(document, "spec")
    if spec.get("preserveUnknownFields") is True:
        detail = "must be false in order to use defaults in the schema"
        yield fields.invalid("spec.preserveUnknownFields", value=True, detail=detail)
    group = jsonpath.text(spec, "group")
    protected = f".{group}".endswith((".k8s.io", ".kubernetes.io"))
    if protected and not jsonpath.text(document, "metadata", "annotations", _APPROVAL):
        yield fields.required(f"metadata.annotations[{_APPROVAL}]", "protected groups must have an approval annotation")
    versions = jsonpath.mappings(spec, "versions")
    declared = {jsonpath.text(version, "name") for version in versions}
    # 4. a version in which objects may still be stored stays
    for index, name in enumerate(jsonpath.texts(document, "status", "storedVersions")):
        if name not in declared:
            detail = f"missing from spec.versions; {name} was previously a storage version, and must remain in "
            detail += "spec.versions until a storage migration ensures no data remains persisted in it "
            detail += "and removes it from status.storedVersions"
            yield fields.invalid(f"status.storedVersions[{index}]", name, detail)
    budget, characters = structural_values.Budget(), rules.Characters()
    for index, version in enumerate(versions):
        yield from _version(version, f"spec.versions[{index}]", budget, characters)


def _version(
    version: Mapping[str, Any], path: str, budget: structural_values.Budget, characters: rules.Characters
) -> Iterator[status.Cause]:
    root = jsonpath.mapping(version, "schema", "openAPIV3Schema")
    wrong = structural_schema.problems(root, f"{path}.schema.openAPIV3Schema", budget)
    yield from wrong or rules.problems(root, f"{path}.schema.openAPIV3Schema", characters)
    selectable = jsonpath.mappings(version, "selectableFields")
    if len(selectable) > _MAX_SELECTABLE:
        yield fields.too_many(f"{path}.selectableFields", len(selectable), _MAX_SELECTABLE)
    for index, field in enumerate(selectable):
        yield from _simple_path(f"{path}.selectableFields[{index}].jsonPath", jsonpath.text(field, "jsonPath"))
    scale = jsonpath.at(version, "subresources", "scale")
    if isinstance(scale, Mapping):
        place = f"{path}.subresources.scale"
        for key, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
            yield from _simple_path(f"{place}.{key}", jsonpath.text(scale, key), (prefix,))
        if jsonpath.text(scale, "labelSelectorPath"):
            text = jsonpath.text(scale, "labelSelectorPath")
            yield from _simple_path(f"{place}.labelSelectorPath", text, (".spec.", ".status."))


def _simple_path(path: str, expression: str, prefixes: tuple[str, ...] = (".",)) -> Iterator[status.Cause]:
    if not expression:
        yield fields.required(path)
    elif _SIMPLE_PATH.match(expression) is None or not expression.startswith(prefixes):
        detail = f"must be a simple json path under {' or '.join(prefixes)}, without arrays"
        yield fields.invalid(path, expression, detail)


def warnings(document: Mapping[str, Any]) -> list[str]:
    """What a definition asks for and does not get."""
    texts = []
    schemas = [
        jsonpath.mapping(version, "schema", "openAPIV3Schema")
        for version in jsonpath.mappings(document, "spec", "versions")
    ]
    if any(structural_schema.has_rules(schema) for schema in schemas) and not engine.is_available():
        texts.append(RULES_WARNING)
    if jsonpath.text(document, "spec", "conversion", "strategy") == "Webhook":
        texts.append(CONVERSION_WARNING)
    return texts


# --- scale ------------------------------------------------------------------------------------------------------------


def replicas(document: Mapping[str, Any], path: str) -> int:
    """The number at a scale path; 0 where there is none."""
    return jsonpath.number(document, *path.split(".")[1:])


def selector(document: Mapping[str, Any], path: str) -> str:
    return jsonpath.text(document, *path.split(".")[1:]) if path else ""


def set_replicas(document: dict[str, Any], path: str, count: int) -> None:
    """Write a number at a scale path; Refused if something that is no object is in the way."""
    *parents, last = path.split(".")[1:]
    place = document
    for key in parents:
        below = place.setdefault(key, {})
        if not isinstance(below, dict):
            raise errors.Refused(f"the object has no field {path}: {key} is not an object", reason="NoReplicas")
        place = below
    place[last] = count
