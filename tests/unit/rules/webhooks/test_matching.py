# SPDX-License-Identifier: Apache-2.0
"""Which webhooks a write concerns: tables, without a server in sight."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from handfast.api import handfast_kinds, kinds
from handfast.rules.webhooks import matching
from tests.unit.rules.webhook_cases import PODS, rule, webhook

NODES = kinds.row("nodes")
NAMESPACES = kinds.row("namespaces")
DEPLOYMENTS = kinds.row("deployments", "apps")
EVENTS = kinds.row("events")
NEW_EVENTS = kinds.row("events", "events.k8s.io")


# --- rules


@pytest.mark.parametrize(
    ("found", "operation", "asked", "subresource", "matches"),
    [
        (rule(), "CREATE", PODS, "", True),
        (rule(), "UPDATE", PODS, "", False),
        (rule("*"), "DELETE", PODS, "", True),
        (rule("CREATE,DELETE"), "DELETE", PODS, "", True),
        (rule(groups="apps"), "CREATE", PODS, "", False),
        (rule(groups="*"), "CREATE", PODS, "", True),
        (rule(groups="*", resources="deployments"), "CREATE", DEPLOYMENTS, "", True),
        (rule(groups=",apps", resources="pods,deployments"), "CREATE", DEPLOYMENTS, "", True),
        (rule(versions="v2"), "CREATE", PODS, "", False),
        (rule(versions="v2,v1"), "CREATE", PODS, "", True),
        (rule(versions="*"), "CREATE", PODS, "", True),
        # Resources and their subresources.
        (rule(resources="pod"), "CREATE", PODS, "", False),
        (rule(resources="*"), "CREATE", PODS, "", True),
        (rule(resources="*"), "CREATE", PODS, "eviction", False),
        (rule(resources="pods"), "CREATE", PODS, "eviction", False),
        (rule(resources="pods/eviction"), "CREATE", PODS, "eviction", True),
        (rule(resources="pods/eviction"), "CREATE", PODS, "", False),
        (rule(resources="pods/eviction"), "CREATE", PODS, "binding", False),
        (rule(resources="pods/*"), "CREATE", PODS, "binding", True),
        (rule(resources="pods/*"), "CREATE", PODS, "", True),
        (rule(resources="*/*"), "CREATE", PODS, "binding", True),
        (rule(resources="*/*"), "CREATE", PODS, "", True),
        (rule(resources="*/status"), "CREATE", PODS, "status", True),
        (rule(resources="*/status"), "CREATE", PODS, "binding", False),
        (rule(resources="*/status,pods/binding"), "CREATE", PODS, "binding", True),
        # Scope.
        (rule(scope="Namespaced"), "CREATE", PODS, "", True),
        (rule(scope="Cluster"), "CREATE", PODS, "", False),
        (rule(resources="*", scope="Cluster"), "CREATE", NODES, "", True),
        (rule(resources="*", scope="Namespaced"), "CREATE", NODES, "", False),
        (rule(resources="*", scope="Cluster"), "CREATE", NAMESPACES, "", True),
        (rule(resources="*", scope="Namespaced"), "CREATE", NAMESPACES, "", False),
        (rule(resources="*", scope="Galaxy"), "CREATE", PODS, "", False),
    ],
)
def test_a_rule_covers_operation_group_version_resource_and_scope(found, operation, asked, subresource, matches):
    assert matching.matched(webhook(found), operation, [asked], subresource) is (asked if matches else None)


def test_one_rule_that_covers_is_enough_and_none_covers_nothing():
    assert matching.matched(webhook(rule("DELETE"), rule()), "CREATE", [PODS], "") is PODS
    assert matching.matched(webhook(), "CREATE", [PODS], "") is None


@pytest.mark.parametrize(
    ("groups", "policy", "names", "seen"),
    [
        ("", "Equivalent", [EVENTS, NEW_EVENTS], EVENTS),
        ("events.k8s.io", "Equivalent", [EVENTS, NEW_EVENTS], NEW_EVENTS),
        ("events.k8s.io", "Exact", [EVENTS, NEW_EVENTS], None),
        ("events.k8s.io", "Exact", [NEW_EVENTS, EVENTS], NEW_EVENTS),
        ("", "Exact", [EVENTS, NEW_EVENTS], EVENTS),
        ("", "Equivalent", [NEW_EVENTS, EVENTS], EVENTS),
        ("", "Exact", [NEW_EVENTS, EVENTS], None),
        ("*", "Equivalent", [NEW_EVENTS, EVENTS], NEW_EVENTS),
        ("apps", "Equivalent", [NEW_EVENTS, EVENTS], None),
    ],
)
def test_equivalent_names(groups, policy, names, seen):
    found = webhook(rule(groups=groups, resources="events"), matchPolicy=policy)
    assert matching.matched(found, "CREATE", names, "") is seen


@pytest.mark.parametrize("plural", ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"])
def test_configurations_are_never_sent(plural):
    found = webhook(rule("*", "*", "*", "*/*"))
    assert matching.matched(found, "DELETE", [kinds.row(plural, "admissionregistration.k8s.io")], "") is None


def test_nobody_is_asked_whether_somebody_may_be_revoked():
    found = webhook(rule("*", "*", "*", "*/*"))
    assert matching.matched(found, "CREATE", [handfast_kinds.REVOCATION], "") is None
    assert matching.matched(found, "DELETE", [handfast_kinds.REVOCATION], "") is handfast_kinds.REVOCATION


# --- selectors


def labelled(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


@pytest.mark.parametrize(
    ("more", "namespace", "documents", "selected"),
    [
        ({}, {}, [labelled(), None], True),
        ({}, None, [None, None], True),
        # The namespace's labels.
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, {"a": "b"}, [labelled(), None], True),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, {"a": "c"}, [labelled(a="b"), None], False),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, {}, [labelled(), None], False),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, None, [labelled(), None], True),
        # The object's: new or old.
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {"a": "b"}, [labelled(), None], False),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [labelled(a="b"), None], True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [labelled(), labelled(a="b")], True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [None, labelled(a="b")], True),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, [None, labelled()], False),
        # An absent label matches what must not be there, but only on what could have labels.
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}, {}, [{}, None], False),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}},
            {},
            [{"metadata": {}}, None],
            True,
        ),
    ],
)
def test_both_selectors_must_select(more, namespace, documents, selected):
    assert matching.selects(webhook(**more), namespace, documents) is selected


# --- rounds


def test_a_second_round_asks_those_before_a_change():
    one, two, three = (
        dataclasses.replace(webhook(reinvocationPolicy=policy), index=index)
        for index, policy in enumerate(("IfNeeded", "Never", "IfNeeded"))
    )
    rounds = matching.Rounds()
    rounds.answered(one, changed=True)
    assert not rounds.again(one)
    rounds.answered(two, changed=True)
    rounds.answered(three, changed=False)
    assert [rounds.again(each) for each in (one, two, three)] == [True, False, False]
    rounds.changed_by_others()
    assert [rounds.again(each) for each in (one, two, three)] == [True, False, True]
