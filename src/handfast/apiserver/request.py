# SPDX-License-Identifier: Apache-2.0
"""URL and method -> what is asked: verb, group, version, resource, namespace, name, subresource.

The same words authorisation and audit use. It does not know which resources exist: `resources` looks the kind up.

A method that is not in the tables below asks nothing: it is refused here, whatever the path. It must not become a verb,
or a method of the name of a verb would be taken for it.
"""

from __future__ import annotations

import functools
import re
import types
import urllib.parse
from collections.abc import Mapping

import msgspec

from handfast.api import kinds, selectors, status

_METHOD_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_NON_RESOURCE_VERBS = {"GET": "get", "HEAD": "head", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}
_SELECTING = frozenset({"list", "watch", "deletecollection"})
# Below a namespace these are parts of the Namespace object itself, not resources inside it.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
# Longest path we look at: names are at most 253 bytes and there are at most seven parts.
PATH_LIMIT = 4096
_REMEMBERED_LENGTH = 256
_DURATION = re.compile(
    r"[-+]?(?:0|(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII
)
_NO_QUERY: Mapping[str, str] = types.MappingProxyType({})


class RequestInfo(msgspec.Struct, frozen=True):
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
    query: Mapping[str, str] = _NO_QUERY
    # The equalities of the field selector: authorisation may depend on them (a node may list its own Pods).
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def authorised_name(self) -> str:
        """The name that access is decided by: for a list or watch of one named object, that object's."""
        if not self.name and self.fields and self.verb in _SELECTING:
            return next((value for field, value in self.fields if field == "metadata.name"), "")
        return self.name

    def space(self, kind: kinds.Kind) -> str:
        """The namespace the request is about: none for cluster-scoped kinds, whatever the path looks like."""
        return self.namespace if kind.namespaced else ""

    def flag(self, name: str) -> bool:
        """A boolean query parameter."""
        return _is_true(self.query.get(name))


def parse(method: str, target: str) -> RequestInfo:
    """What `method` on `target` (path and query) asks."""
    # Clients ask for the same few things over and over. Long targets are not remembered: they are for filling memory.
    return _remembered(method, target) if len(target) <= _REMEMBERED_LENGTH else _parse(method, target)


def _parse(method: str, target: str) -> RequestInfo:
    if method not in _NON_RESOURCE_VERBS:
        raise status.method_not_allowed()
    path, _, query_text = target.partition("?")
    if len(path) > PATH_LIMIT:
        raise status.bad_request(f"the path has {len(path)} characters, at most {PATH_LIMIT} are allowed")
    query = _query(query_text) if query_text else _NO_QUERY
    watch = _is_true(query.get("watch"))
    if query.get("timeout") and not watch:
        _require_duration(query["timeout"])
    parts = path.split("/")[1:]
    if "%" in path:
        parts = [_unquote(part) for part in parts]
    if parts and not parts[-1]:
        parts.pop()
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(_NON_RESOURCE_VERBS[method], path, query=query)
    namespace, plural, name, subresource = _resource(rest)
    verb = _verb(method, named=bool(name), watch=watch)
    fields = _equalities(query["fieldSelector"]) if verb in _SELECTING and "fieldSelector" in query else ()
    return RequestInfo(verb, path, True, group, version, namespace, plural, name, subresource, query, fields)


_remembered = functools.lru_cache(maxsize=4096)(_parse)


def _query(text: str) -> Mapping[str, str]:
    # The first value of a repeated parameter counts.
    query: dict[str, str] = {}
    try:
        pairs = urllib.parse.parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise status.bad_request(f"the query cannot be read: {error}") from None
    for key, value in pairs:
        if key == "dryRun" and value:
            # Never lost behind an empty one: a write nobody wanted cannot be taken back.
            query[key] = value
        query.setdefault(key, value)
    return types.MappingProxyType(query)


def _require_duration(text: str) -> None:
    """400 if this is no duration, as Go writes them. How long a request may take is this server's own setting."""
    if _DURATION.fullmatch(text) is None:
        raise status.bad_request(f'invalid timeout specified in the request URL - time: invalid duration "{text}"')


def _equalities(selector: str) -> tuple[tuple[str, str], ...]:
    return tuple((term.field, term.value) for term in selectors.parse_fields(selector).terms if term.equal)


def _unquote(part: str) -> str:
    try:
        plain = urllib.parse.unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise status.bad_request("the path is not valid UTF-8 once its escapes are decoded") from None
    if "/" in plain:
        # An escaped slash would make one name look like several parts to whoever splits it again.
        raise status.bad_request(f'a path segment may not contain "/": {part!r}')
    return plain


def _resource(parts: list[str]) -> tuple[str, str, str, str]:
    """Namespace, resource, name and subresource."""
    namespace = ""
    if parts[0] == "namespaces" and len(parts) >= 2:
        namespace = parts[1]
        if len(parts) >= 3 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    if len(parts) > 3:
        raise status.no_such_path()
    plural, name, subresource = (*parts, "", "")[:3]
    return namespace, plural, name, subresource


def _verb(method: str, *, named: bool, watch: bool) -> str:
    if method in {"GET", "HEAD"}:
        if watch:
            return "watch"
        return "get" if named else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _METHOD_VERBS[method]


def _is_true(value: str | None) -> bool:
    """A boolean parameter, as Kubernetes reads it: present and not false."""
    return value is not None and value.lower() not in {"false", "0", "f"}
