# SPDX-License-Identifier: Apache-2.0
"""Failed joins as rows. The names of the table in `rules/tokens/failed_joins.py` are here."""

from __future__ import annotations

import datetime
import json

import pytest

from handfast.api import kinds
from handfast.api.validation import validation
from handfast.rules.nodes import join_failures
from handfast.rules.tokens import failed_joins
from handfast.rules.tokens.failed_joins import Shown

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)
EVENTS = next(kind for kind in kinds.builtin() if (kind.group, kind.plural) == ("", "events"))


def failure(token: str = "abcdef", source: str = "192.0.2.1", **more: object) -> failed_joins.Failure:
    facts = {"shown": Shown.SECRET, "reason": "TokenExpired", **more}
    return failed_joins.Failure(token=token, source=source, **facts)  # type: ignore[arg-type]


def guess(number: int, source: str = "192.0.2.1") -> failed_joins.Failure:
    return failure(f"{number:06}", source, shown=Shown.NOTHING, reason="UnknownToken")


def address(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


@pytest.fixture
def failures() -> failed_joins.Failures:
    return failed_joins.Failures()


def written(failures: failed_joins.Failures, now: datetime.datetime) -> list[failed_joins.Row]:
    """What is due, as whoever writes it marks it."""
    rows = failures.due(now)
    for row in rows:
        row.written, row.fresh = now, 0
    return rows


def test_the_same_again_is_counted_on_one_row(failures: failed_joins.Failures) -> None:
    failures.note(failure(), NOW)
    row = failures.note(failure(node="worker-1"), NOW + SECOND)
    assert (len(failures), row.fresh, row.first, row.last) == (1, 2, NOW, NOW + SECOND)
    # A name that was told once stays.
    assert failures.note(failure(), NOW).node == "worker-1"
    assert row.reason == "TokenExpired"


@pytest.mark.parametrize(
    "other", [failure("ghijkl"), failure(source="192.0.2.2"), failure(reason="TokenUsedUp"), failure(shown=Shown.ID)]
)
def test_another_token_source_or_reason_is_another_row(
    failures: failed_joins.Failures, other: failed_joins.Failure
) -> None:
    assert failures.note(failure(), NOW) is not failures.note(other, NOW)


def test_made_up_ids_share_one_row_for_each_source(failures: failed_joins.Failures) -> None:
    for number in range(5000):
        row = failures.note(guess(number), NOW)
    assert (len(failures), row.fresh, row.token) == (1, 5000, "004999")
    failures.note(guess(1, "192.0.2.2"), NOW)
    # One machine can take any address of its /64.
    failures.note(guess(1, "2001:db8::1"), NOW)
    failures.note(guess(1, "2001:db8::2"), NOW)
    assert len(failures) == 3


@pytest.mark.parametrize("shown", [Shown.NOTHING, Shown.ID, Shown.SECRET])
def test_the_rows_of_strangers_are_bounded_and_none_is_lost(failures: failed_joins.Failures, shown: Shown) -> None:
    count = 2000
    for number in range(count):
        failures.note(failure(f"{number:06}", address(number), shown=shown, reason="WrongTokenSecret"), NOW)
    assert len(failures) == failed_joins.ROOM[shown] + 1
    rows, now = [], NOW
    while due := written_counts(failures, now):
        assert len(due) <= failed_joins.AT_ONCE
        rows += due
        now += SECOND
    assert sum(fresh for _, fresh in rows) == count
    [rest] = [row for row, _ in rows if not row.source]
    assert "many addresses" in join_failures.sentence(rest)
    assert failed_joins.SOURCE not in failed_joins.event(rest, "")["metadata"]["annotations"]


def written_counts(failures: failed_joins.Failures, now: datetime.datetime) -> list[tuple[failed_joins.Row, int]]:
    counts = [(row, row.fresh) for row in failures.due(now)]
    written(failures, now)
    return counts


def test_strangers_take_no_room_from_who_holds_a_token(failures: failed_joins.Failures) -> None:
    for number in range(1000):
        failures.note(guess(number, address(number)), NOW)
        failures.note(failure("public", address(number), shown=Shown.ID, reason="WrongTokenSecret"), NOW)
    row = failures.note(failure(), NOW + SECOND)
    assert row.source == "192.0.2.1"
    # And it is the first to be written.
    assert failures.due(NOW + SECOND)[0] is row


def test_made_up_certificates_are_bounded_and_take_no_room_from_holders(failures: failed_joins.Failures) -> None:
    count, reasons = 2000, ("UnknownAuthority", "Expired", "Malformed")
    for number in range(count):
        failures.note(
            failure("certificate", address(number), shown=Shown.NOTHING, reason=reasons[number % len(reasons)]), NOW
        )
    # So many with an address, and one for each reason without.
    assert len(failures) == failed_joins.OF_ONE_TOKEN + len(reasons)
    assert sum(row.fresh for row in failures._rows.values()) == count
    # Guessed ids have room beside them, and so has who holds the credential.
    assert failures.note(guess(1), NOW).source == "192.0.2.1"
    held = failures.note(failure("certificate", reason="Revoked"), NOW + SECOND)
    assert held.source == "192.0.2.1"
    assert failures.due(NOW + SECOND)[0] is held


@pytest.mark.parametrize("word", failed_joins.SHARED)
@pytest.mark.parametrize("shown", [Shown.NOTHING, Shown.SECRET])
def test_of_a_certificate_nothing_is_kept_but_that_it_was_one(
    failures: failed_joins.Failures, word: str, shown: Shown
) -> None:
    row = failures.note(failure(word, shown=shown, reason="UnknownAuthority"), NOW)
    event = failed_joins.event(row, join_failures.sentence(row))
    assert event["metadata"]["annotations"] == {
        failed_joins.CREDENTIAL: word,
        failed_joins.SOURCE: "192.0.2.1",
        failed_joins.WHY: "UnknownAuthority",
    }
    assert event["metadata"]["name"].startswith(f"bootstrap-{word}.")
    assert event["involvedObject"]["kind"] == "Namespace"
    assert "machine credentials create" in event["message"]
    [read] = join_failures.of_events([event])
    assert (read.credential, read.token, read.source) == (word, "", "192.0.2.1")
    assert join_failures.cells(read, NOW)[3] == join_failures.document(read)["credential"] == word


def test_one_token_takes_no_room_from_another(failures: failed_joins.Failures) -> None:
    for number in range(1000):
        failures.note(failure("oldold", address(number)), NOW)
    assert len(failures) == failed_joins.OF_ONE_TOKEN + 1
    assert failures.note(failure("newnew"), NOW).source == "192.0.2.1"


def test_a_row_goes_an_hour_after_it_last_happened(failures: failed_joins.Failures) -> None:
    failures.note(failure(), NOW)
    failures.note(failure("ghijkl"), NOW + SECOND)
    failures.note(failure("mnopqr"), NOW + failed_joins.KEPT)
    assert len(failures) == 2


def test_a_row_is_written_at_once_and_then_not_too_often(failures: failed_joins.Failures) -> None:
    failures.note(failure(), NOW)
    assert failures.unwritten()
    assert len(written(failures, NOW)) == 1
    assert not failures.unwritten()
    assert failures.due(NOW + failed_joins.KEPT) == []
    failures.note(failure(), NOW)
    assert failures.due(NOW + SECOND) == []
    assert len(failures.due(NOW + failed_joins.PERIOD)) == 1
    # The clock was set back by a day.
    assert len(failures.due(NOW - datetime.timedelta(days=1))) == 1


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "<b>x</b>", "A", "x" * 254, "a\u202eb"])
def test_only_names_that_a_node_can_have_are_kept(failures: failed_joins.Failures, name: str) -> None:
    row = failures.note(failure(node=name), NOW)
    assert row.node == ""
    assert name not in json.dumps(failed_joins.event(row, join_failures.sentence(row)), ensure_ascii=False)


