# SPDX-License-Identifier: Apache-2.0
"""URL and method -> what is asked: verb, group, version, resource, namespace, name, subresource.

The same words authorisation and audit use. It does not know which resources exist: `pipeline` looks the kind up.
"""

from __future__ import annotations

import urllib.parse

import msgspec

from handfast.api import status

_METHOD_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NON_RESOURCE_VERBS = {"GET": "get", "HEAD": "head", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}
# Below a namespace these are parts of the Namespace object itself, not resources inside it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
# Longest path we look at: names are at most 253 bytes and there are at most seven parts.
PATH_LIMIT = 4096


class RequestInfo(msgspec.Struct):
    """What a request asks for; for a path that is no resource, only `verb` and `path` mean something."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""
    query: dict[str, str] = {}

    def flag(self, name: str) -> bool:
        """A boolean query parameter, as Kubernetes reads it: present and not false."""
        value = self.query.get(name)
        return value is not None and value.lower() not in {"false", "0", "f"}


def parse(method: str, target: str) -> RequestInfo:
    """What `method` on `target` (path and query) asks."""
    path, _, query_text = target.partition("?")
    if len(path) > PATH_LIMIT:
        raise status.bad_request(f"the path has {len(path)} characters, at most {PATH_LIMIT} are allowed")
    query = _query(query_text) if query_text else {}
    parts = path.split("/")[1:]
    if "%" in path:
        parts = [_unquote(part) for part in parts]
    if parts and not parts[-1]:
        parts.pop()
    if len(parts) >= 3 and parts[0] == "api":
        info = RequestInfo("", path, True, "", parts[1], query=query)
        _fill(info, parts[2:])
    elif len(parts) >= 4 and parts[0] == "apis":
        info = RequestInfo("", path, True, parts[1], parts[2], query=query)
        _fill(info, parts[3:])
    else:
        return RequestInfo(_NON_RESOURCE_VERBS.get(method, method.lower()), path, query=query)
    info.verb = _verb(method, info)
    return info


def _query(text: str) -> dict[str, str]:
    # The first value of a repeated parameter counts.
    found: dict[str, str] = {}
    try:
        pairs = urllib.parse.parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise status.bad_request(f"the query cannot be read: {error}") from None
    for key, value in pairs:
        if key == "dryRun" and value:
            # Never lost behind an empty one: a write nobody wanted cannot be taken back.
            found[key] = value
        found.setdefault(key, value)
    return found


def _unquote(part: str) -> str:
    try:
        plain = urllib.parse.unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise status.bad_request("the path is not valid UTF-8 once its escapes are decoded") from None
    if "/" in plain:
        # An escaped slash would make one name look like several parts to whoever splits it again.
        raise status.bad_request(f'a path segment may not contain "/": {part!r}')
    return plain


def _fill(info: RequestInfo, parts: list[str]) -> None:
    if parts[0] == "namespaces" and len(parts) >= 2:
        info.namespace = parts[1]
        if len(parts) >= 3 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    if len(parts) > 3:
        raise status.StatusError("NotFound", "the server could not find the requested resource")
    info.plural = parts[0]
    info.name = parts[1] if len(parts) > 1 else ""
    info.subresource = parts[2] if len(parts) > 2 else ""


def _verb(method: str, info: RequestInfo) -> str:
    if method in {"GET", "HEAD"}:
        if info.flag("watch"):
            return "watch"
        return "get" if info.name else "list"
    if method == "DELETE":
        return "delete" if info.name else "deletecollection"
    return _METHOD_VERBS.get(method, method.lower())
