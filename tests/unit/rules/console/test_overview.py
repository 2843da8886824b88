# SPDX-License-Identifier: Apache-2.0
"""The sentences of the first page: what needs somebody, with since when, what follows, the command and a page."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.rules import check, request_explanation, user_names
from handfast.rules.certificates import kubelet, request_age
from handfast.rules.console import overview
from handfast.rules.diagnoses import facts, judged
from handfast.rules.nodes import join_failures
from handfast.rules.nodes import overview as node_states
from tests.unit.rules.diagnoses import known
from tests.unit.rules.nodes import test_overview as nodes_of

NOW = known.NOW
HOUR = datetime.timedelta(hours=1)


def told(
    joins: list[join_failures.Failed] | None = None, seen: overview.Seen | None = None, **changes: Any
) -> list[overview.Sentence]:
    facts_now = known.good(**changes)
    return overview.sentences(judged.everything(facts_now), facts_now, joins or [], seen or {})


def test_where_all_is_well_there_is_nothing_to_say():
    assert told() == []


def test_a_check_that_is_not_well_is_a_sentence_in_its_own_words():
    [failed] = [each for each in judged.everything(known.good(stranger=403)) if each.verdict is not check.Verdict.OK]
    seen = {(failed.name, failed.reason): NOW - HOUR}
    [sentence] = told(stranger=403, seen=seen)
    assert (sentence.about, sentence.text, sentence.reason) == (failed.name, failed.sentence, failed.reason)
    assert sentence.command == failed.hint
    assert sentence.since == NOW - HOUR
    assert sentence.follows
    assert sentence.link == "/tokens"


def test_what_fails_comes_before_what_warns():
    # The first of these warns, and stands before the second in the order of checks.
    sentences = told(webhooks=[facts.Hook("hook", "https://h", True, "refused")], cluster_info=None)
    assert {each.urgent for each in sentences} == {True, False}
    assert [each.urgent for each in sentences] == sorted((each.urgent for each in sentences), reverse=True)


def test_nodes_are_told_apart_by_their_states():
    read = known.nodes(
        nodes=[nodes_of.node(name) for name in ("w1", "w2", "w3", "w4")],
        leases=[
            nodes_of.lease("w1"),
            nodes_of.lease("w2"),
            nodes_of.lease("w3"),
            nodes_of.lease("w4", seconds_ago=7200),
        ],
        issued=[
            nodes_of.entry("w1", age=25, lasts=24),
            nodes_of.entry("w2", age=23, lasts=24),
            nodes_of.entry("w3", age=23.5, lasts=24),
            nodes_of.entry("w4"),
        ],
    )
    expired, late, silent = told(nodes=read)
    assert (expired.about, expired.urgent, expired.link) == ("node w1", True, "/nodes/w1")
    assert expired.since == NOW - HOUR
    assert (late.about, late.urgent, late.link, late.until) == ("2 nodes", True, "/nodes?state=late", NOW + HOUR / 2)
    assert late.since is not None
    assert late.since < NOW
    assert (silent.about, silent.urgent, silent.since) == ("node w4", False, NOW - 2 * HOUR)
    assert {expired.reason, late.reason, silent.reason} == {"CertificateExpired", "RenewalLate", "NodeSilent"}
    assert all(each.follows and each.command for each in (expired, late, silent))


@pytest.mark.parametrize("state", [state for state in node_states.ORDER if state not in node_states.CALM])
def test_every_state_that_needs_somebody_has_a_sentence(state: node_states.State):
    asking = nodes_of.request("csr-1", of="w1")
    recovering = nodes_of.request("csr-1", of="w1", username=f"{user_names.NODE_RECOVERY_PREFIX}w1")
    worlds: dict[node_states.State, dict[str, Any]] = {
        node_states.State.EXPIRED: {"issued": [nodes_of.entry("w1", age=25, lasts=24)]},
        node_states.State.LATE: {"issued": [nodes_of.entry("w1", age=23, lasts=24)]},
        node_states.State.WAITING: {"requests": [asking]},
        node_states.State.RECOVERING: {"requests": [recovering]},
        node_states.State.SILENT: {"leases": []},
    }
    read = known.nodes(**{"nodes": [nodes_of.node("w1")], "leases": [nodes_of.lease("w1")], **worlds[state]})
    assert [row.state for row in node_states.rows(read, NOW)] == [state]
    [sentence] = told(nodes=read)
    assert sentence.about == "node w1"
    assert sentence.text
    assert sentence.follows
    assert sentence.command
    requests = read.requests
    if requests:
        # Its request is told of already.
        [alone] = told(nodes=read, requests=facts.Requests(list(requests)))
        assert alone.about == "request csr-1"


def test_a_node_that_never_was_seen_is_silent_since_it_has_its_certificate():
    read = known.nodes(leases=[])
    [silent] = told(nodes=read)
    assert read.issued
    assert (silent.reason, silent.since) == ("NodeSilent", read.issued[0].issued_at)


def test_a_node_that_waits_is_told_of_once():
    waiting = known.request("csr-9", of="w9")
    read = known.nodes(requests=[waiting])
    [alone] = told(nodes=read)
    assert (alone.about, alone.reason) == ("node w9", "NodeWaits")
    [request] = told(nodes=read, requests=facts.Requests([waiting]))
    assert (request.about, request.reason, request.link) == ("request csr-9", "RequestsWait", "/requests/csr-9")
    assert request.since == datetime.datetime(2026, 11, 18, 11, tzinfo=datetime.UTC)


def test_a_request_that_is_explained_says_why_it_waits():
    due = request_age.Due(None, "", overdue=False)
    failed_check = kubelet.Check("name", False, "it is taken")
    why = request_explanation.Explanation("Pending", (failed_check,), "", due)
    waiting = known.request("csr-9", of="w9")
    [sentence] = told(requests=facts.Requests([waiting], {"csr-9": why}))
    assert sentence.text == "it waits for somebody; it fails: name"
    # Nobody has looked why, or nothing fails: no more is said.
    [sentence] = told(requests=facts.Requests([waiting]))
    assert sentence.text == "it waits for somebody"


def test_several_requests_are_counted():
    [sentence] = told(requests=facts.Requests([known.request("a/b"), known.request("c")]))
    assert (sentence.about, sentence.link) == ("2 requests", "/requests")
    assert sentence.text == "they wait for somebody: a/b, c"


def test_what_could_not_be_read_is_told_by_its_check():
    unread = check.Unread("it was not answered", check.TIMEOUT)
    abouts = {each.about for each in told(nodes=unread, requests=unread)}
    assert {"nodes", "requests"} <= abouts
    # Without facts there is what the checks say.
    failed = check.Check("nodes", check.Verdict.FAILED, "late", "RenewalLate", "look")
    [alone] = overview.sentences([failed], None, [], {})
    assert (alone.about, alone.link) == ("nodes", "/nodes")


def test_who_would_be_refused_by_a_policy_in_audit_is_told_since_when_it_was_so_with_the_page_of_those_edges():
    row = check.Check(
        "mesh-audit", check.Verdict.WARNING, "calls", "PolicyWouldRefuse", "handfast mesh edges", since=NOW - HOUR
    )
    [sentence] = overview.sentences([row], None, [], {("mesh-audit", "PolicyWouldRefuse"): NOW})
    assert (sentence.since, sentence.urgent) == (NOW - HOUR, False)
    assert sentence.link == "/mesh/edges?state=would+be+refused"
    assert sentence.follows == "Nobody is refused now. Once those policies are enforced, these calls fail."


@pytest.mark.parametrize(
    ("name", "page"),
    [("store", "/store"), ("mesh", "/mesh"), ("mesh-anchors", "/mesh"), ("dns", "/check"), ("signatures", "/tokens")],
)
def test_every_check_has_a_page(name: str, page: str):
    assert overview.page_of(name) == page


def failed(token: str = "abcdef", **more: Any) -> join_failures.Failed:
    values: dict[str, Any] = {"last": NOW - HOUR / 2, "reason": "TokenExpired", "token": token, "source": "192.0.2.1"}
    return join_failures.Failed(**{**values, **more})


def test_joins_that_were_refused_are_told_by_token_and_reason():
    joins = [
        failed(count=300, first=NOW - 3 * HOUR),
        failed(count=12, source="192.0.2.2"),
        failed("", known=False, reason="UnknownToken", source=""),
        failed("old123", last=NOW - 2 * HOUR),
        failed("waits1", request="csr-1"),
    ]
    joins.append(failed("", credential="certificate", reason="UnknownAuthority"))
    unknown, certificate, expired = told(joins)
    assert certificate.about == "A certificate for bootstrapping"
    assert certificate.command.startswith("handfast machine credentials create --kind master")
    assert expired.about == "Token abcdef"
    assert expired.text == "was refused 312 times from 192.0.2.1, 192.0.2.2"
    assert (expired.since, expired.link, expired.urgent) == (NOW - 3 * HOUR, "/tokens/abcdef", False)
    assert expired.command.startswith("handfast token create")
    assert (unknown.about, unknown.text) == ("A token that is not there", "was refused 1 time")
    assert unknown.link == "/tokens"


def test_since_when_is_the_first_look_at_which_it_was_so():
    bad = check.Check("store", check.Verdict.FAILED, "full", "StoreNotReady", "look")
    good = check.Check("cas", check.Verdict.OK, "fine")
    first = overview.remembered({}, [bad, good], NOW)
    assert first == {("store", "StoreNotReady"): NOW}
    assert overview.remembered(first, [bad], NOW + HOUR) == first
    # What was well in between begins anew.
    assert overview.remembered(overview.remembered(first, [good], NOW), [bad], NOW + HOUR) == {
        ("store", "StoreNotReady"): NOW + HOUR
    }


def test_nodes_that_are_followed_are_told_of_as_those_that_are_listed():
    read = known.nodes(
        nodes=[nodes_of.node(name) for name in ("w1", "w2")],
        leases=[],
        issued=[nodes_of.entry("w1", age=25, lasts=24), nodes_of.entry("w2")],
    )
    standing = node_states.standing(read, NOW)
    assert told(nodes=standing) == told(nodes=read)
    # Of very many, not all are handed over.
    many = node_states.Standing(counts={**standing.counts, node_states.State.EXPIRED: 1234}, needing=standing.needing)
    expired = told(nodes=many)[0]
    assert (expired.about, expired.link) == ("1,234 nodes", "/nodes?state=expired")
