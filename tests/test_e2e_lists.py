# SPDX-License-Identifier: Apache-2.0
"""The lists of Kubernetes' end-to-end specs, and the script that runs them, as far as that goes without the suite itself."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pytest

from tests import source_text

ROOT = pathlib.Path(__file__).parents[1]
JUNIT = """<testsuites><testsuite>
<testcase name="[It] [sig-a] works [Conformance] [sig-a, Conformance]" status="passed" time="1.5"></testcase>
<testcase name="[It] [sig-a] breaks [sig-a]" status="failed" time="2"><failure message="no\n  more">x</failure></testcase>
<testcase name="[It] [sig-a] other" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="0"></testcase>
</testsuite></testsuites>"""
e2e = source_text.script("e2e")


def test_every_skip_has_its_reason_and_every_pattern_can_be_read() -> None:
    lists = tomllib.loads((ROOT / "scripts" / "e2e.toml").read_text())
    for row in lists["skip"]:
        assert re.compile(row["match"]).pattern
        assert len(row["reason"].split()) > 3, row
    for words in (word for row in lists["groups"].values() for word in row["focus"]):
        assert re.compile(words).pattern


def test_a_group_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(SystemExit, match="no such group: nonsense; there are: api"):
        e2e.selection(["nonsense"])
    groups, skips = e2e.selection(["auth"])
    assert list(groups) == ["auth"]
    assert skips


def test_a_report_becomes_a_table(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "group.xml"
    report.write_text(JUNIT)
    specs = list(e2e.results("group", report))
    assert [(spec.failure, spec.conformance) for spec in specs] == [("", True), ("no more", False)]
    assert "| group | 2 | 1 | 1 | 1 | 0 |" in e2e.table(specs)
    (lost,) = e2e.results("lost", tmp_path / "lost.xml")
    assert "no report was left" in lost.failure
