# SPDX-License-Identifier: Apache-2.0
"""Which kubeconfig counts, and what is said when the credential in it is not enough."""

import asyncio
import datetime
import email.utils
import os
import pathlib
import socket
from typing import Any

import click
import pytest

from handfast import errors
from handfast.api import status
from handfast.bootstrap import kubeconfig
from handfast.cli import connecting, main, output
from tests.unit.cli.test_main import everything
from tests.world import no_cluster, tls_cluster


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch, tmp_path):
    no_cluster.arrange(monkeypatch, tmp_path)


def chosen(*arguments):
    """What a command with these flags would use."""
    found = []

    @click.command()
    @connecting.options
    @click.pass_context
    def command(ctx, kubeconfig, directory):
        found.append(connecting.chosen(ctx, kubeconfig, directory))

    command.main(list(arguments), standalone_mode=False)
    return found[0]


def kubeconfig_text(**user: Any) -> str:
    cluster = kubeconfig.Cluster(name="c", server="https://127.0.0.1:6443")
    return kubeconfig.render(
        kubeconfig.Kubeconfig(context="x", cluster=cluster, user=kubeconfig.User(name="u", **(user or {"token": "t"})))
    )


class TestOrder:
    def test_without_any_kubeconfig_it_is_refused(self):
        with pytest.raises(errors.Refused) as refused:
            chosen()
        assert refused.value.reason == "NoKubeconfig"

    def test_each_goes_before_the_next(self, tmp_path, monkeypatch):
        system = tmp_path / "etc" / "admin.conf"
        system.parent.mkdir()
        system.touch()
        assert chosen() == str(system)
        own = tmp_path / "handfast-data" / "admin.conf"
        own.parent.mkdir(mode=0o700)
        own.write_text(kubeconfig_text())
        own.chmod(0o600)
        assert chosen() == str(own)
        monkeypatch.setenv("KUBECONFIG", "named")
        assert chosen() == "named"
        assert chosen("--dir", "other") == str(tmp_path / "other" / "admin.conf")
        assert chosen("--dir", "other", "--kubeconfig", "told") == "told"

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda path: path.chmod(0o620), "others than you can change"),
            (lambda path: path.parent.chmod(0o777), "others than you can change"),
            (lambda path: path.write_text(kubeconfig_text(token_file="/etc/secret")), "it leads to other files"),
            (
                lambda path: path.write_text(kubeconfig_text(client_key="k", client_certificate="c")),
                "it leads to other files",
            ),
        ],
    )
    def test_what_nobody_named_is_used_only_if_it_is_harmless(self, tmp_path, monkeypatch, change, why):
        own = tmp_path / "handfast-data" / "admin.conf"
        own.parent.mkdir(mode=0o700)
        own.write_text(kubeconfig_text())
        own.chmod(0o600)
        change(own)
        with pytest.raises(errors.Refused, match=why) as refused:
            chosen()
        assert refused.value.reason == "KubeconfigNotNamed"
        # Whoever names it means it.
        monkeypatch.setenv("HANDFAST_DIR", str(own.parent))
        assert chosen() == str(own)
        assert chosen("--kubeconfig", str(own)) == str(own)

    def test_a_directory_of_somebody_else_is_not_used(self, tmp_path, monkeypatch):
        own = tmp_path / "handfast-data" / "admin.conf"
        own.parent.mkdir(mode=0o700)
        own.write_text(kubeconfig_text())
        own.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(own.parent, 65534, 65534)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 65534)
        with pytest.raises(errors.Refused, match="others than you can change"):
            chosen()

    def test_several_files_are_refused_by_a_command_about_one(self, monkeypatch, capsys):
        monkeypatch.setenv("KUBECONFIG", "a:b")
        for word in ("show", "refresh"):
            assert output.run(main.command, ["kubeconfig", word]) == 1
            assert capsys.readouterr().err.splitlines() == [
                "error: $KUBECONFIG names several files: a:b",
                "hint: name one of them with --kubeconfig",
                "reason: BadKubeconfig",
            ]

    @pytest.mark.parametrize(
        ("value", "files"), [("a:b", ["a", "b"]), ("a:", ["a"]), (":a::b:", ["a", "b"]), ("c:d", ["c:d"]), ("a", ["a"])]
    )
    def test_several_files(self, tmp_path, value, files):
        (tmp_path / "c:d").touch()
        assert connecting.several(value) == files


@pytest.mark.parametrize("before", [None, "/roots"])
def test_the_roots_of_the_system_are_back_after_the_import(monkeypatch, before):
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    if before is None:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    else:
        monkeypatch.setenv("SSL_CERT_FILE", before)
    with connecting._no_system_roots():
        assert (os.environ["SSL_CERT_FILE"], os.environ["SSL_CERT_DIR"]) == (os.devnull, os.devnull)
    assert os.environ.get("SSL_CERT_FILE") == before
    assert "SSL_CERT_DIR" not in os.environ


