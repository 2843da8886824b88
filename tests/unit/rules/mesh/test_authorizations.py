# SPDX-License-Identifier: Apache-2.0
"""Rules of a port as a list of permissions. That they agree with the rules is tests/properties/test_mesh_policy_properties.py."""

from __future__ import annotations

from handfast.rules.mesh import authorizations, policy
from handfast.rules.mesh.authorizations import Authorization
from tests.unit.rules.mesh.test_policy import DB, ENDING, NAMING, WEB, account, made

AUDITED = Authorization(default="audit", anyone=True)
ANYBODY = Authorization(default="all-unauthenticated", anyone=True)
IDENTIFIED = Authorization(default="all-authenticated", suffixes=("",))


def of(*policies):
    return authorizations.of(policy.compiled(policies, DB, NAMING).inbound(80))


def test_without_a_policy_everybody_is_let_in():
    assert of() == (ANYBODY,)


def test_a_policy_has_its_names_and_endings():
    clients = [account("web"), account("web"), {"namespace": "bank"}, {"identity": "a.b"}]
    assert of(made(clients=clients)) == (
        Authorization(policy="shop/p", identities=(WEB, "a.b"), suffixes=(f".bank.{ENDING}",)),
    )


def test_who_lets_in_nobody_has_no_permission():
    assert of(made(clients=[])) == ()


def test_each_policy_has_one_of_its_own():
    rows = of(made("a", clients=[account("web")]), made("b", clients=[{"unauthenticated": True}, account("x")]))
    assert rows == (Authorization(policy="shop/a", identities=(WEB,)), Authorization(policy="shop/b", anyone=True))


def test_a_condition_is_written_into_each_permission():
    needs = made("z", requireIdentity={"inbound": True})
    assert of(needs) == (IDENTIFIED,)
    assert of(needs, made("b", clients=[{"unauthenticated": True}])) == (
        Authorization(policy="shop/b", suffixes=("",)),
    )
    assert of(needs, made("b", clients=[account("web")])) == (Authorization(policy="shop/b", identities=(WEB,)),)


def test_what_would_be_refused_is_let_in_last_and_told():
    audit = made("a", clients=[account("web")], mode="audit")
    assert of(audit) == (Authorization(policy="shop/a", identities=(WEB,)), AUDITED)
    assert of(made("a", requireIdentity={"inbound": True}, mode="audit")) == (IDENTIFIED, AUDITED)
    # Beside a condition that is enforced, only those with an identity are left to be told of.
    assert of(audit, made("b", requireIdentity={"inbound": True})) == (
        Authorization(policy="shop/a", identities=(WEB,)),
        Authorization(default="audit", suffixes=("",)),
    )


def test_audit_beside_what_is_enforced_lets_in_nobody_else():
    enforced = made("b", clients=[account("web"), {"namespace": "bank"}])
    assert of(made("a", clients=[account("api")], mode="audit"), enforced) == of(enforced)
    open_to_all = made("b", clients=[{"unauthenticated": True}])
    needs = made("a", requireIdentity={"inbound": True}, mode="audit")
    assert of(needs, open_to_all) == (Authorization(policy="shop/b", suffixes=("",)), AUDITED)
    assert of(needs, made("b", requireIdentity={"inbound": True})) == (IDENTIFIED,)
