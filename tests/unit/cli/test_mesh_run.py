# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh run`: what is typed, judged before anything is made."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import socket

import pytest

from handfast.assembly import node_config
from handfast.bootstrap import kubeconfig
from handfast.cli import main, mesh_run, output
from handfast.node import workload
from tests.unit.pki import making

WEB = ("--service-account", "shop/web")


def run(*words: str, command: tuple[str, ...] = ("--", "true")) -> int:
    return output.run(main.command, ["mesh", "run", *words, *command])


@pytest.mark.parametrize(
    "words",
    [
        (),
        (*WEB, "--pod", "shop/web-0"),
        ("--pod", "shop/web-0", "--name", "x"),
        ("--pod", "shop/web-0", "--label", "a=b"),
        ("--pod", "shop/web-0", "--annotation", "a=b"),
        (*WEB, "--annotation", "=b"),
        (*WEB, "--inbound", "0"),
        (*WEB, "--inbound", "80", "--inbound", "80:81"),
        (*WEB, "--label", "novalue"),
        (*WEB, "--label", "a=b c"),
        (*WEB, "--pod-ip", "x"),
        ("--service-account", "web"),
        ("--pod", "shop/Not_A_Name"),
    ],
)
def test_what_is_typed_wrongly_is_usage(words, capsys):
    assert run(*words) == output.Code.USAGE
    assert "reason: Usage" in capsys.readouterr().err


def test_without_a_command_there_is_nothing_to_run():
    assert run(*WEB, command=()) == output.Code.USAGE


def test_a_command_that_is_not_there_is_refused_before_anything_is_made(capsys):
    assert run(*WEB, command=("--", "no-such-command")) == output.Code.FAILED
    assert "reason: CommandNotFound" in capsys.readouterr().err


def test_the_words_of_the_command_are_its_own(monkeypatch):
    seen = []

    async def pretend(options, path, **_more):
        seen.append((options, path))
        return 9

    monkeypatch.setattr(mesh_run, "_run", pretend)
    words = (
        "--kubeconfig",
        "k",
        "--inbound",
        "80:8080",
        "--label",
        "a=b",
        "--annotation",
        "c=d e",
        "--pod-ip",
        "::1",
        "--spiffe-socket",
        "s",
        *WEB,
    )
    assert run(*words, command=("true", "--name", "x", "--help")) == 9
    (options, path) = seen[0]
    assert (list(options.words), path) == (["true", "--name", "x", "--help"], "k")
    assert (options.namespace, options.account, options.name) == ("shop", "web", "")
    assert options.spiffe_socket == str(pathlib.Path.cwd() / "s")
    assert options.annotations == {"c": "d e"}
    assert (str(options.ports[0]), options.labels, options.pod_ip) == ("80:8080", {"a": "b"}, "::1")


def test_with_a_pod_the_kubeconfig_is_the_nodes_where_nobody_names_another(monkeypatch, tmp_path):
    seen = []

    async def pretend(options, path, **_more):
        seen.append((options.name, path))
        return 0

    monkeypatch.setattr(mesh_run, "_run", pretend)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    node = tmp_path / "kubelet.conf"
    node.touch()
    monkeypatch.setattr(node_config, "KUBECONFIG", str(node))
    assert run("--pod", "shop/web-0") == 0
    assert run("--pod", "shop/web-0", "--kubeconfig", "other") == 0
    assert seen == [("web-0", str(node)), ("web-0", "other")]


class Work(workload.Workload):
    """Something that runs until it is told to end; `started`: it has an application, which is told instead."""

    def __init__(self, *, started: bool) -> None:  # without a Pod
        self.started = started
        self.signals: list[int] = []
        self.ended = asyncio.Event()

    def signal(self, number: int) -> bool:
        if self.started:
            self.signals.append(number)
            if number == signal.SIGTERM:
                self.ended.set()
        return self.started

    async def run(self) -> int:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        await self.ended.wait()
        return 7


async def test_signals_go_to_the_command():
    work = Work(started=True)
    assert await mesh_run._until_ended(work) == 7
    assert sorted(work.signals) == [signal.SIGUSR1, signal.SIGTERM]


async def test_before_the_command_has_started_they_end_it():
    assert await mesh_run._until_ended(Work(started=False)) == 128 + signal.SIGTERM


async def test_what_a_terminal_has_told_already_is_not_told_twice(monkeypatch):
    monkeypatch.setattr(mesh_run, "_in_foreground", lambda: True)
    work = Work(started=True)

    async def run() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.05)
        return 0

    monkeypatch.setattr(work, "run", run)
    assert await mesh_run._until_ended(work) == 0
    assert signal.SIGINT not in work.signals


def test_a_process_without_a_terminal_is_in_no_foreground(monkeypatch):
    monkeypatch.setattr(os, "tcgetpgrp", lambda _descriptor: os.getpgrp())
    assert mesh_run._in_foreground()

    def none(_descriptor: int) -> int:
        raise OSError("not a terminal")

    monkeypatch.setattr(os, "tcgetpgrp", none)
    assert not mesh_run._in_foreground()


def test_nobody_listens_at_the_api_server(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = f"https://127.0.0.1:{taken.getsockname()[1]}"
    text = kubeconfig.render(
        kubeconfig.Kubeconfig(
            context="c",
            cluster=kubeconfig.Cluster(name="c", server=server, certificate_authority_data=making.ca().pem),
            user=kubeconfig.User(name="u", token="hunter2"),
        )
    )
    (tmp_path / "k").write_text(text)
    assert run(*WEB, "--kubeconfig", str(tmp_path / "k")) == output.Code.UNAVAILABLE
    assert "reason: ConnectionRefused" in capsys.readouterr().err
