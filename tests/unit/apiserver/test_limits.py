# SPDX-License-Identifier: Apache-2.0
"""The written table of limits says what the code does."""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web_protocol

from handfast.api import kinds
from handfast.api.codec import bounds
from handfast.apiserver import audit_log, flows, limits, loop_holds
from handfast.apiserver.access import authn, client_cas, impersonation, service_account_tokens
from handfast.apiserver.admission import token_limits as enforcing
from handfast.apiserver.admission import webhook_client
from handfast.bootstrap import cluster_info, jws, token_limits
from handfast.mesh.injector import handler, reports
from handfast.pki import chains
from handfast.rules import networks, proxy_protocol
from handfast.rules.envoy import bootstrap as envoy_start
from handfast.rules.envoy import http
from handfast.rules.mesh import admission_reviews, announced, port_annotations
from handfast.rules.policies import mutators, verdicts
from handfast.rules.rbac import escalation, grants
from handfast.rules.tokens import requests
from handfast.rules.webhooks import answers, configurations
from handfast.runtime import proxied
from handfast.serving import aiohttp_parts, buckets, rates
from handfast.store.sqlite import space
from handfast.telemetry import rotating
from handfast.wire import channel, port_policies

REFERENCE = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "limits.md"


def _shown(name: str, value: float) -> str:
    return flows.shown(value) if "bytes" in name else f"{value:g}"


@pytest.mark.parametrize("field", [field for field in dataclasses.fields(limits.Limits) if field.name != "lifted"])
def test_every_default_is_written_down(field: dataclasses.Field[float]) -> None:
    row = next(line for line in REFERENCE.read_text().splitlines() if f"`{field.name}`" in line)
    assert isinstance(field.default, int | float)
    assert f"| {_shown(field.name, field.default)} |" in row


def _default(function: Callable[..., Any], parameter: str) -> int:
    value = inspect.signature(function).parameters[parameter].default
    assert isinstance(value, int)
    return value


def _bytes(value: int) -> str:
    return _shown("_bytes", value)


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def test_what_a_small_kind_may_take_is_written_down() -> None:
    small = {row.kind for row in kinds.builtin() if row.body_bytes}
    small |= {below.kind for row in kinds.builtin() for below in row.subresources if below.body_bytes}
    row = next(line for line in REFERENCE.read_text().splitlines() if line.startswith("| the body of a request for "))
    _, who, value, _, where, _ = row.split("|")
    assert {name.strip() for name in who.partition(" for ")[2].replace(" and ", ", ").split(",")} == small
    assert (value.strip(), where.strip()) == (_bytes(kinds.SMALL_BODY), "`api/kinds.py`")


