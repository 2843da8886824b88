# SPDX-License-Identifier: Apache-2.0
"""What is said of the store is what the command says, and what is not known says why."""

from __future__ import annotations

import datetime

from handfast.rules import server_leases
from handfast.rules.console import exposition, store_facts

SERVER = server_leases.Server(
    name="apiserver-1",
    holder="",
    version="1",
    forms="1",
    applied=9,
    lag=0,
    uncertain=0,
    compacted="2026-11-17T12:00:00Z",
    renewed="",
    until=None,
)
ODD = server_leases.read({"metadata": {"labels": {server_leases.LABEL: "x"}, "annotations": {}}})
OWN = """\
handfast_store_info{engine="etcd",identity="c0ffee"} 1.0
handfast_store_size_bytes 2097152.0
handfast_store_objects 12.0
handfast_store_revision 40.0
handfast_store_floor_revision 7.0
handfast_store_epoch_offset 1000000.0
handfast_store_form 1.0
handfast_store_compacted_timestamp_seconds 1700000000.0
handfast_store_backup_timestamp_seconds 1700000060.0
handfast_store_sealed_values{key="one"} 1.0
handfast_store_sealed_values{key="two"} 3.0
handfast_store_member_up{address="h1:2379"} 1.0
handfast_store_member_up{address="h2:2379"} 0.0
handfast_store_member_leads{address="h1:2379"} 1.0
handfast_store_member_leads{address="h2:2379"} 0.0
handfast_store_epoch_timestamp_seconds{offset="1000000",why="restored"} 1700000030.0
handfast_resource_version 1000039.0
"""
FOREIGN = """\
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 4194304
apiserver_storage_objects{resource="pods"} 5
apiserver_storage_objects{resource="nodes"} 2
apiserver_storage_objects{resource="events"} -1
"""


def read(text: str) -> exposition.Samples:
    return exposition.read(text, store_facts.METRICS)


def shown(text: str, *servers: server_leases.Server) -> dict[str, store_facts.Fact]:
    return {each.name: each for each in store_facts.facts(read(text), servers)}


def test_every_row_of_the_command_has_its_value():
    assert ODD is not None
    rows = store_facts.facts(read(OWN), [SERVER, ODD])
    assert [(row.name, row.value) for row in rows] == [
        ("engine", "etcd"),
        ("identity", "c0ffee"),
        ("size", "2.0 MiB"),
        ("objects", "12"),
        ("revision", "40"),
        ("resource version", "1,000,040"),
        ("stored form", "1"),
        ("seal key", "one"),
        ("seal key", "two"),
        ("last compaction", ""),
        ("last backup", ""),
        ("versions raised", "to 1000000"),
    ]
    assert all(row.is_known for row in rows)
    by_name = {row.name: row for row in rows}
    assert by_name["engine"].about == ""
    assert by_name["revision"].about == "the oldest that can be read is 7"
    assert by_name["seal key"].about == "sealed 3 values"
    assert by_name["last compaction"].at == datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
    assert by_name["last backup"].at == datetime.datetime.fromtimestamp(1700000060, datetime.UTC)
    assert (by_name["versions raised"].about, by_name["versions raised"].at) == (
        "restored",
        datetime.datetime.fromtimestamp(1700000030, datetime.UTC),
    )


def test_the_members_of_an_etcd_are_told_one_by_one():
    assert store_facts.members(read(OWN)) == (
        store_facts.Member("h1:2379", True, True),
        store_facts.Member("h2:2379", False, False),
    )
    assert store_facts.members(read(FOREIGN)) == ()


def test_a_store_that_was_never_compacted_sealed_or_backed_up_says_so():
    rows = shown('handfast_store_info{engine="sqlite"} 1\nhandfast_store_backup_timestamp_seconds 0\n')
    for name in ("seal keys", "last compaction", "last backup"):
        assert (rows[name].value, rows[name].at) == ("none", None)
    assert "handfast store backup" in rows["last backup"].about


def test_a_store_that_was_not_asked_yet_is_not_known_and_says_why():
    rows = shown("handfast_resource_version 9\nhandfast_store_revision NaN\nhandfast_store_size_bytes NaN\n")
    assert rows["resource version"].value == "9"
    for name in ("engine", "identity", "size", "revision", "seal keys", "last backup"):
        assert not rows[name].is_known
        assert "not asked its store yet" in rows[name].about


def test_another_api_server_tells_its_size_and_of_the_rest_who_knows_it():
    rows = shown(FOREIGN)
    assert not store_facts.is_own(read(FOREIGN))
    assert (rows["size"].value, rows["objects"].value) == ("4.0 MiB", "7")
    for name in ("engine", "revision", "seal keys", "last compaction", "last backup"):
        assert not rows[name].is_known
        assert rows[name].about


def test_an_old_one_that_tells_less_says_who_knows_that_too():
    rows = shown('apiserver_storage_objects{resource="pods"} 5\n')
    assert rows["objects"].value == "5"
    assert rows["size"].about == "this API server does not tell it; etcdctl endpoint status does"
    assert store_facts.facts({}, ()) == ()


def test_an_instant_that_no_clock_has_is_none():
    rows = shown('handfast_store_info{engine="x"} 1\nhandfast_store_backup_timestamp_seconds 1e300\n')
    assert rows["last backup"].value == "none"


def test_octets_are_written_for_a_person():
    assert [store_facts.size(count) for count in (0, 1023, 2048, 3 << 40)] == ["0 B", "1023 B", "2.0 KiB", "3.0 TiB"]
