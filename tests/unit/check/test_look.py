# SPDX-License-Identifier: Apache-2.0
"""Looking up: a row that hangs, is refused or makes no sense takes no other with it, and who is not let in is asked nothing."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import Any

import pytest

from handfast.api import status
from handfast.check import look
from handfast.client import connection, probes, way
from handfast.rules import check
from handfast.rules.diagnoses import facts
from handfast.runtime import clock
from tests.unit.rules.diagnoses import known

SERVER = "https://127.0.0.1:6443"


async def hang(_reads: object) -> None:
    await asyncio.Event().wait()


async def refuse(_reads: object) -> None:
    raise status.StatusError("Forbidden", "you may not")


async def stumble(_reads: object) -> None:
    raise KeyError("metadata")


async def answer(_reads: object) -> str:
    return "[+]store ok"


def looked(monkeypatch: pytest.MonkeyPatch, directory: pathlib.Path, reach: facts.Reach, **target: Any) -> facts.Facts:
    async def walk(_self: way.Way) -> facts.Reach:
        return reach

    async def readiness(url: str) -> facts.Probe:
        return facts.Probe(url, True)

    monkeypatch.setattr(way.Way, "walk", walk)
    monkeypatch.setattr(probes, "readiness", readiness)
    rows = {"ready": answer, "tokens": hang, "requests": refuse, "machines": stumble}
    monkeypatch.setattr(look, "ROWS", [look.Row(name, 0.05, read) for name, read in rows.items()])
    used = connection.Connection(server=SERVER, **target)
    where = look.Target(client=None, used=used, kubeconfig="k", directory=directory, mesh_namespace="linkerd")  # type: ignore[arg-type]
    shown: list[tuple[int, int, list[str]]] = []
    facts_seen = asyncio.run(look.look(where, clock.SystemClock(), lambda *each: shown.append(each)))
    assert shown[0] == (0, 5, ["the way in"])
    if reach.arrived:
        assert shown[-1] == (5, 5, [])
    return facts_seen


def test_every_row_has_its_own_trouble(monkeypatch, tmp_path):
    seen = looked(monkeypatch, tmp_path, known.reach())
    assert seen.ready == "[+]store ok"
    assert seen.requests == check.Unread("you may not")
    assert seen.machines == check.Unread("what is there cannot be understood (KeyError)")
    assert isinstance(seen.tokens, check.Unread)
    assert (seen.tokens.reason, seen.tokens.why) == ("Timeout", "it was not answered within 0.05 s")


def test_who_is_not_let_in_is_asked_nothing(monkeypatch, tmp_path):
    refused = check.Unread("who are you", "Unauthorized")
    seen = looked(monkeypatch, tmp_path, known.reach(version=refused), cert_pem=b"broken", key_pem=b"broken")
    assert {seen.ready, seen.tokens, seen.machines} == {facts.NOT_ASKED}
    assert seen.credential is None


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ({"apiserver": SERVER, "controllersAdmin": "http://127.0.0.1:9990"}, True),
        ({"apiserver": "https://192.0.2.1:6443", "controllersAdmin": "http://127.0.0.1:9990"}, False),
        ({"apiserver": "here", "controllersAdmin": "http://127.0.0.1:9990"}, False),
        ({"apiserver": SERVER}, False),
    ],
)
def test_controllers_are_asked_where_the_directory_is_that_of_the_server(monkeypatch, tmp_path, written, asked):
    (tmp_path / "endpoints.json").write_text(json.dumps(written))
    probe = looked(monkeypatch, tmp_path, known.reach()).controllers
    assert (probe is not None) == asked


def test_every_row_of_one_node_is_a_row():
    assert {row.name for row in look.ROWS} > look.OF_NODE
