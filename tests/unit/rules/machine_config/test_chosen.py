# SPDX-License-Identifier: Apache-2.0
"""Which rendering is served to whom."""

from __future__ import annotations

from handfast.rules.machine_config import chosen, members, pools, rendering

NOW, BEFORE = "service-account sha256:now", "service-account sha256:before"
OLD, NEW = f"rendered-worker-{'1' * 32}", f"rendered-worker-{'2' * 32}"


def pool(updated: int = 0, newest: str = NEW, everywhere: str = OLD) -> pools.Pool:
    status = {"updatedMachineCount": updated, "configuration": {"name": everywhere}}
    return pools.read({"metadata": {"name": "worker"}, "spec": {"configuration": {"name": newest}}, "status": status})


def renderings(**credentials: str) -> members.Renderings:
    named = {"old": OLD, "new": NEW, "masters": f"rendered-master-{'3' * 32}"}
    return {named[word]: members.Rendering(named[word], text) for word, text in credentials.items()}


def test_a_new_machine_gets_what_all_have_until_one_has_the_newest():
    there = renderings(old=NOW, new=NOW)
    assert chosen.choose(pool(updated=0), "", there, NOW) == OLD
    assert chosen.choose(pool(updated=1), "", there, NOW) == NEW


def test_a_pool_without_machines_has_only_the_newest():
    assert chosen.choose(pool(everywhere=""), "", renderings(new=NOW), NOW) == NEW


def test_a_node_gets_its_own():
    assert chosen.choose(pool(updated=1), OLD, renderings(old=NOW, new=NOW), NOW) == OLD


def test_a_node_is_never_served_the_rendering_of_another_pool():
    there = renderings(masters=NOW, new=NOW)
    verdict = chosen.choose(pool(updated=1), f"rendered-master-{'3' * 32}", there, NOW)
    assert isinstance(verdict, chosen.NotYet)
    assert verdict.reason == chosen.NOT_RENDERED
    assert rendering.pool_of(f"rendered-worker-gpu-{'1' * 32}") == "worker-gpu"


def test_a_rendering_of_another_credential_is_never_served():
    there = renderings(old=BEFORE, new=NOW)
    assert chosen.choose(pool(updated=0), "", there, NOW) == NEW
    verdict = chosen.choose(pool(updated=0), OLD, there, NOW)
    assert verdict == chosen.NotYet(
        chosen.BEING_RENDERED, f"{OLD} of the pool worker was rendered with a credential that does not count any more"
    )
    assert isinstance(chosen.choose(pool(updated=1), "", renderings(old=NOW, new=BEFORE), NOW), chosen.NotYet)


def test_a_pool_without_a_rendering_has_nothing_to_serve():
    verdict = chosen.choose(pool(newest="", everywhere=""), "", {}, NOW)
    assert verdict == chosen.NotYet(chosen.NOT_RENDERED, "the pool worker has no rendering")
    verdict = chosen.choose(pool(updated=1), "", {}, NOW)
    assert isinstance(verdict, chosen.NotYet)
    assert verdict.sentence == f"the pool worker has no rendering: {NEW} is not there, or another pool's"
