# SPDX-License-Identifier: Apache-2.0
"""`handfast console`: what it is told wrongly is a sentence with a next step, and what opens it is kept."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import socket
import stat

import pytest

from handfast.cli import console_keys, main, output
from handfast.datadir import endpoints, layout
from handfast.rules.console import codes
from handfast.runtime import clock

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: a
clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {token: t}}]
"""


@pytest.fixture
def kubeconfig(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "k.conf"
    path.write_text(KUBECONFIG)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = output.run(main.command, ["console", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_port_that_is_taken_is_told(capsys, kubeconfig):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, told = run(capsys, "--kubeconfig", kubeconfig, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (code, "reason: AddressInUse" in told, "--listen" in told) == (1, True, True)


@pytest.mark.parametrize(
    "words", [(), ("--networks", "private"), ("--tls-cert-file", "c", "--tls-private-key-file", "k")]
)
def test_elsewhere_than_on_loopback_takes_tls_and_networks(capsys, kubeconfig, words):
    code, _, told = run(capsys, "--kubeconfig", kubeconfig, "--listen", "0.0.0.0:0", *words)
    assert (code, "reason: ConsoleNotPrivate" in told, "ssh -L" in told) == (1, True, True)


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--listen", "8765"), 2, "Usage"),
        (("--networks", "10.0.0.1/8"), 1, "InvalidNetwork"),
        (("--tls-cert-file", "c"), 2, "Usage"),
        (("--kubeconfig", "/nowhere/k.conf"), 1, "FileNotFound"),
    ],
)
def test_what_is_told_wrongly_is_a_sentence(capsys, kubeconfig, words, code, reason):
    chosen = words if "--kubeconfig" in words else ("--kubeconfig", kubeconfig, *words)
    listen = () if "--listen" in words else ("--listen", "127.0.0.1:0")
    found = run(capsys, *chosen, *listen)
    assert (found[0], f"reason: {reason}" in found[2]) == (code, True), found[2]


def test_without_its_libraries_the_command_that_installs_them_is_named(capsys, kubeconfig, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    code, _, told = run(capsys, "--kubeconfig", kubeconfig)
    assert (code, "Jinja2 and segno" in told) == (1, True)
    assert "pip install 'handfast[console]'" in told
    assert "reason: ConsoleExtraMissing" in told


def test_where_no_console_runs_there_is_none_to_open(capsys, tmp_path):
    code, printed, told = run(capsys, "--url", "--dir", str(tmp_path))
    assert (code, printed, "reason: NoConsole" in told) == (1, "", True)


def test_whoever_can_read_the_key_makes_addresses(capsys, tmp_path):
    place = layout.Layout.at(tmp_path)
    at = endpoints.Endpoints(
        apiserver="https://127.0.0.1:1",
        controllers_admin="",
        services={"console": "http://127.0.0.1:8765"},
        supervisor=1,
    )
    endpoints.write(tmp_path, at)
    with console_keys.kept(place):
        key = place.console_key.read_bytes()
        assert stat.S_IMODE(place.console_key.stat().st_mode) == 0o600
        code, printed, _ = run(capsys, "--url", "--dir", str(tmp_path))
        assert code == 0
        base, _, opens = printed.strip().partition("/open?code=")
        assert base == "http://127.0.0.1:8765"
        codes.judge(key, opens, clock.SystemClock().now())
        assert console_keys.address(place) != printed.strip()
    # What ended left nothing to open.
    assert not place.console_key.exists()
    assert run(capsys, "--url", "--dir", str(tmp_path))[0] == 1


def test_up_says_no_to_a_console_that_others_could_reach(capsys, tmp_path):
    words = ["up", "--dir", str(tmp_path / "d"), "--console", "--console-listen", "0.0.0.0:8765", "-o", "json"]
    assert output.run(main.command, words) == 1
    assert json.loads(capsys.readouterr().err)["reason"] == "ConsoleNotPrivate"
    assert not (tmp_path / "d").exists()
