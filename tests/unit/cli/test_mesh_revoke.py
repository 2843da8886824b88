# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh revoke`: what is printed where, and with which exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handfast.cli import main, output
from handfast.client import api, connection
from handfast.rules.ledger import entries, segments
from handfast.runtime import clock
from tests.unit.cli.test_node import Reached, _clean_environment
from tests.unit.rules.mesh.issued_cases import HOUR, NOW, entry
from tests.world.clock import MovableClock

__all__ = ["_clean_environment"]


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = Reached()
    monkeypatch.setattr(connection, "load", made.load)
    monkeypatch.setattr(api, "Client", lambda _transport: made.client)
    monkeypatch.setattr(clock, "SystemClock", lambda: MovableClock(NOW))
    monkeypatch.setenv("KUBECONFIG", "k")
    made.client.put("serviceaccounts", "web", "shop")
    made.client.put("pods", "web-1", "shop", metadata={"uid": "u-1"})
    return made


def issue(reached: Any, *rows: entries.Entry) -> None:
    segment = segments.extended(segments.following(None, segments.MESH), [entries.encode(row) for row in rows])
    reached.client.put("issuancelogs", segment.name, spec=segments.spec_of(segment))


def run(*arguments: str) -> int:
    return output.run(main.command, ["mesh", "revoke", *arguments])


def test_it_says_who_is_refused_and_which_certificates_are_concerned(reached, capsys):
    issue(reached, entry())
    assert run("shop/web", "--reason", "stolen") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        "account shop/web is refused from now on\n\n"
        "  refused       the user system:serviceaccount:shop:web at the API server, and its identity in the mesh\n"
        "  certificates  1 in force, until 2026-11-17T13:00:00Z\n"
        "  until         it is undone\n"
        "  reason        stolen\n"
        "  revocation    account-shop.web\n\n"
        "UNTIL                  SERIAL   POD          NAME\n"
        "2026-11-17T13:00:00Z   01       shop/web-1   web.shop.sa.linkerd-identity.linkerd.cluster.local\n\n"
        "To undo it: handfast mesh revoke shop/web --undo\n"
    )
    assert run("shop/web") == 0
    assert capsys.readouterr().out.startswith("account shop/web was refused already, and still is\n")


def test_of_many_certificates_a_few_are_shown(reached, capsys):
    issue(reached, *(entry(number=number, pod="", lives=number * HOUR) for number in range(1, 13)))
    assert run("shop/web") == 0
    out = capsys.readouterr().out
    assert "12 in force, the last until 2026-11-18T00:00:00Z" in out
    assert "… and 2 more: -o json has them all" in out
    assert run("shop/web", "-o", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["certificates"]) == 12


def test_a_pod_and_a_certificate_are_told_by_what_they_are(reached, capsys):
    assert run("--pod", "shop/web-1", "--expires", "12h") == 0
    out = capsys.readouterr().out
    assert "tokens bound to the Pod of UID u-1 at the API server" in out
    assert "until         2026-11-18T00:00:00Z" in out
    assert "none in force, by the ledger" in out
    assert "To undo it: handfast mesh revoke --pod shop/web-1 --undo" in out
    assert run("--serial", "0A") == 0
    out, err = capsys.readouterr()
    assert "certificate a is refused from now on" in out
    assert "its workload can get another one" in out
    assert "no certificate of the mesh in force with this serial number" in err


def test_undo_says_what_was_deleted(reached, capsys):
    run("shop/web")
    run("--pod", "shop/web-1")
    capsys.readouterr()
    assert run("shop/web", "--undo") == 0
    assert capsys.readouterr().out == "account shop/web is believed again: account-shop.web was deleted\n"
    assert run("shop/web", "--undo") == 0
    assert capsys.readouterr().out == "account shop/web was not refused: nothing was deleted\n"
    reached.client.put("revocations", "by-hand", spec={"pod": {"namespace": "shop", "name": "web-1"}})
    assert run("--pod", "shop/web-1", "--undo") == 0
    out, err = capsys.readouterr()
    assert out == "pod-shop.web-1.u-1 was deleted, but others name Pod shop/web-1: by-hand\n"
    assert "kubectl delete revocation by-hand" in err


def test_json_has_the_facts(reached, capsys):
    issue(reached, entry())
    assert run("--pod", "shop/web-1", "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["pod"] == {"namespace": "shop", "name": "web-1", "uid": "u-1"}
    assert (facts["revoked"], facts["changed"], facts["exists"], facts["expires"]) == (True, True, True, None)
    assert facts["certificates"][0]["pod"] == "shop/web-1"
    assert run("--pod", "shop/web-1", "--undo", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["namedBy"] == []


def test_what_is_noted(reached, capsys):
    assert run("shop/nobody") == 0
    assert "there is no account shop/nobody now" in capsys.readouterr().err
    assert run("linkerd/linkerd-identity") == 0
    assert "control plane" in capsys.readouterr().err
    issue(reached, entry(pod="shop/gone/u-3/n1"))
    assert run("--pod", "shop/gone") == 0
    assert "there is no Pod shop/gone now; its certificates are refused" in capsys.readouterr().err


def test_certificates_of_an_earlier_pod_of_the_name_are_told(reached, capsys):
    issue(reached, entry(), entry(number=2, pod="shop/web-1/u-0/n1"))
    assert run("--pod", "shop/web-1", "-o", "json") == 0
    told = capsys.readouterr()
    facts = json.loads(told.out)
    assert [row["serial"] for row in facts["certificates"]] == ["01"]
    assert [row["serial"] for row in facts["notRefused"]] == ["02"]
    assert "1 certificates in force are of other Pods that were called shop/web-1, and stay good: 02;" in told.err
    assert run("shop/web") == 0
    assert "stay good" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("web",),
        ("shop/web", "--reason", ""),
        ("shop/web", "--undo", "--reason", "x"),
        ("shop/web", "--undo", "--expires", "1h"),
        ("shop/web", "--expires", "soon"),
        ("shop/web", "--expires", "2020-01-01T00:00:00Z"),
        ("shop/web", "--expires", "-1h"),
        ("shop/web", "--serial", "1"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_written(reached, capsys, words):
    assert run(*words) == 2
    assert capsys.readouterr().err
    assert reached.client.calls == []


def test_an_end_may_be_a_time(reached, capsys):
    assert run("shop/web", "--expires", "2026-11-20T00:00:00+02:00", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["expires"] == "2026-11-19T22:00:00Z"
