# SPDX-License-Identifier: Apache-2.0
"""The table of nodes says the same as `handfast node list`, whatever comes in whichever order, and keeps its order as time passes."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest

from handfast.api import signer_names
from handfast.rules import revocation
from handfast.rules.console import ledger, node_record, node_table
from handfast.rules.ledger import entries
from handfast.rules.nodes import overview
from tests.unit.rules.console import ledgers
from tests.unit.rules.nodes.test_overview import request

NOW, HOUR = ledgers.NOW, ledgers.HOUR
State = overview.State


def renewed(seconds_ago: float) -> str:
    return (NOW - datetime.timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def good(table: node_table.Table, name: str, **more: Any) -> None:
    """A node that is seen, with a certificate."""
    table.put_node(name, {"os": "linux"})
    table.put_lease(name, renewed(5), 40)
    issue(table, ledgers.entry(name, **more))


def issue(table: node_table.Table, *issued: entries.Entry, segment: int = 1) -> None:
    made = ledgers.chain(*([issued] * segment))[-1]
    table.put_lines(ledger.Ledger().put(made))


def states(table: node_table.Table, now: datetime.datetime = NOW) -> list[tuple[str, str]]:
    table.settle(now)
    assert [record.name for record in table.ordered] == [
        record.name for record in sorted(table.ordered, key=node_table.order)
    ]
    assert sum(table.counts.values()) == len(table.ordered)
    return [(record.name, record.state.value) for record in table.ordered]


def revoked(name: str, node: str, **spec: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"node": node, "reason": "stolen", **spec}}


def test_a_node_becomes_late_expired_and_silent_as_time_passes_and_good_again():
    table = node_table.Table()
    good(table, "w1")
    assert states(table) == [("w1", "good")]
    assert states(table, NOW + datetime.timedelta(seconds=36)) == [("w1", "silent")]
    table.put_lease("w1", renewed(-36), 40)
    assert states(table, NOW + datetime.timedelta(seconds=37)) == [("w1", "good")]
    assert states(table, NOW + 21 * HOUR) == [("w1", "late")]
    assert states(table, NOW + 24 * HOUR) == [("w1", "expired")]
    issue(table, ledgers.entry("w1", age=-24, rule=entries.RENEWAL), segment=2)
    table.put_lease("w1", renewed(-24 * 3600), 40)
    assert states(table, NOW + 24 * HOUR) == [("w1", "good")]
    record = table.get("w1")
    assert record is not None
    assert (record.came_by, record.place) == ("token abcdef", "segment-0000000002/1")
    assert record.token_maker == "alice"


def test_a_lease_that_is_renewed_in_time_has_nothing_judged():
    table = node_table.Table()
    good(table, "w1")
    states(table)
    version = table.version
    for second in range(1, 200, 10):
        table.put_lease("w1", renewed(-second), 40)
        assert states(table, NOW + datetime.timedelta(seconds=second)) == [("w1", "good")]
    assert (table.version, table.marked) == (version, 0)


def test_a_good_node_without_a_certificate_on_record_is_looked_at_when_its_lease_was_to_end():
    table = node_table.Table()
    table.set_read(leases=True, ledger=False)
    table.put_node("w1", {})
    table.put_lease("w1", renewed(0), 40)
    assert states(table) == [("w1", "good")]
    table.put_lease("w1", renewed(-39), 40)
    assert states(table, NOW + datetime.timedelta(seconds=41)) == [("w1", "good")]
    # As the command says it: without a ledger nobody is told of its silence.
    assert states(table, NOW + datetime.timedelta(seconds=80)) == [("w1", "good")]


@pytest.mark.parametrize("field", ["keyFingerprint", "serialNumber"])
def test_a_revocation_of_a_certificate_comes_and_goes(field: str):
    table = node_table.Table()
    for name in ("w1", "w2"):
        good(table, name)
    assert states(table) == [("w1", "good"), ("w2", "good")]
    issued = table.get("w2")
    assert issued is not None
    text = f"SHA256:{node_record.key_text(issued)}" if field == "keyFingerprint" else issued.serial
    table.put_revocation({"metadata": {"name": "r1"}, "spec": {field: text, "reason": "reset"}})
    assert states(table) == [("w2", "revoked"), ("w1", "good")]
    table.remove_revocation("r1")
    assert states(table) == [("w1", "good"), ("w2", "good")]


def test_a_revocation_comes_and_goes_and_ends_by_itself():
    table = node_table.Table()
    good(table, "w1")
    good(table, "w2")
    table.put_revocation(revoked("r1", "w1", expires="2026-11-18T13:00:00Z"))
    table.put_revocation(revoked("r2", "w2"))
    table.put_revocation(revoked("r3", "nobody", user="jane", serialNumber="1a"))
    assert states(table) == [("w1", "revoked"), ("w2", "revoked")]
    later = NOW + HOUR
    assert dict(states(table, later)) == {"w1": "silent", "w2": "revoked"}
    table.remove_revocation("r2")
    table.remove_revocation("unknown")
    assert dict(states(table, later)) == {"w1": "silent", "w2": "silent"}
    assert isinstance(table.revocations, revocation.Index)


def test_a_request_is_listed_while_it_waits():
    table = node_table.Table()
    table.put_request(request("csr-1", of="new"))
    table.put_request(request("csr-2", of="new"))
    assert states(table) == [("new", "waiting")]
    table.put_request(request("csr-1", of="new", conditions=[{"type": "Denied"}]))
    assert states(table) == [("new", "waiting")]
    table.remove_request("csr-2")
    table.remove_request("csr-2")
    assert states(table) == []
    assert table.get("new") is None


def test_what_is_gone_is_listed_no_more_and_forgotten_once_nothing_is_left():
    table = node_table.Table()
    good(table, "w1")
    states(table)
    table.remove_node("w1")
    assert states(table) == [("w1", "silent")]
    table.remove_segment("segment-0000000001")
    assert states(table) == []
    assert [record.name for record in table] == ["w1"]
    table.remove_lease("w1")
    states(table)
    assert table.get("w1") is None
    table.remove_lease("w1")
    table.remove_node("w1")
    assert states(table) == []


def test_a_segment_that_is_gone_takes_along_what_was_known_by_it_alone():
    table = node_table.Table()
    table.put_node("w1", {})
    issue(table, ledgers.entry("w1", age=20))
    issue(table, ledgers.entry("w1", age=1, rule=entries.RENEWAL), segment=2)
    states(table)
    table.remove_segment("segment-0000000001")
    record = table.get("w1")
    assert record is not None
    assert (record.came_by, record.place) == ("", "segment-0000000002/1")
    table.remove_segment("segment-0000000002")
    assert states(table) == [("w1", "unrecorded")]
    assert record.place == ""


def test_an_older_entry_that_comes_late_changes_nothing():
    table = node_table.Table()
    good(table, "w1")
    issue(table, ledgers.entry("w1", age=10, token_id="zzzzzz"), segment=2)
    record = table.get("w1")
    assert record is not None
    assert (record.came_by, record.place) == ("token abcdef", "segment-0000000001/1")


def test_a_node_that_says_the_same_again_is_not_judged_and_one_with_other_labels_is():
    table = node_table.Table()
    good(table, "w1")
    states(table)
    table.put_node("w1", {"os": "linux"})
    assert table.marked == 0
    table.put_node("w1", {"os": "plan9"})
    assert table.marked == 1


def test_a_lease_without_a_renewal_is_none():
    table = node_table.Table()
    good(table, "w1")
    states(table)
    table.put_lease("w1", None, None)
    assert states(table) == [("w1", "silent")]


def test_what_could_not_be_read_is_no_trouble_of_a_node():
    table = node_table.Table()
    table.put_node("w1", {})
    table.set_read(leases=False, ledger=False)
    assert states(table) == [("w1", "good")]
    table.set_read(leases=False, ledger=False)
    assert table.marked == 0
    table.set_read(leases=True, ledger=True)
    assert states(table) == [("w1", "unrecorded")]


def test_a_key_that_is_no_fingerprint_is_shown_as_it_is():
    table = node_table.Table()
    good(table, "w1", key_fingerprint="<no hex>")
    record = table.get("w1")
    assert record is not None
    assert node_record.key_text(record) == "<no hex>"


def test_lines_that_are_no_nodes_are_left_out():
    table = node_table.Table()
    issue(table, ledgers.entry("x", names=("CN=jane",)))
    assert states(table) == []


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_the_table_says_what_the_command_says(seed):
    """Hundreds of nodes in any state, which come piece by piece in any order, and change."""
    chance = random.Random(seed)
    names = [f"n-{number}" for number in range(300)]
    issued = [ledgers.entry(name, age=chance.uniform(0, 26)) for name in names if chance.random() < 0.9]
    serving: dict[str, Any] = {"signer": signer_names.KUBELET_SERVING, "rule": entries.SERVING}
    issued += [ledgers.entry(name, age=chance.uniform(0, 26), **serving) for name in names if chance.random() < 0.5]
    there = [name for name in names if chance.random() < 0.9]
    ago = {name: chance.choice((5, 100)) for name in names if chance.random() < 0.9}
    gone = {name for name in names if chance.random() < 0.1}
    requests = [request(f"csr-{number}", of=chance.choice(names)) for number in range(3)]
    revocations = [revoked(f"r-{number}", chance.choice(names)) for number in range(5)]
    segments = ledgers.chain(*(issued[at : at + 50] for at in range(0, len(issued), 50)))
    table, book = node_table.Table(), ledger.Ledger()
    steps: list[Any] = [lambda name=name: table.put_node(name, {}) for name in there]
    steps += [lambda name=name: table.put_lease(name, renewed(ago[name]), 40) for name in ago]
    steps += [lambda segment=segment: table.put_lines(book.put(segment)) for segment in segments]
    steps += [lambda each=each: table.put_request(each) for each in requests]
    steps += [lambda each=each: table.put_revocation(each) for each in revocations]
    chance.shuffle(steps)
    for step in steps:
        step()
        if chance.random() < 0.05 * seed:
            table.settle(NOW)
    for name in gone:
        table.remove_node(name)
    index = revocation.Index()
    for document in revocations:
        index.add(revocation.read(document))
    read = overview.Objects(
        nodes=[{"metadata": {"name": name}} for name in there if name not in gone],
        leases=[
            {"metadata": {"name": name}, "spec": {"renewTime": renewed(seconds), "leaseDurationSeconds": 40}}
            for name, seconds in ago.items()
        ],
        issued=[entry for entry in issued if entry.signer == signer_names.KUBELET_CLIENT],
        serving=[entry for entry in issued if entry.signer == signer_names.KUBELET_SERVING],
        requests=requests,
        revocations=index,
    )
    for later in (0, 1, 30, 4000, 40000, 90000):
        now = NOW + datetime.timedelta(seconds=later)
        expected = overview.rows(read, now)
        assert states(table, now) == [(row.name, row.state.value) for row in expected]
        shown = [table.row(record, now) for record in table.ordered]
        assert [(row.problem, row.next_step, row.came_by, row.renewal, row.seen) for row in shown] == [
            (row.problem, row.next_step, row.came_by, row.renewal, row.seen) for row in expected
        ]
        assert table.standing(now).serving == overview.standing(read, now).serving


def test_what_a_node_serves_with_goes_with_its_segment_and_counts_while_its_node_is_there():
    table = node_table.Table()
    issue(table, ledgers.entry("w1", age=23, signer=signer_names.KUBELET_SERVING))
    assert table.standing(NOW).serving.count == 0
    table.put_node("w1", {})
    serving = table.standing(NOW).serving
    assert (serving.count, [each.node for each in serving.late], serving.whole) == (1, ["w1"], True)
    assert not table.standing(NOW, unreadable=1).serving.whole
    # An older one, found later, is not what it serves with.
    issue(table, ledgers.entry("w1", age=30, signer=signer_names.KUBELET_SERVING), segment=2)
    assert table.standing(NOW).serving == serving
    table.remove_segment("segment-0000000001")
    assert table.standing(NOW).serving.count == 0


def test_how_all_stand_is_what_the_rows_say():
    table = node_table.Table()
    good(table, "calm")
    good(table, "late", age=22)
    good(table, "over", age=25)
    table.put_node("mute", {})
    issue(table, ledgers.entry("mute"))
    table.put_request(request("new"))
    standing = table.standing(NOW)
    assert {state: count for state, count in standing.counts.items() if count} == dict.fromkeys(
        [State.EXPIRED, State.LATE, State.WAITING, State.SILENT, State.GOOD], 1
    )
    assert [(row.name, row.state) for row in standing.needing] == [
        ("over", State.EXPIRED),
        ("late", State.LATE),
        ("w1", State.WAITING),
        ("mute", State.SILENT),
    ]


def test_of_very_many_that_need_somebody_those_are_named_that_need_it_longest():
    table = node_table.Table()
    for number in range(150):
        name = f"w{number:03}"
        table.put_node(name, {})
        table.put_lease(name, renewed(1000 + number), 40)
        issue(table, ledgers.entry(name))
        over = f"x{number:03}"
        good(table, over, age=30 + number)
    standing = table.standing(NOW)
    assert (standing.counts[State.SILENT], standing.counts[State.EXPIRED]) == (150, 150)
    silent = [row for row in standing.needing if row.state is State.SILENT]
    expired = [row for row in standing.needing if row.state is State.EXPIRED]
    assert (len(silent), len(expired)) == (100, 100)
    assert min(row.seen for row in silent if row.seen) == NOW - datetime.timedelta(seconds=1149)
    assert expired[0].name == "x149"


def test_lifetimes_are_those_of_the_newest_certificates():
    table = node_table.Table()
    table.put_node("bare", {})
    issue(table, ledgers.entry("w1", age=20), ledgers.entry("w1", age=2))
    issued = int((NOW - 2 * HOUR).timestamp())
    assert list(table.lifetimes()) == [(issued, issued + 24 * 3600)]


# What a node may write into its own Lease: whatever is a timestamp to the API server, and any number of seconds.
_INSTANTS = (
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999-14:00",
    "9999-12-31T23:59:59.999999+14:00",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00.000001Z",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00-14:00",
    "1970-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999Z",
    "no instant",
    "",
    None,
)


@pytest.mark.parametrize("written", _INSTANTS)
@pytest.mark.parametrize("seconds", [None, 0, 1, -1, 40, 2**31 - 1, 2**63 - 1])
def test_whatever_a_lease_says_its_node_is_judged(written: str | None, seconds: int | None):
    table = node_table.Table()
    good(table, "w1")
    good(table, "w2")
    states(table)
    # Once as a renewal in time, which has nothing judged before its instant has come; once as the first that is known.
    table.put_lease("w1", written, seconds)
    table.remove_lease("w2")
    table.put_lease("w2", written, seconds)
    for minutes in (0, 1, 600):
        later = NOW + datetime.timedelta(minutes=minutes)
        assert {name for name, _ in states(table, later)} == {"w1", "w2"}
        for record in table.ordered:
            assert table.row(record, later).name == record.name
    assert table.failures == {}


@pytest.mark.parametrize("nodes", [3, 600])
def test_a_node_that_cannot_be_judged_is_left_out_and_takes_no_other_with_it(
    nodes: int, monkeypatch: pytest.MonkeyPatch
):
    judge = overview.judge

    def judge_or_not(name: str, facts: overview.Facts, now: datetime.datetime) -> overview.Row:
        if name == "w1":
            raise OverflowError("date value out of range")
        return judge(name, facts, now)

    table = node_table.Table()
    for number in range(nodes):
        good(table, f"w{number}")
    assert len(states(table)) == nodes
    monkeypatch.setattr(overview, "judge", judge_or_not)
    for number in range(nodes):
        table.put_node(f"w{number}", {"changed": "yes"})
    assert {name for name, _ in states(table)} == {f"w{number}" for number in range(nodes)} - {"w1"}
    assert list(table.failures) == ["w1"]
    # One that is gone is no failure any more.
    table.remove_node("w1")
    table.remove_lease("w1")
    table.remove_segment("segment-0000000001")
    states(table)
    assert table.failures == {}


def test_a_node_that_only_renewed_its_lease_and_cannot_be_looked_at_is_judged_anew(monkeypatch: pytest.MonkeyPatch):
    table = node_table.Table()
    good(table, "w1")
    states(table)
    table.put_lease("w1", renewed(-30), 40)

    def never(entry: entries.Entry) -> tuple[datetime.datetime, datetime.datetime]:
        raise ValueError(entry.serial)

    monkeypatch.setattr(overview, "window", never)
    assert states(table, NOW + datetime.timedelta(seconds=36)) == []
    monkeypatch.undo()
    table.put_node("w1", {"changed": "yes"})
    assert states(table, NOW + datetime.timedelta(seconds=37)) == [("w1", "good")]
    assert table.failures == {}
