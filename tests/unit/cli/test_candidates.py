# SPDX-License-Identifier: Apache-2.0
"""What a shell is offered: names that the server knows, never a secret, and nothing where there is no answer."""

import asyncio
import contextlib

import pytest
import structlog
from click import shell_completion

from handfast import errors
from handfast.cli import candidates, connecting, main
from tests.unit.controllers.fake_api import FakeClient

SECRET = "0123456789abcdef"


class Reached:
    """The API behind whatever kubeconfig was chosen."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.paths: list[str] = []
        self.error: Exception | None = None
        self.silent = False

    @contextlib.asynccontextmanager
    async def connected(self, path):
        self.paths.append(path)
        if self.error is not None:
            raise self.error
        if self.silent:
            await asyncio.Event().wait()
        yield self


@pytest.fixture
def reached(monkeypatch):
    world = Reached()
    monkeypatch.setattr(connecting, "connected", world.connected)
    monkeypatch.setenv("KUBECONFIG", "k")
    for token_id in ("aaaaaa", "abcdef", "bbbbbb"):
        name = f"bootstrap-token-{token_id}"
        data = {"token-id": token_id, "token-secret": SECRET}
        world.client.put("secrets", name, namespace="kube-system", type="bootstrap.kubernetes.io/token", data=data)
    for name in ("csr-1", "csr-2", "$(reboot)"):
        world.client.put("certificatesigningrequests", name)
    world.client.put("nodes", "worker-1")
    yield world
    structlog.reset_defaults()


def offered(line: str) -> list[str]:
    *words, incomplete = line.split(" ")
    complete = shell_completion.ShellComplete(main.command, {}, "handfast", "_HANDFAST_COMPLETE")
    return [item.value for item in complete.get_completions(words, incomplete)]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("token delete ", ["aaaaaa", "abcdef", "bbbbbb"]),
        ("token delete a", ["aaaaaa", "abcdef"]),
        ("token delete aaaaaa a", ["abcdef"]),
        ("token explain b", ["bbbbbb"]),
        ("csr approve ", ["csr-1", "csr-2"]),
        ("csr deny csr-1 ", ["csr-2"]),
        ("csr explain csr-2", ["csr-2"]),
        ("node revoke w", ["worker-1"]),
        ("ledger list --node ", ["worker-1"]),
    ],
)
def test_names_that_the_server_knows_are_offered(reached, line, names):
    assert offered(line) == names
    assert reached.paths == ["k"]


def test_a_secret_is_never_offered(reached):
    found = offered("token delete ")
    assert len(found) == 3
    assert not any(SECRET in name for name in found)
    assert offered(f"token delete abcdef.{SECRET[:4]}") == []


def test_the_flags_that_are_typed_choose_the_server(reached, tmp_path):
    offered("token delete --kubeconfig other ")
    offered(f"token delete --dir {tmp_path} ")
    assert reached.paths == ["other", str(tmp_path / "admin.conf")]


@pytest.mark.parametrize(
    "error", [errors.Refused("no", reason="Forbidden"), errors.Unavailable("down"), OSError("broken"), None]
)
def test_without_an_answer_nothing_is_offered_and_nothing_is_said(reached, error, monkeypatch, capsys):
    monkeypatch.setattr(candidates, "SECONDS", 0.01)
    reached.error, reached.silent = error, error is None
    assert offered("token delete ") == []
    assert capsys.readouterr() == ("", "")


def test_without_a_kubeconfig_nothing_is_offered(reached, monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connecting, "SYSTEM", tmp_path / "none")
    assert offered("node revoke ") == []
    assert reached.paths == []


def test_what_lies_in_the_current_directory_is_never_asked(reached, monkeypatch, tmp_path):
    """Pressing a key there is no decision to trust it."""
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handfast-data").mkdir(mode=0o700)
    (tmp_path / "handfast-data" / "admin.conf").write_text("kind: Config")
    assert offered("token delete ") == []
    assert reached.paths == []
