# SPDX-License-Identifier: Apache-2.0
"""The same mistake has the same exit code in every command: 1 refused or failed, 2 wrong usage, 3 not available.

The commands are those of click's tree, so that a new one is tried without a word here. What only one command can do wrong
is in that command's own tests.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator

import click
import pytest

from handfast.cli import connecting, join, main, output
from tests.unit.cli.test_main import everything
from tests.unit.controllers.fake_api import FakeClient
from tests.world import no_cluster

TOKEN = "abcdef.0123456789abcdef"
PINNED = ("192.0.2.1", "--discovery-token-ca-cert-hash", f"sha256:{'0' * 64}")
# What a command needs to be complete.
NEEDED = {
    "token delete": ["abcdef"],
    "token explain": ["abcdef"],
    "csr approve": ["a"],
    "csr deny": ["a"],
    "csr explain": ["a"],
    "node revoke": ["a"],
    "ledger show": ["ab"],
    "completion": ["bash"],
    "config validate": ["config.yaml"],
}
COMMANDS = {
    ctx.command_path.partition(" ")[2]: ctx.command
    for ctx in everything()
    if not isinstance(ctx.command, click.Group) or isinstance(ctx.command, join.Join)
}


def flags(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


# The commands that ask an API server by the kubeconfig that is chosen, and nothing before it.
ASKING = [
    words for words in COMMANDS if words.split()[0] in {"token", "csr", "ledger"} and words != "token generate"
] + [
    "node revoke",
    "init",
    "kubeconfig refresh",
]


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    no_cluster.arrange(monkeypatch, tmp_path)


def ends(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str]:
    """The exit code, and the reason on the last line."""
    found = output.run(main.command, words)
    return found, capsys.readouterr().err.splitlines()[-1].removeprefix("reason: ")


def line(words: str, *more: object) -> list[str]:
    return [*words.split(), *NEEDED.get(words, ()), *map(str, more)]


@pytest.mark.parametrize("words", COMMANDS)
def test_an_unknown_flag_is_wrong_usage(capsys, words):
    assert ends(capsys, line(words, "--no-such-flag")) == (2, "Usage")


@pytest.mark.parametrize("words", [words for words, command in COMMANDS.items() if "--output" in flags(command)])
def test_an_unknown_form_is_wrong_usage(capsys, words):
    assert ends(capsys, line(words, "-o", "xml")) == (2, "Usage")


@pytest.mark.parametrize("words", NEEDED)
def test_a_missing_argument_is_wrong_usage(capsys, words):
    assert ends(capsys, words.split()) == (2, "Usage")


@pytest.mark.parametrize("words", ASKING)
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, (1, "FileNotFound")),
        ("[]", (1, "BadKubeconfig")),
        ("{", (1, "BadKubeconfig")),
        ("{current-context: c}", (1, "BadKubeconfig")),
    ],
    ids=["not there", "no mapping", "no YAML", "no such context"],
)
def test_a_bad_kubeconfig_fails(capsys, words, content, expected):
    if content is not None:
        pathlib.Path("k").write_text(content)
    assert ends(capsys, line(words, "--kubeconfig", "k")) == expected


@pytest.mark.parametrize("words", [words for words in ASKING if words != "init"])
def test_no_kubeconfig_at_all_fails(capsys, words):
    assert ends(capsys, line(words)) == (1, "NoKubeconfig")


@pytest.mark.parametrize("words", ASKING)
def test_a_server_that_does_not_answer_is_unavailable(capsys, words):
    pathlib.Path("k").write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}"
    )
    reason = "AllEndpointsMoved" if words == "kubeconfig refresh" else "ConnectionRefused"
    assert ends(capsys, line(words, "--kubeconfig", "k")) == (3, reason)


@pytest.mark.parametrize("words", ["csr approve", "csr deny", "csr explain", "ledger show"])
def test_an_object_that_is_not_there_fails(capsys, monkeypatch, words):
    class Reached:
        client = FakeClient()

        @contextlib.asynccontextmanager
        async def connected(self, _path: str) -> AsyncIterator[Reached]:
            yield self

    monkeypatch.setattr(connecting, "connected", Reached().connected)
    assert ends(capsys, line(words, "--kubeconfig", "k")) == (1, "NotFound")


DURATIONS = [
    ("token create", "--ttl"),
    ("init", "--token-ttl"),
    ("up", "--token-ttl"),
    ("node revoke", "--for"),
    ("node rotate", "--timeout"),
    ("node recover", "--timeout"),
    ("join", "--timeout"),
    ("ledger list", "--since"),
]


@pytest.mark.parametrize(("words", "flag"), DURATIONS)
@pytest.mark.parametrize("value", ["soon", "-1h", "1y"])
def test_a_malformed_duration_is_wrong_usage(capsys, words, flag, value):
    assert ends(capsys, line(words, f"{flag}={value}")) == (2, "Usage")


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("token create", ["bad"]),
        ("init", ["--token", "bad"]),
        ("up", ["--token", "bad"]),
        ("join", [*PINNED, "--token", "bad"]),
        ("join", [*PINNED, "--discovery-token", TOKEN, "--tls-bootstrap-token", "bad"]),
    ],
)
def test_a_malformed_token_is_wrong_usage(capsys, words, more):
    assert ends(capsys, line(words, *more)) == (2, "BadBootstrapToken")


@pytest.mark.parametrize("words", ["token delete", "token explain"])
def test_a_malformed_id_is_wrong_usage(capsys, words):
    assert ends(capsys, [*words.split(), "bad"]) == (2, "BadBootstrapToken")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["node", "revoke", "Bad_"], "BadNodeName"),
        (["node", "run", "--node-name", "Bad_"], "BadNodeName"),
        (["join", *PINNED, "--token", TOKEN, "--node-name", "Bad_"], "BadNodeName"),
        (["ledger", "list", "--node", "Bad_"], "Usage"),
        (["token", "create", "--node", "Bad_"], "BadTokenLimits"),
        (["csr", "approve", "a/b"], "BadRequestName"),
        (["csr", "deny", "a", ".."], "BadRequestName"),
        (["csr", "explain", "a%20b"], "BadRequestName"),
    ],
    ids=" ".join,
)
def test_a_malformed_name_is_wrong_usage(capsys, words, reason):
    pathlib.Path("handfast-data").mkdir()
    pathlib.Path("handfast-data/admin.conf").touch()
    assert ends(capsys, words) == (2, reason)


FILES = [
    ("token create", ["--token-file", "none"]),
    ("init", ["--token-file", "none"]),
    ("up", ["--token-file", "none"]),
    ("join", [*PINNED, "--token-file", "none"]),
    ("join", ["--discovery-file", "none", "--tls-bootstrap-token", TOKEN]),
    ("init", ["--ca-cert", "none", "--ca-key", "none"]),
    *(
        (words, ["--config", "none"])
        for words in ("init", "up", "config show", "ca rotate", "serve apiserver", "node run")
    ),
    ("config validate", []),
    ("kubeconfig show", ["--kubeconfig", "none"]),
    ("serve controllers", ["--kubeconfig", "none"]),
]


@pytest.mark.parametrize(("words", "more"), FILES, ids=lambda value: value if isinstance(value, str) else value[0:1])
def test_a_file_that_is_not_there_fails(capsys, words, more):
    more = [*more, "--dir", "d"] if "--dir" in flags(COMMANDS[words]) else more
    assert ends(capsys, line(words, *more)) == (1, "FileNotFound")


@pytest.mark.parametrize("words", ["init", "up", "serve apiserver"])
def test_a_directory_that_cannot_be_made_fails(capsys, words):
    pathlib.Path("file").touch()
    found, reason = ends(capsys, line(words, "--dir", "file/d"))
    assert (found, reason in {"NotADirectory", "FileNotFound", "FileError"}) == (1, True), reason


@pytest.mark.parametrize("words", ["ca show", "ca rotate"])
def test_a_data_directory_that_is_not_there_fails(capsys, words):
    assert ends(capsys, line(words, "--dir", "none")) == (1, "NoDataDirectory")
