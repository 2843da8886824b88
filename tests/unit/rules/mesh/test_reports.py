# SPDX-License-Identifier: Apache-2.0
"""What agents may watch and report. The names of the table in `rules/mesh/reports.py` are here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from handfast.rules.mesh import certify, deny_list, issued, reports
from handfast.rules.mesh.reports import Edge, Report
from tests.unit.rules.mesh.issued_cases import HOUR, NOW, entry, index, sha

SHOWN = issued.read(entry())
NAME = SHOWN.names[0]
EDGE = Edge("inbound", NAME, 8080, True, 7)


def refusal(action: Any, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(certify.Refusal) as refused:
        action(*arguments)
    return refused.value.code, refused.value.reason


def test_who_shows_its_certificate_may_watch():
    assert reports.require_watcher(NAME, SHOWN, deny_list.EMPTY) is SHOWN


def test_who_shows_no_certificate_is_nobody():
    for known in (None, SHOWN):
        assert refusal(reports.require_watcher, "", known, deny_list.EMPTY) == ("UNAUTHENTICATED", "NoIdentity")


@pytest.mark.parametrize(("identity", "known"), [(NAME, None), ("db.shop.example", SHOWN)])
def test_a_certificate_that_is_not_in_the_ledger_is_nobodys(identity, known):
    assert refusal(reports.require_watcher, identity, known, deny_list.EMPTY) == ("PERMISSION_DENIED", "NotInLedger")


@pytest.mark.parametrize(
    "denied",
    [deny_list.DenyList(frozenset({NAME})), deny_list.DenyList(frozenset(), frozenset({SHOWN.fingerprint}))],
)
def test_who_is_revoked_watches_nothing(denied):
    assert refusal(reports.require_watcher, NAME, SHOWN, denied) == ("PERMISSION_DENIED", "Revoked")


@pytest.mark.parametrize("pod", [("", ""), ("shop", "web-1")])
def test_a_report_about_its_own_pod_is_taken(pod):
    report = Report(pod=pod, certificate=SHOWN.fingerprint, edges=(EDGE, Edge("outbound", "", 443, False, 0)))
    assert reports.require_own(report, SHOWN, index(entry())) is SHOWN


@pytest.mark.parametrize("pod", [("shop", "web-2"), ("prod", "web-1"), ("shop", ""), ("", "web-1")])
def test_a_report_about_another_pod_is_refused(pod):
    assert refusal(reports.require_own, Report(pod=pod), SHOWN, index(entry())) == ("PERMISSION_DENIED", "AnotherPod")


def test_a_certificate_of_no_pod_reports_no_edges():
    own = issued.read(entry(pod=""))
    assert reports.require_own(Report(acknowledged=3), own, index()) is own
    assert refusal(reports.require_own, Report(edges=(EDGE,)), own, index()) == ("PERMISSION_DENIED", "NoPod")
    assert refusal(reports.require_own, Report(pod=("shop", "web-1")), own, index())[1] == "AnotherPod"


def test_the_next_certificate_of_the_same_pod_is_taken():
    known = index(entry(), entry(number=2, lives=2 * HOUR))
    now = reports.require_own(Report(certificate=sha("web 2")), SHOWN, known)
    assert now.not_after == NOW + 2 * HOUR


@pytest.mark.parametrize("other", ["web 9", "web 2", "db 3"])
def test_a_certificate_of_somebody_else_is_refused(other):
    known = index(entry(), entry(number=2, pod="shop/web-1/u-2/n1"), entry("db", number=3))
    assert refusal(reports.require_own, Report(certificate=sha(other)), SHOWN, known) == (
        "PERMISSION_DENIED",
        "AnotherCertificate",
    )


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (Report(size=(64 << 10) + 1), "ReportTooLarge"),
        (Report(edges=(EDGE,) * 257), "TooManyEdges"),
        (Report(edges=(Edge("sideways", "", 1, True, 0),)), "BadEdge"),
        (Report(edges=(Edge("inbound", "", 0, True, 0),)), "BadEdge"),
        (Report(edges=(Edge("inbound", "", 65536, True, 0),)), "BadEdge"),
        (Report(edges=(Edge("inbound", "a" * 254, 1, True, 0),)), "BadEdge"),
        (Report(edges=(Edge("inbound", "a\nb", 1, True, 0),)), "BadEdge"),
        (Report(edges=(Edge("inbound", "ä", 1, True, 0),)), "BadEdge"),
        (Report(edges=(Edge("inbound", "", 1, True, 1 << 63),)), "BadEdge"),
        (Report(edges=(dataclasses.replace(EDGE, destination="a" * 254),)), "BadEdge"),
        (Report(edges=(dataclasses.replace(EDGE, unsecured="Because"),)), "BadEdge"),
        (Report(edges=(dataclasses.replace(EDGE, refused="a" * 41),)), "BadEdge"),
        (Report(edges=(dataclasses.replace(EDGE, would_be_refused="a\n"),)), "BadEdge"),
        (Report(edges=(dataclasses.replace(EDGE, first=2, last=1),)), "BadEdge"),
        (Report(edges=(dataclasses.replace(EDGE, last=1 << 63),)), "BadEdge"),
    ],
)
def test_a_report_has_bounds(report, reason):
    assert refusal(reports.require_own, report, SHOWN, index(entry())) == ("INVALID_ARGUMENT", reason)


def test_what_was_not_sent_is_not_acknowledged():
    reports.require_sent(5, 5)
    assert refusal(reports.require_sent, 6, 5) == ("INVALID_ARGUMENT", "NeverSent")
    reports.require_had(reports.version_at(NOW), NOW)
    # Another replica's clock may be ahead, but not by a day.
    reports.require_had(reports.version_at(NOW + HOUR), NOW)
    assert refusal(reports.require_had, reports.version_at(NOW + 24 * HOUR), NOW)[1] == "NeverSent"


def test_a_version_never_goes_back():
    first = reports.next_version(0, NOW)
    assert reports.next_version(first, NOW + HOUR) > first
    assert reports.next_version(first, NOW) == first + 1
    assert reports.next_version(first, NOW - HOUR) == first + 1
