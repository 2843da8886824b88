# SPDX-License-Identifier: Apache-2.0
"""`handfast serve machine-config`: with what the server is put together."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest
import yaml

from handfast.assembly import machine_config
from handfast.cli import foreground, main, output, roles
from handfast.datadir import layout
from handfast.runtime.addresses import Address

LISTEN = ("--machine-config-listen", "127.0.0.1:0")


@pytest.fixture
def started(monkeypatch):
    """Every start: the mode, where its configurations come from, its doors and its audit file."""
    seen: list[tuple[str, Any, machine_config.Doors, machine_config.AuditFile | None]] = []

    def fake(mode: str) -> Any:
        async def run(source: Any, doors: Any, sock: socket.socket, audit: Any, _clock: Any) -> None:
            assert sock.getsockname()[0] == "127.0.0.1"
            seen.append((mode, source, doors, audit))

        return run

    def here(work: Any, _level: str) -> None:
        with pytest.raises(StopIteration):
            work.send(None)

    monkeypatch.setattr(machine_config, "run", fake("cluster"))
    monkeypatch.setattr(machine_config, "run_before_the_cluster", fake("directory"))
    monkeypatch.setattr(foreground, "run", here)
    return seen


def run(*words: object) -> int:
    return int(output.run(main.command, ["serve", "machine-config", *map(str, words)]))


def test_it_serves_the_cluster_of_the_directory(started, tmp_path):
    assert run("--dir", tmp_path, *LISTEN) == 0
    ((mode, source, doors, audit),) = started
    place = layout.Layout.at(tmp_path)
    assert (mode, source) == ("cluster", str(place.machine_config_kubeconfig))
    assert (doors.certificate, doors.key) == (place.machine_config_certificate, place.machine_config_key)
    assert doors.client_ca == place.ca_certificate
    assert doors.admin_listen == Address("127.0.0.1", 9991)
    assert audit is not None
    assert audit.path == str(place.machine_config_audit)


def test_another_cluster_is_named_by_its_kubeconfig(started, tmp_path):
    pair = ("--tls-cert-file", "c", "--tls-private-key-file", "k")
    assert run("--dir", tmp_path, "--kubeconfig", "elsewhere", *pair, *LISTEN, "--audit-log-path", "none") == 0
    ((_, source, doors, audit),) = started
    assert (source, doors.client_ca, audit) == ("elsewhere", None, None)
    assert (str(doors.certificate), str(doors.key)) == ("c", "k")


def test_whose_nodes_count_is_said_by_a_file(started, tmp_path):
    assert run("--dir", tmp_path, *LISTEN, "--client-ca-file", "ca", "--audit-log-path", "-") == 0
    ((_, _, doors, audit),) = started
    assert str(doors.client_ca) == "ca"
    assert audit is not None
    assert audit.path == "-"


def test_before_the_cluster_it_serves_a_directory(started, tmp_path):
    assert run("--dir", tmp_path, "--bootstrap-dir", tmp_path / "boot", *LISTEN) == 0
    assert started[0][:2] == ("directory", tmp_path / "boot")


def test_a_supervised_one_gets_its_socket(started, tmp_path, monkeypatch):
    # The real tie would end this process with its supervisor.
    monkeypatch.setattr(roles, "tied", lambda *_: contextlib.nullcontext())
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address, own = f"127.0.0.1:{sock.getsockname()[1]}", sock.dup().detach()
        words = ("--machine-config-listen", address, "--socket", f"machine_config_listen={own}")
        assert run("--dir", tmp_path, *words, "--supervised", 0) == 0
    assert len(started) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--kubeconfig", "k", "--bootstrap-dir", "b"), "do not go together"),
        (("--tls-cert-file", "c"), "are given together"),
        (("--machine-config-trusted-networks", "any"), "would hand out the bootstrap credential to everybody"),
        (("--machine-config-trusted-networks", "0.0.0.0/1,128.0.0.0/1"), "would hand out"),
        (("--machine-config-trusted-networks", "10.1.0.0/8"), "has host bits set"),
        (("--machine-config-listen", "nowhere"), "has no port"),
    ],
)
def test_what_is_typed_wrongly_starts_nothing(started, tmp_path, capsys, words, sentence):
    assert run("--dir", tmp_path, *LISTEN, *words) == 2
    assert sentence in capsys.readouterr().err
    assert started == []


def test_the_rights_that_it_needs_elsewhere_are_printed(capsys):
    assert run("--print-manifest") == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert documents[0]["metadata"]["name"] == "handfast-machine-config-server"
