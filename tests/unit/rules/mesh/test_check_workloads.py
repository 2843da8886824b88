# SPDX-License-Identifier: Apache-2.0
"""What runs: services that answer, clocks that agree, and Pods that have what they should."""

import datetime

import pytest

from handfast.rules import check
from handfast.rules.mesh import check_facts, check_trust, check_workloads
from tests.unit.pki.making import NOW
from tests.unit.rules.mesh import checking

FORBIDDEN = check.Unread("no")
SECOND = datetime.timedelta(seconds=1)


def verdicts(**changes):
    return {each.name: (each.verdict.value, each.reason) for each in check_workloads.checks(checking.facts(**changes))}


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("doors", {"services"}),
        ("ahead", {"clock"}),
        ("heartbeats", {"clock"}),
        ("accounts", {"accounts"}),
        ("namespaces", {"accounts", "unmeshed-pods"}),
        ("pods", {"unmeshed-pods", "pod-anchors"}),
        ("workloads", {"workload-certificates", "audit"}),
        ("config", {"accounts"}),
        ("anchors", {"pod-anchors"}),
    ],
)
def test_what_may_not_be_read_is_unknown(field, names):
    told = verdicts(**{field: FORBIDDEN})
    assert {name for name, verdict in told.items() if verdict == ("unknown", "Unknown")} == names


def test_a_door_without_an_endpoint_or_an_answer_fails():
    assert verdicts(doors={"policy": check_facts.Door()})["services"] == ("failed", "NoEndpoints")
    assert verdicts(doors={"policy": check_facts.Door("192.0.2.1:1", 0, False)})["services"] == (
        "failed",
        "NotAnswering",
    )


def test_a_door_that_cannot_be_asked_from_here_is_said_to_be_so():
    (told, *_) = check_workloads.checks(checking.facts(doors={"policy": check_facts.Door("", 2)}))
    assert told.verdict is check.Verdict.OK
    assert "not asked from here: policy" in told.sentence


@pytest.mark.parametrize("seconds", [-600, -23, 23, 600])
def test_a_clock_beyond_the_skew_fails(seconds):
    assert verdicts(ahead=seconds * SECOND)["clock"] == ("failed", "ClockSkew")
    assert verdicts(ahead=SECOND)["clock"] == ("ok", "")


@pytest.mark.parametrize(("seconds", "told"), [(0, "ok"), (-300, "ok"), (-311, "warning"), (20, "ok"), (60, "warning")])
def test_a_node_that_was_heard_at_an_odd_time_is_told(seconds, told):
    beats = [check_facts.Heartbeat("n1", NOW + seconds * SECOND)]
    assert verdicts(heartbeats=beats)["clock"][0] == told


def test_an_account_that_can_have_no_name_is_told_where_pods_are_injected():
    rows = [checking.account("a.b"), checking.account("c.d", "plain")]
    told = verdicts(accounts=rows)
    assert told["accounts"] == ("warning", "AccountWithoutName")
    assert verdicts(accounts=rows[1:])["accounts"] == ("ok", "")


def test_a_pod_that_should_have_a_proxy_is_told():
    assert verdicts(pods=[checking.pod("web")])["unmeshed-pods"] == ("warning", "PodsWithoutProxy")


@pytest.mark.parametrize(
    "pod",
    [
        checking.pod("done", phase="Succeeded"),
        checking.pod("other", "plain"),
        checking.pod("gone", "nowhere"),
        {**checking.pod("host"), "spec": {"hostNetwork": True, "containers": []}},
        {**checking.pod("odd"), "spec": {"containers": "no"}},
        checking.pod("own", "linkerd"),
        checking.pod("left", "alone"),
    ],
)
def test_a_pod_that_should_have_none_is_not(pod):
    spaces = [
        checking.namespace("shop", "enabled"),
        checking.namespace("plain"),
        checking.namespace("linkerd", "enabled"),
        checking.namespace("alone", "enabled", **{"config.linkerd.io/admission-webhooks": "disabled"}),
    ]
    assert verdicts(pods=[pod], namespaces=spaces)["unmeshed-pods"] == ("ok", "")


