# SPDX-License-Identifier: Apache-2.0
"""What runs: controllers, their rights, the store, webhooks."""

import pytest

from handfast.rules import check
from handfast.rules.diagnoses import control_plane, facts
from tests.unit.rules.diagnoses import known

FORBIDDEN = check.Unread("no")
READY = facts.Probe("http://127.0.0.1:9990", True)


def verdict(judge, **changes):
    row = judge(known.good(**changes))
    return row.verdict.value, row.reason


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"controllers": facts.Probe("http://127.0.0.1:9990", False, "not synced")}, ("failed", "ControllersNotReady")),
        ({"controllers": READY, "lease": None}, ("ok", "")),
        ({"controllers": READY, "lease": FORBIDDEN}, ("ok", "")),
        ({"controllers": None}, ("ok", "")),
        ({"controllers": None, "lease": None}, ("unknown", "Unknown")),
        ({"controllers": None, "lease": FORBIDDEN}, ("unknown", "Unknown")),
        ({"lease": known.lease(seconds_ago=31)}, ("failed", "NoLeader")),
        ({"lease": known.lease(seconds_ago=-5)}, ("ok", "")),
        ({"lease": known.lease(holder="")}, ("failed", "NoLeader")),
        ({"lease": {"spec": {"holderIdentity": "a", "renewTime": "yesterday"}}}, ("failed", "NoLeader")),
    ],
)
def test_controllers_are_ready_or_have_a_leader(changes, wanted):
    assert verdict(control_plane.controllers, **changes) == wanted


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"controllers_user": ""}, ("ok", "")),
        ({"missing_rights": ["approver: get nodes"]}, ("failed", "ControllerRightsMissing")),
        ({"missing_rights": FORBIDDEN}, ("unknown", "Unknown")),
    ],
)
def test_controllers_may_do_what_they_need(changes, wanted):
    assert verdict(control_plane.rights, **changes) == wanted


OTHER_SERVER = known.reach(version="v1.34.1")
UNREACHED = known.reach(version=facts.NOT_ASKED)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, ("ok", "")),
        ({"roles": {}}, ("ok", "")),
        ({"roles": None}, ("unknown", "Unknown")),
        ({"roles": None, "reach": OTHER_SERVER}, ("ok", "")),
        ({"roles": None, "reach": UNREACHED}, ("unknown", "Unknown")),
        ({"roles": {"identity": facts.Probe("http://a", False, "no answer")}}, ("failed", "RoleNotReady")),
        ({"serving": {"machineConfig": known.certificate()}}, ("ok", "")),
        ({"serving": {"machineConfig": known.certificate(age=350)}}, ("failed", "CertificateEndsSoon")),
    ],
)
def test_other_roles_are_ready_and_serve_with_a_certificate_that_was_renewed(changes, wanted):
    assert verdict(control_plane.roles, **changes) == wanted


@pytest.mark.parametrize(
    ("ready", "wanted"),
    [
        ("[+]ping ok\n[+]store ok\n", ("ok", "")),
        ("[+]ping ok\n[+]etcd ok\n", ("ok", "")),
        ("[-]store failed: reason\n", ("failed", "StoreNotReady")),
        ("[+]store ok, but it is full\n", ("failed", "StoreFull")),
        ("ok", ("unknown", "Unknown")),
        (FORBIDDEN, ("unknown", "Unknown")),
    ],
)
def test_the_store_is_as_the_server_says(ready, wanted):
    assert verdict(control_plane.store, ready=ready) == wanted


@pytest.mark.parametrize(
    ("hooks", "wanted", "said"),
    [
        ([], ("ok", ""), "there is none"),
        ([facts.Hook("a", "https://a", True)], ("ok", ""), "1 of 1 answer"),
        ([facts.Hook("a", "https://a", False, None)], ("ok", ""), "0 of 1 answer; not asked from here: a"),
        ([facts.Hook("a", "https://a", False, "gone")], ("failed", "WebhookNotAnswering"), "a at https://a: gone"),
        ([facts.Hook("a", "https://a", True, "gone")], ("warning", "WebhookNotAnswering"), "unjudged"),
        (FORBIDDEN, ("unknown", "Unknown"), "no"),
    ],
)
def test_webhooks_answer_and_one_that_writes_wait_for_fails(hooks, wanted, said):
    assert verdict(control_plane.webhooks, webhooks=hooks) == wanted
    assert said in control_plane.webhooks(known.good(webhooks=hooks)).sentence
