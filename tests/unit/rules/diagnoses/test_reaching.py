# SPDX-License-Identifier: Apache-2.0
"""The way in: each step that fails has its reason, and what comes behind it is unknown."""

import dataclasses
import datetime

import pytest

from handfast.rules import check
from handfast.rules.diagnoses import facts, judged
from tests.unit.rules.diagnoses import known

REFUSED = check.Unread("it refuses connections", "ConnectionRefused", "start it")
MINUTE = datetime.timedelta(minutes=1)


def told(**changes):
    read = known.good(**changes)
    rows = {name: judge(read) for name, judge in judged.WAY.items()}
    return {name: (row.verdict.value, row.reason) for name, row in rows.items()}


def test_every_step_of_a_way_in_order_is_well():
    assert {*told().values()} == {("ok", "")}


@pytest.mark.parametrize(
    ("field", "name"), [("addresses", "dns"), ("connected", "tcp"), ("certificate", "tls"), ("version", "api")]
)
def test_a_step_that_fails_fails_with_its_reason(field, name):
    assert told(reach=known.reach(**{field: REFUSED}))[name] == ("failed", "ConnectionRefused")


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("Unauthorized", "kubeconfig of this cluster"),
        ("TooManyRequests", "ask again in a minute"),
        ("ServiceUnavailable", "ask again in a minute"),
        ("InternalError", "see the log of the API server"),
    ],
)
def test_an_answer_that_is_a_refusal_has_a_next_step(reason, step):
    refused = check.Unread("no", reason)
    assert step in judged.WAY["api"](known.good(reach=known.reach(version=refused))).hint


def test_what_comes_behind_a_step_that_failed_is_unknown():
    rows = told(reach=facts.Reach(server=known.SERVER, addresses=REFUSED), ready=facts.NOT_ASKED)
    assert rows["dns"] == ("failed", "ConnectionRefused")
    assert [rows[name] for name in ("tcp", "tls", "clock", "api")] == [("unknown", "Unknown")] * 4


@pytest.mark.parametrize(
    ("age", "verdict"),
    [(10, ("ok", "")), (340, ("failed", "CertificateEndsSoon")), (366, ("failed", "CertificateExpired"))],
)
def test_a_certificate_fails_before_it_ends(age, verdict):
    shown = known.certificate(age=age)
    assert told(credential=shown)["credential"] == verdict
    assert told(reach=known.reach(certificate=shown))["tls"] == verdict


def test_a_certificate_of_tomorrow_fails():
    assert told(credential=known.certificate(age=-1))["credential"] == ("failed", "CertificateNotYetValid")


def test_a_token_has_no_end_that_could_be_seen():
    assert told(credential=None)["credential"] == ("ok", "")


@pytest.mark.parametrize("sign", [1, -1])
def test_a_minute_between_the_clocks_fails(sign):
    assert told(reach=known.reach(ahead=sign * MINUTE))["clock"] == ("failed", "ClockSkew")
    assert told(reach=known.reach(ahead=sign * MINUTE * 0.9))["clock"] == ("ok", "")


def test_a_server_that_says_it_is_not_ready_fails_and_its_store_is_another_check():
    assert told(ready="[-]replica failed: stopped\n")["api"] == ("failed", "NotReady")
    assert told(ready="[-]store failed: full\n")["api"] == ("ok", "")
    assert told(ready=check.Unread("no"))["api"] == ("unknown", "Unknown")


def test_who_arrived_has_a_version():
    assert known.reach().arrived
    assert not dataclasses.replace(known.reach(), version=REFUSED).arrived
