# SPDX-License-Identifier: Apache-2.0
"""The bootstrap identity: exactly its user and its groups, and words for whoever comes close."""

from __future__ import annotations

from handfast.rules.machines import bootstrapper

SERVER_ADDS = "system:authenticated"
BOTH = ("system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", SERVER_ADDS)


def test_the_account_counts_in_whichever_order_its_groups_come():
    assert bootstrapper.check(bootstrapper.USER, BOTH).passed
    assert bootstrapper.check(bootstrapper.USER, reversed(BOTH)).passed


def test_a_group_that_is_missing_is_named():
    check = bootstrapper.check(bootstrapper.USER, BOTH[1:])
    assert not check.passed
    assert "system:serviceaccounts is missing" in check.compared


def test_a_group_too_many_is_named():
    check = bootstrapper.check(bootstrapper.USER, (*BOTH, "system:masters"))
    assert not check.passed
    assert "system:masters is one too many" in check.compared


def test_another_user_is_told_who_it_is_to_be():
    check = bootstrapper.check(f"{bootstrapper.USER}-not", BOTH)
    assert not check.passed
    assert bootstrapper.USER in check.compared


def test_an_operator_may_name_other_identities():
    mine = bootstrapper.Identity("installer", frozenset({"joiners"}))
    assert bootstrapper.check("installer", ("joiners", SERVER_ADDS), [bootstrapper.NODE_BOOTSTRAPPER, mine]).passed
    assert bootstrapper.named("installer", [mine])
    assert not bootstrapper.named("installer")