class TestConnected:
    @pytest.fixture
    def file(self, tmp_path):
        text = kubeconfig.render(
            kubeconfig.Kubeconfig(
                context="c",
                cluster=kubeconfig.Cluster(name="c", server="https://127.0.0.1:1"),
                user=kubeconfig.User(name="u", token="t"),
            )
        )
        (tmp_path / "k").write_text(text)
        return str(tmp_path / "k")

    async def test_what_it_was_made_from(self, file):
        async with connecting.connected(file) as reached:
            assert reached.connection.server == "https://127.0.0.1:1"
            assert reached.client.transport is not None

    @pytest.mark.parametrize(
        ("reason", "hint"), [("Forbidden", connecting.CHOOSE), ("Unauthorized", connecting.CHOOSE), ("Conflict", None)]
    )
    async def test_a_credential_that_is_not_enough(self, file, reason, hint):
        with pytest.raises(status.StatusError) as refused:
            async with connecting.connected(file):
                raise status.StatusError(reason, "no")
        assert refused.value.hint == hint

    async def test_no_file(self, tmp_path):
        with pytest.raises(errors.Refused) as refused:
            async with connecting.connected(str(tmp_path / "none")):
                pass
        assert "--kubeconfig" in (refused.value.hint or "")


# What a command is given for each of its arguments, where it has any.
MACHINES = pathlib.Path(__file__).parents[2] / "vectors" / "machines.csv"
ARGUMENTS = {
    "names": "x",
    "name": "x",
    "which": "abcdef",
    "file": str(MACHINES),
    "sources": "x",
    "caller": "shop/web",
    "called": "shop/store",
}
OPTIONS = {"kind": ("--kind", "worker"), "out": ("--out", "out"), "dns": ("--dns", "x")}


def reaching():
    """Every command that asks an API server by way of a kubeconfig that it was given."""
    for ctx in everything():
        if ctx.command_path == "handfast mesh run":
            # What follows its first word is another program's; tests/scenarios/test_mesh_run.py has it without a server.
            continue
        if ctx.command_path in {"handfast check", "handfast status"}:
            # They report what does not answer, and go on; tests/scenarios/test_check.py has them without a server.
            continue
        if ctx.command_path == "handfast console":
            # It stays, and its pages say what does not answer; tests/unit/console has it without a server.
            continue
        named = {parameter.name: parameter for parameter in ctx.command.params}
        # What a kubeconfig says is shown without asking; refresh asks several servers, and has its own words.
        if {"kubeconfig", "directory"} <= set(named) and ctx.command_path.split()[1] not in {"kubeconfig", "serve"}:
            words = [ARGUMENTS[name] for name, each in named.items() if name in ARGUMENTS and each.required]
            yield [*ctx.command_path.split()[1:], *(words or (["x"] if "names" in named else [])), *_required(named)]


def _required(named):
    """What a command is given for each option that it cannot do without."""
    return [word for name, words in OPTIONS.items() if name in named and named[name].required for word in words]


# Commands that want one of several words, of which click requires none.
ONE_OF = {("token", "delete"): "abcdef", ("machine", "ignition"): "x", ("mesh", "revoke"): "shop/web"}
COMMANDS = [[*words, ONE_OF[tuple(words)]] if tuple(words) in ONE_OF else words for words in reaching()]


class TestNoAnswer:
    """Every command tells it as join does: what the trouble is, what to do, and a stable reason."""

    @staticmethod
    async def run(tmp_path, words, server, ca):
        text = kubeconfig.render(
            kubeconfig.Kubeconfig(
                context="c",
                cluster=kubeconfig.Cluster(name="c", server=server, certificate_authority_data=ca),
                user=kubeconfig.User(name="u", token="hunter2"),
            )
        )
        (tmp_path / "k").write_text(text)
        return await asyncio.to_thread(output.run, main.command, [*words, "--kubeconfig", str(tmp_path / "k")])

    def test_the_sweep_sees_the_commands(self):
        assert len(COMMANDS) >= 12
        assert {words[0] for words in COMMANDS} >= {"csr", "token", "node", "ledger", "init"}

    @pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
    async def test_nobody_listens(self, words, tmp_path, capsys):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            server = f"https://127.0.0.1:{taken.getsockname()[1]}"
        assert await self.run(tmp_path, words, server, tls_cluster.Authority().pem) == 3
        error, hint, reason = capsys.readouterr().err.splitlines()[-3:]
        assert error == f"error: {server} refuses connections"
        assert hint.startswith("hint: start the API server there, or check host, port and firewall; server and CA are ")
        assert reason == "reason: ConnectionRefused"

    @pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
    async def test_another_ca(self, words, tmp_path, capsys):
        async with tls_cluster.listening(
            tls_cluster.Authority().context(), lambda _: tls_cluster.Reply(200, b"")
        ) as server:
            assert await self.run(tmp_path, words, server.url, tls_cluster.Authority().pem) == 1
        error, hint, reason = capsys.readouterr().err.splitlines()[-3:]
        assert error.startswith(f"error: {server.url} presents a certificate that is not from a CA of {tmp_path}/k: ")
        assert "somebody" in hint or "something in between" in hint
        assert reason == "reason: TLSInterception"
        assert server.read == b""

    async def test_a_clock_that_differs(self, tmp_path, capsys):
        ca = tls_cluster.Authority(now=tls_cluster.NOW - datetime.timedelta(days=9))
        old = ca.context(now=tls_cluster.NOW - datetime.timedelta(days=8), ttl=datetime.timedelta(days=1))
        date = email.utils.format_datetime(tls_cluster.NOW - datetime.timedelta(days=8), usegmt=True)
        async with tls_cluster.listening(old, lambda _: tls_cluster.Reply(200, b"", {"Date": date})) as server:
            assert await self.run(tmp_path, ["csr", "list"], server.url, ca.pem) == 1
        error, hint, reason = capsys.readouterr().err.splitlines()
        assert "is not valid by this machine's clock, which is 8d" in error
        assert "set the clock" in hint
        assert reason == "reason: ClockSkew"
        assert b"hunter2" not in server.read
