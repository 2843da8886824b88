# SPDX-License-Identifier: Apache-2.0
"""What Envoy makes of a matcher, written from its documentation: an interpreter of the document, for tests. A real Envoy is asked in tests/scenarios."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from handfast.rules.envoy import judging

_MISSING = object()


@dataclass(frozen=True)
class Call:
    """What a request has that matchers look at; `san` is None where no certificate was shown, `tls` whether there could be one."""

    san: str | None = None
    verdict: str | None = "good"
    port: int = 80
    tls: bool = True


class NotAvailable(Exception):
    """An input that there is not: Envoy refuses then."""


def enforced(document: dict[str, Any], call: Call) -> tuple[str, str]:
    """ALLOW or DENY, and the name of it."""
    return _outcome(document["rbac"]["matcher"], call)


def shadow(document: dict[str, Any], call: Call) -> tuple[str, str]:
    """The same of what is in audit."""
    return _outcome(document["rbac"]["shadow_matcher"], call)


def _outcome(matcher: dict[str, Any], call: Call) -> tuple[str, str]:
    try:
        action = _match(matcher, call)
    except NotAvailable:
        return "DENY", ""
    assert action is not None
    return action["typed_config"]["action"], action["typed_config"]["name"]


def _match(matcher: dict[str, Any], call: Call) -> dict[str, Any] | None:
    node: Any = _MISSING
    if "matcher_tree" in matcher:
        tree = matcher["matcher_tree"]
        value = _value(tree["input"], call)
        node = tree["exact_match_map"]["map"].get(value, _MISSING) if value is not None else _MISSING
    for row in matcher.get("matcher_list", {}).get("matchers", ()):
        single = row["predicate"]["single_predicate"]
        if node is _MISSING and _fits(single["value_match"], _value(single["input"], call)):
            node = row["on_match"]
    if node is _MISSING:
        node = matcher["on_no_match"]
    return node["action"] if "action" in node else _match(node["matcher"], call)


def _value(source: dict[str, Any], call: Call) -> str | None:
    kind = source["typed_config"]["@type"].rpartition(".")[2]
    if kind == "DestinationPortInput":
        return str(call.port)
    if kind == "HttpRequestHeaderMatchInput":
        assert source["typed_config"]["header_name"] == judging.VERDICT
        return call.verdict
    assert kind == "DnsSanInput"
    if not call.tls:
        raise NotAvailable
    return call.san


def _fits(match: dict[str, Any], value: str | None) -> bool:
    if value is None:
        return False
    if "suffix" in match:
        return value.endswith(match["suffix"])
    return re.fullmatch(match["safe_regex"]["regex"], value) is not None