@pytest.mark.parametrize(
    ("one", "name", "kind", "says"),
    [
        (
            failure(node="worker-1"),
            "bootstrap-token-abcdef",
            "Secret",
            "node worker-1 from 192.0.2.1, with token abcdef,",
        ),
        (guess(7), "kube-system", "Namespace", "a machine from 192.0.2.1, with an unknown token, was refused"),
    ],
)
def test_an_event_has_the_id_and_never_the_secret(
    failures: failed_joins.Failures, one: failed_joins.Failure, name: str, kind: str, says: str
) -> None:
    row = failures.note(one, NOW)
    event = failed_joins.event(row, join_failures.sentence(row))
    assert (event["involvedObject"]["name"], event["involvedObject"]["kind"]) == (name, kind)
    assert says in event["message"]
    assert list(validation.create(EVENTS, event)) == []
    # Servers on one store count on the same Event, whenever each has seen the first.
    other = failed_joins.Failures().note(one, NOW + SECOND)
    assert failed_joins.event(other, "")["metadata"]["name"] == event["metadata"]["name"]


def test_an_event_for_several_tokens_names_none(failures: failed_joins.Failures) -> None:
    for number in range(failed_joins.ROOM[Shown.SECRET] + 1):
        row = failures.note(failure(f"{number:06}", address(number)), NOW)
    event = failed_joins.event(row, join_failures.sentence(row))
    assert failed_joins.TOKEN not in event["metadata"]["annotations"]
    assert "with several tokens" in event["message"]


@pytest.mark.parametrize("before", [None, "7", -1, 1 << 40, True])
def test_an_event_that_somebody_else_wrote_is_taken_over(failures: failed_joins.Failures, before: object) -> None:
    event = failed_joins.event(failures.note(failure(), NOW), "s")
    forged = {"metadata": {"uid": "u", "annotations": {"x": "y"}}, "message": "hello", "count": before}
    taken = failed_joins.counted(event, forged)
    assert (taken["message"], taken["count"] in {1, 2}) == ("s", True)
    assert taken["metadata"] == {"uid": "u", "annotations": event["metadata"]["annotations"]}
    assert taken["firstTimestamp"] == event["firstTimestamp"]


def test_an_event_goes_on_where_it_was(failures: failed_joins.Failures) -> None:
    event = failed_joins.event(failures.note(failure(), NOW), "s")
    existing = {"metadata": {}, "count": 41, "firstTimestamp": "2026-11-18T11:00:00Z"}
    again = failed_joins.counted(event, existing)
    assert (again["count"], again["firstTimestamp"]) == (42, "2026-11-18T11:00:00Z")
