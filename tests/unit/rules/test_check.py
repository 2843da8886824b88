# SPDX-License-Identifier: Apache-2.0
"""Verdicts: the worst counts, what is not known is not good, and many names are counted."""

from handfast import errors
from handfast.rules import check


def test_the_worst_verdict_counts():
    rows = [
        check.Check("a", verdict, "") for verdict in (check.Verdict.OK, check.Verdict.FAILED, check.Verdict.UNKNOWN)
    ]
    assert check.worst(rows) is check.Verdict.FAILED
    assert check.worst(rows[::2]) is check.Verdict.UNKNOWN
    assert check.worst([]) is check.Verdict.OK


def test_many_names_are_counted():
    assert check.several(["a", "b"]) == "a, b"
    assert check.several([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"


def test_what_was_not_answered_in_time_has_failed():
    assert check.unread("a", check.Unread("no")).verdict is check.Verdict.UNKNOWN
    late = check.unread("a", check.Unread("slow", check.TIMEOUT, "wait"))
    assert (late.verdict, late.hint) == (check.Verdict.FAILED, "wait")


def test_only_what_says_something_of_the_caller_is_unknown():
    assert check.refused(errors.Refused("no", reason="Forbidden", hint="ask")) == check.Unread("no", "Unknown", "ask")
    assert check.refused(errors.Unavailable("no")).reason == "ServiceUnavailable"
    assert check.not_understood(KeyError("x")).reason == check.NOT_UNDERSTOOD


def test_a_check_without_rows_is_well():
    words = (check.Verdict.WARNING, "Reason", "there are {}".format, "mend", "fine")
    assert check.about("a", [], *words).sentence == "fine"
    assert check.about("a", ["x"], *words).sentence == "there are x"
