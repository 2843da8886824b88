# SPDX-License-Identifier: Apache-2.0
"""Reports for machines: JUnit's XML can be read, and counts what failed."""

import dataclasses
import datetime
from xml.etree import ElementTree

from handfast.rules import check
from handfast.rules.diagnoses import report

ROWS = (
    check.Check("a", check.Verdict.OK, "fine"),
    check.Check("b", check.Verdict.FAILED, 'it said "<no>" & \x1b went\ud800', "No", "mend it", "docs/check.md#b"),
    check.Check("c", check.Verdict.WARNING, "late", "Late", "hurry"),
    check.unknown("d", "you may not"),
)


def test_junit_counts_and_escapes():
    suite = ElementTree.fromstring(report.junit(ROWS).encode())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    cases = {case.get("name"): [(part.tag, part.text) for part in case] for case in suite}
    assert cases["a"] == []
    assert cases["b"] == [("failure", 'it said "<no>" & ? went? next: mend it docs/check.md#b')]
    assert cases["c"] == [("system-out", "Late: late next: hurry")]
    assert [tag for tag, _ in cases["d"]] == ["skipped"]


def test_a_row_has_what_there_is_to_say():
    assert report.row(ROWS[0]) == {"name": "a", "verdict": "ok", "message": "fine"}
    assert report.row(ROWS[1])["page"] == "docs/check.md#b"
    since = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    assert report.row(dataclasses.replace(ROWS[1], since=since))["since"] == "2030-01-01T00:00:00Z"
