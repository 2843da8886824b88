# SPDX-License-Identifier: Apache-2.0
"""Redirecting with the machine's iptables: what is refused, and with which words. On real tables: tests/scenarios/test_mesh_proxy_iptables.py."""

from __future__ import annotations

import pathlib
import stat
import subprocess

import pytest

from handfast.proxy import redirect
from handfast.rules.mesh import redirection

V4, V6 = redirection.Version
WANTED = redirection.Redirection(inbound=4143, outbound=4140, user=2102)
LOOPBACK = "00000000000000000000000000000001 01 80 10 80       lo\n"
REACHED = "fd000000000000000000000000000007 02 40 00 80     eth0\n"


@pytest.fixture
def tables(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Programs of the names of iptables that note what they are told; and a network without IPv6."""
    monkeypatch.setattr(redirect, "_PLACES", "")
    monkeypatch.setattr(redirect, "_ADDRESSES", tmp_path / "if_inet6")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("iptables", "ip6tables"):
        program(tmp_path / f"{name}-save", "echo '*nat'")
        program(tmp_path / f"{name}-restore", f'echo "$@" > {tmp_path}/{name}.words; cat > {tmp_path}/{name}.rows')
    return tmp_path


def program(path: pathlib.Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(stat.S_IRWXU)


def test_both_versions_of_ip_are_redirected_waiting_for_others(tables: pathlib.Path):
    assert redirect.apply(WANTED) == [V4, V6]
    assert (tables / "iptables.words").read_text() == "--noflush --wait=30\n"
    for name, version in (("iptables", V4), ("ip6tables", V6)):
        assert (tables / f"{name}.rows").read_text() == redirection.applied(WANTED, version, "")


def test_where_nothing_is_redirected_there_is_nothing_to_undo(tables: pathlib.Path):
    assert redirect.undo() == []
    assert not (tables / "iptables.rows").exists()


def test_without_iptables_its_package_is_named(tables: pathlib.Path):
    (tables / "iptables-save").unlink()
    with pytest.raises(redirect.Missing, match="iptables-save") as refused:
        redirect.apply(WANTED)
    assert "apt-get install iptables" in (refused.value.hint or "")


@pytest.mark.parametrize("addresses", [None, "", LOOPBACK])
def test_without_an_address_of_ipv6_its_tables_are_not_needed(tables: pathlib.Path, addresses: str | None):
    if addresses is not None:
        (tables / "if_inet6").write_text(addresses)
    (tables / "ip6tables-restore").unlink()
    assert redirect.apply(WANTED) == [V4]


def test_an_address_of_ipv6_that_would_go_past_the_proxy_is_refused(tables: pathlib.Path):
    (tables / "if_inet6").write_text(LOOPBACK + REACHED)
    (tables / "ip6tables-restore").unlink()
    with pytest.raises(redirect.Missing, match="ip6tables-restore"):
        redirect.apply(WANTED)


@pytest.mark.parametrize("words", ["Permission denied (you must be root)", "nat: Operation not permitted"])
def test_who_may_not_change_the_tables_is_told_what_is_missing(tables: pathlib.Path, words: str):
    program(tables / "iptables-save", f"echo '{words}' >&2; exit 4")
    with pytest.raises(redirect.NotAllowed) as refused:
        redirect.apply(WANTED)
    assert "NET_ADMIN" in (refused.value.hint or "")


@pytest.mark.parametrize(("script", "why"), [("echo broken >&2; exit 2", "broken"), ("exit 3", "exit code 3")])
def test_what_the_program_says_is_told(tables: pathlib.Path, script: str, why: str):
    program(tables / "iptables-restore", script)
    with pytest.raises(redirect.Failed, match=why):
        redirect.apply(WANTED)


def test_a_program_whose_capabilities_the_container_does_not_have_is_told_as_that(
    tables: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_words: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(redirect.NotAllowed):
        redirect.apply(WANTED)


def test_a_program_that_hangs_is_given_up(tables: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    def hang(*_words: object, **_options: object) -> None:
        raise subprocess.TimeoutExpired("iptables", 60)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(redirect.Failed):
        redirect.apply(WANTED)
