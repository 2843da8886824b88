# SPDX-License-Identifier: Apache-2.0
"""What a kubeconfig has no field for, in an extension of its cluster: the cluster's identifier and all its servers.

It is the same in cluster-info and in the kubeconfigs that are made from it; other readers ignore it. `read` returns only
when all of this holds, and names the field otherwise:

1. The extension is a mapping with a list of servers, each of which is an https URL without credentials.
2. The identifier is empty or matches `[A-Za-z0-9._-]{1,253}`: it is shown to people, and written into files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.bootstrap import endpoints

NAME: Final = "handfast.dev/cluster"
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_ALLOWED: Final = "1 to 253 letters, digits, ., _ and -"


class Extension(msgspec.Struct, frozen=True):
    """The identifier, empty where it is not known, and the servers in order of preference."""

    id: str = ""
    servers: tuple[str, ...] = ()


NOTHING: Final = Extension()


class Malformed(Exception):
    """What is wrong, with its field; `credentials`: they are in a URL. Each reader has its own words for it."""

    def __init__(self, problem: str, *, credentials: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.credentials = credentials


def read(cluster: Mapping[str, Any], where: str) -> Extension:
    """Checks 1 and 2 of the cluster at `where`; empty where it was not described by this program."""
    entries = cluster.get("extensions")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and entry.get("name") == NAME:
            inside = f"{where}.extensions[{index}].extension"
            extension = entry.get("extension")
            # 1. a list of https URLs
            if not isinstance(extension, dict):
                raise Malformed(f"{inside}: must be a mapping")
            servers = extension.get("servers")
            if not isinstance(servers, list):
                raise Malformed(f"{inside}.servers: must be a list of URLs")
            for number, server in enumerate(servers):
                require_https(server, f"{inside}.servers[{number}]")
            # 2. an identifier
            known = extension.get("id")
            if known is not None and not isinstance(known, str):
                raise Malformed(f"{inside}.id: must be a string")
            require_id(known or "", f"{inside}.id")
            return Extension(known or "", tuple(servers))
    return NOTHING


def entry(known: str, servers: Sequence[str]) -> dict[str, Any]:
    """One of the list `extensions` of a cluster."""
    return {"name": NAME, "extension": {"id": known, "servers": list(servers)}}


def require_https(server: object, where: str) -> None:
    """Returns if it is an https URL without credentials (1)."""
    if not isinstance(server, str) or not server:
        raise Malformed(f"{where}: required, an https URL")
    if "@" in server:
        raise Malformed(where, credentials=True)
    try:
        endpoints.of_server(server)
    except errors.Refused:
        problem = f"{where}: {json.dumps(server[:200])} is not a URL such as https://192.0.2.1:6443"
        raise Malformed(problem) from None


def require_id(text: str, where: str) -> None:
    """Returns if it is empty or an identifier (2)."""
    if text and _ID.fullmatch(text) is None:
        raise Malformed(f"{where}: {json.dumps(text[:200])} is no identifier; allowed: {_ALLOWED}")
