# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh explain`: what may be typed, what a person reads, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Self

import pytest

from handfast.api import status
from handfast.cli import main, output
from handfast.rules.mesh import settings
from tests.unit.cli import reaching
from tests.unit.controllers.fake_api import FakeClient, failing


class Api(FakeClient, reaching.Reached):
    """A mesh with two accounts."""

    def __init__(self) -> None:
        super().__init__()
        self.put("configmaps", "linkerd-config", "linkerd", data=settings.data(settings.Settings()))
        for account in ("web", "db"):
            self.put("serviceaccounts", account, "shop")

    @property
    def client(self) -> Self:
        return self


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with reaching.reached(monkeypatch, Api()) as there:
        yield there


def run(*words: str) -> int:
    return output.run(main.command, ["mesh", "explain", *words])


def test_it_ends_with_0_where_the_call_is_allowed_and_with_1_where_not(reached, capsys):
    assert run("shop/web", "sa/shop/db:80") == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["CHECK", "RESULT", "SEEN"]
    assert "\nallowed\nto change that: echo " in printed
    reached.put("meshpolicies", "p", "shop", spec={"clients": [], "mode": "enforce"})
    assert run("shop/web", "sa/shop/db:80") == 1
    assert "\nrefused: clients: no row of shop/p fits\n" in capsys.readouterr().out


def test_it_is_there_for_machines(reached, capsys):
    assert run("none", "sa/shop/db:80", "-o", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["from"], answer["to"], answer["allowed"]) == ("none", "sa/shop/db:80", True)
    assert answer["checks"][0] == {
        "check": "client",
        "ok": None,
        "seen": "it is not in the mesh, and calls without an identity",
    }


def test_what_could_not_be_read_is_named(reached, capsys):
    reached.before = failing(status.StatusError("Forbidden", "no"), plural="issuancelogs")
    assert run("shop/web", "sa/shop/db:80") == 0
    assert "not everything could be read: ledger" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("web", "shop/db"), ("shop/web", "shop/db:x")])
def test_what_is_typed_wrong_ends_with_2(reached, capsys, words):
    assert run(*words) == 2
    assert "reason: BadMeshEnd" in capsys.readouterr().err


def test_what_was_seen_comes_last(reached, capsys):
    names = [f"{name}.shop.sa.linkerd-identity.linkerd.cluster.local" for name in ("web", "db")]
    edge = {"direction": "inbound", "peer": names[0], "port": 80, "secured": True, "count": 3}
    edge["wouldBeRefused"] = "not-allowed-by-policy"
    reached.put("meshworkloads", "db-0", "shop", status={"identity": names[1], "edges": [edge]})
    assert run("shop/web", "sa/shop/db:80") == 0
    sentence = "3 times, secured, would be refused: not-allowed-by-policy"
    assert capsys.readouterr().out.endswith(f"\nobserved: {sentence}\n")
    assert run("shop/web", "sa/shop/db:80", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["observed"] == [sentence]
