# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh proxy`: what is printed or executed, what comes before a key, and that none outlives a failure."""

from __future__ import annotations

import base64
import os
import pathlib
import shlex
import signal
from typing import Any

import pytest
from click import testing

from handfast.cli import main, output
from handfast.runtime import core_dumps
from tests.unit.pki import making

P = "LINKERD2_PROXY_"
IDENTITY = "web.shop.sa.linkerd-identity.linkerd.cluster.local"


@pytest.fixture(autouse=True)
def _this_process_may_be_dumped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests go on in this process."""
    monkeypatch.setattr(core_dumps, "forbid", lambda: None)
    for name in os.environ:
        if name.startswith("LINKERD"):
            monkeypatch.delenv(name)


@pytest.fixture
def store(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A container's variables, its token, and an empty directory."""
    directory = tmp_path / "it's a store"
    directory.mkdir()
    (tmp_path / "token").write_text("t")
    variables = {
        "LOCAL_IDENTITY_NAME": IDENTITY,
        "IDENTITY_TRUST_ANCHORS_BLOB": base64.b64encode(making.ca("root").pem).decode(),
        "IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "IDENTITY_STORE_DIR": str(directory),
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"{P}{name}", value)
    return directory


def init(*words: str) -> int:
    return output.run(main.command, ["mesh", "proxy", "init", *words])


def test_without_a_command_exports_are_printed(store, capsys):
    assert init() == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["export", f"{P}IDENTITY_KEY_FILE={store / 'key.der'}"],
        ["export", f"{P}IDENTITY_CSR_FILE={store / 'csr.p8'}"],
        ["export", f"{P}IDENTITY_TRUST_ANCHORS_FILE={store / 'trust-anchors.pem'}"],
    ]
    assert (store / "key.der").is_file()


def test_a_command_takes_the_place_of_this_one(store, monkeypatch, capsys):
    calls: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    assert init("--", "sh", "-c", "x", "--help") == 0
    ((program, words, variables),) = calls
    assert pathlib.Path(program).name == "sh"
    assert words == ["sh", "-c", "x", "--help"]
    assert variables[f"{P}IDENTITY_KEY_FILE"] == str(store / "key.der")
    assert variables[f"{P}LOCAL_IDENTITY_NAME"] == IDENTITY
    assert capsys.readouterr().out == ""


def test_without_a_name_the_command_is_executed_as_it_is(store, monkeypatch, capsys):
    monkeypatch.delenv(f"{P}LOCAL_IDENTITY_NAME")
    calls: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *call: calls.append(call))
    assert init("--", "sh") == 0
    assert f"{P}IDENTITY_KEY_FILE" not in calls[0][2]
    assert "a plain proxy" in capsys.readouterr().err
    assert init() == 0
    assert capsys.readouterr().out == ""
    assert list(store.iterdir()) == []


def test_a_command_that_is_not_there_is_refused_before_a_key_exists(store, monkeypatch, capsys):
    monkeypatch.setattr("handfast.pki.keys.generate", None)
    assert init("--", "no-such-command") == output.Code.FAILED
    assert "reason: CommandNotFound" in capsys.readouterr().err
    assert list(store.iterdir()) == []


def test_a_command_that_cannot_be_executed_leaves_no_key(store, tmp_path, capsys):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o700)
    before = signal.getsignal(signal.SIGPIPE)
    assert init("--", str(broken)) == output.Code.FAILED
    assert "reason: CommandFailed" in capsys.readouterr().err
    assert list(store.iterdir()) == []
    assert signal.getsignal(signal.SIGPIPE) == before


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("LOCAL_IDENTITY_NAME", "web", "BadProxyIdentity"),
        ("LOCAL_IDENTITY", "api.shop", "ProxyVariablesDiffer"),
        ("IDENTITY_TRUST_ANCHORS_BLOB", "?", "TrustAnchorsNotBase64"),
        ("IDENTITY_TOKEN_FILE", "/proc/self/gone", "FileNotFound"),
        ("IDENTITY_STORE_DIR", "/proc/self/gone", "FileNotFound"),
    ],
)
def test_what_is_wrong_is_named_before_a_key_exists(store, monkeypatch, capsys, name, value, reason):
    monkeypatch.setattr("handfast.pki.keys.generate", None)
    monkeypatch.setenv(f"{P}{name}", value)
    assert init("--", "sh") == output.Code.FAILED
    shown = capsys.readouterr()
    assert f"{P}{name}" in shown.err
    assert f"reason: {reason}" in shown.err
    assert shown.out == ""
    assert list(store.iterdir()) == []


def test_a_directory_not_in_memory_is_a_warning_or_an_error(store, monkeypatch, capsys):
    monkeypatch.setattr("handfast.runtime.mounts.in_memory", lambda _: False)
    assert init() == 0
    assert "warning: LINKERD2_PROXY_IDENTITY_STORE_DIR" in capsys.readouterr().err
    assert init("--require-memory") == output.Code.FAILED
    assert "reason: StoreNotInMemory" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["8080", "localhost:8080", "127.0.0.1", "127.0.0.1:99999"])
def test_run_takes_addresses_only(word):
    words = ["mesh", "proxy", "run", "--inbound", "8080", "--admin-listen", word]
    done = testing.CliRunner().invoke(main.command, words)
    assert done.exit_code == 2
    assert f"'{word}' is not IP:PORT" in done.output
