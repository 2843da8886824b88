# SPDX-License-Identifier: Apache-2.0
"""What is done next to revoke a credential once its replacement is everywhere."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from handfast.rules.machine_config import credential_rollout as rules
from handfast.rules.machine_config import following, names, rollout_progress
from handfast.rules.machines import bootstrap_token, bootstrapper, revocation
from handfast.rules.tokens import service_accounts

AT = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
SHARED, NEXT = bootstrapper.TOKEN_SECRET, bootstrapper.NEXT_TOKEN_SECRET
NOW = following.Follower(node="a", pool="worker", has_it=True, has_credential=True)
LATE = following.Follower(node="late", pool="worker", reason=following.NODE_SILENT)
STOCK = following.Follower(node="stock", pool="worker", reason=following.NO_AGENT)


def progress(*nodes, **fields):
    base = {"pool": "worker", "rendering": "r", "kind": names.SERVICE_ACCOUNT, "rendered": True, "nodes": nodes}
    return rollout_progress.Progress(**{**base, **fields})


def secret(uid, digest="d", **fields):
    base = {"type": service_accounts.LEGACY_TYPE, "account": bootstrapper.ACCOUNT, "account_uid": "uid-a"}
    return bootstrap_token.Secret(uid, **{**base, "digest": digest, **fields})


def token(name, uid, **fields):
    return rules.Object(target=("Secret", bootstrapper.NAMESPACE, name), uid=uid, **fields)


MARKED = rules.Workers(
    account=bootstrap_token.Account("uid-a", tokens={"old": "uid-s", "new": "uid-n"}),
    shared=secret("uid-s", "old"),
    marked=True,
    next=secret("uid-n", "new"),
    next_created=AT,
    tokens=(token(SHARED, "uid-s"), token("second", "uid-2"), token(NEXT, "uid-n")),
    pools=(progress(NOW, STOCK),),
)
RETURNING = dataclasses.replace(MARKED, marked=False, shared=secret("uid-t", "newer"))


def changed(base, **fields):
    return dataclasses.replace(base, **fields)


def waits(step):
    assert isinstance(step, rules.Wait)
    assert step.sentence
    return (step.phase, step.reason)


def test_without_a_mark_nothing_is_done():
    assert rules.step(changed(MARKED, marked=False, next=None)) == rules.Nothing()
    assert rules.step(rules.Workers()) == rules.Nothing()
    assert rules.step(rules.Masters()) == rules.Nothing()


def test_the_next_secret_is_made_for_the_account_that_there_is():
    assert rules.step(changed(MARKED, next=None)) == rules.MakeNext("uid-a")


@pytest.mark.parametrize("account", [None, bootstrap_token.Account("uid-a", deleting=True)])
def test_without_the_account_its_keeper_is_waited_for(account):
    assert waits(rules.step(changed(MARKED, next=None, account=account))) == (rules.MAKING, "TokenNotKept")


@pytest.mark.parametrize("fields", [{"type": "Opaque"}, {"account": "default"}])
def test_somebody_elses_secret_is_never_touched(fields):
    step = rules.step(changed(MARKED, next=secret("uid-n", "new", **fields)))
    assert waits(step) == (rules.MAKING, "NotTheTokenSecret")
    assert isinstance(step, rules.Wait)
    assert step.loud
    # … nor while nothing is to be revoked.
    assert rules.step(changed(RETURNING, next=secret("uid-n", "new", **fields))) == rules.Nothing()


def test_a_next_secret_of_an_account_that_is_gone_goes():
    assert rules.step(changed(MARKED, next=secret("uid-n", account_uid="before"))) == rules.DropNext(
        "uid-n", orphan=True
    )


@pytest.mark.parametrize(("age", "loud"), [(1.0, False), (60.0, True)])
def test_whoever_fills_it_in_is_waited_for(age, loud):
    for base, field in ((MARKED, "next"), (RETURNING, "shared")):
        step = rules.step(changed(base, **{field: secret("uid-x", "", age=age)}))
        assert waits(step)[1] == "TokenNotFilledIn"
        assert isinstance(step, rules.Wait)
        assert step.loud is loud


def test_a_new_token_is_remembered_before_it_is_handed_out():
    account = bootstrap_token.Account("uid-a", tokens={"old": "uid-s"})
    assert rules.step(changed(MARKED, account=account)) == rules.Remember({"old": "uid-s", "new": "uid-n"})


def test_a_next_token_that_was_revoked_before_is_not_handed_out():
    account = bootstrap_token.Account("uid-a", tokens={"new": "uid-of-last-year"})
    step = rules.step(changed(MARKED, account=account))
    assert waits(step) == (rules.MAKING, "RevokedTokenReturned")
    assert isinstance(step, rules.Wait)
    assert "without --after-rollout" in step.sentence


@pytest.mark.parametrize(
    ("pool", "reason", "words"),
    [
        (progress(NOW, missing="no token"), "NoReplacement", "no token"),
        (progress(NOW, rendered=False), "NotRendered", "worker"),
        (progress(NOW, LATE), "NodesBehind", "1 nodes do not have the replacement yet: late (NodeSilent)"),
        (progress(*[dataclasses.replace(LATE, node=f"n{i}") for i in range(7)]), "NodesBehind", "n4 (NodeSilent), …"),
    ],
)
def test_nothing_is_cut_before_whoever_has_an_agent_has_the_replacement(pool, reason, words):
    masters = rules.Masters(objects=(trust("openshift-config", "uid-1", marked=True),), pools=(pool,))
    for seen, phase in ((MARKED, rules.DISTRIBUTING), (RETURNING, rules.RETURNING), (masters, rules.DISTRIBUTING)):
        step = rules.step(changed(seen, pools=(pool,)))
        assert waits(step) == (phase, reason)
        assert isinstance(step, rules.Wait)
        assert words in step.sentence


@pytest.mark.parametrize("pools", [(), (progress(rendering="", rendered=False),)])
def test_without_pools_nothing_is_cut(pools):
    assert waits(rules.step(changed(MARKED, pools=pools))) == (rules.DISTRIBUTING, "NoPools")


def test_the_cut_takes_every_token_but_the_next():
    step = rules.step(MARKED)
    assert isinstance(step, rules.Cut)
    # The one that carries the intent is last.
    assert [each.target[2] for each in step.objects] == ["second", SHARED]


def test_the_cut_denies_what_is_older_than_the_next_token():
    step = rules.step(MARKED)
    assert isinstance(step, rules.Cut)
    assert (step.kind, step.older_than) == (revocation.WORKER, AT)


def test_what_is_being_deleted_already_is_waited_for():
    gone = (token(SHARED, "uid-s", deleting=True), token(NEXT, "uid-n"))
    assert waits(rules.step(changed(MARKED, tokens=gone))) == (rules.DISTRIBUTING, "SecretTerminating")
    assert waits(rules.step(changed(MARKED, next=secret("uid-n", deleting=True)))) == (
        rules.MAKING,
        "SecretTerminating",
    )
    ending = changed(RETURNING, next=secret("uid-n", "new", deleting=True))
    assert waits(rules.step(ending)) == (rules.RETURNING, "SecretTerminating")


@pytest.mark.parametrize("shared", [None, secret("uid-t", deleting=True)])
def test_after_the_cut_the_keeper_makes_the_first_one_anew(shared):
    assert waits(rules.step(changed(RETURNING, shared=shared))) == (rules.RETURNING, "TokenNotKept")


def test_when_everybody_has_the_new_token_the_next_one_goes():
    assert rules.step(RETURNING) == rules.DropNext("uid-n")


# --- masters


def trust(namespace, uid, **fields):
    return rules.Object(target=("ConfigMap", namespace, bootstrapper.CONFIG_MAP), uid=uid, **fields)


def kubeconfig(**fields):
    return rules.Object(target=revocation.MASTERS[2], uid="uid-k", **fields)


def masters(*objects):
    return rules.Masters(objects=objects, pools=(progress(NOW, STOCK, pool="master"),))


def test_the_mark_comes_on_everything_that_goes():
    seen = masters(trust("a", "uid-1", marked=True), trust("b", "uid-2"), kubeconfig())
    assert rules.step(seen) == rules.Mark((trust("b", "uid-2"), kubeconfig()))


def test_the_masters_credential_goes_when_they_all_have_the_other_kind():
    going = (trust("a", "uid-1", marked=True), kubeconfig(marked=True))
    assert rules.step(masters(*going)) == rules.Cut(revocation.MASTER, going)


def test_what_an_end_in_between_has_left_is_cut_after_a_restart():
    left = kubeconfig(marked=True)
    assert rules.step(masters(left)) == rules.Cut(revocation.MASTER, (left,))
    # Another credential that was made meanwhile is not the one that was to go.
    assert rules.step(masters(trust("a", "uid-9"), left)) == rules.Nothing()


def test_a_config_map_with_a_finalizer_is_waited_for():
    seen = masters(trust("a", "uid-1", marked=True, deleting=True), kubeconfig(marked=True, deleting=True))
    assert waits(rules.step(seen)) == (rules.DISTRIBUTING, "SecretTerminating")


@pytest.mark.parametrize(
    ("step", "phase"),
    [
        (rules.Nothing(), ""),
        (rules.MakeNext("u"), rules.MAKING),
        (rules.Remember({}), rules.MAKING),
        (rules.Mark(()), rules.MAKING),
        (rules.Wait(rules.RETURNING, "r", "s"), rules.RETURNING),
        (rules.Cut("worker", ()), rules.DISTRIBUTING),
        (rules.DropNext("u"), rules.RETURNING),
    ],
)
def test_every_step_has_a_phase(step, phase):
    assert rules.phase(step) == phase
