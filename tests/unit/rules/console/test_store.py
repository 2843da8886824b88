# SPDX-License-Identifier: Apache-2.0
"""What a server tells of its store over the API."""

from __future__ import annotations

import dataclasses
import datetime

from handfast.rules import server_leases
from handfast.rules.console import exposition, store, store_facts

NOW = datetime.datetime(2026, 11, 17, 12, tzinfo=datetime.UTC)
SERVER = server_leases.Server(
    name="apiserver-1",
    holder="",
    version="1",
    forms="1-2",
    applied=9,
    lag=0,
    uncertain=0,
    compacted="",
    renewed="",
    until=NOW + datetime.timedelta(minutes=1),
)

LOST = store_facts.Member("h3:2379", False, False)
METRICS = """\
# HELP handfast_store_full 1 while …
handfast_store_full 0.0
handfast_resource_version 1.234567e+06
handfast_store_free_bytes 5.0e+09
handfast_store_reserve_bytes 1048576
handfast_store_writes_refused_total NaN
handfast_watchers_dropped lots
handfast_unread_answer_bytes 12
handfast_apiservers 2.0
apiserver_request_total{verb="get"} 7
process_open_fds 7
"""


def test_readiness_is_read_part_by_part():
    text = "[+]store ok\n[-]audit failed: lines wait\n[+]\nreadyz check failed\n"
    assert store.readiness(text) == (store.Part("store", True, "ok"), store.Part("audit", False, "failed: lines wait"))


def test_the_figures_of_the_store_are_shown_and_no_others():
    samples = exposition.read(METRICS, store.METRICS)
    shown = {each.name: each.value for each in store.figures(store.values(samples))}
    assert shown == {
        "API servers": "2",
        "free space": "4.7 GiB",
        "reserve": "1.0 MiB",
        "full": "no",
        "unread answers": "12 B",
    }
    assert store.figures({"handfast_store_full": 1.0})[0].value == "yes"


def test_servers_are_known_by_their_leases():
    lease = {"metadata": {"name": "b", "labels": {server_leases.LABEL: "kube-apiserver"}}}
    first = {"metadata": {"name": "a", "labels": {server_leases.LABEL: "kube-apiserver"}}}
    assert [each.name for each in store.servers([lease, {}, first])] == ["a", "b"]


def test_a_healthy_store_needs_nobody():
    assert store.needing([store.Part("store", True, "ok")], {"handfast_store_full": 0.0}, [SERVER], (), NOW) == ()


def test_what_needs_somebody_is_said_the_most_urgent_first():
    other = dataclasses.replace(SERVER, name="apiserver-2", version="2", lag=5000)
    gone = dataclasses.replace(SERVER, name="apiserver-3", version="3", lag=9000, until=NOW)
    rows = store.needing(
        [store.Part("store", False, "")],
        {"handfast_store_full": 1.0, "handfast_store_writes_unknown_total": 3.0},
        [SERVER, other, gone],
        [store_facts.Member("h1:2379", True, True), store_facts.Member("h2:2379", True, False), LOST],
        NOW,
    )
    assert [(row.text.split(":")[0], row.urgent) for row in rows] == [
        ("store is not ready", True),
        ("the store is full", True),
        ("of 3 writes nobody knows whether they were done", False),
        ("the member h3", False),
        ("apiserver-2 lags 5,000 versions behind the store", False),
        ("servers of several versions share the store", False),
    ]


def test_an_etcd_without_a_majority_is_urgent():
    first = store_facts.Member("h1:2379", True, False)
    (row,) = store.needing([], {}, [], [first, LOST], NOW)
    assert row.urgent
    assert row.text == "the member h3:2379 of the etcd does not answer: without a majority nothing is written"


def test_the_binding_for_the_figures_is_quoted_for_the_shell():
    assert store.grant("").endswith("--user=NAME")
    assert store.grant("a; rm -rf /").endswith("--user='a; rm -rf /'")