# What the table "Fixed" says, out of the code.
FIXED = {
    "header lines of a request": str(_default(web_protocol.RequestHandler.__init__, "max_headers")),
    "sources or users whose rate is remembered": (
        f"{buckets.SOURCES:,} for each budget (service accounts: {flows._ACCOUNT_SOURCES:,})"
    ),
    "sources for which an accepted credential speaks": (
        f"{rates.PROVEN_SOURCES:,}, for {rates.PROVEN_SECONDS / 60:g} minutes"
    ),
    "a PROXY header": (
        f"{proxied.SECONDS:g} s; version 1: {proxy_protocol._MAX_LINE} bytes, "
        f"version 2: {_bytes(proxy_protocol.MAX_BYTES)}"
    ),
    "PROXY headers on their way": str(proxied.MOST),
    "log lines about refused PROXY headers": f"one in {proxied.TELL_SECONDS:g} s for each reason",
    "callers whose budget is remembered": f"{flows._CALLERS:,}",
    "addresses whose verdict is remembered, of each list of networks": str(networks._REMEMBERED),
    "lines of the audit log about requests over their rate": f"{audit_log._LIMITED_PER_SECOND:g} a second",
    "lines of the audit log that wait to be written": _bytes(_default(rotating.LineWriter.__init__, "waiting_bytes")),
    "one step of a request, while nobody else is served": f"{loop_holds.STEP_SECONDS * 1000:g} ms",
    "lines of the log about such steps": f"{loop_holds.LINES_PER_SECOND} a second",
    "space of the store's file system that is for deletes only": (
        f"{_bytes(space.MARGIN)}, and {_bytes(space.RESERVE)} of which nobody else can take any"
    ),
    "what is read and thrown away of a refused body": f"{aiohttp_parts.LINGERING_SECONDS:g} s",
    "certificates in a client's chain": str(chains.MAX_CHAIN),
    "certificates on a path to a CA": str(chains.MAX_DEPTH),
    "chains whose verdict is remembered": str(authn._REMEMBERED),
    "a bearer token": _bytes(authn.TOKEN_BYTES),
    "service account tokens whose signature is remembered": str(service_account_tokens._REMEMBERED),
    "lifetime of a requested service account token": (
        f"{requests.MIN_SECONDS // 60} minutes to 2{_raised(requests.MAX_SECONDS.bit_length() - 1)} seconds"
    ),
    "uses of a token with `--max-uses`": f"1 to {token_limits.MAX_USES}",
    "uses that are listed of another token": f"the first {token_limits.KEPT // 2} and the newest {token_limits.KEPT // 2}",
    "tries to write a use down": str(enforcing._TRIES),
    "`kubeconfig` and signatures in `cluster-info`": _bytes(cluster_info.MAX_DATA),
    "a cluster's description that nobody vouches for": _bytes(cluster_info.MAX_UNVERIFIED),
    "a token's signature that is read": f"{jws._MAX_LENGTH} characters",
    "CAs that pass the handshake without being trusted any more": (
        f"{client_cas.MAX_REMEMBERED}, or {_bytes(client_cas.MAX_REMEMBERED_BYTES)}"
    ),
    "groups and keys of extra in impersonation headers": str(impersonation._LIMIT),
    "single permissions of one role that are indexed": str(grants.BUDGET),
    "single permissions of rules that somebody gives away": f"{escalation.LIMIT:,}",
    "a webhook's answer": _bytes(webhook_client.MAX_ANSWER),
    "a webhook's time": f"its `timeoutSeconds`, 1 to 30, else {configurations._DEFAULT_SECONDS} s",
    "evaluations of all policies of one sort for one write": f"{verdicts.MAX_EVALUATIONS:,}",
    "objects that are handed to mutations of one write": f"{_bytes(mutators.MAX_BYTES)} in all",
    "what one mutation makes": f"{mutators.MAX_VALUES:,} values, {_bytes(mutators.MAX_PATCH)}",
    "values of a webhook's answer, and of its patch": f"{answers.MAX_VALUES:,}",
    "a review that the injector answers": (
        f"{_bytes(admission_reviews.MAX_BYTES)}, {admission_reviews.MAX_VALUES:,} values, {handler.BODY_SECONDS:g} s"
    ),
    "bodies on their way to the injector": _bytes(handler._MOST_HELD),
    "an annotation about ports": f"{port_annotations.MAX_LENGTH:,} characters, {port_annotations.MOST_PARTS:,} parts",
    "Events of the injector": (
        f"{1 / reports._PAUSE_SECONDS:g} a second, {reports.MOST_WAITING} waiting, each once in {reports._AGAIN_SECONDS:g} s"
    ),
    "what an agent of the mesh is told": (
        f"{_bytes(channel._LARGEST)}, {announced.MOST_DENIED:,} denied names and as many certificates, "
        f"{announced.MOST_ROWS:,} rows of policy for what is enforced and as many for audit"
    ),
    "what a proxy of the mesh holds of one HTTP/2 stream that nobody reads": (
        f"{_bytes(http.STREAM_WINDOW)} on each side"
    ),
    "connections of clients that a proxy of the mesh holds": (
        f"half of the files that may be open less {envoy_start._OTHER_FILES}, {envoy_start._FEWEST} to {envoy_start._MOST:,}"
    ),
    "paths of probes of one port": f"{port_policies.MOST_PATHS}, of {port_policies.MOST_PATH:,} characters each",
    "warnings of one webhook's answer": str(answers.MAX_WARNINGS),
    # No interface tells it.
    "TLS 1.2 sessions that can be resumed by number": "20,480",
}


def _rows(title: str) -> dict[str, str]:
    section = REFERENCE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines() if line.startswith("|")]
    return {row[1]: row[2] for row in rows[2:]}


def test_what_is_fixed_is_written_down() -> None:
    assert _rows("Fixed") == FIXED


def test_how_much_a_body_may_hold_is_written_down() -> None:
    said = {what: most for what, most in _rows("Documents").items() if what.startswith(("values", "… of a"))}
    numbers = (bounds.USUAL, bounds.MANY, bounds.PATCH, bounds.QUESTION, bounds.FEW)
    light = f"{bounds.LIGHT:,}, and {bounds.LIGHT_TEXT >> 10} KiB"
    assert list(said.values()) == [*(f"{number:,}" for number in numbers), light]
