# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh proxy iptables`: what is printed, and what is handed on. On real tables: tests/scenarios/test_mesh_proxy_iptables.py."""

from __future__ import annotations

import pytest

from handfast.cli import main, mesh_proxy_iptables, output
from handfast.proxy import redirect
from handfast.rules.mesh import redirection, sidecar
from tests.unit.rules.mesh import mesh_pods

V4, V6 = redirection.Version


def iptables(*words: str) -> int:
    return output.run(main.command, ["mesh", "proxy", "iptables", *words])


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[redirection.Redirection]:
    """What is redirected; IPv4 alone is there."""
    rows: list[redirection.Redirection] = []

    def apply(wanted: redirection.Redirection) -> list[redirection.Version]:
        rows.append(wanted)
        return [V4]

    monkeypatch.setattr(redirect, "apply", apply)
    return rows


def test_the_arguments_of_an_injected_pod_are_taken_as_they_are(applied, capsys):
    document = mesh_pods.meshed("shop", "a")
    [args] = (row["args"] for row in document["spec"]["initContainers"] if row["name"] == "linkerd-init")
    assert iptables(*args) == 0
    assert capsys.readouterr().out == "TCP over IPv4 is redirected: inbound to port 4143, outbound to port 4140\n"
    [wanted] = applied
    assert wanted.user == sidecar.USER
    assert {(4190, 4190), (4191, 4191)} <= set(wanted.skip_inbound)


def test_the_user_is_the_proxys_where_nobody_says_another(applied):
    assert iptables() == 0
    assert applied[0].user == sidecar.USER


def test_lists_may_be_repeated(applied):
    assert iptables("--outbound-ports-to-ignore", "25,26", "--outbound-ports-to-ignore", "8000-8010") == 0
    assert applied[0].skip_outbound == ((25, 25), (26, 26), (8000, 8010))


def test_dry_run_prints_the_rules_and_changes_nothing(applied, capsys):
    assert iptables("--dry-run") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# IPv4\n*nat\n")
    assert "# IPv6\n*nat\n" in printed
    assert applied == []


def test_a_dry_run_of_undoing_is_no_use(capsys):
    assert iptables("--dry-run", "--undo") == 2
    assert "exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [([], "nothing was redirected"), ([V4, V6], "TCP over IPv4 and IPv6 is no longer redirected")],
)
def test_undone_says_what_was_there(versions, sentence, monkeypatch, capsys):
    monkeypatch.setattr(redirect, "undo", lambda: versions)
    assert iptables("--undo") == 0
    assert capsys.readouterr().out == f"{sentence}\n"


def test_it_is_a_command_of_the_proxy():
    assert mesh_proxy_iptables.iptables.name == "iptables"
