# SPDX-License-Identifier: Apache-2.0
"""`handfast kubeconfig`: which file counts, what is printed, and with which exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog
import yaml

from handfast import errors
from handfast.bootstrap import cluster_info, kubeconfig
from handfast.cli import connecting, main, output
from handfast.client import cluster_cache
from handfast.pki import pins
from tests.unit.pki import making
from tests.world.tls_cluster import TOKEN

CA = making.ca("one")
PIN = str(pins.of_certificate(CA.der))
INFO = cluster_info.ClusterInfo(("https://a:6443", "https://b:6443"), CA.pem, "uid")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "HANDFAST_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    structlog.reset_defaults()


@pytest.fixture
def path(tmp_path):
    text = kubeconfig.render(
        kubeconfig.Kubeconfig(
            context="me",
            cluster=kubeconfig.Cluster(name="one", server="https://a:6443"),
            user=kubeconfig.User(name="me", token=TOKEN.text),
        )
    )
    made = tmp_path / "k"
    made.write_text(cluster_cache.replaced(text, "one", INFO, "https://a:6443"))
    return made


def run(*arguments):
    return output.run(main.command, ["kubeconfig", *(str(word) for word in arguments)])


FACTS = {
    "server": "https://a:6443",
    "servers": ["https://a:6443", "https://b:6443"],
    "clusterID": "uid",
    "certificateAuthorities": [{"pin": PIN, "notAfter": "2026-06-02T12:00:00Z"}],
}
LINES = (
    "  server      https://a:6443\n"
    "  servers     https://a:6443, https://b:6443\n"
    f"  CA          {PIN} until 2026-06-02T12:00:00Z\n"
    "  cluster id  uid\n"
)


class TestShow:
    def test_people_get_lines(self, path, capsys):
        assert run("show", "--kubeconfig", path) == 0
        assert capsys.readouterr().out == f"cluster one of {path}\n\n{LINES}"

    def test_for_machines(self, path, capsys, monkeypatch):
        monkeypatch.setenv("KUBECONFIG", str(path))
        assert run("show", "-o", "json") == 0
        out = capsys.readouterr().out
        assert json.loads(out) == {"kubeconfig": str(path), "cluster": "one", **FACTS}
        assert TOKEN.secret not in out

    def test_little_is_known(self, tmp_path, capsys):
        cluster = kubeconfig.Cluster(name="one", server="https://a")
        (tmp_path / "k").write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="x", cluster=cluster, user=None)))
        assert run("show", "--kubeconfig", "k", "--context", "x") == 0
        out = capsys.readouterr().out
        assert "  CA          the roots of this system\n" in out
        assert out.endswith("  cluster id  not known\n")

    @pytest.mark.parametrize(
        ("words", "reason"), [(("--kubeconfig", "none"), "FileNotFound"), (("--dir", "none"), "FileNotFound")]
    )
    def test_no_such_file(self, capsys, words, reason):
        assert run("show", *words) == 1
        err = capsys.readouterr().err
        assert "name another file with --kubeconfig" in err
        assert err.endswith(f"reason: {reason}\n")


class TestRefresh:
    @pytest.fixture
    def outcome(self, monkeypatch):
        made: dict[str, Any] = {"changed": ("servers",), "notes": ("one thing",), "error": None}

        async def refresh(path, search, context=""):
            made["asked"] = (str(path), context)
            if made["error"] is not None:
                raise made["error"]
            return cluster_cache.Refreshed(
                before=INFO, info=INFO, server="https://a:6443", changed=made["changed"], notes=made["notes"]
            )

        monkeypatch.setattr(cluster_cache, "refresh", refresh)
        return made

    def test_people_get_what_changed_and_notes(self, outcome, capsys):
        assert run("refresh", "--kubeconfig", "k", "--context", "c") == 0
        out, err = capsys.readouterr()
        assert out == f"k was brought up to date: servers\n\n{LINES}"
        assert err == "note: one thing\n"
        assert outcome["asked"] == ("k", "c")

    def test_nothing_new(self, outcome, capsys):
        outcome.update(changed=(), notes=())
        assert run("refresh", "--kubeconfig", "k") == 0
        assert capsys.readouterr() == ("k is up to date: server https://a:6443\n", "")

    def test_for_machines(self, outcome, capsys):
        assert run("refresh", "--kubeconfig", "k", "-o", "yaml") == 0
        assert yaml.safe_load(capsys.readouterr().out) == {"kubeconfig": "k", "changed": ["servers"], **FACTS}

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (errors.Refused("x", reason="AllRootsChanged", hint="y"), 1),
            (errors.Unavailable("x", reason="AllEndpointsMoved", hint="y"), 3),
        ],
    )
    def test_a_failure_is_told_with_hint_and_reason(self, outcome, capsys, error, code):
        outcome["error"] = error
        assert run("refresh", "--kubeconfig", "k") == code
        assert capsys.readouterr().err == f"error: x\nhint: y\nreason: {error.reason}\n"

    def test_no_kubeconfig_at_all(self, capsys, monkeypatch, tmp_path):
        monkeypatch.setattr(connecting, "SYSTEM", tmp_path / "none")
        assert run("refresh") == 1
        assert capsys.readouterr().err.endswith("reason: NoKubeconfig\n")
