# SPDX-License-Identifier: Apache-2.0
"""Looking up: a row that hangs, is refused or makes no sense takes no other with it, and who is not let in is asked nothing."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import Any

import pytest

from handfast import errors
from handfast.api import status
from handfast.check import look
from handfast.cli import check as check_command
from handfast.client import connection, probes, way
from handfast.pki import pem
from handfast.rules import check
from handfast.rules.diagnoses import facts, judged
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


def looked(
    monkeypatch: pytest.MonkeyPatch,
    directory: pathlib.Path,
    reach: facts.Reach,
    kubeconfig: str = "k",
    *,
    webhooks: Any = answer,
    **target: Any,
) -> facts.Facts:
    async def walk(_self: way.Way) -> facts.Reach:
        return reach

    async def readiness(url: str, path: str) -> facts.Probe:
        return facts.Probe(f"{url}{path}", True)

    monkeypatch.setattr(way.Way, "walk", walk)
    monkeypatch.setattr(probes, "readiness", readiness)
    rows = {"ready": answer, "tokens": hang, "requests": refuse, "machines": stumble, "webhooks": webhooks}
    monkeypatch.setattr(look, "ROWS", [look.Row(name, 0.05, read) for name, read in rows.items()])
    used = connection.Connection(server=SERVER, **target)
    where = look.Target(client=None, used=used, kubeconfig=kubeconfig, directory=directory, mesh_namespace="linkerd")  # type: ignore[arg-type]
    shown: list[tuple[int, int, list[str]]] = []
    facts_seen = asyncio.run(look.look(where, clock.SystemClock(), lambda *each: shown.append(each)))
    assert shown[0] == (0, 6, ["the way in"])
    if reach.arrived:
        assert shown[-1] == (6, 6, [])
    return facts_seen


def test_every_role_of_this_machine_is_asked_for_its_health_and_its_ca_signs(monkeypatch, tmp_path):
    doors = {"controllersAdmin": "http://127.0.0.1:1", "identityAdmin": "http://127.0.0.1:2", "identity": "127.0.0.1:3"}
    written = {
        "apiserver": SERVER,
        **doors,
        "machineConfigAdmin": "http://127.0.0.1:4",
        "console": "http://127.0.0.1:5",
    }
    (tmp_path / "endpoints.json").write_text(json.dumps(written))
    (tmp_path / "pki").mkdir()
    for name, made in (("ca.crt", known.CA), ("machine-config.crt", known.OTHER_CA)):
        (tmp_path / "pki" / name).write_bytes(made.pem)
    seen = looked(monkeypatch, tmp_path, known.reach())
    assert seen.controllers == facts.Probe("http://127.0.0.1:1/readyz?verbose", True)
    assert seen.roles is not None
    assert {name: probe.where for name, probe in seen.roles.items()} == {
        "identity": "http://127.0.0.1:2/readyz?verbose",
        "machineConfig": "http://127.0.0.1:4/readyz?verbose",
        "console": "http://127.0.0.1:5/livez",
    }
    assert seen.signer_ca is not None
    assert (seen.signer_ca.der, [*seen.serving]) == (known.CA.der, ["machineConfig"])


def test_every_row_has_its_own_trouble(monkeypatch, tmp_path):
    seen = looked(monkeypatch, tmp_path, known.reach())
    assert seen.ready == "[+]store ok"
    assert seen.requests == check.Unread("you may not")
    assert isinstance(seen.machines, check.Unread)
    assert (seen.machines.why, seen.machines.reason) == (
        "what is there cannot be understood (KeyError)",
        check.NOT_UNDERSTOOD,
    )
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


def test_a_server_that_is_called_by_another_name_is_known_by_its_certificate(monkeypatch, tmp_path):
    written = {"apiserver": "https://127.0.0.1:1", "controllersAdmin": "http://127.0.0.1:9990"}
    (tmp_path / "endpoints.json").write_text(json.dumps(written))
    (tmp_path / "pki").mkdir()
    reached = known.reach()
    shown = reached.certificate
    assert not isinstance(shown, check.Unread)
    silent = known.reach(certificate=check.Unread("no"), version=check.Unread("no"))
    for own, reach, kubeconfig, is_asked in (
        (shown.der, reached, "k", True),
        (known.CA.der, reached, str(tmp_path / "admin.conf"), False),
        # One that shows nothing is the directory's own for its own kubeconfig alone.
        (shown.der, silent, str(tmp_path / "admin.conf"), True),
        (shown.der, silent, "k", False),
    ):
        (tmp_path / "pki" / "apiserver.crt").write_bytes(pem.certificates_to_pem([own]))
        assert (looked(monkeypatch, tmp_path, reach, kubeconfig).controllers is not None) == is_asked


REFUSALS: dict[str, tuple[Exception, tuple[str, str], str, int]] = {
    "401": (status.StatusError("Unauthorized", "who"), ("unknown", "Unknown"), "--kubeconfig", 0),
    "403": (status.StatusError("Forbidden", "you may not"), ("unknown", "Unknown"), "--kubeconfig", 0),
    "404": (status.no_such_path(), ("unknown", "Unknown"), "--kubeconfig", 0),
    "429": (status.StatusError("TooManyRequests", "later"), ("failed", "TooManyRequests"), "wait and ask again", 1),
    "500": (status.StatusError("InternalError", "oh"), ("failed", "InternalError"), "see the log of the API server", 1),
    "503": (
        status.StatusError("ServiceUnavailable", "no"),
        ("failed", "ServiceUnavailable"),
        "see the log of the API server",
        1,
    ),
    "gone": (errors.Unavailable("gone", reason="Unreachable"), ("failed", "Unreachable"), "see that it runs still", 1),
    "hint": (errors.Unavailable("no", reason="ConnectionRefused", hint="do"), ("failed", "ConnectionRefused"), "do", 1),
    "odd": (KeyError("metadata"), ("failed", "NotUnderstood"), "kubectl", 1),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_says_something_of_the_server_has_failed_and_what_says_something_of_the_caller_is_unknown(
    monkeypatch, tmp_path, case
):
    error, verdict, hint, code = REFUSALS[case]

    async def raising(_reads: object) -> None:
        raise error

    seen = looked(monkeypatch, tmp_path, known.reach(), webhooks=raising)
    row = next(each for each in judged.everything(known.good(webhooks=seen.webhooks)) if each.name == "webhooks")
    assert (row.verdict.value, row.reason) == verdict
    assert hint in row.hint
    assert check_command.code([row], strict=False) == code


def test_every_row_of_one_node_is_a_row():
    assert {row.name for row in look.ROWS} > look.OF_NODE
