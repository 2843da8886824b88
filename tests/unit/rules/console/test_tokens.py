# SPDX-License-Identifier: Apache-2.0
"""What each token is good for, in which order, and whom it let in or kept out."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
from typing import Any

import pytest

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import token_limits, tokens
from handfast.rules.console import questions, requests, rows
from handfast.rules.console import tokens as shown
from handfast.rules.nodes import join_failures
from handfast.rules.tokens import maker

NOW = datetime.datetime(2026, 6, 1, 12, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
SECRET = "0123456789abcdef"


def secret(token_id: str = "abcdef", *, until: datetime.datetime | None = NOW + HOUR, **rest: Any) -> objects.Document:
    """The Secret of a token, as the console has it: without its secret half."""
    annotations = rest.pop("annotations", {})
    document = tokens.secret_document(
        tokens.Token(token_id, SECRET),
        expiration=until,
        **{"usages": tokens.USAGES, "description": "for racks", **rest},
    )
    document["metadata"] |= {"creationTimestamp": objects.timestamp(NOW), "annotations": annotations}
    del document["data"][tokens.KEY_SECRET]
    return document


def made(document: objects.Document | None = None, refusals: shown.Refusals | None = None) -> shown.Row:
    return shown.read(document or secret()).at(NOW).refused(refusals)


def use(number: int) -> dict[str, str]:
    return {"time": objects.timestamp(NOW), "node": f"n-{number}", "key": f"sha256:{number:064x}", "source": "10.0.0.1"}


class TestRow:
    def test_a_row_says_what_the_token_is_for_who_made_it_and_its_limits(self) -> None:
        limits = {
            token_limits.MAX_USES_KEY: "5",
            token_limits.NODES_KEY: "rack-*",
            token_limits.CIDRS_KEY: "10.0.0.0/8",
        }
        notes = {**limits, maker.KEY: "alice", token_limits.USES_KEY: json.dumps([use(1), use(2)])}
        row = made(secret(annotations=notes, groups=["system:bootstrappers:racks"]))
        assert (row.id, row.state, row.description, row.maker) == ("abcdef", "good", "for racks", "alice")
        assert row.used_words == "2 of 5"
        assert [each.node for each in row.uses] == ["n-1", "n-2"]
        assert row.bounds == (("nodes", "rack-*"), ("from", "10.0.0.0/8"))
        assert row.groups == ("system:bootstrappers", "system:bootstrappers:racks")
        assert (row.created, row.expires) == (NOW, NOW + HOUR)

    def test_without_limits_uses_are_only_counted(self) -> None:
        assert made().used_words == "0"
        assert made().bounds == ()

    @pytest.mark.parametrize(
        ("document", "state"),
        [
            (secret(), "good"),
            (secret(until=NOW), "expired"),
            (secret(until=None), "never ends"),
            (secret(until=None, usages=[tokens.SIGNING]), "good"),
            (
                secret(annotations={token_limits.MAX_USES_KEY: "1", token_limits.USES_KEY: json.dumps([use(1)])}),
                "used up",
            ),
        ],
    )
    def test_the_state_is_what_a_machine_would_meet(self, document: objects.Document, state: str) -> None:
        assert made(document).state == state

    def test_one_that_is_being_deleted_says_so(self) -> None:
        document = secret()
        document["metadata"]["deletionTimestamp"] = objects.timestamp(NOW)
        assert made(document).state == "being deleted"

    def test_limits_that_cannot_be_read_are_told(self) -> None:
        row = made(secret(annotations={token_limits.MAX_USES_KEY: "many"}))
        assert row.state == "unreadable"
        assert row.fault.startswith("nobody is let in: handfast.dev/max-uses")

    def test_a_secret_that_is_no_token_says_what_is_wrong(self) -> None:
        document = secret()
        document["data"][tokens.KEY_EXPIRATION] = base64.b64encode(b"tomorrow").decode()
        row = made(document)
        assert (row.state, row.expires) == ("unreadable", None)
        assert "RFC 3339" in row.fault

    def test_a_name_that_is_none_of_a_token_is_refused(self) -> None:
        document = secret()
        document["metadata"]["name"] = "other"
        with pytest.raises(errors.Refused):
            made(document)

    def test_nothing_here_has_a_place_for_a_secret(self) -> None:
        document = secret()
        # Even where somebody hands one in.
        document["data"][tokens.KEY_SECRET] = base64.b64encode(SECRET.encode()).decode()
        assert SECRET not in repr(dataclasses.asdict(made(document)))

    def test_a_filter_finds_it_by_what_people_know_of_it(self) -> None:
        notes = {maker.KEY: "alice", token_limits.USES_KEY: json.dumps([use(7)])}
        row = made(secret(annotations=notes))
        for words in ("abcdef", "racks", "ALICE", "n-7", "state:good"):
            question = questions.Question(path="/tokens", filter=words)
            assert rows.select([row], question, text=lambda each: each.text, columns=shown.COLUMNS).total == 1

    @pytest.mark.parametrize("column", sorted(shown.COLUMNS))
    def test_rows_sort_by_every_column_whatever_is_missing(self, column: str) -> None:
        question = questions.Question(path="/tokens", sort=column)
        given = [made(secret("aaaaaa", until=None)), shown.Row(id="bbbbbb", state=shown.UNREADABLE)]
        found = rows.select(given, question, text=lambda each: each.text, columns=shown.COLUMNS)
        assert {each.id for each in found.items} == {"aaaaaa", "bbbbbb"}


def failed(
    token: str, count: int = 1, *, ago: int = 0, known: bool = True, reason: str = "TokenExpired"
) -> join_failures.Failed:
    return join_failures.Failed(last=NOW - ago * HOUR, reason=reason, count=count, token=token, known=known)


class TestRefusals:
    def test_refusals_are_counted_by_the_token_that_they_name(self) -> None:
        found = shown.refusals_by_token([failed("abcdef", 2, ago=1, reason="TokenUsedUp"), failed("abcdef", 3)])
        assert found == {"abcdef": shown.Refusals(count=5, last=NOW, reasons=("TokenExpired", "TokenUsedUp"))}

    def test_ids_that_no_token_has_are_told_together(self) -> None:
        certificate = dataclasses.replace(failed(""), credential="certificate")
        found = shown.refusals_by_token([failed("aaaaaa", known=False), failed("bbbbbb", known=False), certificate])
        assert found[""].count == 2

    @pytest.mark.parametrize(
        ("state", "reason"),
        [("pending", "Waiting"), ("denied", "Denied"), ("failed", "Failed"), ("issued", ""), ("approved", "")],
    )
    def test_a_request_with_a_token_that_led_to_nothing_is_a_refusal(self, state: str, reason: str) -> None:
        row = requests.Row(
            name="csr-1", uid="", state=state, purpose="", signer="", requester="", token="abcdef", since=NOW, node="n"
        )
        found = list(shown.of_requests([row, dataclasses.replace(row, token=""), dataclasses.replace(row, since=None)]))
        assert [(each.reason, each.token, each.request) for each in found] == (
            [(reason, "abcdef", "csr-1")] if reason else []
        )


class TestOrder:
    def test_what_needs_a_look_comes_first_and_what_is_over_last(self) -> None:
        refused = shown.Refusals(count=3, last=NOW)
        given = [
            made(secret("expire", until=NOW - HOUR)),
            made(secret("before", until=NOW - 2 * HOUR)),
            made(secret("laterr", until=NOW + 9 * HOUR)),
            made(secret("sooner", until=NOW + HOUR)),
            made(secret("triedd", until=NOW - HOUR), refused),
            made(secret("foreve", until=None)),
        ]
        names = [each.id for each in shown.ordered(given)]
        assert names == ["foreve", "triedd", "sooner", "laterr", "expire", "before"]


class TestHead:
    @pytest.mark.parametrize(
        ("given", "title"),
        [
            ([], "No token lets a machine in"),
            ([secret(until=NOW)], "No token lets a machine in"),
            ([secret(usages=[tokens.SIGNING])], "No token lets a machine in"),
            ([secret()], "1 token lets machines in"),
            ([secret("aaaaaa"), secret("bbbbbb", until=None)], "2 tokens let machines in"),
        ],
    )
    def test_the_title_counts_those_that_let_somebody_in(self, given: list[objects.Document], title: str) -> None:
        assert shown.title([made(each) for each in given]) == title

    def test_the_sentence_says_what_else_there_is(self) -> None:
        given = [made(secret("aaaaaa")), made(secret("bbbbbb", until=NOW)), made(secret("cccccc", until=None))]
        assert shown.sentence(given, NOW) == "The next one ends in 1 h; 1 never ends; 1 expired."
        assert shown.sentence([], NOW) == "Create one to let a machine join."


def test_that_no_token_lets_a_machine_in_is_only_said_where_it_is_sure():
    assert shown.title([]) == "No token lets a machine in"
    assert shown.title([], sure=False) == "Whether a token lets a machine in is not known"
    assert shown.sentence([], NOW, sure=False) == "The tokens could not be read."
