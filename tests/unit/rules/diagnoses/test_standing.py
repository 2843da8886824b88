# SPDX-License-Identifier: Apache-2.0
"""The whole in ten lines: every check counts in one of them, and the worst is what is told."""

from handfast.rules import check
from handfast.rules.diagnoses import facts, judged, standing
from tests.unit.rules.diagnoses import known


def test_every_check_belongs_to_one_topic():
    named = [name for names in standing.TOPICS.values() for name in names]
    assert sorted(named) == sorted([*judged.WAY, *judged.INSIDE, "mesh"])
    assert len(standing.TOPICS) == 9


def test_where_all_is_well_nothing_needs_anybody():
    checks = judged.everything(known.good())
    assert {line.verdict.value for line in standing.lines(checks)} == {"ok"}
    assert not standing.needs_somebody(checks)
    assert standing.next_step(checks) == "nothing needs you"
    assert standing.document(standing.lines(checks)[5]) == {"topic": "requests", "state": "ok", "message": "none waits"}


def line(topic, **changes):
    return next(each for each in standing.lines(judged.everything(known.good(**changes))) if each.topic == topic)


def test_a_line_tells_the_worst_of_its_checks_beside_the_main_one():
    told = line("tokens", cluster_info=None)
    assert (told.verdict.value, told.reason) == ("failed", "NoClusterInfo")
    assert told.sentence.startswith("1 good, the first ends in 1d; cluster-info: there is no ConfigMap")
    assert standing.document(told)["reason"] == "NoClusterInfo"


def test_where_the_main_check_is_not_well_either_the_worst_is_told_alone():
    refused = check.Unread("nobody listens", "ConnectionRefused", "start it")
    told = line("api", reach=known.reach(connected=refused, version=facts.NOT_ASKED))
    assert told.sentence == "nobody listens"


def test_a_warning_needs_somebody_and_what_could_not_be_read_does_not():
    assert not standing.needs_somebody(judged.everything(known.good(webhooks=check.Unread("no"))))
    checks = judged.everything(known.good(stranger=403))
    assert standing.needs_somebody(checks)
    assert standing.next_step(checks).startswith("cluster-info: ")


def test_the_line_of_the_mesh_is_made_of_all_its_checks():
    rows = [check.Check("settings", check.Verdict.OK, "fine"), check.unknown("issuer", "no")]
    assert line("mesh", mesh=rows).sentence == "fine; mesh-issuer: no"
