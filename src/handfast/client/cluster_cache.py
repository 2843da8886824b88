# SPDX-License-Identifier: Apache-2.0
"""Keeps the copy of a cluster's addresses and CA that lies in a kubeconfig up to date with the cluster's own.

It sends no credential, discovers no cluster that is not known yet, and leaves all else in the kubeconfig as it is.

1. Every server that is known is asked for cluster-info, over TLS that is verified with the CA that is known.
2. An answer with another cluster's id is refused (`discovery.adopt`).
3. New servers and CA certificates are taken over only if a server answers that verifies by a root of both bundles, the
   known one and the new (`discovery.common_roots`): the copy is always the last good one. One server that is still
   there is enough.
4. If none is, the error says what was known and how to begin again, and nothing is written.
5. The copy is replaced in one step, and keeps owner, group and mode: root may refresh somebody's kubeconfig. The file is
   read again right before, so that what somebody else has changed meanwhile is kept.

The servers beside the one in use, and the cluster's id, are in the extension that cluster-info itself has.
"""

from __future__ import annotations

import base64
import json
import pathlib
import random as randomness
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog
import yaml

from handfast import errors
from handfast.bootstrap import cluster_info, diagnosis, kubeconfig
from handfast.client import discovery
from handfast.runtime import clock as clocks
from handfast.runtime import files

PERIOD: Final = 3600.0
JITTER: Final = 0.2

_log = structlog.get_logger("handfast.cluster_cache")


class Known(msgspec.Struct, frozen=True):
    """The cluster of one context of a kubeconfig; the first of the servers is the one in use."""

    cluster: str
    info: cluster_info.ClusterInfo


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the kubeconfig now, and what of it is new."""

    before: cluster_info.ClusterInfo
    info: cluster_info.ClusterInfo
    server: str
    changed: tuple[str, ...]
    notes: tuple[str, ...]


def known(text: str, directory: pathlib.Path, context: str = "") -> Known:
    """The cluster of a context; a CA file is read relative to `directory`."""
    parsed = kubeconfig.parse(text, context).cluster
    body = dict(_body(kubeconfig.load(text), parsed.name))
    path = body.pop("certificate-authority", "")
    if parsed.certificate_authority_data is None and path:
        ca = files.read(directory / path, limit=kubeconfig.MAX_BYTES)
        body["certificate-authority-data"] = base64.b64encode(ca).decode("ascii")
    # Alone, and as a document of its own: users and their credentials are none of its business.
    return Known(parsed.name, cluster_info.read(json.dumps({"clusters": [{"name": "", "cluster": body}]})))


def load(path: pathlib.Path, context: str = "") -> Known:
    """The cluster of a context of a kubeconfig file."""
    return known(_text(path), path.parent, context)


def replaced(text: str, cluster: str, info: cluster_info.ClusterInfo, server: str) -> str:
    """The kubeconfig with another description of one of its clusters."""
    document = kubeconfig.load(text)
    body = _body(document, cluster)
    described = _body(kubeconfig.load(cluster_info.build(info)), "")
    for key in ("certificate-authority", "certificate-authority-data"):
        body.pop(key, None)
    others = body.get("extensions")
    kept = [entry for entry in others if not _is_ours(entry)] if isinstance(others, list) else []
    body |= {**described, "server": server, "extensions": [*kept, *described["extensions"]]}
    return yaml.dump(document, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=kubeconfig.MAX_BYTES)


async def refresh(path: pathlib.Path, search: discovery.Discovery, context: str = "") -> Refreshed:
    """Ask the cluster, and replace the copy where something has changed (1 to 5)."""
    target = _target(path)
    before = load(target, context)
    # 1. over verified TLS; 2. of the same cluster; 3. by a root of both bundles
    won, failed = await search.race(before.info.servers, lambda url: search.refreshed(before.info, url))
    if won is None or won.value is None:
        # 4. none is left: nothing is written
        raise diagnosis.lost(before.info, failed)
    described = won.value
    changed = _changed(before.info, described)
    if changed:
        # 5. read again right before: somebody may have pointed this cluster elsewhere, and their credentials must not go to the old one
        if load(target, context) != before:
            raise errors.Refused(
                f"{target}: it was changed while the cluster was asked",
                reason="KubeconfigChanged",
                hint="nothing was written; try again",
            )
        files.replace_contents(
            target, replaced(_text(target), before.cluster, described.info, described.server).encode("utf-8")
        )
    return Refreshed(
        before=before.info, info=described.info, server=described.server, changed=tuple(changed), notes=described.notes
    )


def _changed(before: cluster_info.ClusterInfo, cluster: discovery.Cluster) -> list[str]:
    rows = (
        ("server", before.servers[0] != cluster.server),
        ("servers", set(before.servers) != {*cluster.info.servers, cluster.server}),
        ("certificate authority", before.ca != cluster.info.ca),
        ("id", before.id != cluster.info.id),
    )
    return [name for name, differs in rows if differs]


async def keep_fresh(
    path: pathlib.Path,
    search: discovery.Discovery,
    clock: clocks.Clock,
    random: Callable[[], float] = randomness.random,
) -> None:
    """Refresh about once an hour, until cancelled. What goes wrong is logged, and tried again the next hour."""
    while True:
        await clock.sleep(PERIOD * (1 + JITTER * (2 * random() - 1)))
        try:
            refreshed = await refresh(path, search)
        except errors.Misuse:
            raise
        except errors.HandfastError as error:
            _log.warning("the cluster's description was not refreshed", error=error.message, reason=error.reason)
        else:
            if refreshed.changed:
                _log.info(
                    "the cluster's description has changed", changed=list(refreshed.changed), server=refreshed.server
                )


def _target(path: pathlib.Path) -> pathlib.Path:
    # A link to the file stays one.
    return path.resolve()


def _text(path: pathlib.Path) -> str:
    try:
        return files.read(path, limit=kubeconfig.MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise errors.Refused(f"kubeconfig: {path} is not UTF-8 text", reason="BadKubeconfig") from None


def _body(document: dict[str, Any], cluster: str) -> dict[str, Any]:
    """The body of a cluster that is known to be there."""
    entries = document["clusters"]
    body: dict[str, Any] = next(entry["cluster"] for entry in entries if entry.get("name", "") == cluster)
    return body


def _is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get("name") == cluster_info.EXTENSION


class _Dumper(yaml.CSafeDumper):
    """The safe dumper that also quotes whatever another reader could take for a number, such as some tokens."""


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if text[:1] in {*"0123456789+-."} else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _quoted)
