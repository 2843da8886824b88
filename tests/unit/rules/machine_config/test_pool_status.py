# SPDX-License-Identifier: Apache-2.0
"""What a pool tells of itself."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast.api import objects
from handfast.rules.machine_config import max_unavailable, members, names, pool_status, pools
from tests.unit.rules.machine_config.config_cases import V0, V1, node, pool

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(hours=1)
POOL = pool(target=V1)
REFUSAL = max_unavailable.Refused("spec.maxUnavailable: '50 percent' is not allowed")


def status(
    nodes: list[members.Node],
    mine: pools.Pool = POOL,
    refusal: max_unavailable.Refused | None = None,
    now: datetime.datetime = NOW,
) -> objects.Document:
    return pool_status.compute(mine, nodes, {}, refusal=refusal, now=now)


def conditions(document: objects.Document) -> dict[str, dict[str, Any]]:
    return {row["type"]: row for row in document["conditions"]}


def counts(document: objects.Document) -> tuple[int, ...]:
    kinds = ("machine", "updatedMachine", "readyMachine", "unavailableMachine", "degradedMachine")
    return tuple(document[f"{kind}Count"] for kind in kinds)


# OpenShift's TestCalculateStatus, but for images: machines, updated, ready, unavailable, degraded; Updated, Updating, Degraded.
@pytest.mark.parametrize(
    ("nodes", "paused", "numbers", "words"),
    [
        pytest.param(
            [node(name, V0, V0) for name in "012"],
            False,
            (3, 0, 0, 0, 0),
            "FTF",
            id="0 nodes updated, 0 nodes updating, 0 nodes degraded",
        ),
        pytest.param(
            [node("0", V0, V1), node("1", V0, V0), node("2", V0, V0)],
            False,
            (3, 0, 0, 1, 0),
            "FTF",
            id="0 nodes updated, 1 node updating, 0 nodes degraded",
        ),
        pytest.param(
            [node(name, V0, V0) for name in "012"],
            True,
            (3, 0, 0, 0, 0),
            "FFF",
            id="0 nodes updates, 0 nodes updating, 0 nodes degraded, pool paused",
        ),
        pytest.param(
            [node("0", V0, V1, ready=False, state=names.DEGRADED), node("1", V0, V0), node("2", V0, V0)],
            False,
            (3, 0, 0, 1, 1),
            "FTT",
            id="0 nodes updated, 1 node updating, 1 node degraded",
        ),
        pytest.param(
            [node("0", V1, V1, ready=False), node("1", V0, V0), node("2", V0, V0)],
            False,
            (3, 1, 0, 1, 0),
            "FTF",
            id="1 node updated, 1 node updating, 0 nodes degraded",
        ),
        pytest.param(
            [node("0", V1, V1), node("1", V0, V1), node("2", V0, V1)],
            False,
            (3, 1, 1, 2, 0),
            "FTF",
            id="1 node updated, 2 nodes updating, 0 nodes degraded",
        ),
        pytest.param(
            [node(name, V1, V1) for name in "012"],
            False,
            (3, 3, 3, 0, 0),
            "TFF",
            id="3 nodes updated, 0 nodes updating, 0 nodes degraded",
        ),
    ],
)
def test_calculate_status(nodes: list[members.Node], paused: bool, numbers: tuple[int, ...], words: str) -> None:
    document = status(nodes, pool(target=V1, paused=paused))
    assert counts(document) == numbers
    rows = conditions(document)
    assert "".join(rows[kind]["status"][0] for kind in ("Updated", "Updating", "Degraded")) == words
    assert document["observedGeneration"] == 3


def test_the_configuration_is_told_when_all_have_it() -> None:
    before = pools.read(
        {
            "metadata": {"name": "worker", "generation": 4},
            "spec": {"configuration": {"name": V1, "source": [{"name": "00-worker"}]}},
            "status": {"configuration": {"name": V0}},
        }
    )
    assert status([node("0", V1, V1), node("1", V0, V1)], before)["configuration"] == {"name": V0}
    after = status([node("0", V1, V1), node("1", V1, V1)], before)
    assert after["configuration"] == {"name": V1, "source": [{"name": "00-worker"}]}
    assert status([], before)["configuration"]["name"] == V1


def test_a_paused_pool_says_that_it_is_paused_and_where_it_does_not_go() -> None:
    row = conditions(status([node("0", V0, V0)], pool(target=V1, paused=True)))["Updating"]
    assert (row["reason"], row["message"]) == ("Paused", f"the pool is paused: it does not go to {V1}")


def test_a_pool_without_a_rendering_says_so() -> None:
    rows = conditions(status([node("0", V0, V0)], pool(target="")))
    assert (rows["Updated"]["reason"], rows["Updating"]["reason"]) == ("NotRendered", "NotRendered")
    assert "configuration" not in status([], pool(target=""))


def test_a_machine_without_an_agent_keeps_the_pool_from_being_updated() -> None:
    document = status([node("0", V1, V1), node("1", V1, V1, agent="")])
    assert counts(document) == (2, 1, 1, 0, 0)
    rows = conditions(document)
    assert rows["Updated"]["message"] == f"1 of 2 machines have {V1}; without an agent that follows: 1"
    # Nothing goes on, and nobody waits for that to end.
    assert (rows["Updating"]["status"], rows["Updating"]["reason"]) == ("False", "NoAgent")
    assert rows["Updating"]["message"] == "nobody else follows; without an agent that follows: 1"


def test_machines_without_an_agent_are_named_while_the_others_go_on_and_few_of_many() -> None:
    rows = conditions(status([node("0", V0, V1), *(node(f"x{n}", agent="") for n in range(7))]))
    assert (rows["Updating"]["status"], rows["Updating"]["reason"]) == ("True", "RollingOut")
    assert rows["Updating"]["message"].endswith("; without an agent that follows: x0, x1, x2, x3, x4 and 2 more")


def test_max_unavailable_that_cannot_be_read_is_degraded_by_name() -> None:
    rows = conditions(status([node("0", V0, V0)], refusal=REFUSAL))
    assert rows["Degraded"]["reason"] == "MaxUnavailableRefused"
    assert "'50 percent'" in rows["Degraded"]["message"]
    assert (rows["Updating"]["status"], rows["Updating"]["reason"]) == ("False", "MaxUnavailableRefused")
    # A new credential is rolled out all the same.
    assert conditions(status([node("0", V0, V1)], refusal=REFUSAL))["Updating"]["status"] == "True"


def test_what_is_wrong_with_the_pool_itself_is_told_apart_from_its_machines() -> None:
    def said(nodes: list[members.Node], refusal: max_unavailable.Refused | None = None) -> str:
        document = {"metadata": {"name": "worker"}, "status": status(nodes, refusal=refusal)}
        return pool_status.trouble(pools.read(document))

    assert said([node("0", V1, V1)]) == ""
    assert said([node("0", V0, V1, state=names.DEGRADED)]) == ""
    assert said([], REFUSAL) == f"MaxUnavailableRefused: {REFUSAL.message}"


def test_all_that_is_wrong_is_named() -> None:
    wrong = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    render = {"type": "RenderDegraded", "status": "True", "message": "MachineConfig 99-x: spec.config"}
    odd = pools.read(
        {
            "metadata": {"name": "odd"},
            "spec": {"nodeSelector": wrong, "configuration": {"name": V1}},
            "status": {"conditions": [{"type": "Other", "status": "True"}, render]},
        }
    )
    rows = conditions(status([node("0", V0, V1, state=names.DEGRADED, reason="no room")], odd, REFUSAL))
    assert rows["Degraded"]["reason"] == "RenderDegraded"
    for words in ("99-x", "spec.nodeSelector", "spec.maxUnavailable", '0 is Degraded: "no room"'):
        assert words in rows["Degraded"]["message"]
    assert rows["Other"] == {"type": "Other", "status": "True"}


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = status([node("0", V0, V0)])
    again = pools.read(
        {
            "metadata": {"name": "worker", "generation": 3},
            "spec": {"configuration": {"name": V1}},
            "status": first,
        }
    )
    assert status([node("0", V0, V0)], again, now=LATER) == first
    changed = conditions(status([node("0", V1, V1)], again, now=LATER))
    assert changed["Updated"]["lastTransitionTime"] == objects.timestamp(LATER)
    assert changed["Degraded"]["lastTransitionTime"] == objects.timestamp(NOW)


def test_what_nodes_say_is_cut_and_of_few() -> None:
    nodes = [node(f"{n:03}", V0, V1, state=names.DEGRADED, reason='"\n' + "x" * 100_000) for n in range(100)]
    message = conditions(status(nodes))["NodeDegraded"]["message"]
    assert len(message) < 2000
    assert message.endswith("and 95 more")
    assert "\n" not in message


def test_a_lie_about_being_done_counts_for_one() -> None:
    document = status([node("liar", V1, V1), node("0", V0, V0)])
    assert (document["updatedMachineCount"], conditions(document)["Updated"]["status"]) == (1, "False")
