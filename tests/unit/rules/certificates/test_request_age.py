# SPDX-License-Identifier: Apache-2.0
"""When requests may be deleted; the deleting is tested with the controller."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from handfast.api import objects, signing_requests
from handfast.rules.certificates import request_age
from tests.unit.rules.csr_cases import HOUR, MINUTE, NOW, certificate, condition

DAY = 24 * HOUR
TICK = datetime.datetime.resolution
LATER = certificate(NOW + HOUR)
PAST = certificate(NOW - MINUTE)


def request(
    *conditions: dict[str, Any], certificate: str = "", created: datetime.datetime | None = NOW - 2 * HOUR
) -> signing_requests.Request:
    metadata = {"name": "csr"} if created is None else {"name": "csr", "creationTimestamp": objects.timestamp(created)}
    document = {"metadata": metadata, "status": {"conditions": list(conditions), "certificate": certificate}}
    return msgspec.convert(document, signing_requests.Request)


CASES = [
    pytest.param(request(condition("Approved", NOW - 50 * MINUTE), certificate=LATER), "", id="issued 50m ago"),
    pytest.param(request(condition("Approved", NOW - 61 * MINUTE), certificate=LATER), "issued", id="issued 61m ago"),
    pytest.param(request(condition("Approved", NOW - 50 * MINUTE)), "", id="approved 50m ago, not issued"),
    pytest.param(request(condition("Approved", NOW - 61 * MINUTE)), "unissued", id="approved 61m ago, not issued"),
    pytest.param(
        request(condition("Approved", NOW - 50 * MINUTE), created=NOW - 25 * HOUR), "old", id="25h old, just approved"
    ),
    pytest.param(
        request(condition("Other", None), created=NOW - 25 * HOUR), "old", id="25h old, otherwise conditioned"
    ),
    pytest.param(request(condition("Other", None), created=NOW - 23 * HOUR), "", id="23h old, otherwise conditioned"),
    pytest.param(request(condition("Denied", NOW - 50 * MINUTE)), "", id="denied 50m ago"),
    pytest.param(request(condition("Denied", NOW - 61 * MINUTE)), "denied", id="denied 61m ago"),
    pytest.param(request(condition("Failed", NOW - 50 * MINUTE)), "", id="failed 50m ago"),
    pytest.param(request(condition("Failed", NOW - 61 * MINUTE)), "failed", id="failed 61m ago"),
    pytest.param(request(created=NOW - 23 * HOUR), "", id="pending for 23h"),
    pytest.param(request(created=NOW - 25 * HOUR), "pending", id="pending for 25h"),
    pytest.param(request(condition("Approved", NOW - MINUTE), certificate=PAST), "expired", id="expired certificate"),
    pytest.param(request(condition("Other", NOW - 99 * DAY), certificate=PAST), "", id="expired, never approved"),
    pytest.param(request(condition("Approved", None), certificate=LATER), "", id="no time of approval"),
    pytest.param(request(created=None), "", id="no time of creation"),
]


@pytest.mark.parametrize(("item", "rule"), CASES)
def test_each_rule_holds_past_its_age_and_not_before(item: signing_requests.Request, rule: str):
    due = request_age.due(item, NOW)
    assert due.overdue is bool(rule)
    if rule:
        assert due.rule == rule
        assert due.at is not None
        assert due.at <= NOW


BOUNDARIES = [
    pytest.param(request(condition("Approved"), certificate=certificate(NOW + DAY)), HOUR, "issued", id="issued"),
    pytest.param(request(condition("Approved")), HOUR, "unissued", id="unissued"),
    pytest.param(request(condition("Other"), created=NOW), DAY, "old", id="old"),
    pytest.param(request(condition("Denied")), HOUR, "denied", id="denied"),
    pytest.param(request(condition("Failed")), HOUR, "failed", id="failed"),
    pytest.param(request(created=NOW), DAY, "pending", id="pending"),
    pytest.param(request(condition("Approved"), certificate=LATER), HOUR, "expired", id="notAfter and age at once"),
    pytest.param(
        request(condition("Approved"), condition("Failed", NOW - MINUTE)), HOUR - MINUTE, "failed", id="the earliest"
    ),
]


@pytest.mark.parametrize(("item", "age", "rule"), BOUNDARIES)
def test_strictly_greater(item: signing_requests.Request, age: datetime.timedelta, rule: str):
    due = request_age.due(item, NOW + age)
    assert due == request_age.Due(NOW + age + TICK, rule, overdue=False)
    assert request_age.due(item, NOW + age + TICK).overdue


@pytest.mark.parametrize(
    "time",
    [
        "",
        "yesterday",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59Z",
        "2026-01-01T00:00:00",
        None,
    ],
)
def test_times_that_start_no_clock(time: str | None):
    item = signing_requests.Request(signing_requests.Meta(creation_timestamp=time))
    assert request_age.due(item, NOW) == request_age.Due(None, "", overdue=False)
    denied = signing_requests.Status([signing_requests.Condition("Denied", last_update_time=time)])
    assert request_age.due(signing_requests.Request(signing_requests.Meta(), status=denied), NOW).at is None


@pytest.mark.parametrize("unreadable", ["%", "YWJj", "LS0tLS1CRUdJTg==", f"!{certificate(NOW - MINUTE)}"])
def test_an_unreadable_certificate_goes_by_the_age_of_its_approval(unreadable: str):
    due = request_age.due(request(condition("Approved"), certificate=unreadable), NOW)
    assert due == request_age.Due(NOW + HOUR + TICK, "issued", overdue=False)


def test_a_request_without_any_time_is_never_due():
    assert request_age.due(signing_requests.Request(signing_requests.Meta()), NOW).at is None
