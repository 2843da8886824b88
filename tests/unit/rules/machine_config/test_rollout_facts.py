# SPDX-License-Identifier: Apache-2.0
"""What is read of a cluster, as what its roll-out is decided by."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules.machine_config import credential_rollout, names, rollout_facts
from handfast.rules.machines import bootstrapper
from tests.unit.rules.machine_config import test_credential as documents
from tests.unit.rules.machine_config import test_rollout_progress as fleets

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
CREATED = {"creationTimestamp": "2029-12-31T00:00:00Z"}


def with_meta(document, uid, **more):
    return {**document, "metadata": {**document["metadata"], "uid": uid, **CREATED, **more}}


SHARED = with_meta(documents.secret(), "uid-s")
MARKED = with_meta(documents.secret(mark=documents.MARK), "uid-s")
NEXT = with_meta(documents.following(), "uid-n")
KUBECONFIG = with_meta(documents.masters(), "uid-k")
TRUST = with_meta(documents.trust(), "uid-t")
MARKED_TRUST = with_meta(documents.trust(annotations=documents.MARK), "uid-t")
ACCOUNT = {"metadata": {"name": "node-bootstrapper", "uid": "uid-a"}}


def facts(secrets=(), config_maps=(), **fields):
    maps = [documents.place(), *config_maps]
    return rollout_facts.Facts(secrets=secrets, config_maps=maps, account=ACCOUNT, tokens=secrets, **fields)


@pytest.mark.parametrize(
    ("there", "under_way"),
    [
        (facts([SHARED, KUBECONFIG], [TRUST]), False),
        (facts([MARKED]), True),
        (facts([SHARED, NEXT]), True),
        (facts([SHARED], [MARKED_TRUST]), True),
        (rollout_facts.Facts(), False),
    ],
)
def test_what_is_under_way_is_known_by_marks_and_by_the_next_secret(there, under_way):
    assert there.under_way is under_way


def test_the_steps_are_those_of_the_rules():
    assert facts([SHARED]).step("worker", NOW) == credential_rollout.Nothing()
    assert facts([MARKED]).step("worker", NOW) == credential_rollout.MakeNext("uid-a")
    remembering = facts([MARKED, NEXT]).step("worker", NOW)
    assert isinstance(remembering, credential_rollout.Remember)
    assert list(remembering.tokens.values()) == ["uid-n"]
    assert isinstance(rollout_facts.Facts(secrets=[MARKED]).step("worker", NOW), credential_rollout.Wait)


def test_the_masters_objects_are_in_the_order_in_which_they_go():
    step = facts([KUBECONFIG, SHARED], [MARKED_TRUST]).step("master", NOW)
    assert isinstance(step, credential_rollout.Mark)
    assert [each.uid for each in step.objects] == ["uid-k"]
    other = with_meta(documents.trust("openshift-config-managed"), "uid-u")
    marked = facts([KUBECONFIG, SHARED], [other, TRUST]).to_mark("master")
    assert [each.uid for each in marked] == ["uid-t", "uid-u", "uid-k"]


@pytest.mark.parametrize(
    ("there", "kind", "uids"),
    [
        (facts([SHARED, KUBECONFIG], [TRUST]), "worker", ["uid-s"]),
        (facts([with_meta(documents.secret(token=""), "uid-s")]), "worker", []),
        (facts(), "worker", []),
        (facts([KUBECONFIG]), "master", []),
    ],
    ids=["the workers' token", "one that is empty", "none", "no trust"],
)
def test_where_the_mark_goes(there, kind, uids):
    assert [each.uid for each in there.to_mark(kind)] == uids


def test_the_fleet_is_seen_with_the_credential_that_counts():
    there = facts([SHARED], pools=[fleets.pool()], nodes=[fleets.node("a")], renderings=fleets.RENDERINGS)
    (now,), (then,) = there.fleet.pools, there.foreseen.pools
    assert (now.kind, now.rendered) == (names.SERVICE_ACCOUNT, False)
    assert [node.node for node in then.able] == ["a"]


def test_nothing_secret_is_printed():
    assert "token" not in repr(facts([SHARED, NEXT])).replace(bootstrapper.TOKEN_SECRET, "")
