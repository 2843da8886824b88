# SPDX-License-Identifier: Apache-2.0
"""Which form is written while servers of several versions share a store."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules import stored_forms
from handfast.rules.stored_forms import Announcement, Forms

NOW = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)
LATER, BEFORE = NOW + datetime.timedelta(seconds=1), NOW - datetime.timedelta(seconds=1)
OLD, NEW = Forms(1, 1), Forms(1, 2)


def test_alone_a_server_writes_the_newest_it_knows() -> None:
    assert stored_forms.to_write(1, NEW, [Announcement("me", NEW, LATER)], NOW) == 2
    assert stored_forms.to_write(1, NEW, [], NOW) == 2


def test_nobody_writes_what_one_of_them_cannot_read() -> None:
    announcements = [Announcement("a", NEW, LATER), Announcement("b", OLD, LATER)]
    assert stored_forms.to_write(1, NEW, announcements, NOW) == 1
    assert stored_forms.to_write(1, OLD, announcements, NOW) == 1
    assert stored_forms.holding_back(NEW, announcements, NOW) == ("b",)
    assert stored_forms.holding_back(OLD, announcements, NOW) == ()


def test_a_server_that_has_gone_counts_until_its_announcement_ends() -> None:
    assert stored_forms.to_write(1, NEW, [Announcement("b", OLD, LATER)], NOW) == 1
    assert stored_forms.to_write(1, NEW, [Announcement("b", OLD, NOW)], NOW) == 2
    assert stored_forms.holding_back(NEW, [Announcement("b", OLD, BEFORE)], NOW) == ()


def test_a_form_once_written_is_not_given_up() -> None:
    assert stored_forms.to_write(2, NEW, [Announcement("b", OLD, LATER)], NOW) == 2


def test_a_server_writes_no_form_that_it_does_not_know() -> None:
    assert stored_forms.to_write(2, OLD, [], NOW) == 1


def test_a_server_that_does_not_know_the_marker_is_refused() -> None:
    with pytest.raises(stored_forms.StoreTooNew, match="form 2, and this version knows forms up to 1"):
        stored_forms.require_known(2, OLD)
    stored_forms.require_known(2, NEW)
    stored_forms.require_known(1, NEW)


@pytest.mark.parametrize("text", ["", "1", "1-", "2-1", "0-1", "1-2-3", "a-b", "1-99999", "١-٢"])
def test_what_is_no_announcement_is_none(text: str) -> None:
    assert stored_forms.parse(text) is None


def test_what_is_announced_is_understood() -> None:
    assert stored_forms.parse(str(NEW)) == NEW
