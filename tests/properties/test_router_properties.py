# SPDX-License-Identifier: Apache-2.0
"""The router, query options and content negotiation meet arbitrary text: a value or a StatusError, nothing else."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
import msgspec
from hypothesis import strategies as st

from handfast.api import kinds, selectors, status
from handfast.apiserver import identity, negotiate, request
from handfast.apiserver.access import authz
from handfast.apiserver.verbs import options
from handfast.rules import access

KNOWN = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
METHODS = st.sampled_from([*sorted(KNOWN), "OPTIONS", "TRACE"]) | st.text(max_size=8)
# Pieces that paths are made of, so that not every example is turned away at once.
PIECES = st.sampled_from(
    ["api", "apis", "v1", "apps", "namespaces", "default", "secrets", "status", "finalize", "healthz", "", ".", "..",
     "%2F", "%2e", "%00", "%ff", "%c3%a4", "%", "%zz", "*", "\0", "?", "#", "a;b", "a=b", "&", "+"]
) | st.text(max_size=6)  # fmt: skip
TARGETS = st.lists(PIECES, max_size=9).map("/".join) | st.text(max_size=40)
# Nearly right: of targets from pieces alone, one in many hundreds is that of a resource.
BEGINNINGS = st.sampled_from(["/api/v1", "/apis/apps/v1", "/api/v1/namespaces/default"])
RESOURCES = st.lists(st.sampled_from(["secrets", "a", "status", "%2e", "a%2Fb", ".."]) | PIECES, max_size=4)
NEARLY = st.builds("{}/{}".format, BEGINNINGS, RESOURCES.map("/".join))
# What an object can be called: at least one character, and none that a URL would have to escape twice.
SEGMENTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=8)
PODS = kinds.row("pods")
PARAMETERS = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch",
              "sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds", "watch"]  # fmt: skip
VALUES = st.text(max_size=12) | st.sampled_from(
    ["0", "1", "-1", "true", "false", "Exact", "NotOlderThan", "a=b", "a in (b)", "spec.nodeName=n", "e30", "9" * 30]
)


T = TypeVar("T")


def _unless_refused(codes: set[int], work: Callable[[], T]) -> T | None:
    """What comes of it; None for a refusal with one of these codes. Any other error fails the test."""
    try:
        return work()
    except status.StatusError as refused:
        if refused.code not in codes:
            raise
        return None


@hypothesis.settings(max_examples=60)
@hypothesis.given(METHODS, TARGETS, TARGETS)
def test_any_request_is_understood_or_refused(method: str, path: str, query: str) -> None:
    _understood_or_refused(method, path, query)


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.sampled_from(sorted(KNOWN)), NEARLY, TARGETS)
def test_any_request_for_a_resource_is_understood_or_refused(method: str, path: str, query: str) -> None:
    _understood_or_refused(method, path, query)


def _understood_or_refused(method: str, path: str, query: str) -> None:
    known = method in KNOWN
    info = _unless_refused({400, 404} if known else {405}, lambda: request.parse(method, f"{path}?{query}"))
    assert known or info is None
    if info is None:
        return
    assert info.path == path.partition("?")[0]
    assert isinstance(info.verb, str)
    # What was taken apart never holds a separator, so nobody who puts it together again names something else.
    assert "/" not in info.group + info.version + info.namespace + info.plural + info.name + info.subresource
    # And a verdict on it can be asked for.
    allowed = _unless_refused(
        {403}, lambda: authz.require(access.Authorizers(()), authz.attributes(identity.ANONYMOUS, info))
    )
    if allowed is not None:
        assert allowed.reason == "OpenPath"
        assert info.path.startswith(("/healthz", "/livez", "/readyz"))


def _printed(info: request.RequestInfo) -> str:
    quoted = [urllib.parse.quote(part, safe="") for part in (info.namespace, info.plural, info.name, info.subresource)]
    namespace, *rest = quoted
    root = f"/apis/{urllib.parse.quote(info.group, safe='')}" if info.group else "/api"
    parts = [root, urllib.parse.quote(info.version, safe="")]
    if namespace:
        parts += ["namespaces", namespace]
    query = urllib.parse.urlencode(info.query)
    return "/".join([*parts, *(part for part in rest if part)]) + (f"?{query}" if query else "")


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    group=st.just("") | SEGMENTS,
    version=SEGMENTS,
    namespace=st.just("") | SEGMENTS,
    plural=SEGMENTS.filter(lambda text: text not in {"namespaces", "status", "finalize"}),
    name=st.just("") | SEGMENTS,
    subresource=st.just("") | SEGMENTS,
    query=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)
def test_what_is_printed_is_parsed(name: str, subresource: str, query: dict[str, str], **rest: Any) -> None:
    subresource = subresource if name else ""
    asked = request.RequestInfo("", "", True, name=name, subresource=subresource, query=query, **rest)
    hypothesis.assume(
        all(character < "\ud800" or character > "\udfff" for text in (*query, *query.values()) for character in text)
    )
    target = _printed(asked)
    asked = msgspec.structs.replace(asked, path=target.partition("?")[0])
    for method, verb in (("POST", "create"), ("PUT", "update"), ("DELETE", "delete" if name else "deletecollection")):
        assert request.parse(method, target) == msgspec.structs.replace(asked, verb=verb)


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.dictionaries(st.sampled_from(PARAMETERS), VALUES, max_size=5), st.booleans())
def test_any_options_are_understood_or_refused(query: dict[str, str], watch: bool) -> None:
    info = request.RequestInfo("list", "/api/v1/pods", True, version="v1", plural="pods", query=query)
    found = _unless_refused({400, 422}, lambda: options.parse(PODS, info, watch=watch))
    if found is None:
        return
    assert found.limit >= 0
    assert found.timeout >= 0
    assert found.version is None or found.version >= 0
    assert isinstance(found.selection.labels, selectors.LabelSelector)


def _packed(body: bytes) -> str:
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


# As this server makes them, and nearly so.
TOKENS = st.fixed_dictionaries(
    {"rv": st.integers(-3, 2**63 - 1), "start": st.text(st.characters(exclude_categories=["Cs"]), max_size=9)},
    optional={"v": st.sampled_from(["meta.k8s.io/v1", "meta.k8s.io/v2", 1]), "more": st.integers()},
).map(lambda fields: _packed(msgspec.json.encode(fields)))


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    st.integers(min_value=-1).filter(bool), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)
def test_continue_tokens_survive(version: int, start: str) -> None:
    token = options.Continue(version, start)
    hypothesis.assume(version < 2**63)
    assert options.Continue.parse(token.text()) == token


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")) | TOKENS)
@hypothesis.example(_packed(b'{"rv":1,"start":"","more":' + b"[" * 5000))
def test_any_continue_token_is_understood_or_refused(text: str) -> None:
    found = _unless_refused({400}, lambda: options.Continue.parse(text))
    if found is not None:
        assert found.rv > 0 or found.rv == options.INCONSISTENT
        assert "\0" not in found.start
        assert options.Continue.parse(found.text()) == found


FORM = "application/json;as={};v=v1;g=meta.k8s.io"
MEDIA = st.lists(
    st.sampled_from(["application/json", "*/*", "text/html", ";", ",", "=", "as=Table", "v=v1", "g=meta.k8s.io", "q=0",
                     "q=1", "q=nan", "q=x", " "])
    | st.text(max_size=5),
    max_size=10,
)  # fmt: skip


@hypothesis.settings(max_examples=60)
@hypothesis.given(
    MEDIA.map(";".join)
    | MEDIA.map(",".join)
    | MEDIA.map("".join)
    | st.lists(st.sampled_from([FORM.format("Table"), FORM.format("PartialObjectMetadata"), "text/html"])).map(",".join)
)
def test_any_accept_header_is_understood_or_refused(header: str) -> None:
    found = _unless_refused({406}, lambda: negotiate.shape(header))
    if found is not None:
        assert found == negotiate.PLAIN or f"as={found.kind}" in header.replace(" ", "")
