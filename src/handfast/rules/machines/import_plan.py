# SPDX-License-Identifier: Apache-2.0
"""What has to be written so that the Machines of a cluster are those that were declared. It writes nothing.

1. A Machine that is not there is created. One that is there and says something else is updated, in the declared fields alone: what
   others wrote on it stays. One that says the same is left alone.
2. A Machine that a provider made is refused: its provider knows better, and would undo it.
3. A Machine of another import is refused. A file that was renamed says so by the name of its import.
4. No DNS name, address, hardware address, serial number or provider id is that of another Machine of the cluster: of two Machines
   of one name neither counts, and a node with the address of two is linked with none.
5. Pruned is what an earlier import of this name made, and this one does not have; never anything else.
6. With `new`, nothing that is there is changed: it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast.api import jsonpath, machine_kinds
from handfast.rules.certificates import kubelet
from handfast.rules.machines import declaration, inventory, linking

CREATE: Final = "create"
UPDATE: Final = "update"
UNCHANGED: Final = "unchanged"
PRUNE: Final = "prune"

_DECLARED_TYPES: Final = (inventory.INTERNAL_DNS, inventory.INTERNAL_IP)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is done with one Machine. `changes` says it to a person, `machine` is what is there now."""

    action: str
    namespace: str
    name: str
    changes: tuple[str, ...] = ()
    # Of a new one: the document and its status. Of another: merge patches, empty where there is nothing to change.
    document: Mapping[str, Any] = msgspec.field(default_factory=dict)
    status: Mapping[str, Any] = msgspec.field(default_factory=dict)
    machine: inventory.Machine | None = None


class Plan(msgspec.Struct):
    """The steps, in the order of the file, with what is pruned last. They count only where there are no problems."""

    steps: list[Step] = msgspec.field(default_factory=list)
    problems: list[declaration.Remark] = msgspec.field(default_factory=list)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks for beside the machines: where, as which import, and whether what is gone from it goes."""

    namespace: str = machine_kinds.NAMESPACE
    import_set: str = ""
    prune: bool = False
    new: bool = False


def plan(entries: Sequence[declaration.Entry], machines: Sequence[Mapping[str, Any]], wanted: Wanted) -> Plan:
    """The steps from these Machines of machine.openshift.io, as documents, to the declared ones."""
    there = {_key(document): document for document in machines}
    result = Plan()
    for entry in entries:
        document = there.get((wanted.namespace, entry.name))
        if document is None:
            result.steps.append(_create(entry, wanted))
            continue
        refusal = _refusal(document, wanted)
        if refusal:
            result.problems.append(declaration.Remark(entry.line, declaration.NAME, refusal))
        else:
            result.steps.append(_update(entry, document, wanted))
    result.problems += _taken(entries, there, wanted)
    result.problems.sort(key=lambda problem: problem.line)
    if wanted.prune:
        result.steps += _prune(entries, there, wanted)
    return result


def _key(document: Mapping[str, Any]) -> tuple[str, str]:
    return jsonpath.text(document, "metadata", "namespace"), jsonpath.text(document, "metadata", "name")


def _title(key: tuple[str, str]) -> str:
    return f"Machine {key[0]}/{key[1]}"


def _set_of(document: Mapping[str, Any]) -> str:
    return jsonpath.text(document, "metadata", "labels", declaration.SET_LABEL)


def is_declared(document: Mapping[str, Any]) -> bool:
    """Whether `handfast machine` made it, and no provider."""
    return jsonpath.at(document, "metadata", "annotations", linking.DECLARED) is not None


def _refusal(document: Mapping[str, Any], wanted: Wanted) -> str:
    """Why what is there is not changed; empty: it may be."""
    title = _title(_key(document))
    # 6. only what is new
    if wanted.new:
        return f"{title} is there already: `handfast machine import` changes Machines, and `handfast machine delete` removes them"
    # 2. a provider's
    if not is_declared(document):
        return f"{title} was not made by `handfast machine`, and is not changed: choose another name"
    # 3. another import's
    owner = _set_of(document)
    if owner and owner != wanted.import_set:
        return f"{title} is of the import {owner}: say --set {owner}, or take it out of one of the files"
    return ""


def _taken(
    entries: Sequence[declaration.Entry], there: Mapping[tuple[str, str], Mapping[str, Any]], wanted: Wanted
) -> Iterator[declaration.Remark]:
    """What is another Machine's, which is not in the file and stays (4)."""
    ours = {(wanted.namespace, entry.name) for entry in entries}
    gone = {_key_of(step) for step in _prune(entries, there, wanted)} if wanted.prune else set()
    owners: dict[tuple[str, str], tuple[str, str]] = {}
    for key, document in there.items():
        if key not in ours and key not in gone:
            other = declaration.of_machine(document)
            owners |= {
                (name, _compared(name, value)): key
                for name in declaration.UNIQUE_IN_CLUSTER
                for value in other.values(name)
            }
    for entry in entries:
        for name in declaration.UNIQUE_IN_CLUSTER:
            for value in entry.values(name):
                owner = owners.get((name, value))
                if owner is not None:
                    yield declaration.Remark(entry.line, name, f'"{value}" is that of {_title(owner)} in the cluster')


