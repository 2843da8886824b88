# SPDX-License-Identifier: Apache-2.0
"""Workloads, edges and policies of a mesh as the console shows them."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from handfast.rules.console import mesh, mesh_trust
from handfast.rules.mesh import names
from tests.unit.rules.console.mesh_cases import edge, facts, identity, meshed, report
from tests.unit.rules.console.test_mesh_trust import keyless
from tests.unit.rules.mesh.rotation_cases import BOTH, HOUR, NEW, NEW_ROOT, NOW, OLD, OLD_ROOT, Step, after, entry

MINUTE = HOUR / 60
ROOTS = frozenset({OLD_ROOT})


def rows(known: mesh.Facts, roots: frozenset[str] = ROOTS) -> tuple[mesh.Workload, ...]:
    return mesh.workloads(known, mesh.known(known), roots)


def only(known: mesh.Facts, roots: frozenset[str] = ROOTS) -> mesh.Workload:
    (row,) = rows(known, roots)
    return row


def test_a_workload_has_its_identity_and_the_end_of_its_certificate():
    row = only(facts([meshed("web-1")], [report("web-1")]))
    assert (row.namespace, row.pod, row.account, row.identity) == ("shop", "web-1", "web", identity("web"))
    assert (row.proxy, row.state, row.why) == ("agent", "good", "")
    assert (row.ends, row.serial, row.heard) == (NOW + 20 * HOUR, "0a", NOW)
    assert row.issued is None


def test_what_the_ledger_has_of_a_pod_without_an_agent_is_shown():
    certificate = entry("web-1", ago=HOUR, lives=23 * HOUR)
    earlier = dataclasses.replace(entry("web-1", number=2, ago=9 * HOUR, lives=14 * HOUR))
    row = only(facts([meshed("web-1")], [], ledger=[certificate, earlier]))
    assert (row.proxy, row.state, row.identity) == ("stock", "good", identity("web"))
    assert (row.issued, row.ends, row.serial) == (NOW - HOUR, NOW + 23 * HOUR, certificate.serial)


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({"ends": NOW}, "expired", "peers refuse it"),
        ({"ends": NOW + 2 * HOUR}, "late", "should have been renewed"),
        ({"ends": NOW + 3 * HOUR}, "good", ""),
        ({"roots": (NEW_ROOT,)}, "old roots", "its agent has not acknowledged 1 of 1"),
        ({"heard": NOW - 16 * MINUTE}, "silent", "quarter of an hour"),
        ({"ends": None}, "unknown", "no certificate of it"),
    ],
)
def test_of_a_workload_the_worst_is_said(change: dict[str, Any], state: str, said: str):
    row = only(facts([meshed("web-1")], [report("web-1", **change)]))
    assert row.state == state
    assert said in row.why


def test_a_certificate_that_has_ended_is_shown_by_the_ledger_where_no_agent_reports():
    row = only(facts([meshed("web-1")], [], ledger=[entry("web-1", ago=9 * HOUR, lives=-HOUR)]))
    assert (row.state, row.ends) == ("expired", NOW - HOUR)


def test_how_late_is_late_depends_on_the_life_of_the_certificate():
    # An hour's certificate with ten minutes left has time; a day's has not.
    short = entry("web-1", ago=50 * MINUTE, lives=10 * MINUTE)
    assert only(facts([meshed("web-1")], [], ledger=[short])).state == "good"
    long = entry("web-1", ago=23 * HOUR, lives=10 * MINUTE)
    assert only(facts([meshed("web-1")], [], ledger=[long])).state == "late"


def test_a_pod_without_an_agent_that_has_old_roots_is_to_be_started_again():
    row = only(facts([meshed("web-1")], [], ledger=[entry("web-1", lives=20 * HOUR)]), frozenset({OLD_ROOT, NEW_ROOT}))
    assert (row.state, row.why) == ("old roots", "its variables lack 1 of 2 trust anchors: start it again")


def test_of_whom_nobody_knows_what_it_believes_nothing_is_said_about_roots():
    bare = meshed("web-1")
    bare["spec"]["initContainers"] = []
    row = only(facts([bare], [], ledger=[entry("web-1", lives=20 * HOUR)]))
    assert (row.proxy, row.state) == ("unknown", "good")


def test_a_pod_is_read_by_the_digest_of_its_anchors_instead_of_its_variables():
    stored = mesh_trust.Stored(anchors=BOTH.to_pem(), record=keyless(after(Step.ADD)))
    variables = mesh_trust.variables(stored)
    digests = {hashlib.sha256(side).hexdigest() for side in (BOTH.to_pem(), OLD.anchors, NEW.anchors)}
    assert set(variables) == digests
    pods = [
        mesh.Pod(namespace="shop", name=name, uid=f"u-{name}", account="web", phase="Running", anchors=digest)
        for name, digest in (
            ("both", hashlib.sha256(BOTH.to_pem()).hexdigest()),
            ("old", hashlib.sha256(OLD.anchors).hexdigest()),
            ("other", "0" * 64),
            ("plain", ""),
        )
    ]
    ledger = [entry(pod.name, lives=20 * HOUR) for pod in pods[:3]]
    known = facts([mesh.document(pod, variables) for pod in pods], [], ledger=ledger)
    seen = {row.pod: (row.proxy, row.state, row.why) for row in rows(known, frozenset({OLD_ROOT, NEW_ROOT}))}
    assert seen == {
        "both": ("stock", "good", ""),
        "old": ("stock", "old roots", "its variables lack 1 of 2 trust anchors: start it again"),
        "other": (
            "unknown",
            "old roots",
            "it was injected with other trust anchors than those of today: start it again",
        ),
    }


def test_without_anchors_there_are_no_variables():
    assert mesh_trust.variables(mesh_trust.Stored()) == {}


def test_the_most_urgent_comes_first_then_the_nearest_end():
    known = facts(
        [meshed(name) for name in ("a", "b", "c", "d")],
        [report("a"), report("b", ends=NOW), report("c", ends=NOW + 19 * HOUR), report("d", ends=None)],
    )
    assert [row.pod for row in rows(known)] == ["b", "d", "c", "a"]


def test_a_pod_without_an_account_runs_as_the_default_one():
    pod = meshed("web-1")
    del pod["spec"]["serviceAccountName"]
    assert only(facts([pod], [])).account == "default"


def test_where_names_have_uids_or_accounts_dots_no_identity_is_guessed():
    uids = dataclasses.replace(facts([meshed("web-1")], []), mesh=names.Mesh("cluster.local", scheme=names.Scheme.UID))
    assert only(uids).identity == ""
    assert only(facts([meshed("web-1", "a.b")], [])).identity == ""


def test_edges_are_those_of_the_command_the_most_urgent_first():
    web, shop = identity("web"), identity("db")
    known = facts(
        [],
        [
            report(
                "web-1", edge("outbound", shop), edge("outbound", destination="example.com:80", unsecured="no-identity")
            ),
            report(
                "db-1",
                edge("inbound", web),
                edge("inbound", unsecured="plaintext", refused="not-allowed"),
                edge("inbound", identity("eve"), wouldBeRefused="not-allowed"),
                account="db",
            ),
        ],
    )
    seen = mesh.talk(known)
    assert [(row.client, row.server, row.state) for row in seen] == [
        ("", "shop/db", "refused"),
        ("shop/eve", "shop/db", "would be refused"),
        ("shop/web", "example.com:80", "not secured"),
        ("shop/web", "shop/db", "secured"),
    ]
    assert [row.seen_by for row in seen] == [
        "server, client no identity",
        "server, client unknown",
        "client, server no identity",
        "both ends",
    ]
    assert seen[0].security == "not secured: plaintext"
    assert seen[0].judgement == "refused: not-allowed"


def test_a_report_that_is_nonsense_takes_nothing_with_it():
    assert mesh.talk(facts([], [{}, {"status": 7}, report("a", edge())]))[0].server == "shop/web"


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "mode", "about", "lets_in"),
    [
        ({"requireIdentity": {}}, "enforced", "every account in shop", "everybody"),
        (
            {"mode": "audit", "targets": {"serviceAccounts": ["db", "a"], "ports": [5432]}, "clients": []},
            "audit",
            "a, db in shop, port 5432",
            "nobody",
        ),
        (
            {"clients": [{"serviceAccount": {"name": "web"}}], "requireIdentity": {"inbound": True}},
            "enforced",
            "every account in shop",
            "serviceAccount shop/web; only callers with an identity",
        ),
        (
            {"requireIdentity": {"inbound": True, "outbound": True}},
            "enforced",
            "every account in shop",
            "only callers with an identity and servers with one",
        ),
    ],
)
def test_a_policy_is_told_in_words(spec: dict[str, Any], mode: str, about: str, lets_in: str):
    (row,) = mesh.policies([policy(**spec)])
    assert (row.title, row.mode, row.about, row.lets_in, row.problem) == ("shop/p", mode, about, lets_in, "")


def test_a_policy_that_cannot_be_read_says_so():
    (row,) = mesh.policies([policy(targets=7)])
    assert (row.lets_in, row.problem) == ("nobody", "cannot be read: spec.targets, spec.clients")


def test_states_are_counted_in_their_order():
    assert mesh.counted(["good", "late", "good"], mesh.WORKLOAD_STATES) == {"late": 1, "good": 2}