def test_a_pod_with_other_anchors_is_told():
    old = checking.pod("web", proxy=True, anchors="0" * 64)
    assert verdicts(pods=[old])["pod-anchors"] == ("warning", "OldTrustAnchors")
    # A proxy without an identity has none.
    assert verdicts(pods=[checking.pod("web", proxy=True, anchors="")])["pod-anchors"] == ("ok", "")


def test_a_reported_certificate_that_is_over_fails_and_one_that_is_late_is_told():
    def reported(at):
        return {"metadata": {"namespace": "shop", "name": "p"}, "status": {"certificate": {"notAfter": at}}}

    over = [reported("2020-01-01T00:00:00Z")]
    assert verdicts(workloads=over)["workload-certificates"] == ("failed", "WorkloadCertificateExpired")
    for hours, verdict in ((2, ("warning", "WorkloadCertificateLate")), (3, ("ok", ""))):
        left = [reported(f"{NOW + hours * 3600 * SECOND:%Y-%m-%dT%H:%M:%SZ}")]
        assert verdicts(workloads=left)["workload-certificates"] == verdict
    assert verdicts(workloads=[reported("9999-01-01T00:00:00Z"), reported("no")])["workload-certificates"] == ("ok", "")
    # A Pod that has ended renews nothing.
    done = [checking.pod("p", phase="Succeeded")]
    assert verdicts(workloads=over, pods=done)["workload-certificates"] == ("ok", "")


def test_a_pod_whose_agent_has_the_anchors_of_today_is_not():
    old = checking.pod("web", proxy=True, anchors="0" * 64)
    old["metadata"]["uid"] = "u-1"
    bundle = check_trust.anchors(checking.facts())
    assert bundle is not None
    for roots, verdict in (([anchor.fingerprint for anchor in bundle.anchors], "ok"), (["0" * 64], "warning")):
        row = {
            "metadata": {"namespace": "shop", "name": "web", "ownerReferences": [{"uid": "u-1"}]},
            "status": {"anchors": roots},
        }
        assert verdicts(pods=[old], workloads=[row])["pod-anchors"][0] == verdict


def edge(peer, hours, **more):
    """An edge as a server reports it, last seen so many hours ago, and first an hour before that."""
    seen = {
        key: f"{NOW - back * 3600 * SECOND:%Y-%m-%dT%H:%M:%SZ}"
        for key, back in (("firstSeen", hours + 1), ("lastSeen", hours))
    }
    row = {"direction": "inbound", "port": 8080, "secured": bool(peer), "count": 3, "peer": peer}
    return {**row, **seen, "wouldBeRefused": "not-allowed", **more}


def test_who_would_be_refused_by_policies_in_audit_is_told_since_when():
    def told(*rows):
        status = {"identity": checking.identity("db"), "edges": list(rows)}
        named = [{"status": {"edges": list(rows)}}, {"metadata": {"namespace": "shop", "name": "p"}, "status": status}]
        return check_workloads.checks(checking.facts(workloads=named))[-1]

    web = checking.identity("web")
    seen = told(edge(web, 0.2), edge(web, 0.1), edge("", 0.1))
    assert (seen.verdict, seen.reason) == (check.Verdict.WARNING, "PolicyWouldRefuse")
    assert "enforced: shop/web to shop/db:8080, somebody without an identity to shop/db:8080" in seen.sentence
    assert seen.hint.endswith(": handfast mesh edges --would-deny")
    assert seen.since == NOW - 1.2 * 3600 * SECOND
    # Who only was, who is refused now anyway, whom nobody would refuse, and what a client says of itself.
    others = (
        edge(web, 2),
        edge(web, 0, refused="denied"),
        edge(web, 0, wouldBeRefused=""),
        edge(web, 0, direction="outbound"),
    )
    for row in (*others, edge(web, 0, lastSeen="never")):
        assert told(row).verdict is check.Verdict.OK
