# SPDX-License-Identifier: Apache-2.0
"""What the list of pools says to people and to machines."""

from __future__ import annotations

import json

from handfast.cli import machine_pools
from handfast.rules.machine_config import following, rollout_progress
from tests.unit.cli.test_rollout_output import HAS, STOCK, pool

NOWHERE = following.Follower(node="x", reason="NoPool", sentence="no pool selects it: label it")
TROUBLE = "RenderDegraded: MachineConfig 99-x: spec.config.storage.flies is no field"


def test_a_pool_that_cannot_be_rendered_is_degraded_with_the_sentence_of_its_condition(capsys):
    fleet = rollout_progress.Fleet((pool(HAS, trouble=TROUBLE),))
    machine_pools.show(fleet, "text")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[2:6] == ["1", "of", "1", "degraded"]
    assert lines[-1] == f"worker is degraded: {TROUBLE}"
    machine_pools.show(fleet, "json")
    (row,) = json.loads(capsys.readouterr().out)["pools"]
    assert (row["state"], row["trouble"]) == ("degraded", TROUBLE)


def test_who_never_follows_and_who_is_in_no_pool_are_listed_with_what_to_do(capsys):
    machine_pools.show(rollout_progress.Fleet((pool(HAS, STOCK),), (NOWHERE,)), "text")
    text = capsys.readouterr().out
    assert "1 of 2   not followed by all" in text
    assert [line.split(maxsplit=3) for line in text.splitlines()[-2:]] == [
        ["c", "worker", "NoAgent", "it runs a kubelet"],
        ["x", "-", "NoPool", "no pool selects it: label it"],
    ]


def test_without_pools_it_says_so(capsys):
    machine_pools.show(rollout_progress.Fleet(), "text")
    assert "there are no MachineConfigPools" in capsys.readouterr().err
