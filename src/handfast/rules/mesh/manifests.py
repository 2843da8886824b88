# SPDX-License-Identifier: Apache-2.0
"""Manifests as people keep them: streams of YAML documents, Lists among them, each injected or put back. It reads no file.

1. A document that is not changed stays as it is written, byte for byte.
2. Every document is read as the API server would read it: bounded, without aliases, without a key twice. What cannot be read is refused, with
   its line.
3. What cannot get a proxy, and was not told to have none, is refused: a person who names a manifest expects one.
4. What was injected before is put back first, so that twice is once.
5. The items of a List are documents each. Those of a list of one kind need not say it.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.api.codec import yaml_document
from handfast.rules.mesh import injectable, injection, sidecar, uninjection, workloads

# The line of a marker begins a document wherever it stands: YAML allows it inside no text.
_MARKER: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARK: Final = "---\n"
_LIST: Final = "List"


class NotInjectable(errors.Refused):
    """A workload cannot get a proxy (3)."""

    reason = "NotInjectable"


class BadManifest(errors.Refused):
    """A document cannot be read (2)."""

    reason = "BadManifest"


class Action(enum.StrEnum):
    """What was done with an object."""

    INJECTED = "injected"
    UNINJECTED = "uninjected"
    SKIPPED = "skipped"


class Report(msgspec.Struct, frozen=True):
    """What was done, and why not more."""

    title: str
    action: Action
    why: str = ""

    def __str__(self) -> str:
        return f"{self.title} {self.action}{f': {self.why}' if self.why else ''}"


@dataclass(frozen=True, slots=True)
class Part:
    """One document of a stream, as it is written, and as it is read. `marked` is whether its marker is there."""

    text: str
    value: Any
    marked: bool


# What becomes of one object.
Change = Callable[[objects.Document], tuple[objects.Document, Report]]


def read(data: bytes) -> list[Part]:
    """The documents of a stream, in order; their texts together are the stream (1)."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadManifest("the text is not valid UTF-8", hint="write it as UTF-8") from None
    starts = dict.fromkeys(match.start() for match in _MARKER.finditer(text))
    bounds = [0, *(start for start in starts if start), len(text)]
    return [_part(text, start, end, marked=start in starts) for start, end in itertools.pairwise(bounds) if end > start]


def _part(text: str, start: int, end: int, *, marked: bool) -> Part:
    # 2. as the API server reads it
    try:
        value, twice = _loaded(text, start, end)
    except errors.Refused as error:
        raise BadManifest(error.message, hint="correct the manifest: nothing was written") from None
    if twice:
        raise BadManifest(f"{twice[0]} is there twice", hint="take one of them away")
    return Part(text[start:end], value, marked)


def _loaded(text: str, start: int, end: int) -> tuple[Any, list[str]]:
    try:
        return yaml_document.load(text[start:end].encode())
    except errors.Refused:
        # The same refusal, by the line of the stream: empty lines make it that. Before each of thousands of documents they would take minutes.
        return yaml_document.load(("\n" * text.count("\n", 0, start) + text[start:end]).encode())


def rewrite(value: Any, change: Change) -> tuple[Any, list[Report]]:
    """A document with every object in it changed; the same one where nothing was. Comments alone are no document."""
    if value is None:
        return value, []
    if not isinstance(value, dict) or not jsonpath.text(value, "kind"):
        return value, [Report("document", Action.SKIPPED, 'it has no field "kind"')]
    if value["kind"].endswith(_LIST) and isinstance(value.get("items"), list):
        return _rewritten_list(value, change)
    document, report = change(value)
    return document, [report]


def _rewritten_list(value: objects.Document, change: Change) -> tuple[objects.Document, list[Report]]:
    items, reports = [], []
    for item in value["items"]:
        implied = _implied(value, item)
        changed, rows = rewrite({**item, **implied} if implied else item, change)
        items.append({key: changed[key] for key in changed if key not in implied} if implied else changed)
        reports += rows
    return {**value, "items": items}, reports


def _implied(value: objects.Document, item: Any) -> dict[str, Any]:
    """What a list says of its items' kind, where an item does not (5)."""
    kind = value["kind"].removesuffix(_LIST)
    if not kind or not isinstance(item, dict) or {"kind", "apiVersion"} & item.keys():
        return {}
    return {"kind": kind, "apiVersion": value.get("apiVersion")}


def injecting(plan: sidecar.Plan, namespace: str = "") -> Change:
    """Gives an object its proxy. `namespace` is where objects go that do not say, empty where that is open."""

    def change(document: objects.Document) -> tuple[objects.Document, Report]:
        title = workloads.title(document)
        if (before := workloads.find(document)) is None:
            injectable.require_none(document)
            return document, Report(title, Action.SKIPPED, injectable.WORDS[injectable.Reason.UNSUPPORTED])
        # 4. twice is once
        workload = workloads.Workload(uninjection.uninject(before), before.kind, before.place)
        against = injectable.reasons(injectable.facts(workload, own_token=plan.settings.own_token))
        if injectable.Reason.DISABLED in against:
            return workload.document, Report(title, Action.SKIPPED, injectable.WORDS[injectable.Reason.DISABLED])
        # 3. a proxy, or a refusal
        if against:
            words = ", ".join(injectable.WORDS[reason] for reason in against)
            raise NotInjectable(
                f"{title} cannot be injected: {words}",
                hint=f"change it, or leave it out with the annotation {injectable.INJECT}: disabled",
            )
        target = sidecar.Target(
            workload=workload,
            namespace=workload.namespace or namespace,
            identity=injectable.has_identity(workload, plan.settings),
        )
        return injection.inject(plan, target), Report(title, Action.INJECTED)

    return change


def uninjecting(document: objects.Document) -> tuple[objects.Document, Report]:
    """Takes the proxy away from an object, if it is ours."""
    title, workload = workloads.title(document), workloads.find(document)
    if workload is None or uninjection.record(workload) is None:
        return document, Report(title, Action.SKIPPED, "nothing was injected here")
    return uninjection.uninject(workload), Report(title, Action.UNINJECTED)


def texts(parts: list[Part], change: Change, write: Callable[[Any], str]) -> Iterator[tuple[str, list[Report]]]:
    """The stream again, a text for every document, changed ones as `write` has them (1)."""
    for part in parts:
        value, reports = rewrite(part.value, change)
        # 1. byte for byte
        same = value == part.value
        yield part.text if same else _MARK * part.marked + write(value), reports
