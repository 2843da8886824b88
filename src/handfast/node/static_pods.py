# SPDX-License-Identifier: Apache-2.0
"""Observes the Pods that lie as manifests in a directory, whether or not there is a certificate or an API server.

It runs no containers and tells the API nothing. What is wrong with a manifest is said by file name, in the log and to
whoever asks `problems`; it never ends the observer, and never hides the other manifests.

1. The directory is read every `PERIOD` seconds on the clock, not followed: file systems that tell of no changes, such
   as network mounts, then look no different. A file that has not changed is not read again.
2. Every regular file counts, as with the kubelet, but for those whose name begins with a dot or ends as an editor's
   leftovers do.
3. A manifest is one Pod of v1, in YAML or JSON, at most `MAX_BYTES`, that an API server would accept. It names no
   Secret, ConfigMap or ServiceAccount: such Pods depend on the API, which static Pods exist to do without.
4. Its name gets the node's name behind it, and its namespace is `default` where it names none. Two manifests of one
   name are both wrong: which of them counts must not hang on the order of files.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from handfast import errors
from handfast.api import jsonpath, resources
from handfast.api.codec import decode
from handfast.api.defaulting import defaults
from handfast.api.schema import structs
from handfast.api.validation import validation
from handfast.rules.nodes import pod_references
from handfast.runtime import clock as clocks
from handfast.runtime import files

PERIOD: Final = 5.0
MAX_BYTES: Final = 1 << 20
_LEFTOVERS: Final = ("~", ".swp", ".tmp", ".bak")

_log = structlog.get_logger("handfast.node")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPod:
    """One manifest that is in order; `digest` changes with its content."""

    path: pathlib.Path
    namespace: str
    name: str
    digest: str
    document: Mapping[str, Any] = field(repr=False)


class _Seen(msgspec.Struct, frozen=True):
    """A file as it was when it was last read."""

    stamp: tuple[int, int, int]
    content: StaticPod | str


class StaticPods:
    """The manifests of one directory; None is no directory, and no Pods."""

    def __init__(self, directory: pathlib.Path | None, node: str, clock: clocks.Clock) -> None:
        self._directory = directory
        self._node = node
        self._clock = clock
        self._seen: dict[pathlib.Path, _Seen] = {}
        self._told: dict[str, str] = {}
        self._reported: dict[tuple[str, str], str] = {}
        self.pods: tuple[StaticPod, ...] = ()
        self.problems: dict[str, str] = {}

    async def run(self) -> None:
        """Never returns, unless there is nothing to observe (1)."""
        while self._directory is not None:
            self.look()
            await self._clock.sleep(PERIOD)

    def problem(self) -> str | None:
        """For a health check: which manifests are wrong, and how."""
        return "; ".join(f"{name}: {why}" for name, why in sorted(self.problems.items())) or None

    def look(self) -> None:
        """Read what is new, and say what has changed."""
        if self._directory is None:
            return
        try:
            paths = sorted(self._manifests(self._directory))
        except OSError as error:
            # What was there is kept: a mount that is away for a moment must not look like an empty directory.
            self._tell({str(self._directory): files.explain(error, "read", self._directory).message})
            return
        self._seen = {path: seen for path in paths if (seen := self._read(path)) is not None}
        self._publish()

    @staticmethod
    def _manifests(directory: pathlib.Path) -> list[pathlib.Path]:
        # 2. regular files, without leftovers
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
        return [directory / name for name in names if not name.startswith(".") and not name.endswith(_LEFTOVERS)]

    def _read(self, path: pathlib.Path) -> _Seen | None:
        try:
            info = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return _Seen((0, 0, 0), files.explain(error, "read", path).message)
        stamp = (info.st_ino, info.st_mtime_ns, info.st_size)
        known = self._seen.get(path)
        if known is not None and known.stamp == stamp:
            return known
        try:
            return _Seen(stamp, read(path, files.read(path, limit=MAX_BYTES), self._node))
        except (errors.Refused, errors.Unavailable) as error:
            # What cannot be read now is tried again; what is wrong stays so until the file changes.
            return _Seen(stamp if isinstance(error, errors.Refused) else (0, 0, 0), error.message)

    def _publish(self) -> None:
        pods = [seen.content for seen in self._seen.values() if isinstance(seen.content, StaticPod)]
        problems = {path.name: seen.content for path, seen in self._seen.items() if isinstance(seen.content, str)}
        # 4. two of one name are both wrong
        named = Counter((pod.namespace, pod.name) for pod in pods)
        for pod in pods:
            if named[pod.namespace, pod.name] > 1:
                others = [p.path.name for p in pods if p != pod and (p.namespace, p.name) == (pod.namespace, pod.name)]
                problems[pod.path.name] = f"{pod.namespace}/{pod.name} is also in {', '.join(others)}"
        self.pods = tuple(pod for pod in pods if pod.path.name not in problems)
        now = {(pod.namespace, pod.name): pod.digest for pod in self.pods}
        for key in sorted(now.keys() | self._reported.keys()):
            if now.get(key) != self._reported.get(key):
                word = "gone" if key not in now else "changed" if key in self._reported else "found"
                _log.info(f"static Pod {word}", namespace=key[0], name=key[1])
        self._reported = now
        self._tell(problems)

    def _tell(self, problems: dict[str, str]) -> None:
        for name, why in problems.items():
            if self._told.get(name) != why:
                _log.warning("a static Pod's manifest cannot be used", manifest=name, error=why)
        self._told = self.problems = problems


def read(path: pathlib.Path, data: bytes, node: str) -> StaticPod:
    """Check 3 of one manifest, and the name of 4."""
    document, repeated = decode.document_and_duplicates(data, decode.YAML)
    for key, wanted in (("apiVersion", "v1"), ("kind", "Pod")):
        if document.get(key) != wanted:
            raise _wrong(f"{key}: {document.get(key)!r} is not supported; it must be {wanted!r}")
    findings = structs.check(resources.PODS.message, document)
    if findings.type_error is not None:
        raise _wrong(findings.type_error)
    structs.settle_nulls(findings)
    odd = [f"{name}: unknown field" for name in findings.unknown] + [f"{name}: given twice" for name in repeated]
    if odd:
        raise _wrong("; ".join(odd))
    metadata = document.setdefault("metadata", {}) or {}
    if metadata.get("name"):
        metadata["name"] = f"{metadata['name']}-{node}"
    metadata["namespace"] = metadata.get("namespace") or "default"
    jsonpath.mapping(document, "spec")["nodeName"] = node
    defaults.apply(resources.PODS, document)
    causes = validation.create(resources.PODS, document)
    if causes:
        raise _wrong("; ".join(f"{cause.field}: {cause.message}" for cause in causes))
    _require_alone(document)
    return StaticPod(
        path=path,
        namespace=metadata["namespace"],
        name=metadata["name"],
        digest=hashlib.sha256(data).hexdigest(),
        document=document,
    )


def _require_alone(document: Mapping[str, Any]) -> None:
    named = pod_references.api_object(jsonpath.mapping(document, "spec"))
    if named is not None:
        raise _wrong(f"spec: it names {named}, and a static Pod cannot refer to objects of the API")


def _wrong(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadManifest")
