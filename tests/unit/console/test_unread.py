# SPDX-License-Identifier: Apache-2.0
"""What cannot be read is counted while it is there, and told once."""

from __future__ import annotations

from structlog import testing

from handfast.console import unread


def test_what_cannot_be_read_is_counted_while_it_is_there_and_told_once():
    left_out = unread.Unread()
    with testing.capture_logs() as log:
        for _ in range(3):
            left_out.failed("leases", "ns", "a", ValueError("year 10000 is out of range"))
            assert (len(left_out), ("leases", "ns", "a") in left_out) == (1, True)
            left_out.forget("leases", "ns", "a")
            assert (len(left_out), ("leases", "ns", "a") in left_out) == (0, False)
    assert [(line["log_level"], line["resource"], line["namespace"], line["name"]) for line in log] == [
        ("error", "leases", "ns", "a")
    ]


def test_what_is_remembered_is_bounded():
    left_out = unread.Unread()
    with testing.capture_logs():
        for number in range(2000):
            left_out.failed("leases", "ns", str(number), KeyError(number))
    assert len(left_out) == 1024
