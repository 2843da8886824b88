# SPDX-License-Identifier: Apache-2.0
"""Rows of requests in order, what a request asks for, and what confirms a decision."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from handfast.api import objects, signing_requests
from handfast.rules import request_explanation
from handfast.rules.certificates import kubelet, request_age
from handfast.rules.console import questions, requests, rows
from handfast.rules.machines import source_address
from tests.unit.rules import csr_cases
from tests.unit.rules.csr_cases import HOUR, MINUTE, NOW

TOKEN_USER = "system:bootstrap:abcdef"


def request(
    document: objects.Document | None = None, *conditions: dict[str, Any], **changes: Any
) -> signing_requests.Request:
    document = document or csr_cases.csr()
    document["metadata"] |= {"uid": "12345678-1234", **changes.pop("metadata", {})}
    document["status"] = {"conditions": list(conditions), **changes}
    return msgspec.convert(document, signing_requests.Request)


def row(
    name: str = "csr-1", state: str = requests.PENDING, since: datetime.datetime | None = NOW, **rest: Any
) -> requests.Row:
    known = {"uid": "12345678-1234", "purpose": "", "signer": "", "requester": "", "created": since, **rest}
    return requests.Row(name=name, state=state, since=since, **known)


APPROVED = csr_cases.condition("Approved", reason="AutoApproved", message="by rule")
DENIED = csr_cases.condition("Denied", reason="NotOurs", message="we know no such node")
FAILED = csr_cases.condition("Failed", reason="SignerValidationFailure")


class TestRow:
    @pytest.mark.parametrize(
        ("conditions", "certificate", "state", "said"),
        [
            ((), "", "pending", ""),
            (
                (csr_cases.condition("Waiting", reason="NodeIsAlive", message="it lives"),),
                "",
                "pending",
                "NodeIsAlive: it lives",
            ),
            ((APPROVED,), "", "approved", "AutoApproved: by rule"),
            ((APPROVED,), "Zm9v", "issued", "AutoApproved: by rule"),
            ((DENIED,), "", "denied", "NotOurs: we know no such node"),
            ((APPROVED, FAILED), "", "failed", "SignerValidationFailure"),
        ],
    )
    def test_the_state_is_that_of_its_conditions(
        self, conditions: tuple[dict[str, Any], ...], certificate: str, state: str, said: str
    ) -> None:
        made = requests.row(request(None, *conditions, certificate=certificate))
        assert (made.state, made.said) == (state, said)

    def test_a_row_says_who_asks_for_which_node_with_which_token(self) -> None:
        made = requests.row(request(csr_cases.csr(user=TOKEN_USER)))
        assert (made.node, made.token, made.requester) == ("a", "abcdef", TOKEN_USER)
        assert (made.purpose, made.created, made.since) == ("a node's client certificate", NOW, NOW)

    def test_a_request_that_cannot_be_read_has_a_row_without_a_node(self) -> None:
        document = csr_cases.csr(signer="example.com/own")
        document["spec"]["request"] = "bm9uc2Vuc2U="
        made = requests.row(request(document))
        assert (made.node, made.token, made.purpose) == ("", "", "example.com/own")

    @pytest.mark.parametrize(
        ("document", "said"),
        [
            (csr_cases.csr(usages=("client auth", "code signing")), "usages: "),
            (csr_cases.csr(o=("system:masters",)), "organization: "),
            (csr_cases.csr(signer="example.com/own"), "signer: no approver decides"),
            # What depends on the Node is asked for on its own page.
            (csr_cases.serving("DNS:a.example.com"), ""),
        ],
    )
    def test_one_that_waits_says_the_first_check_that_it_fails_by_itself(
        self, document: objects.Document, said: str
    ) -> None:
        made = requests.row(request(document))
        assert made.said.startswith(said)
        assert bool(made.said) == bool(said)

    def test_a_filter_finds_it_by_name_node_requester_state_and_token(self) -> None:
        made = requests.row(request(csr_cases.csr(user=TOKEN_USER)))
        for words in ("csr-1", "SYSTEM:bootstrap", "token:abcdef", "state:pending a"):
            question = questions.Question(path="/requests", filter=words)
            assert rows.select([made], question, text=lambda each: each.text, columns=requests.COLUMNS).total == 1
        assert "token:" not in row().text


class TestOrder:
    def test_who_waits_longest_comes_first_and_of_the_decided_the_newest(self) -> None:
        given = [
            row("issued", requests.ISSUED),
            row("denied-old", requests.DENIED, NOW - HOUR),
            row("denied-new", requests.DENIED, NOW),
            row("waits-short", since=NOW),
            row("waits-long", since=NOW - HOUR),
            row("failed", requests.FAILED, None),
            row("approved", requests.APPROVED),
        ]
        names = [each.name for each in requests.ordered(given)]
        assert names == ["waits-long", "waits-short", "approved", "failed", "denied-new", "denied-old", "issued"]

    @pytest.mark.parametrize("column", sorted(requests.COLUMNS))
    def test_rows_sort_by_every_column_whatever_is_missing(self, column: str) -> None:
        question = questions.Question(path="/requests", sort=column)
        given = [row("b", created=None), row("a")]
        found = rows.select(given, question, text=lambda each: each.text, columns=requests.COLUMNS)
        assert {each.name for each in found.items} == {"a", "b"}


class TestSummary:
    def test_nothing_waits(self) -> None:
        found = requests.summary([row(state=requests.ISSUED)], NOW)
        assert found.title == "No request waits"
        assert found.counts[requests.ISSUED] == 1

    def test_one_waits(self) -> None:
        found = requests.summary([row(since=NOW - 26 * MINUTE)], NOW)
        assert found.title == "1 request waits for somebody"
        assert found.sentence.startswith("It came 26 min ago;")

    def test_several_wait(self) -> None:
        found = requests.summary([row(since=None), row(since=NOW - 2 * HOUR)], NOW)
        assert found.title == "2 requests wait for somebody"
        assert found.sentence.startswith("The oldest came 2 h ago;")


class TestOne:
    def test_what_is_asked_for_and_who_asks(self) -> None:
        document = csr_cases.serving("DNS:node-a.example.com", "IP:10.0.0.1", expirationSeconds=3600)
        document["spec"]["extra"] = {source_address.KEY: ["10.0.0.9"], "other": None}
        facts = {each.name: each.text for each in requests.asked(request(document))}
        assert facts["asked by"] == "system:node:a"
        assert facts["from"] == "10.0.0.9"
        assert facts["common name"] == "system:node:a"
        assert facts["organizations"] == "system:nodes"
        assert facts["alternative names"] == "DNS:node-a.example.com, IP:10.0.0.1"
        assert facts["lifetime"] == "1 h, as asked for"
        assert facts["key"].startswith("sha256:")

    def test_a_lifetime_that_no_calendar_has_is_shown_as_the_longest(self) -> None:
        facts = {each.name: each.text for each in requests.asked(request(csr_cases.serving(expirationSeconds=2**62)))}
        assert facts["lifetime"] == "68 y 35 d, as asked for"

    def test_other_attributes_are_shown_too(self) -> None:
        facts = {each.name: each.text for each in requests.asked(request(csr_cases.csr(others=(("2.5.4.11", "ops"),))))}
        assert facts["other attributes"] == "2.5.4.11=ops"

    def test_of_what_cannot_be_read_only_the_requester_is_told(self) -> None:
        document = csr_cases.csr()
        document["spec"]["request"] = "bm9uc2Vuc2U="
        facts = requests.asked(request(document))
        assert facts[0] == requests.Fact("asked by", "system:node:a")
        assert facts[-1].name == "request"
        assert facts[-1].text.startswith("it cannot be read: ")

    def test_the_certificate_is_told_by_its_serial_and_end(self) -> None:
        made = requests.issued(request(None, APPROVED, certificate=csr_cases.certificate(NOW + HOUR)))
        assert made is not None
        assert made.until == NOW + HOUR
        assert made.serial

    @pytest.mark.parametrize("certificate", [None, "", "Zm9v", "no base64"])
    def test_a_certificate_that_cannot_be_read_is_none(self, certificate: str | None) -> None:
        assert requests.issued(request(None, certificate=certificate)) is None

    def test_every_verdict_has_words(self) -> None:
        due = request_age.Due(None, "", overdue=False)
        explained = request_explanation.Explanation(
            request_explanation.PENDING, (kubelet.Check("signer", True, "x"),), "change it", due
        )
        assert requests.verdict(explained) == "waits for somebody"
        names = ("ISSUED", "DENIED", "FAILED", "SIGNING", "FAILING", "APPROVING", "PENDING")
        for name in names:
            explained = request_explanation.Explanation(getattr(request_explanation, name), (), "", due)
            assert requests.verdict(explained)


class TestDeciding:
    def test_the_nodes_name_is_typed_where_there_is_one(self) -> None:
        assert row(node="edge-0417").word == "edge-0417"

    @pytest.mark.parametrize(
        ("node", "name", "word"),
        [
            ("", "csr-7tq2x", "csr-7tq2x"),
            ("Edge <b>", "csr-7tq2x", "csr-7tq2x"),
            ("a\u202eb", "csr\u202e1", "12345678"),
            ("", "a name", "12345678"),
        ],
    )
    def test_what_cannot_be_typed_is_confirmed_by_another_word(self, node: str, name: str, word: str) -> None:
        assert row(name, node=node).word == word

    def test_the_right_word_confirms(self) -> None:
        assert requests.typed({"word": " edge-1 "}, "edge-1", deny=False) == requests.Typed("", {})
        assert requests.typed({"word": "edge-1", "why": "not ours"}, "edge-1", deny=True).wrong == {}

    @pytest.mark.parametrize("word", ["", "edge", "edge-11", "EDGE-1"])
    def test_another_word_confirms_nothing(self, word: str) -> None:
        assert set(requests.typed({"word": word}, "edge-1", deny=False).wrong) == {"word"}

    @pytest.mark.parametrize("why", ["", "  ", "x" * 257, "two\nlines", "back\u202ewards"])
    def test_a_denial_says_why_in_one_line(self, why: str) -> None:
        assert set(requests.typed({"word": "edge-1", "why": why}, "edge-1", deny=True).wrong) == {"why"}


def test_that_no_request_waits_is_only_said_where_it_is_sure():
    assert requests.summary([], NOW).title == "No request waits"
    assert requests.summary([], NOW, sure=False).title == "Whether a request waits is not known"