def _key_of(step: Step) -> tuple[str, str]:
    return step.namespace, step.name


def _compared(name: str, value: str) -> str:
    """As it would be written here: others may write names in capitals and addresses in full."""
    return str(kubelet.canonical(value)) if name in {declaration.DNS, declaration.IP} else value


def _create(entry: declaration.Entry, wanted: Wanted) -> Step:
    return Step(
        action=CREATE,
        namespace=wanted.namespace,
        name=entry.name,
        document=declaration.document(entry, wanted.namespace, wanted.import_set),
        status=declaration.status(entry),
    )


def _update(entry: declaration.Entry, document: Mapping[str, Any], wanted: Wanted) -> Step:
    """The patches that make a Machine what is declared (1)."""
    before = declaration.of_machine(document)
    changes = tuple(
        f"{name}: {_shown(before.values(name))} → {_shown(entry.values(name))}"
        for name in declaration.FIELDS
        if before.values(name) != entry.values(name)
    )
    whole = declaration.document(entry, wanted.namespace, wanted.import_set or _set_of(document))
    patch = _patch(before, whole, document)
    rows = jsonpath.mappings(document, "status", "addresses")
    addresses = [*declaration.addresses(entry), *(row for row in rows if row.get("type") not in _DECLARED_TYPES)]
    status: dict[str, Any] = {} if rows == addresses else {"addresses": addresses}
    if not jsonpath.text(document, "status", "phase"):
        status["phase"] = linking.PROVISIONED
    if not changes and (patch or status):
        changes = ("labels, annotations or phase",)
    return Step(
        action=UPDATE if changes else UNCHANGED,
        namespace=wanted.namespace,
        name=entry.name,
        changes=changes,
        document=patch,
        status=status,
        machine=inventory.read(document),
    )


def _patch(before: declaration.Entry, whole: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch of everything but the status: what is declared, and null for what no longer is."""
    absent: dict[str, Any] = {inventory.MAC: None, inventory.SERIAL: None}
    metadata = {
        "labels": _difference(whole["metadata"]["labels"], jsonpath.mapping(document, "metadata", "labels")),
        "annotations": _difference(
            {**absent, **whole["metadata"]["annotations"]}, jsonpath.mapping(document, "metadata", "annotations")
        ),
    }
    old_roles: dict[str, Any] = dict.fromkeys(declaration.node_labels(before.role))
    node_labels = _difference(
        {**old_roles, **whole["spec"]["metadata"]["labels"]}, jsonpath.mapping(document, "spec", "metadata", "labels")
    )
    spec: dict[str, Any] = {"metadata": {"labels": node_labels}} if node_labels else {}
    spec |= _difference({"providerID": whole["spec"].get("providerID")}, jsonpath.mapping(document, "spec"))
    parts = {"metadata": {key: values for key, values in metadata.items() if values}, "spec": spec}
    return {key: values for key, values in parts.items() if values}


def _difference(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if there.get(key) != value}


def _shown(values: tuple[str, ...]) -> str:
    return " ".join(values) or "none"


def _prune(
    entries: Sequence[declaration.Entry], there: Mapping[tuple[str, str], Mapping[str, Any]], wanted: Wanted
) -> Iterator[Step]:
    # 5. of this import, and gone from it
    kept = {(wanted.namespace, entry.name) for entry in entries}
    for key, document in sorted(there.items()):
        ours = key[0] == wanted.namespace and is_declared(document) and _set_of(document) == wanted.import_set
        if ours and wanted.import_set and key not in kept:
            yield Step(action=PRUNE, namespace=key[0], name=key[1], machine=inventory.read(document))
