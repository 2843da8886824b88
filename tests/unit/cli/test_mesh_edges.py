# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh edges`: what a person reads, what machines read, and what may be left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Self

import pytest

from handfast.api import status
from handfast.cli import main, output
from handfast.rules.mesh import names, settings
from tests.unit.cli import reaching
from tests.unit.controllers.fake_api import FakeClient

MESH = names.Mesh("cluster.local")
WEB, DB, OLD = (MESH.name(names.Account(namespace="shop", name=name)) for name in ("web", "db", "old"))
ELSEWHERE = MESH.name(names.Account(namespace="prod", name="api"))
AT = {"firstSeen": "2026-11-17T12:00:00Z", "lastSeen": "2026-11-17T13:00:00Z"}


class Api(FakeClient, reaching.Reached):
    """A mesh in which two report."""

    def __init__(self) -> None:
        super().__init__()
        self.put("configmaps", "linkerd-config", "linkerd", data=settings.data(settings.Settings()))

    @property
    def client(self) -> Self:
        return self

    def report(self, pod: str, identity: str, *edges: dict[str, Any]) -> None:
        self.put("meshworkloads", pod, "shop", status={"identity": identity, "edges": list(edges)})


def edge(direction: str, peer: str, **more: Any) -> dict[str, Any]:
    row = {"direction": direction, "port": 5432, "secured": bool(peer), "count": 3, **more}
    return {**row, "peer": peer} if peer else row


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with reaching.reached(monkeypatch, Api()) as there:
        there.report("web-0", WEB, edge("outbound", DB, destination="db.shop:5432", **AT))
        there.report(
            "db-0",
            DB,
            edge("inbound", WEB, wouldBeRefused="not-allowed-by-policy"),
            edge("inbound", OLD),
            edge("inbound", ELSEWHERE, refused="not-allowed-by-policy"),
            edge("inbound", "", unsecured="plaintext"),
            edge("outbound", "", unsecured="no-peer-identity", destination="example.org:80"),
        )
        yield there


def run(*words: str) -> int:
    return output.run(main.command, ["mesh", "edges", *words])


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [[cell for cell in line.split("  ") if cell.strip()] for line in capsys.readouterr().out.splitlines()]


def test_who_talks_to_whom_secured_or_why_not_judged_how_and_seen_by_whom(reached, capsys):
    assert run() == 0
    head, *rows = [[cell.strip() for cell in row] for row in printed(capsys)]
    assert head == ["FROM", "TO", "PORT", "SECURED", "COUNT", "SINCE", "JUDGED", "SEEN BY"]
    none = "nobody says how it was judged"
    assert sorted(rows) == sorted(
        [
            [
                "shop/web",
                "shop/db",
                "5432",
                "yes",
                "3",
                AT["firstSeen"],
                "would be refused: not-allowed-by-policy",
                "both",
            ],
            ["shop/old", "shop/db", "5432", "yes", "3", "-", "allowed", "server, client unknown"],
            [
                "prod/api",
                "shop/db",
                "5432",
                "yes",
                "3",
                "-",
                "refused: not-allowed-by-policy",
                "server, client unknown",
            ],
            ["-", "shop/db", "5432", "no: plaintext", "3", "-", "allowed", "server, client no identity"],
            ["shop/db", "example.org:80", "5432", "no: no-peer-identity", "3", "-", none, "client, server no identity"],
        ]
    )


def test_only_what_would_be_refused_and_only_what_has_an_end_in_a_namespace(reached, capsys):
    assert run("--would-deny", "-o", "json") == 0
    (only,) = json.loads(capsys.readouterr().out)["edges"]
    assert only == {
        "client": {"identity": WEB, "account": "shop/web", "seen": "reported"},
        "server": {"identity": DB, "account": "shop/db", "seen": "reported"},
        "destination": "db.shop:5432",
        "port": 5432,
        "secured": True,
        "unsecured": "",
        "count": 3,
        "refused": "",
        "wouldBeRefused": "not-allowed-by-policy",
        "since": AT["firstSeen"],
        "last": AT["lastSeen"],
    }
    assert run("--namespace", "prod", "-o", "json") == 0
    assert [row["client"]["account"] for row in json.loads(capsys.readouterr().out)["edges"]] == ["prod/api"]
    assert run("-n", "prod", "--would-deny") == 0
    assert "nothing that was seen would be refused" in capsys.readouterr().err


def test_where_nobody_reports_that_is_said(reached, capsys):
    for pod in ("web-0", "db-0"):
        reached.report(pod, "")
    assert run() == 0
    assert "no agent of the mesh reports" in capsys.readouterr().err
    reached.report("web-0", WEB)
    assert run() == 0
    assert "nobody was seen to talk to anybody" in capsys.readouterr().err


def test_without_a_mesh_it_is_refused(reached, capsys):
    assert run("--control-plane-namespace", "none") == 1
    assert "reason: NotInstalled" in capsys.readouterr().err


def test_where_only_some_may_be_read_these_are_shown_and_the_others_unknown(reached, capsys):
    refused = iter([True, False, True])

    def before(_verb: str, plural: str, _name: str) -> None:
        # The list of all namespaces, not that of one.
        if plural == "meshworkloads" and next(refused):
            raise status.StatusError("Forbidden", "no right")

    reached.before = before
    assert run("-n", "shop") == 0
    told = capsys.readouterr()
    assert "workloads of other namespaces are unknown" in told.err
    assert "shop/web" in told.out
    assert run() == 1
