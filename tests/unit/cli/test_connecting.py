# SPDX-License-Identifier: Apache-2.0
"""Which kubeconfig counts, and what is said when the credential in it is not enough."""

import click
import pytest
import structlog

from handfast import errors
from handfast.api import status
from handfast.bootstrap import kubeconfig
from handfast.cli import connecting


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "HANDFAST_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connecting, "SYSTEM", tmp_path / "etc" / "admin.conf")
    yield
    structlog.reset_defaults()


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


class TestOrder:
    def test_nothing(self):
        with pytest.raises(errors.Refused) as refused:
            chosen()
        assert refused.value.reason == "NoKubeconfig"

    def test_each_goes_before_the_next(self, tmp_path, monkeypatch):
        system = tmp_path / "etc" / "admin.conf"
        system.parent.mkdir()
        system.touch()
        assert chosen() == str(system)
        own = tmp_path / "handfast-data" / "admin.conf"
        own.parent.mkdir()
        own.touch()
        assert chosen() == str(own)
        monkeypatch.setenv("KUBECONFIG", "named")
        assert chosen() == "named"
        assert chosen("--dir", "other") == str(tmp_path / "other" / "admin.conf")
        assert chosen("--dir", "other", "--kubeconfig", "told") == "told"

    def test_several_files(self, monkeypatch):
        monkeypatch.setenv("KUBECONFIG", "a:b")
        with pytest.raises(errors.Refused, match=r"\$KUBECONFIG names several files: a:b") as refused:
            chosen()
        assert refused.value.reason == "BadKubeconfig"


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
