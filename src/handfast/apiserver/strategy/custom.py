# SPDX-License-Identifier: Apache-2.0
"""Station: complete, for custom objects and for the definitions behind them. What is sent for a kind that is built in
passes untouched.

A custom object is pruned and filled in by the schema of the version it was sent in, and then judged by it. A definition
gets its status here, in the very write, so that whoever reads the answer can use the new kind at once. Deciding is
`api.custom.definitions` and `api.custom.structural*`; following definitions is `verbs.definitions`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from handfast.api import conversion, kinds, objects, status
from handfast.api.custom import definitions, rule_values, structural, structural_values
from handfast.api.defaulting import defaults
from handfast.api.schema import structs
from handfast.apiserver import bodies, calls
from handfast.apiserver.state import items as items_module

PREFIX = "/".join((*definitions.RESOURCE, ""))


class _Spec(msgspec.Struct):
    group: str = ""


class _Status(msgspec.Struct):
    accepted: dict[str, Any] = msgspec.field(name="acceptedNames", default_factory=dict)


class _Claiming(msgspec.Struct):
    """Of a definition only what says which names it holds: schemas are long, and are skipped."""

    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_claiming = msgspec.json.Decoder(_Claiming).decode


def claims(items: Iterable[items_module.Item]) -> Iterator[definitions.Claim]:
    """The names that stored definitions hold."""
    for item in items:
        definition = _claiming(item.body)
        yield definitions.claim(
            {
                "metadata": {"name": item.name},
                "spec": {"group": definition.spec.group},
                "status": {"acceptedNames": definition.status.accepted},
            }
        )


def require_creatable(kind: kinds.Kind) -> None:
    """An apply that finds nothing creates, whatever the verbs of the kind: those of a kind on its way out lack it."""
    if "create" not in kind.verbs:
        raise status.StatusError(
            "MethodNotAllowed", "create not allowed while custom resource definition is terminating"
        )


def conform(call: calls.Call, kind: kinds.Kind, document: objects.Document) -> None:
    """Give what a client sent the shape of its schema; odd fields are refused, warned about or ignored, as it asked."""
    if kind.message:
        return
    findings = structs.check(structural.OBJECT_META, document["metadata"])
    if findings.type_error is not None:
        raise _undecodable(kind, findings.type_error)
    structs.settle_nulls(findings)
    schema = kind.schema or structural.FREE
    unknown = structural.prune(schema, document)
    structural.fill(schema, document)
    mode = bodies.validation_mode(call.info)
    texts = [f'unknown field "{path}"' for path in unknown]
    if texts and mode == bodies.STRICT:
        raise _undecodable(kind, bodies.strict_error(texts))
    if mode == bodies.WARN:
        warn(call, texts)


def _undecodable(kind: kinds.Kind, why: str) -> status.StatusError:
    return status.bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def warn(call: calls.Call, texts: Iterable[str]) -> None:
    """Add warnings to the answer; a write that is tried again says everything once."""
    call.warnings = list(dict.fromkeys([*call.warnings, *texts]))


def stored(kind: kinds.Kind, document: objects.Document, *, is_foreign: bool) -> objects.Document:
    """A stored object as a write starts from it: in today's storage version, without what the schema no longer has.

    `is_foreign` says that another process may have written it, perhaps an older one, which kept unknown fields, and left an empty status
    out. What this one wrote needs neither, so that most writes are spared the search (12 µs for a Pod).
    """
    document = conversion.to_stored(kind, document)
    if not kind.message:
        structural.prune(kind.schema or structural.FREE, document)
    elif is_foreign:
        structs.drop_unknown(structs.check(kinds.stored_row(kind).message, document))
        defaults.complete_status(kind, document)
    return document


def prepare_definition(
    call: calls.Call, document: objects.Document, others: Iterable[items_module.Item], now_text: str
) -> None:
    """Fill in the status of a definition, and say what of it has no effect here."""
    definitions.prepare(document, claims(others), now_text)
    if not call.info.subresource:
        warn(call, definitions.warnings(document))


def problems(kind: kinds.Kind, document: objects.Document, old: objects.Document | None = None) -> list[status.Cause]:
    """What is wrong with a custom object or a definition; what was wrong already, and is unchanged, may stay.

    An item of a list that has changed is a new one, unless the list is a map.
    """
    check: Callable[[objects.Document], Iterable[status.Cause]]
    if kind.resource == definitions.RESOURCE:
        check = definitions.problems
    elif not kind.message:

        def check(value: objects.Document) -> Iterable[status.Cause]:
            return structural_values.check(kind.schema or structural.FREE, value)

    else:
        return []
    causes = list(check(document))
    if causes and old is not None:
        before = set(
            check(old if kind.message else structural.correlated(kind.schema or structural.FREE, document, old))
        )
        causes = [cause for cause in causes if cause not in before]
    if not kind.message and not causes:
        causes = rule_values.check(kind.schema or structural.FREE, document, old)
    return causes


def is_ready(kind: kinds.Kind) -> bool:
    """Whether objects of a kind can be judged at once: see `rule_values.is_ready`."""
    return bool(kind.message) or rule_values.is_ready(kind.schema or structural.FREE)


def make_ready(kind: kinds.Kind) -> None:
    """Have the rules of a custom kind compiled, before its first object is judged."""
    rule_values.make_ready(kind.schema or structural.FREE)


def version_required(kind: kinds.Kind, name: str) -> status.StatusError:
    """A whole custom object may only replace a state that its sender has seen."""
    message = "Invalid value: 0: must be specified for an update"
    cause = status.Cause("FieldValueInvalid", message, "metadata.resourceVersion")
    return status.invalid(kind.kind, kind.group, name, [cause])


def place_replicas(kind: kinds.Kind, document: objects.Document, old: objects.Document) -> objects.Document:
    """A write through /scale: the number goes where the definition says; of the rest only the record of owners is new."""
    path = kind.scale_paths[0]
    if not path:
        return document
    merged = copy.deepcopy(old)
    definitions.set_replicas(merged, path, document["spec"]["replicas"])
    merged["metadata"].pop("managedFields", None)
    if "managedFields" in document["metadata"]:
        merged["metadata"]["managedFields"] = document["metadata"]["managedFields"]
    return merged
