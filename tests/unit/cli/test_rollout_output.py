# SPDX-License-Identifier: Apache-2.0
"""How a roll-out looks: one line for a pool, written over on a terminal and repeated nowhere."""

from __future__ import annotations

import sys

import pytest

from handfast.cli import rollout_output
from handfast.rules.machine_config import following, rollout_progress

HAS = following.Follower(node="a", pool="worker", has_it=True, has_credential=True)
WORKS = following.Follower(node="b", pool="worker", reason="Working", sentence="it is to apply it")
STOCK = following.Follower(node="c", pool="worker", reason="NoAgent", sentence="it runs a kubelet")
SILENT = following.Follower(node="d", pool="worker", reason="NodeSilent", sentence="it is not ready")


def pool(*nodes, **fields):
    base = {"pool": "worker", "rendering": "rendered-worker-1", "kind": "service-account", "rendered": True}
    return rollout_progress.Progress(**{**base, "nodes": nodes, **fields})


@pytest.mark.parametrize(
    ("progress", "patient", "text"),
    [
        (pool(HAS), False, "worker: 1 of 1 machines have the new credential"),
        (pool(HAS, WORKS, STOCK), False, "worker: 1 of 3 machines have the new credential; waits for b (Working)"),
        (pool(HAS, SILENT), False, "worker: 1 of 2 machines have the new credential"),
        (pool(HAS, SILENT), True, "worker: 1 of 2 machines have the new credential; waits for d (NodeSilent)"),
        (pool(), False, "worker: rendered with the new credential, and without machines"),
        (pool(HAS, rendered=False), False, "worker: not rendered with the new credential yet"),
        (pool(HAS, missing="no token"), False, "worker: no credential to hand out yet: no token"),
        (pool(rendering=""), False, "worker: nobody renders this pool, so that nothing is rolled out"),
    ],
)
def test_one_pool_in_one_line(progress, patient, text):
    assert rollout_output.line(progress, patient=patient) == text


def test_many_that_are_behind_are_counted():
    nodes = [following.Follower(node=f"n{number}", reason="Working") for number in range(7)]
    assert rollout_output.line(pool(*nodes), patient=False).endswith("n4 (Working) and 2 more")


def test_who_is_behind_is_named_with_the_reason():
    outside = following.Follower(node="x", reason="NoPool", sentence="no pool selects it")
    assert rollout_output.behind([pool(HAS, STOCK)], [outside]) == [
        "c of worker does not have it: NoAgent: it runs a kubelet",
        "x is not configured: NoPool: no pool selects it",
    ]


def test_elsewhere_a_line_is_written_when_it_has_changed(capsys):
    live = rollout_output.Live(quiet=False)
    live.show({"worker": "one", "master": "two"})
    live.show({"worker": "one", "master": "two"})
    live.show({"worker": "three", "master": "two"})
    live.clear()
    assert capsys.readouterr().err == "one\ntwo\nthree\n"


def test_machines_that_read_the_result_are_shown_no_progress(capsys):
    rollout_output.Live(quiet=True).show({"worker": "one"})
    assert capsys.readouterr().err == ""


def test_on_a_terminal_lines_are_written_over_and_gone_at_the_end(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "10")
    live = rollout_output.Live(quiet=False)
    live.show({"a": "one", "b": "two"})
    live.show({"a": "one", "b": "three \x1b[31m four"})
    live.clear()
    assert capsys.readouterr().err == (
        "\x1b[Jone\ntwo\n"
        "\x1b[2A\x1b[Jone\nthree \\u…\n"
        "\x1b[2A\x1b[J"
    )  # fmt: skip
